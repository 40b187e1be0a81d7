//! Listeners that speak TLS by themselves.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use reqwest::StatusCode;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::operators::operator_url;
use super::wire::{Wire, address};
use crate::support::postgres;
use crate::support::program::{DEADLINE, OPERATOR_TOKEN, Program, run, write_private};
use crate::support::wait::until;

/// Certificate of a node, which clients trust as its own authority, in the files that the node reads.
struct Files {
    directory: tempfile::TempDir,
    generated: rcgen::CertifiedKey<rcgen::KeyPair>,
}

impl Files {
    fn generate() -> Files {
        let files = Files { directory: tempfile::tempdir().unwrap(), generated: certificate() };
        files.write();
        files
    }

    fn paths(&self) -> [PathBuf; 2] {
        ["tls.pem", "tls.key"].map(|name| self.directory.path().join(name))
    }

    fn write(&self) {
        let [certificate, key] = self.paths();
        std::fs::write(certificate, self.generated.cert.pem()).unwrap();
        write_private(&key, &self.generated.signing_key.serialize_pem());
    }

    /// Starts a node with these files.
    async fn node(&self, database_url: &str, more: &[&str]) -> Program {
        let [certificate, key] = self.paths();
        let files = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap(), "--roles", "api"];
        Program::start(database_url, &[&files, more].concat()).await
    }

    /// Returns a client that trusts this certificate alone, and opens a connection for each request.
    fn client(&self) -> reqwest::Client {
        let root = reqwest::Certificate::from_pem(self.generated.cert.pem().as_bytes()).unwrap();
        reqwest::Client::builder().tls_certs_only([root]).pool_max_idle_per_host(0).timeout(DEADLINE).build().unwrap()
    }

    /// Opens a connection of a client that trusts this certificate alone.
    async fn connect(&self, program: &Program) -> TlsStream<TcpStream> {
        _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // another test may have done it
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.generated.cert.der().clone()).unwrap();
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(address(&program.url())).await.unwrap();
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
    }
}

fn certificate() -> rcgen::CertifiedKey<rcgen::KeyPair> {
    rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap()
}

fn https(url: &str, path: &str) -> String {
    format!("{}{path}", url.replacen("http://", "https://", 1))
}

async fn status(client: &reqwest::Client, url: &str) -> Option<StatusCode> {
    client.get(url).bearer_auth(OPERATOR_TOKEN).send().await.ok().map(|answer| answer.status())
}

