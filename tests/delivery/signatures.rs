//! Verification of deliveries by independent implementations, Python's `hmac` and Node's `crypto`, on the raw bytes
//! that arrived.

use std::collections::{BTreeMap, HashSet};
use std::process::Stdio;

use ledger_events::webhook::WebhookEventType;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use webhook_client::receiver::{Received, ReceiverResponse};

use crate::support::shop::{DEADLINE, SHARD, Shop, receiver};

/// Reads `{secret, timestamp, body}`, with the body in base64, and prints the signature.
const PYTHON: &str = "import base64, hashlib, hmac, json, sys
given = json.load(sys.stdin)
signed = given['timestamp'].encode() + b'.' + base64.b64decode(given['body'])
print(hmac.new(given['secret'].encode(), signed, hashlib.sha256).hexdigest())";
const NODE: &str = "const crypto = require('crypto');
const given = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const mac = crypto.createHmac('sha256', given.secret);
mac.update(given.timestamp + '.');
mac.update(Buffer.from(given.body, 'base64'));
console.log(mac.digest('hex'));";

/// Returns what the program prints for the input, or `None` if the language is not installed.
async fn answer_of(program: &str, flag: &str, script: &str, input: &Value) -> Option<String> {
    let mut command = Command::new(program);
    command.args([flag, script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            assert!(std::env::var_os("CI").is_none(), "{program} is needed");
            eprintln!("SKIPPED: signatures were not verified by {program}, for there is none here");
            return None;
        }
        Err(error) => panic!("{program}: {error}"),
    };
    child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{program}");
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

async fn verify_elsewhere(received: &Received, secret: &str) {
    use base64::Engine;
    let body = base64::engine::general_purpose::STANDARD.encode(&received.body);
    let input = json!({"secret": secret, "timestamp": received.timestamp(), "body": body});
    let signature = received.signature().unwrap();
    for (program, flag, script) in [("python3", "-c", PYTHON), ("node", "-e", NODE)] {
        if let Some(expected) = answer_of(program, flag, script, &input).await {
            assert_eq!(signature, expected, "{program}");
        }
    }
}

/// Checks that a request has exactly the headers that are always sent and those of HTTP itself, each once and in the published
/// order.
fn assert_headers(received: &Received) {
    let document: Value = serde_json::from_str(include_str!("../../openapi/client-v1.json")).unwrap();
    let operation = &document["webhooks"][received.event_type().unwrap()]["post"];
    assert_eq!(operation["requestBody"]["content"].as_object().unwrap().keys().collect::<Vec<_>>(), ["application/json"]);
    assert_eq!(received.header("content-type"), Some("application/json"));
    let (required, optional): (Vec<&Value>, Vec<&Value>) =
        operation["parameters"].as_array().unwrap().iter().partition(|parameter| parameter["required"] == true);
    // Only a rotation asks for this one.
    assert_eq!(optional.iter().map(|parameter| &parameter["name"]).collect::<Vec<_>>(), ["X-Signature-Previous", "traceparent"]);
    let published = required.into_iter().map(|parameter| {
        assert_eq!(parameter["in"], "header", "{parameter}");
        let name = parameter["name"].as_str().unwrap().to_ascii_lowercase();
        let value = received.header(&name).unwrap_or_else(|| panic!("published but not sent: {name}"));
        match parameter["schema"]["type"].as_str().unwrap() {
            "integer" => assert!(value.parse::<i64>().is_ok(), "{name}: {value}"),
            "string" => assert!(!value.is_empty(), "{name}"),
            other => panic!("{name}: {other}"),
        }
        name
    });
    let (before, after) = (["host", "content-type"].map(str::to_owned), ["content-length".to_owned()]);
    let expected: Vec<String> = before.into_iter().chain(published).chain(after).collect();
    let names: Vec<&str> = received.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn python_and_node_verify_what_arrives() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(500)).await;
    let (webhook_id, token) = shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    let mut seen: Vec<Received> = vec![];
    // The first attempt and the next one send the same bytes with a new signature.
    for _ in 0..2 {
        assert_eq!(worker.once().await.unwrap().failed, 1);
        sqlx::raw_sql("UPDATE delivery_state SET next_attempt_at = now()").execute(shop.pool()).await.unwrap();
        let received = arrived.recv().await.unwrap();
        let away = received.timestamp().unwrap().parse::<i64>().unwrap() - chrono::Utc::now().timestamp();
        assert!(away.abs() < 60, "the timestamp is the time of sending");
        seen.push(received);
    }
    let payload: String = sqlx::query_scalar("SELECT payload FROM webhook_envelopes").fetch_one(shop.pool()).await.unwrap();
    for received in &seen {
        assert_headers(received);
        verify_elsewhere(received, &token).await;
        assert_eq!(received.body, payload.as_bytes(), "the stored bytes, unchanged");
        let envelope: Value = serde_json::from_slice(&received.body).unwrap();
        let text = |name: &str| envelope[name].as_str().unwrap().to_owned();
        assert_eq!(received.event_id(), Some(&*text("event_id")));
        assert_eq!(received.event_type(), Some(&*text("event_type")));
        assert_eq!(received.webhook_id(), Some(&*webhook_id.to_string()));
        assert_eq!(received.token(), Some(&*token));
    }
    assert_ne!(seen[0].request_id(), seen[1].request_id());
    assert_eq!(seen[0].event_id(), seen[1].event_id());
    assert_eq!(seen[0].sequence(), seen[1].sequence());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_arrives_as_published_and_python_and_node_verify_it() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let (_, token) = shop.webhook_for(shop.customer.account_id, &receiver.url(), &WebhookEventType::OF_ORDERS).await;
    shop.load("card", 3, None).await;
    let (whole, part) = (shop.order(2).await, shop.order(2).await);
    shop.fulfil(whole).await;
    shop.fulfil(part).await;
    shop.cancel(part).await;
    shop.project().await;
    let sent = shop.worker(&receiver, DEADLINE).once().await.unwrap().delivered;
    let mut types = HashSet::new();
    let mut of_part = BTreeMap::new();
    for _ in 0..sent {
        let received = arrived.recv().await.unwrap();
        assert_headers(&received);
        received.verify(&token, chrono::Utc::now().timestamp()).unwrap();
        verify_elsewhere(&received, &token).await;
        types.insert(received.event_type().unwrap().to_owned());
        let envelope: Value = serde_json::from_slice(&received.body).unwrap();
        if envelope["data"]["id"] == part.0 {
            of_part.insert(received.sequence().unwrap(), received.event_type().unwrap().to_owned());
        }
    }
    let in_sequence: Vec<&str> = of_part.values().map(String::as_str).collect();
    assert_eq!(in_sequence, ["order.created", "order.pending", "order.partially_delivered", "order.cancelled"]);
    assert_eq!(types, HashSet::from(WebhookEventType::OF_ORDERS.map(|event| event.as_str().to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_sending_is_the_databases_time() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    let mut claimed = worker.claim_once(SHARD, 1).await.unwrap().remove(0);
    // Equivalent to a clock of this node that is an hour behind.
    claimed.clock.at += chrono::TimeDelta::hours(1);
    let ahead = claimed.clock.at.timestamp();
    worker.send(claimed).await.unwrap();
    let timestamp: i64 = arrived.recv().await.unwrap().timestamp().unwrap().parse().unwrap();
    assert!((ahead..ahead + 60).contains(&timestamp), "{timestamp} at {ahead}");
}
