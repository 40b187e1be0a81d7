//! Certificate of the listeners, read again when its files change.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;

use crate::config::{ConfigError, TlsSettings, read_private};

/// Interval at which the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Certificate of the listeners, with its files.
#[derive(Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    /// Versions of the two files that were read last.
    used: [Version; 2],
    current: Arc<Current>,
}

/// Certificate that new connections get.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// Identity of a file's content without reading it: device, inode, size, and time of the last change.
type Version = Option<(u64, u64, u64, i64, i64)>;

impl Tls {
    /// Reads the certificate and its key, if the listeners speak TLS.
    ///
    /// # Errors
    /// If a file cannot be read, others can read the key, or the two do not belong together.
    pub fn load(settings: &TlsSettings) -> Result<Option<Tls>, ConfigError> {
        let Some((certificate, key)) = settings.files()? else { return Ok(None) };
        // Before the files are read, so that no change is missed.
        let used = versions(&certificate, &key);
        let current = Arc::new(Current(RwLock::new(Arc::new(read(&certificate, &key)?))));
        Ok(Some(Tls { certificate, key, used, current }))
    }

    /// Returns the configuration of the listeners. It takes each connection's certificate from this value.
    pub fn config(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::builder().with_no_client_auth().with_cert_resolver(self.current.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }

    /// Reads the files again whenever they change. Open connections go on. Files that cannot be used change nothing.
    pub async fn follow(self, stop: CancellationToken) {
        let (mut seen, mut used) = (self.used, self.used);
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            let now = versions(&self.certificate, &self.key);
            // The certificate and the key are replaced one after the other: wait until both are in place.
            let is_settled = now == std::mem::replace(&mut seen, now);
            if !is_settled || now == used {
                continue;
            }
            used = now;
            match read(&self.certificate, &self.key) {
                Ok(read) => {
                    *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(read);
                    tracing::info!(file = %self.certificate.display(), "read the new certificate");
                }
                Err(error) => tracing::error!(%error, "failed to read the new certificate; keeping the old one"),
            }
        }
    }
}

fn versions(certificate: &Path, key: &Path) -> [Version; 2] {
    [certificate, key].map(version)
}

fn version(path: &Path) -> Version {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}

fn read(certificate: &Path, key: &Path) -> Result<CertifiedKey, ConfigError> {
    let (of_certificate, of_key) = ("--tls-cert (LEDGER_TLS_CERT)", "--tls-key (LEDGER_TLS_KEY)");
    let wrong =
        |name: &str, path: &Path, problem: &dyn std::fmt::Display| ConfigError(format!("{name}: {} {problem}", path.display()));
    let pem =
        std::fs::read(certificate).map_err(|error| wrong(of_certificate, certificate, &format!("cannot be read: {error}")))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    let chain = chain.ok_or_else(|| wrong(of_certificate, certificate, &"has no certificate in PEM"))?;
    let secret = read_private(key, of_key)?;
    let parsed = PrivateKeyDer::from_pem_slice(secret.expose().as_bytes());
    // The parser's error may repeat a part of the key.
    let parsed = parsed.map_err(|_| wrong(of_key, key, &"has no private key in PEM"))?;
    let provider =
        CryptoProvider::get_default().ok_or_else(|| ConfigError("no provider of cryptography is installed".to_owned()))?;
    CertifiedKey::from_der(chain, parsed, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => wrong(of_key, key, &format!("does not belong to {}", certificate.display())),
        error => wrong(of_certificate, certificate, &format!("cannot be used with its key: {error}")),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_pair_that_does_not_fit_or_a_key_that_others_can_read_is_refused_without_its_content() {
        _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // another test may have done it
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, mode: u32| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        let [one, other] = [(); 2].map(|()| rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap());
        let certificate = write("one.pem", &one.cert.pem(), 0o644);
        let key = write("one.key", &one.signing_key.serialize_pem(), 0o600);
        assert!(read(&certificate, &key).is_ok());
        let broken = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
        for (certificate, key, expected) in [
            (&certificate, write("open.key", &one.signing_key.serialize_pem(), 0o644), "is open to other users (mode 0644)"),
            (&certificate, write("other.key", &other.signing_key.serialize_pem(), 0o600), "other.key does not belong to "),
            (&certificate, write("none.key", "secret", 0o600), "none.key has no private key in PEM"),
            (&certificate, write("broken.key", broken, 0o600), "cannot be used with its key"),
            (&write("none.pem", "secret", 0o644), key.clone(), "none.pem has no certificate in PEM"),
            (&directory.path().join("missing.pem"), key.clone(), "missing.pem cannot be read"),
        ] {
            let refused = read(certificate, &key).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
            assert!(refused.starts_with("--tls-") && !refused.contains("c2VjcmV0"), "{refused}");
        }
    }
}
