//! Connections: reused when they can be, closed when they cannot.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpStream;

use super::*;

#[derive(Default)]
struct Counts {
    made: AtomicUsize,
    open: AtomicUsize,
}

/// Passes connections on to the receiver and counts them.
async fn counting_relay(target: SocketAddr) -> (String, Arc<Counts>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let counts = Arc::new(Counts::default());
    let counted = counts.clone();
    tokio::spawn(async move {
        loop {
            let (mut inward, _) = listener.accept().await.unwrap();
            let counted = counted.clone();
            counted.made.fetch_add(1, Ordering::SeqCst);
            counted.open.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut outward = TcpStream::connect(target).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut inward, &mut outward).await;
                counted.open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    (url, counts)
}

#[tokio::test]
async fn a_connection_is_reused() {
    let (receiver, _arrived) = receiver(Answer::StatusWithBody(200, "ok".to_owned())).await;
    let (url, counts) = counting_relay(receiver.address()).await;
    let sender = sender(&receiver, LONG);
    for _ in 0..50 {
        assert!(sender.send(delivery(&url)).await.succeeded());
    }
    assert_eq!(counts.made.load(Ordering::SeqCst), 1);
    assert_eq!(counts.open.load(Ordering::SeqCst), 1);
    receiver.stop().await;
}

#[tokio::test]
async fn no_connection_outlives_a_send_that_was_given_up() {
    let drip = Duration::from_millis(10);
    for answer in [
        Answer::Hang,
        Answer::Misbehave(Misbehaviour::InformationalFlood),
        Answer::Misbehave(Misbehaviour::HeaderFlood),
        Answer::Misbehave(Misbehaviour::DripHeaders(drip)),
        Answer::Misbehave(Misbehaviour::DripBody(200, drip)),
        Answer::Misbehave(Misbehaviour::EndlessBody(200)),
        Answer::Misbehave(Misbehaviour::RawThenHang("HTTP/1.1 200 OK\r\n\r\n.".into())),
        Answer::Misbehave(Misbehaviour::RawThenHang("garbage\r\n\r\n".into())),
    ] {
        let shown = format!("{answer:?}");
        let (receiver, _arrived) = receiver(answer).await;
        let (url, counts) = counting_relay(receiver.address()).await;
        let sender = sender(&receiver, SHORT);
        sender.send(delivery(&url)).await;
        let given_up = Instant::now();
        while counts.open.load(Ordering::SeqCst) > 0 {
            assert!(given_up.elapsed() < Duration::from_secs(2), "still open: {shown}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(counts.made.load(Ordering::SeqCst), 1, "{shown}");
        receiver.stop().await;
    }
}

#[tokio::test]
async fn a_receiver_that_closes_after_each_answer_is_dialled_again() {
    let once = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let (receiver, _arrived) = receiver(Answer::Misbehave(Misbehaviour::Raw(once.into()))).await;
    let (url, counts) = counting_relay(receiver.address()).await;
    let sender = sender(&receiver, LONG);
    for _ in 0..10 {
        let outcome = sender.send(delivery(&url)).await;
        assert!(outcome.succeeded(), "{outcome:?}");
    }
    assert_eq!(counts.made.load(Ordering::SeqCst), 10);
    receiver.stop().await;
}

#[tokio::test]
async fn a_second_answer_does_not_answer_the_next_request() {
    // Response splitting: what follows an answer on the wire must be thrown away.
    let two = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 299 Planted\r\nContent-Length: 0\r\n\r\n";
    let how = Misbehaviour::RawThenHang(two.into());
    let (receiver, _arrived) = receiver(Answer::Misbehave(how)).await;
    let sender = sender(&receiver, LONG);
    for _ in 0..5 {
        let outcome = sender.send(delivery(&receiver.url())).await;
        assert_ne!(outcome.response_status, Some(299));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    receiver.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sends_at_once_get_each_their_own_answer() {
    let certificate = Certificate::generate().unwrap();
    let (receiver, mut arrived) = receiver_with(certificate, |received| {
        assert_eq!(received.verify(SECRET, NOW), Ok(()));
        Answer::StatusWithBody(200, received.event_id().unwrap().to_owned())
    })
    .await;
    let sender = Arc::new(sender(&receiver, LONG));
    let url: Arc<str> = receiver.url().into();
    let lanes = (0..32).map(|lane| {
        let (sender, url) = (sender.clone(), url.clone());
        tokio::spawn(async move {
            for turn in 0..20 {
                let event_id = format!("evt_{lane}_{turn}");
                let body = Bytes::from(format!("{{\"event_id\":\"{event_id}\"}}"));
                let sent = Delivery { event_id: &event_id, body, ..delivery(&url) };
                let outcome = sender.send(sent).await;
                assert_eq!(outcome.response_body.as_ref(), Some(&event_id));
            }
        })
    });
    futures::future::try_join_all(lanes).await.unwrap();
    receiver.stop().await;
    let mut seen = std::collections::HashSet::new();
    while let Some(received) = arrived.recv().await {
        assert!(seen.insert(received.event_id().unwrap().to_owned()));
    }
    assert_eq!(seen.len(), 32 * 20);
}
