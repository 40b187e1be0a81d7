//! Traces: from a request through its command, batch, projection and delivery to the receiver, exported by OTLP.

use nix::sys::signal::Signal;
use rewards_ledger::delivery::worker::Worker;
use rewards_ledger::telemetry::traces::{self, SpanKind, TraceParent, TraceSettings, Traces};
use serde_json::{Value, json};
use webhook_client::receiver::{Certificate, Received, ReceiverResponse};

use crate::support::collector::{Collector, ExportedSpan};
use crate::support::node::{Client, Node};
use crate::support::postgres;
use crate::support::program::{OPERATOR_TOKEN, Program};
use crate::support::shop::{DEADLINE, receiver, worker};
use crate::support::wait::{until, until_true};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// Returns the caller's header, with these flags.
fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{SPAN}-{flags}")
}

/// Returns the types and places of the events that belong to a trace.
async fn events_of(pool: &sqlx::PgPool, trace_id: &str) -> Vec<(String, String)> {
    let events = "SELECT type, metadata->>'traceparent' FROM events WHERE metadata->>'traceparent' LIKE $1 ORDER BY position";
    sqlx::query_as(events).bind(format!("00-{trace_id}-%")).fetch_all(pool).await.unwrap()
}

fn named<'a>(spans: &'a [ExportedSpan], name: &str) -> Vec<&'a ExportedSpan> {
    spans.iter().filter(|span| span.name == name).collect()
}

#[track_caller]
fn only<'a>(spans: &'a [ExportedSpan], name: &str) -> &'a ExportedSpan {
    let found = named(spans, name);
    assert_eq!(found.len(), 1, "{name}: {spans:#?}");
    found[0]
}

