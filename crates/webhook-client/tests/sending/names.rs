//! Name resolution: the sender checks and dials exactly the addresses that the lookup returns.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Mutex;
use std::time::Instant;

use futures::FutureExt;
use tokio::net::{TcpSocket, TcpStream};
use url::Host;

use super::targets::plain_server;
use super::*;
use webhook_client::address::AddressFilter;
use webhook_client::resolver::{Lookup, Resolver};

/// Returns a lookup that gives these answers in turn and repeats the last one, and the list of names it was asked for.
pub(super) fn answers(given: Vec<Vec<&str>>) -> (Lookup, Arc<Mutex<Vec<String>>>) {
    let mut given: Vec<Vec<SocketAddr>> = given
        .into_iter()
        .map(|a| a.into_iter().map(|ip| (ip.parse::<std::net::IpAddr>().unwrap(), 0).into()).collect())
        .collect();
    given.reverse();
    let (given, asked) = (Mutex::new(given), Arc::new(Mutex::new(vec![])));
    let kept = asked.clone();
    let lookup: Lookup = Arc::new(move |name| {
        kept.lock().unwrap().push(name);
        let mut given = given.lock().unwrap();
        let answer = if given.len() > 1 { given.pop() } else { given.last().cloned() };
        async move { answer.ok_or_else(|| io::Error::other("no such name")) }.boxed()
    });
    (lookup, asked)
}

fn sender_asking(ca_pem: &str, lookup: Lookup) -> Sender {
    let settings = settings(ca_pem, LONG, &["127.0.0.1/32"]);
    let filter = AddressFilter { allowed: settings.allowed_nets.clone() };
    Sender::with_resolver(settings, Resolver::with(filter, lookup)).unwrap()
}

#[tokio::test]
async fn one_forbidden_address_refuses_the_name() {
    let (receiver, mut arrived) = receiver(ReceiverResponse::Status(200)).await;
    for (answer, refused) in [
        (vec!["127.0.0.1", "10.0.0.1"], "10.0.0.1"),
        (vec!["10.0.0.1", "127.0.0.1"], "10.0.0.1"),
        (vec!["127.0.0.1", "::ffff:169.254.169.254"], "169.254.169.254"),
        (vec!["127.0.0.1", "64:ff9b::a9fe:a9fe"], "64:ff9b::a9fe:a9fe"),
        (vec!["2002:7f00:1::", "127.0.0.1"], "2002:7f00:1::"),
        (vec!["2001:0:4136:e378:8000:63bf:3fff:fdd2"], "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
        (vec!["fe80::1"], "fe80::1"),
    ] {
        let (lookup, _) = answers(vec![answer]);
        let outcome = sender_asking(receiver.ca_pem(), lookup).send(delivery(&receiver.url())).await;
        assert_eq!(outcome.error, Some(format!("address {refused} is not allowed")));
    }
    let (lookup, _) = answers(vec![vec![]]);
    let outcome = sender_asking(receiver.ca_pem(), lookup).send(delivery(&receiver.url())).await;
    assert_eq!(outcome.error.as_deref(), Some("the name has no address"));
    receiver.stop().await;
    assert!(arrived.recv().await.is_none(), "nothing was sent");
}

#[tokio::test]
async fn a_name_is_checked_again_in_every_attempt() {
    let once = "HTTP/1.1 500 Down\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let (receiver, _arrived) = receiver(misbehave(Misbehaviour::Raw(once.into()))).await;
    let (lookup, asked) = answers(vec![vec!["127.0.0.1"], vec!["10.0.0.1"], vec!["127.0.0.1"]]);
    let sender = sender_asking(receiver.ca_pem(), lookup);
    let url = receiver.url();
    assert_eq!(sender.send(delivery(&url)).await.response_status, Some(500));
    assert_eq!(sender.send(delivery(&url)).await.error.as_deref(), Some("address 10.0.0.1 is not allowed"));
    assert_eq!(sender.send(delivery(&url)).await.response_status, Some(500));
    assert_eq!(*asked.lock().unwrap(), ["localhost"; 3], "one lookup per attempt");
    receiver.stop().await;
}

#[tokio::test]
async fn an_internationalized_name_is_resolved_verified_and_sent_in_ascii_form() {
    let certificate = Certificate::generate_for(&["xn--bcher-kva.example"], 2020, 2050).unwrap();
    let (receiver, mut arrived) = receiver_with(certificate, |_| ReceiverResponse::Status(200)).await;
    let (lookup, asked) = answers(vec![vec!["127.0.0.1"]]);
    let port = receiver.address().port();
    let outcome =
        sender_asking(receiver.ca_pem(), lookup).send(delivery(&format!("https://B\u{fc}cher.example:{port}/h\u{f6}r"))).await;
    assert!(outcome.succeeded(), "{outcome:?}");
    assert_eq!(*asked.lock().unwrap(), ["xn--bcher-kva.example"]);
    let received = arrived.recv().await.unwrap();
    assert_eq!(received.header("host"), Some(&*format!("xn--bcher-kva.example:{port}")));
    assert_eq!(received.path, "/h%C3%B6r");
    receiver.stop().await;
}

#[tokio::test]
async fn a_dead_address_does_not_block_the_next_one() {
    let (receiver, _arrived) = receiver(ReceiverResponse::Status(200)).await;
    // Nothing listens on the first address, and the second never answers.
    let settings = settings(receiver.ca_pem(), LONG, &["127.0.0.0/8", "198.51.100.0/24"]);
    let filter = AddressFilter { allowed: settings.allowed_nets.clone() };
    let (lookup, _) = answers(vec![vec!["127.0.0.9", "198.51.100.1", "127.0.0.1"]]);
    let sender = Sender::with_resolver(settings, Resolver::with(filter, lookup)).unwrap();
    let outcome = sender.send(delivery(&receiver.url())).await;
    assert!(outcome.succeeded(), "{outcome:?}");
    receiver.stop().await;
}

/// Returns a lookup that takes this long, and never ends for names that begin with "dead". Also returns the names it was
/// asked for.
fn taking(pause: Duration) -> (Lookup, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(vec![]));
    let kept = asked.clone();
    let lookup: Lookup = Arc::new(move |name: String| {
        kept.lock().unwrap().push(name.clone());
        async move {
            if name.starts_with("dead") {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(pause).await; // the duration of the lookup
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))])
        }
        .boxed()
    });
    (lookup, asked)
}

