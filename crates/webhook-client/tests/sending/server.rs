//! The receiver on its own.

use super::*;

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let (receiver, mut arrived) = receiver(ReceiverResponse::Status(200)).await;
    let sender = sender(&receiver, LONG);
    let url = receiver.url();
    let body = Bytes::from(vec![b'.'; MAX_BODY_BYTES]);
    let outcome = sender.send(Delivery { body, ..delivery(&url) }).await;
    assert_eq!(outcome.response_status, Some(200));
    let body = Bytes::from(vec![b'.'; MAX_BODY_BYTES + 1]);
    let outcome = sender.send(Delivery { body, ..delivery(&url) }).await;
    assert_eq!(outcome.response_status, Some(413));
    receiver.stop().await;
    assert_eq!(arrived.recv().await.map(|r| r.body.len()), Some(MAX_BODY_BYTES));
    assert!(arrived.recv().await.is_none());
}

#[tokio::test]
async fn the_response_may_depend_on_the_request() {
    let certificate = Certificate::generate().unwrap();
    let (receiver, _arrived) =
        receiver_with(certificate, |received| match (received.path.as_str(), received.verify(SECRET, NOW)) {
            ("/down", _) => ReceiverResponse::Status(503),
            (_, Ok(())) => ReceiverResponse::StatusWithBody(200, received.event_id().unwrap().to_owned()),
            (_, Err(_)) => ReceiverResponse::Status(401),
        })
        .await;
    let sender = sender(&receiver, LONG);
    let url = receiver.url();
    let down = format!("{url}/down");
    assert_eq!(sender.send(delivery(&down)).await.response_status, Some(503));
    let outcome = sender.send(delivery(&url)).await;
    assert_eq!(outcome.response_body.as_deref(), Some("evt_1"));
    let forged = Delivery { secret: "another", ..delivery(&url) };
    assert_eq!(sender.send(forged).await.response_status, Some(401));
    receiver.stop().await;
}

#[tokio::test]
async fn stopping_is_quick_and_frees_the_port() {
    let (receiver, mut arrived) = receiver(ReceiverResponse::Hang).await;
    let address = receiver.address();
    let url = receiver.url();
    let sender = sender(&receiver, 10 * LONG);
    // One connection is silent, and the other never gets its response.
    let _silent = tokio::net::TcpStream::connect(address).await.unwrap();
    let stop = async {
        arrived.recv().await.expect("the request arrives");
        tokio::time::timeout(LONG, receiver.stop()).await.expect("stopping does not wait for the response");
    };
    let (outcome, ()) = tokio::join!(sender.send(delivery(&url)), stop);
    assert_eq!(outcome.error.as_deref(), Some("connection closed before an answer"));
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn dropping_a_receiver_stops_it() {
    let (receiver, mut arrived) = receiver(ReceiverResponse::Status(200)).await;
    drop(receiver);
    assert!(arrived.recv().await.is_none());
}

#[tokio::test]
async fn a_saved_certificate_is_loaded_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deeper");
    let first = Certificate::load_or_generate(&path).unwrap();
    let second = Certificate::load_or_generate(&path).unwrap();
    assert_eq!(first.ca_pem(), second.ca_pem());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = path.join("receiver-key.pem").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let (receiver, _arrived) = receiver_with(second, |_| ReceiverResponse::Status(200)).await;
    let sender = sender_with(first.ca_pem(), LONG, &["127.0.0.0/8", "::1/128"]);
    assert!(sender.send(delivery(&receiver.url())).await.succeeded());

    std::fs::write(path.join("receiver-key.pem"), "damaged").unwrap();
    let loaded = Certificate::load_or_generate(&path);
    assert!(matches!(loaded, Err(ReceiverError::CertificateFile)));
}
