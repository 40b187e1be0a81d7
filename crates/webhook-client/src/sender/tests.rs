//! The sender without a receiver: settings, error texts and debug output.
#![allow(clippy::unwrap_used)]

use std::io;

use nix::errno::Errno;

use super::describe::NONE_TO_SPARE;
use super::*;
use crate::connections::Trouble;

#[test]
fn a_response_body_becomes_storable_text() {
    assert_eq!(storable_text(b"a\0b\xffc"), "ab\u{fffd}c");
    let text = storable_text(&[0xff; MAX_RESPONSE_BODY_BYTES]);
    assert!(text.len() <= MAX_RESPONSE_BODY_BYTES);
    assert!(text.chars().all(|c| c == '\u{fffd}'));
}

#[test]
fn invalid_settings_are_refused() {
    let settings = settings();
    for name in ["A B", "A\n", "A:B", "É"] {
        let service_name = name.to_owned();
        let made = Sender::new(SenderSettings { service_name, ..settings.clone() });
        assert!(matches!(made, Err(SenderError::ServiceName(_))), "{name:?}");
    }
    for pem in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let ca_pem = Some(pem.as_bytes().to_vec());
        assert!(Sender::new(SenderSettings { ca_pem, ..settings.clone() }).is_err(), "{pem:?}");
    }
}

fn settings() -> SenderSettings {
    SenderSettings {
        service_name: "SERVICE".to_owned(),
        deadline: Duration::from_secs(30),
        ca_pem: None,
        allowed_nets: vec!["127.0.0.1/32".parse().unwrap()],
        max_connections: 1,
        connection_lifetime: CONNECTION_LIFETIME,
    }
}

fn delivery(url: &str) -> Delivery<'_> {
    Delivery {
        url,
        webhook_id: 1,
        event_id: "evt",
        event_type: "order.created",
        sequence: None,
        request_id: "req",
        secret: "hidden",
        timestamp: 0,
        previous_secret: None,
        traceparent: None,
        custom_headers: CustomHeaders::none(),
        body: Bytes::from_static(b"hidden"),
    }
}

#[tokio::test]
async fn a_shortage_of_this_node_is_not_blamed_on_the_receiver() {
    for errno in [Errno::EMFILE, Errno::ENFILE, Errno::EADDRNOTAVAIL] {
        let trouble = Trouble::from(io::Error::from(errno));
        assert_eq!(describe(&trouble, Duration::from_secs(30)), NONE_TO_SPARE);
    }
    let refused = Trouble::from(io::Error::from(Errno::ECONNREFUSED));
    assert_eq!(describe(&refused, Duration::from_secs(30)), "connection refused");

    // The only connection is in use: its receiver never responds.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let holding = Arc::new(Sender::new(settings()).unwrap());
    let waiting = Sender {
        connections: holding.connections.clone(),
        deadline: Duration::from_millis(200),
        headers: holding.headers.clone(),
    };
    let held = tokio::spawn({
        let url = url.clone();
        async move { holding.send(delivery(&url)).await }
    });
    let _open = listener.accept().await.unwrap();
    let outcome = waiting.send(delivery(&url)).await;
    assert_eq!(outcome.error.as_deref(), Some("no connection of this service was free within 0.2 s"));
    held.abort();
}

#[test]
fn a_delivery_does_not_show_its_secrets() {
    let shown = format!("{:?}", delivery("https://example.com/?key=hidden"));
    assert!(!shown.contains("hidden"), "{shown}");
}