async fn is_served(stream: &mut TlsStream<TcpStream>) -> bool {
    if stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.is_err() {
        return false;
    }
    let mut answer = vec![];
    let reading = async {
        while !answer.ends_with(b"}") {
            if stream.read_buf(&mut answer).await.unwrap_or(0) == 0 {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.expect("an answer in time");
    answer.starts_with(b"HTTP/1.1 200 ")
}

#[tokio::test(flavor = "multi_thread")]
async fn both_listeners_serve_https_and_nothing_else() {
    let (database, files) = (postgres::database().await, Files::generate());
    let program = files.node(&database.url, &["--operator-listen", "127.0.0.1:0"]).await;
    let (clients, operators) = (program.url(), operator_url(&program));
    assert_eq!(status(&files.client(), &https(&clients, "/healthz")).await, Some(StatusCode::OK));
    assert_eq!(status(&files.client(), &https(&operators, "/metrics")).await, Some(StatusCode::OK));
    assert_eq!(status(&Files::generate().client(), &https(&clients, "/healthz")).await, None, "another certificate is trusted");
    for url in [&clients, &operators] {
        assert_eq!(status(&reqwest::Client::new(), &format!("{url}/healthz")).await, None, "plain HTTP is not answered");
    }
    // The commands trust what the platform trusts.
    let [certificate, _] = files.paths();
    let mut call = crate::support::program::program(files.directory.path());
    call.args(["call", "GET", "/healthz", "--url", &https(&clients, "")]).env("SSL_CERT_FILE", certificate);
    let called = run(&mut call).await;
    assert!(called.status.success(), "{}", String::from_utf8_lossy(&called.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_certificate_is_read_while_connections_go_on() {
    let (database, mut files) = (postgres::database().await, Files::generate());
    let program = files.node(&database.url, &[]).await;
    let url = https(&program.url(), "/healthz");
    let (old, mut open) = (files.client(), files.connect(&program).await);
    assert!(is_served(&mut open).await);

    files.generated = certificate();
    files.write();
    let new = files.client();
    until("the new certificate is served", async || status(&new, &url).await.is_some()).await;
    assert_eq!(status(&old, &url).await, None, "the old certificate is not served any more");
    assert!(is_served(&mut open).await, "a connection with the old certificate goes on");

    // A file that is no certificate, a key of another certificate, and a key that others can read.
    let [certificate, key] = files.paths();
    let other = Files::generate().generated;
    let failures = || program.log().matches("failed to read the new certificate").count();
    std::fs::write(&certificate, "broken").unwrap();
    until("the broken file is reported", async || failures() == 1).await;
    assert_eq!(status(&new, &url).await, Some(StatusCode::OK), "the last good certificate is served");
    std::fs::write(&certificate, other.cert.pem()).unwrap();
    until("the wrong pair is reported", async || failures() == 2).await;
    assert!(program.log().contains("does not belong to"), "{}", program.log());
    files.write();
    std::fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    until("the open key is reported", async || failures() == 3).await;
    assert!(program.log().contains("is open to other users (mode 0644)"), "{}", program.log());
    assert_eq!(status(&new, &url).await, Some(StatusCode::OK));
    assert!(is_served(&mut open).await);
    assert!(!program.log().contains("PRIVATE KEY"), "{}", program.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_handshakes_are_ended_and_new_clients_are_served_meanwhile() {
    let (database, files) = (postgres::database().await, Files::generate());
    let program = files.node(&database.url, &["--connections-per-address", "8"]).await;
    let url = https(&program.url(), "/healthz");
    // The header of a handshake's record of 512 bytes, and nothing of it.
    let mut slow = vec![];
    for _ in 0..8 {
        let mut wire = Wire::open(&program.url()).await;
        wire.send([0x16, 3, 1, 2, 0]).await;
        slow.push(wire);
    }
    let mut silent = Wire::from("127.0.4.1", &program.url()).await;
    for n in 0..4 {
        assert_eq!(status(&files.client(), &url).await, Some(StatusCode::OK), "newcomer {n} is served in place of a slow one");
    }
    until("every unfinished handshake is ended", async || {
        for wire in &mut slow {
            _ = wire.stream.write(&[0]).await; // some are closed by now
        }
        slow.iter_mut().all(Wire::has_ended) && silent.has_ended()
    })
    .await;
    let metrics = files.client().get(https(&program.url(), "/metrics")).bearer_auth(OPERATOR_TOKEN).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for reason in ["evicted", "slow_head"] {
        let none = format!("ledger_client_connections_ended_total{{reason=\"{reason}\"}} 0\n");
        assert!(metrics.contains(&format!("{{reason=\"{reason}\"}}")) && !metrics.contains(&none), "{reason}: {metrics}");
    }
}

/// The layer of TLS accepts a response into its buffer before the client takes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_no_response_is_ended() {
    let (database, files) = (postgres::database().await, Files::generate());
    let program = files.node(&database.url, &[]).await;
    let (reader, mut writer) = tokio::io::split(files.connect(&program).await);
    let requests = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(50_000);
    let ended = tokio::time::timeout(DEADLINE, async { while writer.write_all(requests.as_bytes()).await.is_ok() {} });
    ended.await.expect("the connection is ended in time");
    drop(reader);
    let metrics = files.client().get(https(&program.url(), "/metrics")).bearer_auth(OPERATOR_TOKEN).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    assert!(metrics.contains("ledger_client_connections_ended_total{reason=\"slow_reader\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn a_node_without_a_key_or_with_one_that_others_can_read_does_not_start() {
    let (database, files) = (postgres::database().await, Files::generate());
    let [certificate, key] = files.paths();
    let start = async |arguments: &[&str]| {
        let mut serve = crate::support::program::program(&files.directory.path().join("data"));
        serve.args(["serve", "--database-url", &database.url, "--listen", "127.0.0.1:0"]).args(arguments);
        let ended = run(&mut serve).await;
        assert!(!ended.status.success());
        String::from_utf8(ended.stderr).unwrap()
    };
    let (certificate, shown) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let half = start(&["--tls-cert", certificate]).await;
    assert_eq!(half, "error: --tls-cert (LEDGER_TLS_CERT) needs --tls-key (LEDGER_TLS_KEY)\n");
    std::fs::set_permissions(&key, Permissions::from_mode(0o604)).unwrap();
    let open = start(&["--tls-cert", certificate, "--tls-key", shown]).await;
    let expected = format!("error: --tls-key (LEDGER_TLS_KEY): {shown} is open to other users (mode 0604): chmod 600 {shown}\n");
    assert!(open.ends_with(&expected), "{open}");
}
