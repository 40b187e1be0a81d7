//! Tests of logging: one line per request, and one per failure.

use std::io::Write;
use std::sync::{Arc, Mutex};

use poem::test::TestClient;
use serde_json::{Value, json};

use super::sample::app;
use crate::api::edge::log_panics;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the log lines of one request, as JSON.
async fn logged(path: &str, filter: &str) -> Vec<Value> {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(move || writer.clone()).finish();
    // With only one subscriber, tracing lets whichever thread comes first decide whether a line is wanted, and that
    // thread may belong to another test.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let guard = tracing::subscriber::set_default(subscriber);
    let client = TestClient::new(app());
    let response = client.get(path).header("X-Request-ID", "mine-1").send().await;
    response.0.into_body().into_bytes().await.unwrap();
    drop(guard);
    let bytes = lines.0.lock().unwrap().clone();
    let lines = String::from_utf8(bytes).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_request_is_one_line_without_its_query() {
    let lines = logged("/v1/orders/?page=2&secret=hunter2", "info").await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = &lines[0];
    assert_eq!(line["target"], "access");
    let fields = &line["fields"];
    assert_eq!(fields["method"], "GET");
    assert_eq!(fields["path"], "/v1/orders/");
    assert_eq!(fields["status"], 200);
    assert_eq!(fields["request_id"], "mine-1");
    assert!(fields["duration_ms"].is_f64(), "{line}");
    assert!(!line.to_string().contains("hunter2"), "{line}");
    assert_eq!(logged("/v1/orders", "info,access=off").await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_response_that_takes_long_is_recorded_with_the_status_of_its_outcome() {
    let lines = logged("/late", "info,access=off").await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["target"], "audit");
    let fields = &lines[0]["fields"];
    assert_eq!((&fields["kind"], &fields["request_id"]), (&json!("reveal"), &json!("mine-1")));
    assert_eq!((&fields["status"], &fields["is_successful"]), (&json!(504), &json!(false)));

    let lines = logged("/late", "info,audit=off").await;
    let access: Vec<_> = lines.iter().filter(|line| line["target"] == "access").collect();
    assert_eq!(access.len(), 1, "{lines:?}");
    assert_eq!(access[0]["fields"]["status"], 504);
}

#[tokio::test]
async fn an_internal_error_is_logged_once_with_its_cause() {
    let lines = logged("/v1/orders/3", "info,access=off").await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["level"], "ERROR");
    assert_eq!(lines[0]["fields"]["request_id"], "mine-1");
    assert_eq!(lines[0]["fields"]["cause"], "the password is hunter2");
    let foreign = logged("/foreign", "info,access=off").await;
    assert_eq!(foreign.len(), 1, "{foreign:?}");
    assert_eq!(logged("/v1/orders/9", "info,access=off").await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_panic_is_logged_once_with_its_place() {
    let before = std::panic::take_hook();
    log_panics();
    let lines = logged("/v1/orders/2", "info,access=off").await;
    std::panic::set_hook(before);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let fields = &lines[0]["fields"];
    assert_eq!(fields["request_id"], "mine-1");
    assert!(fields["panic"] == "a bug", "{fields}");
    assert!(fields["place"].as_str().unwrap().contains("sample.rs:"), "{fields}");
    assert_ne!(fields["message"], json!(null));
}