/// Writes a file that is removed when the value is dropped.
fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// Sends a request of a client to a node in another process.
fn request(node: &Program, client: &Client, method: &str, path: &str) -> reqwest::RequestBuilder {
    let request = reqwest::Client::new().request(method.parse().unwrap(), format!("{}{path}", node.url()));
    request.header("X-API-Key", &client.key).header("X-API-Secret", &client.secret)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_order_is_one_trace_from_the_request_to_its_receiver() {
    let (database, collector) = (postgres::database().await, Collector::start().await);
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::StatusWithBody(200, "hidden-answer".to_owned())).await;
    let ca = file(receiver.ca_pem());
    let reach = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8"];
    let endpoint = collector.url();
    let arguments = [&["--otlp-endpoint", endpoint.as_str()][..], &reach[..]].concat();
    let mut node = Program::logging("warn,rewards_ledger=info,access=info", &database.url, &arguments).await;
    let (client, product) = (node.client("100.00").await, node.product(1).await);
    let hook =
        json!({"name": "a", "url": format!("{}/hidden-path", receiver.url()), "events": ["order.created", "order.delivered"]});
    let (status, hook) = node.call(&client, "POST", "/webhooks", None, &hook).await.unwrap();
    assert_eq!(status, 201, "{hook}");

    // So no span of the order covers earlier events, too.
    let pool = sqlx::PgPool::connect(&database.url).await.unwrap();
    let projected =
        "SELECT (SELECT position FROM projection_checkpoints WHERE projection = 'deliveries') = (SELECT position FROM log_head)";
    until_true("everything is projected", &pool, projected).await;

    let order = json!({"product_id": product, "denomination": 10, "quantity": 1, "client_reference": "hidden-reference"});
    let placing = request(&node, &client, "POST", "/api/v1/orders").header("traceparent", traceparent("01"));
    let placed = placing.header("Idempotency-Key", "hidden-key").json(&order).send().await.unwrap();
    assert_eq!(placed.status(), 201);
    let placed: Value = serde_json::from_str(&placed.text().await.unwrap()).unwrap();
    let mut received = vec![];
    while received.len() < 2 {
        received.push(arrived.recv().await.unwrap());
    }
    received.sort_by_key(|received: &Received| received.event_type().unwrap().to_owned());
    assert_eq!(received[0].path, "/hidden-path");
    let code = format!("{product}-{:09}", 0);
    let codes = format!("/orders/{}/vouchers", placed["data"]["id"]);
    let (status, revealed) = node.call(&client, "GET", &codes, None, &Value::Null).await.unwrap();
    assert!(status == 200 && revealed.to_string().contains(&code), "{revealed}");
    let refused = request(&node, &client, "GET", "/api/v1/orders?card=hidden-query").header("X-Hidden", "hidden-header");
    assert_eq!(refused.send().await.unwrap().status(), 400);

    until("all spans of the trace are exported", async || {
        let spans = collector.trace(TRACE);
        let all = ["command PlaceOrder", "command FulfilOrder", "batch", "projection"];
        all.iter().all(|name| !named(&spans, name).is_empty()) && named(&spans, "delivery").len() == 2
    })
    .await;
    let spans = collector.trace(TRACE);
    let asked = only(&spans, "POST /api/v1/orders");
    assert_eq!((asked.trace_id.as_str(), asked.parent.as_str()), (TRACE, SPAN));
    assert_eq!(
        (asked.attribute("http.route"), asked.attribute("http.response.status_code")),
        ("/api/v1/orders".into(), "201".into())
    );
    let place = only(&spans, "command PlaceOrder");
    assert_eq!((place.parent.as_str(), place.attribute("outcome")), (asked.span_id.as_str(), "committed".into()));
    let fulfil = only(&spans, "command FulfilOrder");
    assert_eq!(
        (fulfil.trace_id.as_str(), fulfil.parent.as_str()),
        (TRACE, place.span_id.as_str()),
        "fulfilment continues the trace"
    );
    assert!(named(&spans, "batch").iter().any(|batch| batch.parent == place.span_id), "{spans:#?}");
    assert!(named(&spans, "projection").iter().any(|projection| projection.parent == place.span_id), "{spans:#?}");

    // Each delivery is sent from its own span, whose parent is the command that its event belongs to.
    for (received, (event_type, command)) in received.iter().zip([("order.created", place), ("order.delivered", fulfil)]) {
        assert_eq!(received.event_type(), Some(event_type));
        let sent = named(&spans, "delivery").into_iter().find(|span| span.attribute("event.type") == event_type).unwrap();
        assert_eq!((sent.trace_id.as_str(), sent.parent.as_str()), (TRACE, command.span_id.as_str()));
        assert_eq!(received.header("traceparent"), Some(format!("00-{TRACE}-{}-01", sent.span_id).as_str()));
        received.verify(hook["token"].as_str().unwrap(), chrono::Utc::now().timestamp()).unwrap();
    }
    let at = |command: &ExportedSpan| format!("00-{TRACE}-{}-01", command.span_id);
    let expected = [("OrderPlaced", place), ("WalletDebited", place), ("OrderQueued", fulfil), ("OrderDelivered", fulfil)];
    let expected = expected.map(|(event, command)| (event.to_owned(), at(command)));
    assert_eq!(events_of(&pool, TRACE).await, expected);
    let log = node.log();
    let mut lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let line = lines.find(|line| line["path"] == "/api/v1/orders" && line["method"] == "POST").unwrap();
    assert_eq!((&line["trace_id"], &line["status"]), (&json!(TRACE), &json!(201)), "{line}");

    node.signal(Signal::SIGTERM);
    assert!(node.ended().await.success());
    assert_eq!(collector.resource("service.name"), "rewards-ledger");
    assert_eq!(collector.resource("service.version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(collector.resource("service.instance.id").len(), 36, "every export names the same instance");
    let spans = collector.spans();
    let is_refused = |span: &&ExportedSpan| span.name.starts_with("GET ") && span.attribute("http.response.status_code") == "400";
    let refused: Vec<&str> = spans.iter().filter(is_refused).map(|span| span.name.as_str()).collect();
    assert_eq!(refused, ["GET /api/v1/orders"], "the query is not part of the name");
    // All of it was part of a request, an answer or a delivery that has a span.
    let everything = collector.everything();
    for known in ["GET /api/v1/orders/{id}/vouchers", "order.delivered", "command FulfilOrder"] {
        assert!(everything.contains(known), "{known} is in no span: {everything}");
    }
    let (url, token) = (receiver.url(), hook["token"].as_str().unwrap());
    for secret in [&client.key, &client.secret, OPERATOR_TOKEN, token, "hidden", &url, &code] {
        assert!(!everything.contains(secret), "{secret} is in a span: {everything}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_with_a_certificate_of_its_own_gets_its_key_and_no_log_shows_it() {
    let certificate = Certificate::generate().unwrap();
    let (database, collector) = (postgres::database().await, Collector::with_certificate(&certificate).await);
    let (ca, endpoint) = (file(certificate.ca_pem()), collector.url());
    let arguments = ["--otlp-endpoint", endpoint.as_str(), "--otlp-ca-file", ca.path().to_str().unwrap()];
    let key = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hidden-key");
    let mut node = Program::with_variable(key, "trace", &database.url, &arguments).await;
    node.product(0).await;
    until("spans arrive", async || !collector.spans().is_empty()).await;
    collector.refuse();
    node.product(0).await;
    until("the refusal is logged", async || node.log().contains("the collector answered 401")).await;
    node.signal(Signal::SIGTERM);
    assert!(node.ended().await.success());
    let keys = collector.keys();
    assert!(keys.iter().all(|key| key == "Bearer hidden-key"), "{keys:?}");
    let log = node.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("hidden-key")).collect();
    assert!(lines.is_empty(), "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_delays_no_order_and_no_stop() {
    let (database, collector) = (postgres::database().await, Collector::hanging().await);
    let mut node = Program::start(&database.url, &["--otlp-endpoint", &collector.url()]).await;
    let (client, product) = (node.client("1000.00").await, node.product(0).await);
    until("the node exports", async || collector.connections() > 0).await;
    let order = json!({"product_id": product, "denomination": 10, "quantity": 1});
    for _ in 0..20 {
        assert_eq!(node.call(&client, "POST", "/orders", None, &order).await.unwrap().0, 201);
    }
    node.signal(Signal::SIGTERM);
    assert!(node.ended().await.success());
    until("the loss is logged", async || node.log().contains("failed to export the last spans; they are lost")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_that_cannot_be_exported_are_dropped() {
    let collector = Collector::hanging().await;
    let traces = Traces::start(&TraceSettings { endpoint: collector.url(), ca_pem: None, sample: 1.0 }).unwrap();
    drop(traces.begin("first", SpanKind::Internal, None));
    until("an export hangs", async || collector.connections() > 0).await;
    // Many more than wait for an export. Ending one never waits.
    for _ in 0..100_000 {
        drop(traces.begin("more", SpanKind::Internal, None));
    }
    traces.stop().await;
    assert!(traces.is_on());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_collector_keeps_the_callers_trace_and_passes_nothing_on() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let hook = json!({"name": "a", "url": receiver.url(), "events": ["order.created"]});
    assert_eq!(node.client(&setup.client, "POST", "/webhooks", hook).await.status, 201);
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    for header in [traceparent("01"), traceparent("1"), format!("{}-more", traceparent("01"))] {
        let request = node.by(&setup.client, "POST", "/orders").header("traceparent", header).json(&order);
        node.send(request).await.data(201);
    }
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
    let pool = node.ledger.pool();
    let traced: Vec<(String, String)> = sqlx::query_as(
        "SELECT type, metadata->>'traceparent' FROM events WHERE metadata->>'traceparent' IS NOT NULL ORDER BY position",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    assert_eq!(
        traced,
        ["OrderPlaced", "WalletDebited"].map(|event| (event.to_owned(), traceparent("01"))),
        "a malformed header is ignored"
    );

    node.project().await;
    let worker = Worker { metrics: node.metrics.clone(), ..worker(&node.options, &receiver, DEADLINE) };
    assert_eq!(worker.once().await.unwrap().delivered, 4);
    for _ in 0..4 {
        assert_eq!(arrived.recv().await.unwrap().header("traceparent"), None);
    }
    assert!(!node.metrics.traces().is_on());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_that_its_caller_does_not_sample_is_continued_but_not_exported() {
    let collector = Collector::start().await;
    let node = Node::tracing(collector.url(), 0.0).await;
    let setup = node.setup().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let hook = json!({"name": "a", "url": receiver.url(), "events": ["order.created"]});
    assert_eq!(node.client(&setup.client, "POST", "/webhooks", hook).await.status, 201);
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let place = async |flags: &str| {
        let request = node.by(&setup.client, "POST", "/orders").header("traceparent", traceparent(flags));
        node.send(request.json(&order)).await.data(201);
        node.project().await;
        let worker = Worker { metrics: node.metrics.clone(), ..worker(&node.options, &receiver, DEADLINE) };
        assert_eq!(worker.once().await.unwrap().delivered, 1);
    };
    place("00").await;
    let passed_on = arrived.recv().await.unwrap().header("traceparent").unwrap().to_owned();
    assert!(passed_on.starts_with(&format!("00-{TRACE}-")) && passed_on.ends_with("-00"), "{passed_on}");
    place("01").await;
    node.metrics.traces().stop().await;
    // With --otlp-sample 0, only the caller's decision for the second order exports anything.
    let spans = collector.spans();
    assert_eq!(only(&spans, "POST /api/v1/orders").parent, SPAN);
    assert!(spans.iter().all(|span| span.trace_id == TRACE), "{spans:#?}");
    assert_eq!(named(&spans, "delivery").len(), 1);
}

#[tokio::test]
async fn a_task_works_for_one_trace_at_a_time() {
    let place = TraceParent::parse(&traceparent("01"));
    assert_eq!(traces::current(), None);
    traces::within(place, async {
        assert_eq!(traces::current(), place);
        assert_eq!(traces::during(None, traces::current), None);
        assert_eq!(tokio::spawn(async { traces::current() }).await.unwrap(), None);
    })
    .await;
    assert_eq!(traces::current(), None);
}
