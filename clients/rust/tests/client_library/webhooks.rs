//! Webhooks that arrive through the web frameworks.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use chrono::Utc;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use poem::listener::{Acceptor, Listener};
use poem::{EndpointExt, Server, handler};
use reqwest::header::{HeaderMap, HeaderValue};
use rewards_ledger_client::models::WebhookEventType;
use rewards_ledger_client::signing::sign;
use rewards_ledger_client::webhook::{Verifier, Webhook, WebhookError, verify};
use tokio::net::TcpListener;
use tower_service::Service;

pub const EVENT: &str =
    r#"{"event_id": "019c", "event_type": "order.delivered", "created_at": "2026-01-31T12:00:00.000Z", "data": {"id": 42}}"#;

/// The IDs of the events that a handler got.
type Received = Arc<Mutex<Vec<String>>>;

fn headers(token: &str, body: &str, timestamp: i64) -> HeaderMap {
    let signature = sign(token, &format!("{timestamp}.{body}"));
    let value = |text: &str| HeaderValue::from_str(text).unwrap();
    HeaderMap::from_iter([
        ("x-timestamp".parse().unwrap(), value(&timestamp.to_string())),
        ("x-signature".parse().unwrap(), value(&signature)),
    ])
}

/// Sends genuine webhooks and others to a receiver with the tokens `new` and `old`, and compares its answers.
async fn assert_receives(url: &str, received: &Received) {
    let now = Utc::now().timestamp();
    let mut unsigned = headers("new", EVENT, now);
    unsigned.remove("x-signature");
    let cases = [
        ("new token", headers("new", EVENT, now), EVENT, 200),
        ("old token", headers("old", EVENT, now), EVENT, 200),
        ("another token", headers("other", EVENT, now), EVENT, 401),
        ("too old", headers("new", EVENT, now - 3600), EVENT, 401),
        ("no signature", unsigned, EVENT, 401),
        ("another body", headers("new", EVENT, now), "{}", 401),
        ("no event", headers("new", "hello", now), "hello", 400),
        ("an empty token", headers("", EVENT, now), EVENT, 401),
    ];
    let client = reqwest::Client::new();
    for (name, headers, body, expected) in cases {
        let response = client.post(url).headers(headers).body(body.to_owned()).send().await.unwrap();
        assert_eq!(response.status(), expected, "{name}");
    }
    assert_eq!(*received.lock().unwrap(), ["019c", "019c"]);
}

#[derive(Clone)]
struct App {
    verifier: Verifier,
    received: Received,
}

impl axum::extract::FromRef<App> for Verifier {
    fn from_ref(app: &App) -> Verifier {
        app.verifier.clone()
    }
}

#[tokio::test]
async fn axum_handlers_get_genuine_webhooks_only() {
    async fn hook(State(app): State<App>, Webhook(event): Webhook) {
        app.received.lock().unwrap().push(event.event_id);
    }
    let app = App { verifier: Verifier::new("new").or("old").or(""), received: Received::default() };
    let received = app.received.clone();
    let router = Router::new().route("/hook", axum::routing::post(hook)).with_state(app);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let server = tokio::spawn(serve(listener, router));
    assert_receives(&url, &received).await;
    server.abort();
}

/// Serves a router on every connection.
async fn serve(listener: TcpListener, router: Router) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let router = router.clone();
        let service = service_fn(move |request: Request<Incoming>| router.clone().call(request.map(Body::new)));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

#[handler]
fn poem_hook(Webhook(event): Webhook, received: poem::web::Data<&Received>) {
    received.lock().unwrap().push(event.event_id);
}

#[tokio::test]
async fn poem_handlers_get_genuine_webhooks_only() {
    let received = Received::default();
    let acceptor = poem::listener::TcpListener::bind("127.0.0.1:0").into_acceptor().await.unwrap();
    let address = acceptor.local_addr()[0].as_socket_addr().copied().unwrap();
    let endpoint = poem::Route::new()
        .at("/hook", poem::post(poem_hook.data(Verifier::new("new").or("old").or(""))))
        .at("/unconfigured", poem::post(poem_hook))
        .data(received.clone());
    let server = tokio::spawn(Server::new_with_acceptor(acceptor).run(endpoint));
    assert_receives(&format!("http://{address}/hook"), &received).await;
    let response = reqwest::Client::new().post(format!("http://{address}/unconfigured")).send().await.unwrap();
    assert_eq!(response.status(), 500, "there is no verifier");
    server.abort();
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused() {
    let too_long = || vec![b'x'; (2 << 20) + 1];
    let request = axum::extract::Request::new(axum::body::Body::from(too_long()));
    let refusal = <Webhook as axum::extract::FromRequest<_>>::from_request(request, &Verifier::new("token")).await;
    assert_eq!(refusal.unwrap_err().status(), 413);

    let request = poem::Request::builder().body(too_long());
    let (mut request, mut body) = request.split();
    request.extensions_mut().insert(Verifier::new("token"));
    let refusal = <Webhook as poem::FromRequest>::from_request(&request, &mut body).await;
    assert_eq!(refusal.unwrap_err().status(), 413);
}

#[test]
fn one_call_verifies() {
    let now = Utc::now().timestamp();
    let event = verify("token", &headers("token", EVENT, now), EVENT.as_bytes()).unwrap();
    assert_eq!((event.event_id.as_str(), event.event_type), ("019c", WebhookEventType::OrderDelivered));
    let refusal = |headers: HeaderMap| verify("token", &headers, EVENT.as_bytes()).unwrap_err();
    assert!(matches!(refusal(HeaderMap::new()), WebhookError::Missing("x-timestamp")));
    assert!(matches!(refusal(headers("token", EVENT, now - 3600)), WebhookError::Timestamp));
    assert!(matches!(refusal(headers("other", EVENT, now)), WebhookError::Signature));
}

#[test]
fn after_a_rotation_the_token_before_it_still_verifies() {
    let now = Utc::now().timestamp();
    let mut sent = headers("new", EVENT, now);
    let previous = headers("old", EVENT, now).remove("x-signature").unwrap();
    sent.insert("x-signature-previous", previous);
    for token in ["new", "old"] {
        assert!(verify(token, &sent, EVENT.as_bytes()).is_ok(), "{token}");
    }
    for (token, body) in [("other", EVENT), ("old", "{}")] {
        assert!(matches!(verify(token, &sent, body.as_bytes()), Err(WebhookError::Signature)), "{token}");
    }
    let stale = headers("old", EVENT, now - 3600);
    assert!(matches!(verify("old", &stale, EVENT.as_bytes()), Err(WebhookError::Timestamp)));
}