#[tokio::test]
async fn hanging_lookups_do_not_delay_other_names() {
    let (lookup, asked) = taking(Duration::ZERO);
    let resolver = Arc::new(Resolver::with(AddressFilter { allowed: vec!["127.0.0.1/32".parse().unwrap()] }, lookup));
    let resolve = async |name: &str| {
        let host = Host::Domain(name.to_owned());
        let resolved = tokio::time::timeout(LONG, resolver.resolve(&host, 443)).await;
        resolved.unwrap_or_else(|_| panic!("{name} waits for others")).unwrap();
    };
    // Start many sends for each of many names.
    let hang = async |names: usize| {
        for name in 0..names {
            for _ in 0..10 {
                let (resolver, host) = (resolver.clone(), Host::Domain(format!("dead-{name}.example")));
                tokio::spawn(async move { resolver.resolve(&host, 443).await });
            }
        }
        while asked.lock().unwrap().len() < 50 {
            tokio::task::yield_now().await;
        }
    };
    resolve("known.example").await;
    hang(100).await;
    resolve("new.example").await;
    hang(2_000).await;
    for _ in 0..100 {
        resolve("known.example").await;
    }
    let mut dead: Vec<String> = asked.lock().unwrap().iter().filter(|name| name.starts_with("dead")).cloned().collect();
    let all = dead.len();
    dead.sort_unstable();
    dead.dedup();
    assert_eq!(dead.len(), all, "concurrent callers share a lookup");
    assert!(all <= 256, "lookups stay within their threads: {all}");
}

#[tokio::test]
async fn a_connection_is_renewed_so_that_a_moved_name_is_followed() {
    let (old, mut at_old) = receiver(ReceiverResponse::Status(200)).await;
    let new = ReceiverSettings {
        listen: SocketAddr::from(([127, 0, 0, 2], old.address().port())),
        service_name: "SERVICE".to_owned(),
        certificate: Certificate::generate().unwrap(),
        respond: Arc::new(|_| ReceiverResponse::Status(200)),
    };
    let (new, mut at_new) = Receiver::start(new).await.unwrap();
    let settings = settings(&[old.ca_pem(), new.ca_pem()].concat(), LONG, &["127.0.0.0/8"]);
    let sender = |connection_lifetime| {
        let filter = AddressFilter { allowed: settings.allowed_nets.clone() };
        let (lookup, _) = answers(vec![vec!["127.0.0.1"], vec!["127.0.0.2"]]);
        Sender::with_resolver(SenderSettings { connection_lifetime, ..settings.clone() }, Resolver::with(filter, lookup)).unwrap()
    };
    let (url, kept) = (old.url(), sender(CONNECTION_LIFETIME));
    for _ in 0..20 {
        assert!(kept.send(delivery(&url)).await.succeeded());
        assert!(at_old.try_recv().is_ok(), "sent over the open connection");
    }
    let renewed = sender(Duration::from_millis(100));
    let moved = tokio::time::timeout(LONG, async {
        while at_new.try_recv().is_err() {
            // The connection is never idle for long.
            assert!(renewed.send(delivery(&url)).await.succeeded());
        }
    });
    moved.await.expect("the sender follows the name to its new address");
    assert!(at_old.try_recv().is_ok(), "the first sends used the old address");
    old.stop().await;
    new.stop().await;
}

