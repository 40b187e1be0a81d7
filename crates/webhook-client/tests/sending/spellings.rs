//! Alternative spellings of a host in a URL: the SSRF filter checks the address that the sender dials.

use std::net::IpAddr;

use super::names::answers;
use super::*;
use webhook_client::address::AddressFilter;
use webhook_client::resolver::Resolver;

/// Spellings of this machine that URL parsers accept.
const THIS_MACHINE: [&str; 13] = [
    "127.0.0.1",
    "127.1",
    "127.0.0.1.",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0X7F.0x0.0x0.0x1",
    "0177.0.0.1",
    "017700000001",
    "%31%32%37.0.0.1",
    "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
    "\u{2460}\u{2461}\u{2466}.0.0.\u{2460}",
    "127\u{3002}0\u{3002}0\u{3002}1",
];

/// Spellings of other addresses that are not public, each with the address that is dialled.
const ELSEWHERE: [(&str, &str); 19] = [
    ("0", "0.0.0.0"),
    ("0x0", "0.0.0.0"),
    ("10.1", "10.0.0.1"),
    ("167772161", "10.0.0.1"),
    ("192.168.257", "192.168.1.1"),
    ("0300.0250.1.1", "192.168.1.1"),
    ("169.254.169.254", "169.254.169.254"),
    ("0xa9fea9fe", "169.254.169.254"),
    ("2852039166", "169.254.169.254"),
    ("0251.0376.0251.0376", "169.254.169.254"),
    ("[::]", "::"),
    ("[::1]", "::1"),
    ("[::127.0.0.1]", "::7f00:1"),
    ("[::ffff:127.0.0.1]", "127.0.0.1"),
    ("[0:0:0:0:0:ffff:7f00:1]", "127.0.0.1"),
    ("[fd00:ec2::254]", "fd00:ec2::254"),
    ("[64:ff9b::a9fe:a9fe]", "64:ff9b::a9fe:a9fe"),
    ("[2002:7f00:1::]", "2002:7f00:1::"),
    ("[2001:0:4136:e378:8000:63bf:3fff:fdd2]", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
];

fn refused(address: &str) -> String {
    format!("address {} is not allowed", address.parse::<IpAddr>().unwrap())
}

#[tokio::test]
async fn an_address_is_refused_in_every_spelling_unless_an_operator_allows_it() {
    let (receiver, mut arrived) = receiver(ReceiverResponse::Status(200)).await;
    let port = receiver.address().port();
    let strict = sender_with(receiver.ca_pem(), LONG, &[]);
    let named = sender_with(receiver.ca_pem(), LONG, &["127.0.0.1/32"]);
    let url = |host: &str| format!("https://{host}:{port}/?key=hidden");
    for (host, address) in THIS_MACHINE.map(|host| (host, "127.0.0.1")).into_iter().chain(ELSEWHERE) {
        let outcome = strict.send(delivery(&url(host))).await;
        assert_eq!(outcome.error, Some(refused(address)), "{host}");
        assert_eq!(outcome.response_status, None, "{host}");
    }
    assert!(arrived.try_recv().is_err(), "nothing was sent");
    // Only the address counts: once the operator allows it, every spelling reaches the receiver.
    for host in THIS_MACHINE {
        let outcome = named.send(delivery(&url(host))).await;
        assert!(outcome.succeeded(), "{host}: {outcome:?}");
        let host = arrived.recv().await.unwrap().header("host").unwrap().to_owned();
        assert_eq!(host, format!("127.0.0.1:{port}"));
    }
    // Allowing an address does not allow other addresses that embed it.
    for (host, address) in ELSEWHERE.into_iter().filter(|(_, address)| *address != "127.0.0.1") {
        assert_eq!(named.send(delivery(&url(host))).await.error, Some(refused(address)), "{host}");
    }
    receiver.stop().await;
    assert!(arrived.recv().await.is_none());
}

#[tokio::test]
async fn neither_port_nor_user_name_changes_the_target() {
    let (receiver, mut arrived) = receiver(ReceiverResponse::Status(200)).await;
    let port = receiver.address().port();
    let strict = sender_with(receiver.ca_pem(), LONG, &[]);
    let named = sender_with(receiver.ca_pem(), LONG, &["127.0.0.1/32"]);
    for authority in ["127.0.0.1", "127.0.0.1:", "127.0.0.1:443", "127.0.0.1:22", "127.0.0.1:65535", "@127.0.0.1"] {
        let outcome = strict.send(delivery(&format!("https://{authority}/"))).await;
        assert_eq!(outcome.error, Some(refused("127.0.0.1")), "{authority}");
    }
    let user = "the URL must not contain a user name or a password";
    for (authority, error) in [
        (format!("user@127.0.0.1:{port}"), user),
        (format!("user:password@127.0.0.1:{port}"), user),
        (format!(":password@127.0.0.1:{port}"), user),
        (format!("example.com@127.0.0.1:{port}"), user),
        (format!("example.com:443@127.0.0.1:{port}"), user),
        (format!("127.0.0.1:{port}@example.com"), user),
        (format!("a%40b@127.0.0.1:{port}"), user),
        ("127.0.0.1:0".to_owned(), "the URL is not valid"),
        ("127.0.0.1:65536".to_owned(), "the URL is not valid"),
        (format!("127.0.0.1:{port}:{port}"), "the URL is not valid"),
        (format!("127.0.0.256:{port}"), "the URL is not valid"),
        (format!("0x7f000001.1:{port}"), "the URL is not valid"),
    ] {
        // The URL is refused even if this machine is allowed.
        for sender in [&strict, &named] {
            let outcome = sender.send(delivery(&format!("https://{authority}/"))).await;
            assert_eq!(outcome.error.as_deref(), Some(error), "{authority}");
        }
    }
    let outcome = strict.send(delivery(&format!("http://127.0.0.1:{port}/"))).await;
    assert_eq!(outcome.error.as_deref(), Some("the URL must begin with https://"));
    receiver.stop().await;
    assert!(arrived.recv().await.is_none());
}

#[tokio::test]
async fn a_name_in_every_spelling_is_checked_by_its_addresses() {
    let (receiver, mut arrived) = receiver(ReceiverResponse::Status(200)).await;
    let (lookup, asked) = answers(vec![vec!["127.0.0.1"]]);
    let resolver = Resolver::with(AddressFilter::default(), lookup);
    let strict = Sender::with_resolver(settings(receiver.ca_pem(), LONG, &[]), resolver).unwrap();
    for (host, name) in [
        ("LocalHost", "localhost"),
        ("localhost.", "localhost."),
        ("%6cocalhost", "localhost"),
        ("lo\u{ad}calhost", "localhost"),
        ("\u{ff4c}\u{ff4f}\u{ff43}\u{ff41}\u{ff4c}\u{ff48}\u{ff4f}\u{ff53}\u{ff54}", "localhost"),
        ("\u{24db}ocalhost", "localhost"),
        ("127.0.0.1.example", "127.0.0.1.example"),
        ("B\u{fc}cher.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("\u{4f8b}\u{3048}.\u{30c6}\u{30b9}\u{30c8}", "xn--r8jz45g.xn--zckzah"),
        // The path, query or fragment looks like another host.
        ("example.com\\@93.184.216.34", "example.com"),
        ("example.com/@93.184.216.34", "example.com"),
        ("example.com?@93.184.216.34", "example.com"),
        ("example.com#@93.184.216.34", "example.com"),
    ] {
        let outcome = strict.send(delivery(&format!("https://{host}/"))).await;
        assert_eq!(outcome.error, Some(refused("127.0.0.1")), "{host}");
        assert_eq!(asked.lock().unwrap().pop().as_deref(), Some(name), "{host}");
    }
    // The system's own resolver gives the same result.
    let outcome = sender_with(receiver.ca_pem(), LONG, &[]).send(delivery(&receiver.url())).await;
    assert!([refused("127.0.0.1"), refused("::1")].contains(outcome.error.as_ref().unwrap()), "{outcome:?}");
    let outcome = sender(&receiver, LONG).send(delivery("https://does-not-exist.invalid/?key=hidden")).await;
    assert_eq!(outcome.error.as_deref(), Some("the name could not be resolved"));
    receiver.stop().await;
    assert!(arrived.recv().await.is_none());
}
