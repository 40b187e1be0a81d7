//! Targets that the sender accepts, and the errors for those that it refuses.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use super::*;

#[tokio::test]
async fn certificates_are_verified() {
    let wrong_name = Certificate::generate_for(&["other.example"], 2020, 2050).unwrap();
    let expired = Certificate::generate_for(&["localhost"], 2019, 2020).unwrap();
    let early = Certificate::generate_for(&["localhost"], 2090, 2095).unwrap();
    for (certificate, error) in [
        (wrong_name, "TLS: certificate is not valid for this name"),
        (expired, "TLS: certificate has expired"),
        (early, "TLS: certificate is not valid yet"),
    ] {
        let (receiver, mut arrived) = receiver_with(certificate, |_| ReceiverResponse::Status(200)).await;
        let outcome = sender(&receiver, LONG).send(delivery(&receiver.url())).await;
        assert_eq!(outcome.error.as_deref(), Some(error));
        receiver.stop().await;
        assert!(arrived.recv().await.is_none(), "nothing is sent to such a receiver");
    }

    let (receiver, _arrived) = receiver(ReceiverResponse::Status(200)).await;
    let stranger = Certificate::generate().unwrap();
    let trusting_another = sender_with(stranger.ca_pem(), LONG, &["127.0.0.0/8", "::1/128"]);
    let outcome = trusting_another.send(delivery(&receiver.url())).await;
    assert_eq!(outcome.error.as_deref(), Some("TLS: unknown issuer"));
    // The certificate is valid for the address as well as for the name.
    let url = format!("https://127.0.0.1:{}/", receiver.address().port());
    assert!(sender(&receiver, LONG).send(delivery(&url)).await.succeeded());
    receiver.stop().await;
}

/// Starts a TCP server without TLS. It writes `bytes`, then closes the connection or waits.
pub(super) async fn plain_server(bytes: &'static [u8], closes: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(bytes).await;
            if !closes {
                let _ = stream.read(&mut [0; 1]).await;
            }
        }
    });
    address
}

#[tokio::test]
async fn a_failed_tls_handshake_is_described() {
    let ca = Certificate::generate().unwrap();
    for (bytes, closes, error) in [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), true, "TLS: the receiver does not speak TLS"),
        (b"", true, "connection closed while connecting"),
        (b"", false, "no TLS handshake within 12 s"),
        (b"\x15\x03\x01\x00\x02\x02\x28", true, "TLS: the receiver refused the handshake"),
        (b"\x15\x03\x03\x00\x02\x02\x46", true, "TLS: no common version or cipher"),
        (b"\x15\x03\x03\x00\x02\x02\x70", true, "TLS: the receiver does not know this name"),
        (b"\x15\x03\x03\x00\x02\x02\x74", true, "TLS: the receiver asks for a certificate of this service"),
    ] {
        let address = plain_server(bytes, closes).await;
        let sender = sender_with(ca.ca_pem(), SHORT, &["127.0.0.1/32"]);
        let outcome = sender.send(delivery(&format!("https://{address}/"))).await;
        assert_eq!(outcome.error.as_deref(), Some(error));
    }

    // Two receivers speak HTTP/2 only: one negotiates it, the other uses it without negotiation.
    let certificate = Certificate::generate().unwrap();
    for (protocols, error) in
        [(vec![b"h2".to_vec()], "TLS: the receiver does not speak HTTP/1.1"), (vec![], "not an HTTP answer")]
    {
        let mut tls = rustls::ServerConfig::clone(&certificate.server_config().unwrap());
        tls.alpn_protocols = protocols;
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            // An empty SETTINGS frame, then GOAWAY with PROTOCOL_ERROR.
            let frames = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01";
            stream.write_all(frames).await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
        });
        let sender = sender_with(certificate.ca_pem(), LONG, &["127.0.0.1/32"]);
        let outcome = sender.send(delivery(&format!("https://{address}/"))).await;
        assert_eq!(outcome.error.as_deref(), Some(error));
    }

    // The port is taken, and nothing listens on it.
    let nobody = TcpSocket::new_v4().unwrap();
    nobody.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = nobody.local_addr().unwrap();
    let sender = sender_with(ca.ca_pem(), LONG, &["127.0.0.1/32"]);
    let outcome = sender.send(delivery(&format!("https://{address}/"))).await;
    assert_eq!(outcome.error.as_deref(), Some("connection refused"));
}
