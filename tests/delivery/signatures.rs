//! What receivers do with what they get, by implementations that are not ours: Python's `hmac` and
//! Node's `crypto`, on the raw bytes that arrived.

use std::process::Stdio;

use rewards_ledger::receiver::{Answer, Received};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::support::shop::{DEADLINE, Shop, receiver};

/// Reads `{secret, timestamp, body}`, the body in base64, and prints the signature.
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

/// What the program says to the input; none when the language is not there.
async fn answer_of(program: &str, flag: &str, script: &str, input: &Value) -> Option<String> {
    let mut command = Command::new(program);
    command.args([flag, script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: there is no {program} on this machine");
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

/// The specification's headers and no others but HTTP's own, each once.
fn assert_headers(received: &Received) {
    let mut names: Vec<&str> = received.headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let mut expected = vec![
        "content-type",
        "user-agent",
        "x-webhook-id",
        "x-event-id",
        "x-event-type",
        "x-timestamp",
        "x-signature",
        "x-request-id",
        "x-service-webhook-token",
        "host",
        "content-length",
    ];
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn python_and_node_verify_what_arrives() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| Answer::Status(500)).await;
    let (webhook_id, token) = shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    let mut seen: Vec<Received> = vec![];
    // The first attempt and the next: the same bytes, signed anew.
    for _ in 0..2 {
        assert_eq!(worker.once().await.unwrap().failed, 1);
        sqlx::raw_sql("UPDATE delivery_state SET next_attempt_at = now()").execute(shop.pool()).await.unwrap();
        seen.push(arrived.recv().await.unwrap());
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
        let away = received.timestamp().unwrap().parse::<i64>().unwrap() - chrono::Utc::now().timestamp();
        assert!(away.abs() < 60, "of the moment of sending");
    }
    assert_ne!(seen[0].request_id(), seen[1].request_id());
    assert_eq!(seen[0].event_id(), seen[1].event_id());
}
