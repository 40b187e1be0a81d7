//! Connections are reused when possible, and closed otherwise.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;

#[derive(Default)]
struct Counts {
    made: AtomicUsize,
    open: AtomicUsize,
}

impl Counts {
    /// Waits until at most this many connections are open.
    async fn until_open(&self, most: usize, what: &str) {
        let closed = tokio::time::timeout(LONG, async {
            while self.open.load(Ordering::SeqCst) > most {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        closed.await.unwrap_or_else(|_| panic!("{} are still open: {what}", self.open.load(Ordering::SeqCst)));
    }
}

/// Relays connections to the receiver and counts them.
async fn counting_relay(target: SocketAddr) -> (String, Arc<Counts>) {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
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
    let (receiver, _arrived) = receiver(ReceiverResponse::StatusWithBody(200, "ok".to_owned())).await;
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
async fn no_connection_outlives_a_send_that_timed_out() {
    let drip = Duration::from_millis(10);
    let answers = [
        ReceiverResponse::Hang,
        misbehave(Misbehaviour::InformationalFlood),
        misbehave(Misbehaviour::HeaderFlood),
        misbehave(Misbehaviour::DripHeaders(drip)),
        misbehave(Misbehaviour::DripBody(200, drip)),
        misbehave(Misbehaviour::EndlessBody(200)),
        misbehave(Misbehaviour::RawThenHang("HTTP/1.1 200 OK\r\n\r\n.".into())),
        misbehave(Misbehaviour::RawThenHang("garbage\r\n\r\n".into())),
    ];
    let sends = answers.map(async |answer| {
        let shown = format!("{answer:?}");
        let (receiver, _arrived) = receiver(answer).await;
        let (url, counts) = counting_relay(receiver.address()).await;
        let sender = sender(&receiver, SHORT);
        sender.send(delivery(&url)).await;
        counts.until_open(0, &shown).await;
        assert_eq!(counts.made.load(Ordering::SeqCst), 1, "{shown}");
        receiver.stop().await;
    });
    futures::future::join_all(sends).await;
}

/// Starts a receiver that reads only the head of a request, sends `answer` if there is one, and stops reading until it is
/// notified. Then it reads to the end of the connection and returns the number of bytes.
async fn receiver_that_takes_nothing(certificate: &Certificate, answer: &'static [u8]) -> (String, Arc<Notify>, JoinHandle<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let acceptor = TlsAcceptor::from(certificate.server_config().unwrap());
    let goes_on = Arc::new(Notify::new());
    let told = goes_on.clone();
    let reading = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        let mut buffer = vec![0; 0x1_0000];
        assert!(stream.read(&mut buffer).await.unwrap() > 0, "the request arrives");
        stream.write_all(answer).await.unwrap();
        stream.flush().await.unwrap();
        told.notified().await;
        let mut taken = 0;
        // An end without a TLS close is an error, but still an end.
        while let Ok(n @ 1..) = stream.read(&mut buffer).await {
            taken += n as u64;
        }
        taken
    });
    (url, goes_on, reading)
}

#[tokio::test]
async fn a_receiver_that_stops_reading_cannot_hold_a_connection() {
    // More than the kernel buffers for a connection whose peer does not read.
    const BODY_BYTES: usize = 64 * 1024 * 1024;
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".as_slice();
    for (answer, status) in [(answer, Some(200)), (b"".as_slice(), None)] {
        let certificate = Certificate::generate().unwrap();
        let (url, goes_on, reading) = receiver_that_takes_nothing(&certificate, answer).await;
        let sender = sender_with(certificate.ca_pem(), SHORT, &["127.0.0.1/32"]);
        let body = Bytes::from(vec![b'.'; BODY_BYTES]);
        let outcome = sender.send(Delivery { body, ..delivery(&url) }).await;
        assert_eq!(outcome.response_status, status, "{outcome:?}");
        goes_on.notify_one();
        let taken = tokio::time::timeout(LONG, reading).await.expect("the connection has ended").unwrap();
        assert!(taken < BODY_BYTES as u64, "and nothing more was written: {taken}");
    }
}

#[tokio::test]
async fn a_receiver_that_closes_after_each_response_is_dialled_again() {
    let once = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let (receiver, _arrived) = receiver(misbehave(Misbehaviour::Raw(once.into()))).await;
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
async fn an_extra_response_does_not_answer_the_next_request() {
    // Response splitting: bytes after the end of a response must be discarded.
    let two = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 299 Planted\r\nContent-Length: 0\r\n\r\n";
    let how = Misbehaviour::RawThenHang(two.into());
    let (receiver, _arrived) = receiver(misbehave(how)).await;
    let sender = sender(&receiver, LONG);
    for _ in 0..5 {
        let outcome = sender.send(delivery(&receiver.url())).await;
        assert_ne!(outcome.response_status, Some(299));
        tokio::time::sleep(Duration::from_millis(20)).await; // the extra response arrives while the connection is idle
    }
    receiver.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_sends_each_get_their_own_response() {
    let certificate = Certificate::generate().unwrap();
    let (receiver, mut arrived) = receiver_with(certificate, |received| {
        assert_eq!(received.verify(SECRET, NOW), Ok(()));
        ReceiverResponse::StatusWithBody(200, received.event_id().unwrap().to_owned())
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

/// Returns whether a socket of this machine has an established connection to a port.
fn is_open_to(port: u16) -> bool {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table
        .lines()
        .skip(1)
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .any(|fields| fields[3] == ESTABLISHED && fields[2].ends_with(&format!(":{port:04X}")))
}

/// Starts a receiver, in its own thread, that answers one request per connection and then closes it without announcing that.
/// Counts the answered requests and the closed connections.
fn closing_receiver(certificate: &Certificate) -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let tls = certificate.server_config().unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    let closed = Arc::new(AtomicUsize::new(0));
    let (counted, gone) = (answered.clone(), closed.clone());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut session = rustls::ServerConnection::new(tls.clone()).unwrap();
            let mut tls = rustls::Stream::new(&mut session, &mut stream);
            let mut request = vec![];
            let mut buffer = [0; 4096];
            while !request.ends_with(BODY) {
                let Ok(n @ 1..) = tls.read(&mut buffer) else { break };
                request.extend_from_slice(&buffer[..n]);
            }
            if request.ends_with(BODY) {
                // Count the request before the sender can see the response.
                counted.fetch_add(1, Ordering::SeqCst);
                tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            }
            drop(stream);
            // A busy kernel delivers the end of the connection a moment later. Only then is the connection closed for the sender.
            while is_open_to(address.port()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            gone.fetch_add(1, Ordering::SeqCst);
        }
    });
    (address, answered, closed)
}

#[tokio::test]
async fn an_idle_connection_closed_by_the_receiver_costs_no_attempt() {
    let certificate = Certificate::generate().unwrap();
    let (address, answered, closed) = closing_receiver(&certificate);
    let sender = sender_with(certificate.ca_pem(), LONG, &["127.0.0.1/32"]);
    let url = format!("https://{address}/");
    for turn in 1..=10 {
        let outcome = sender.send(delivery(&url)).await;
        assert!(outcome.succeeded(), "{outcome:?}");
        assert_eq!(answered.load(Ordering::SeqCst), turn, "and nothing was sent twice");
        // The end of the connection arrives while this thread blocks, so the pool cannot notice it.
        while closed.load(Ordering::SeqCst) < turn {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[tokio::test]
async fn the_connection_limit_holds_for_any_number_of_origins() {
    const ORIGINS: u8 = 60;
    let hosts: Vec<String> = (1..=ORIGINS).map(|n| format!("127.0.1.{n}")).collect();
    let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let (receiver, _arrived) =
        receiver_with(Certificate::generate_for(&names, 2020, 2050).unwrap(), |_| ReceiverResponse::Status(200)).await;
    let (url, counts) = counting_relay(receiver.address()).await;
    let port = url.rsplit_once(':').unwrap().1;
    let sender = Arc::new(
        Sender::new(SenderSettings { max_connections: 16, ..settings(receiver.ca_pem(), LONG, &["127.0.0.0/8"]) }).unwrap(),
    );
    for _ in 0..3 {
        let sends = hosts.iter().map(|host| {
            let (sender, url) = (sender.clone(), format!("https://{host}:{port}/"));
            async move { sender.send(delivery(&url)).await }
        });
        for outcome in futures::future::join_all(sends).await {
            assert!(outcome.succeeded(), "{outcome:?}");
        }
        // The relay notices the end of a connection a moment later.
        counts.until_open(16, "after a round").await;
    }
    // Sends to one origin after the other keep the connections that were used last.
    let made = counts.made.load(Ordering::SeqCst);
    for _ in 0..5 {
        for host in &hosts[..10] {
            assert!(sender.send(delivery(&format!("https://{host}:{port}/"))).await.succeeded());
        }
    }
    assert!(counts.made.load(Ordering::SeqCst) <= made + 10, "the connections of ten origins are kept");
    receiver.stop().await;
}