/// Returns a lookup that answers every name with these addresses.
fn always(addresses: Vec<SocketAddr>) -> Lookup {
    Arc::new(move |_| std::future::ready(Ok(addresses.clone())).boxed())
}

/// Returns this many loopback addresses.
fn of_this_machine(count: usize) -> Vec<SocketAddr> {
    (0..count).map(|n| SocketAddr::from(([127, 0, 1 + (n / 250) as u8, 1 + (n % 250) as u8], 0))).collect()
}

#[tokio::test]
async fn all_addresses_are_checked_and_the_first_eight_are_dialled() {
    let (receiver, mut arrived) = receiver(ReceiverResponse::Status(200)).await;
    let (url, settings) = (receiver.url(), settings(receiver.ca_pem(), LONG, &["127.0.0.0/8"]));
    let send = async |addresses: Vec<SocketAddr>| {
        let filter = AddressFilter { allowed: settings.allowed_nets.clone() };
        let sender = Sender::with_resolver(settings.clone(), Resolver::with(filter, always(addresses))).unwrap();
        sender.send(delivery(&url)).await
    };
    // Nothing listens on the addresses before the receiver's.
    let dead_before_it = |count| [of_this_machine(count), vec![receiver.address()], of_this_machine(300)].concat();
    let outcome = send(dead_before_it(7)).await;
    assert!(outcome.succeeded(), "{outcome:?}");
    assert_eq!(send(dead_before_it(8)).await.error.as_deref(), Some("connection refused"));
    let forbidden = SocketAddr::from(([10, 0, 0, 1], 0));
    let outcome = send([dead_before_it(7), vec![forbidden]].concat()).await;
    assert_eq!(outcome.error.as_deref(), Some("address 10.0.0.1 is not allowed"));
    receiver.stop().await;
    assert_eq!(std::iter::from_fn(|| arrived.try_recv().ok()).count(), 1);
}

/// Returns the addresses that this process is dialling at a port, one per socket.
///
/// The kernel's table alone is not enough. It is not a snapshot: while other sockets come and go, a socket may appear in it
/// twice. A socket that was closed here stays in it while a child that another test has just forked holds its copy. The
/// child drops the copy when it runs its program. So only sockets that are open in this process count, each once.
fn dialled(port: u16) -> Vec<String> {
    const SYN_SENT: &str = "02";
    let open: HashSet<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|descriptor| std::fs::read_link(descriptor.ok()?.path()).ok())
        .filter_map(|target| Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let lines = table.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let of_port = lines.filter(|fields| fields[3] == SYN_SENT && fields[2].ends_with(&format!(":{port:04X}")));
    // The key is the inode.
    let sockets: HashMap<String, String> =
        of_port.filter(|fields| open.contains(fields[9])).map(|fields| (fields[9].to_owned(), fields[2].to_owned())).collect();
    sockets.into_values().collect()
}

#[tokio::test]
async fn a_name_with_hundreds_of_dead_addresses_opens_few_sockets() {
    // Dialled one after the other, the eighth address has its turn after 7 s.
    const DEADLINE: Duration = Duration::from_secs(25);
    // With a limit of one connection the sender dials one address after the other.
    let sends = [(64, 2), (1, 1)].map(async |(max_connections, at_once)| {
        let (full, _waiting) = full_backlog([0, 0, 0, 0]).await;
        let port = full.local_addr().unwrap().port();
        let settings = settings(Certificate::generate().unwrap().ca_pem(), DEADLINE, &["127.0.0.0/8"]);
        let filter = AddressFilter { allowed: settings.allowed_nets.clone() };
        let resolver = Resolver::with(filter, always(of_this_machine(300)));
        let sender = Sender::with_resolver(SenderSettings { max_connections, ..settings }, resolver).unwrap();
        let (mut most, mut seen) = (0, HashSet::new());
        let url = format!("https://many.example:{port}/");
        let sending = sender.send(delivery(&url));
        tokio::pin!(sending);
        let outcome = loop {
            // The open connections are sampled until the send ends. After a pause of the machine the sample comes first, so
            // that the send gives up no address unseen.
            tokio::select! {
                biased;
                () = tokio::time::sleep(Duration::from_millis(20)) => {
                    let now = dialled(port);
                    most = most.max(now.len());
                    seen.extend(now);
                }
                outcome = &mut sending => break outcome,
            }
        };
        assert_eq!(outcome.error.as_deref(), Some("no connection within 25 s"));
        assert_eq!((most, seen.len()), (at_once, 8), "at once and in all, with {max_connections} connections");
        assert!(dialled(port).is_empty());
    });
    futures::future::join_all(sends).await;
}

/// Returns the number of connections that wait at a listener of this machine to be accepted.
fn queued(port: u16) -> usize {
    const LISTEN: &str = "0A";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut lines = table.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let listener = lines.find(|fields| fields[3] == LISTEN && fields[1].ends_with(&format!(":{port:04X}")));
    listener.map_or(0, |fields| usize::from_str_radix(fields[4].split_once(':').unwrap().1, 16).unwrap())
}

/// Returns a listener on which connecting never ends: nothing accepts, and its backlog is full.
async fn full_backlog(ip: [u8; 4]) -> (TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((ip, 0))).unwrap();
    let listener = socket.listen(1).unwrap();
    let mut waiting = vec![];
    let port = listener.local_addr().unwrap().port();
    // Linux queues one connection more than the backlog.
    while waiting.len() < 2 {
        waiting.push(TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).await.unwrap());
        let queued = tokio::time::timeout(LONG, async {
            while queued(port) < waiting.len() {
                tokio::task::yield_now().await;
            }
        });
        queued.await.expect("the connection is queued");
    }
    (listener, waiting)
}

#[tokio::test]
async fn name_connection_handshake_answer_and_body_share_one_deadline() {
    const DEADLINE: Duration = Duration::from_secs(26);
    // One such delay fits into the deadline, even on a machine that pauses for ten seconds. Two do not.
    const LATE: Duration = Duration::from_secs(14);
    let drips = || Misbehaviour::DripBody(200, Duration::from_millis(20));
    let drips_late = misbehave(Misbehaviour::After(LATE, Box::new(drips())));
    let (prompt, _prompt) = receiver(ReceiverResponse::Status(200)).await;
    let (slow, _slow) = receiver(ReceiverResponse::Delayed(LATE, 200)).await;
    let (drip, _drip) = receiver(misbehave(drips())).await;
    let (late_drip, _late_drip) = receiver(drips_late).await;
    let receivers = [&prompt, &slow, &drip, &late_drip];
    let [prompt_url, slow_url, drip_url, late_drip_url] = receivers.map(Receiver::url);
    let (full, _waiting) = full_backlog([127, 0, 0, 1]).await;
    let full = format!("https://localhost:{}", full.local_addr().unwrap().port());
    let silent = format!("https://localhost:{}", plain_server(b"", false).await.port());
    let trusted = receivers.map(Receiver::ca_pem).concat();
    let (now, answered) = (Duration::ZERO, None);
    // Each case: delay of the lookup, URL, expected error, and whether the send lasts until the deadline.
    let cases = [
        (now, &prompt_url, answered, false),
        (LATE, &prompt_url, answered, false),
        (now, &slow_url, answered, false),
        (LATE, &slow_url, Some("no answer within 26 s"), true),
        (now, &full, Some("no connection within 26 s"), true),
        (LATE, &full, Some("no connection within 26 s"), true),
        (now, &silent, Some("no TLS handshake within 26 s"), true),
        (LATE, &silent, Some("no TLS handshake within 26 s"), true),
        (now, &"https://dead.example".to_owned(), Some("the name could not be resolved within 26 s"), true),
        // The status is in time and decides; the body gets the rest of the deadline.
        (now, &drip_url, answered, true),
        (LATE, &drip_url, answered, true),
        (now, &late_drip_url, answered, true),
        (LATE, &late_drip_url, Some("no answer within 26 s"), true),
    ];
    let sends = cases.map(async |(pause, url, error, until_the_end)| {
        let settings = settings(&trusted, DEADLINE, &["127.0.0.1/32"]);
        let filter = AddressFilter { allowed: settings.allowed_nets.clone() };
        let sender = Sender::with_resolver(settings, Resolver::with(filter, taking(pause).0)).unwrap();
        let started = Instant::now();
        let outcome = sender.send(delivery(url)).await;
        let took = started.elapsed();
        let shown = format!("{pause:?} {url} {took:?} {outcome:?}");
        assert_eq!((outcome.error.as_deref(), outcome.succeeded()), (error, error.is_none()), "{shown}");
        assert_eq!(took >= DEADLINE, until_the_end, "{shown}");
        // If a phase had its own deadline, a late phase followed by a hanging one would take both.
        assert!(took < LATE + DEADLINE, "{shown}");
        let at = Duration::from_millis(outcome.response_time_ms.try_into().unwrap());
        assert!(at <= took && (at >= DEADLINE) == error.is_some(), "{shown}");
    });
    futures::future::join_all(sends).await;
    for receiver in [prompt, slow, drip, late_drip] {
        receiver.stop().await;
    }
}
