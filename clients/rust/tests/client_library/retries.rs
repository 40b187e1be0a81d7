//! Retries against a real server.

use std::time::Duration;

use rewards_ledger_client::models::{ErrorCode, Login};
use rewards_ledger_client::{Client, Credentials, Error, RetryPolicy};
use serde_json::json;
use tokio::net::TcpListener;

use crate::calls::{assert_signed, order, placed};
use crate::server::{Answer, QUICK, refuse, reply, serve};

fn login() -> Login {
    Login::new("a@example.com", "hunter2 hunter2")
}

#[tokio::test]
async fn each_attempt_is_signed_and_all_share_the_idempotency_key() {
    let answers = [
        refuse(503, "E_UNAVAILABLE").with("retry-after", 0),
        Answer::HangUp,
        refuse(504, "E_OUTCOME_UNKNOWN"),
        refuse(409, "E_IDEMPOTENCY_IN_PROGRESS"),
        reply(201, order()),
    ];
    let (client, log) = serve(Credentials::signed("key", "secret", "signing"), answers).await;
    client.place_order(&placed()).await.unwrap();
    let seen = log.all();
    assert_eq!(seen.len(), 5);
    for request in &seen {
        assert_eq!(request.header("idempotency-key"), seen[0].header("idempotency-key"));
        assert_signed(request, "signing");
    }
}

#[tokio::test]
async fn a_call_without_a_key_is_not_repeated_when_it_may_have_happened() {
    let (client, log) = serve(Credentials::Anonymous, [Answer::HangUp]).await;
    let error = client.log_in(&login()).await.unwrap_err();
    assert!(matches!(error, Error::Connection { .. }) && log.all().len() == 1, "{error}");

    let (client, log) = serve(Credentials::Anonymous, [refuse(504, "E_OUTCOME_UNKNOWN")]).await;
    let error = client.log_in(&login()).await.unwrap_err();
    assert!(error.code() == Some(&ErrorCode::OutcomeUnknown) && log.all().len() == 1, "{error}");

    // After a 503, nothing has happened.
    let tokens = json!({"data": {"access_token": "jwt", "refresh_token": "r", "token_type": "Bearer", "expires_in": 900,
        "account_id": 1, "refresh_expires_at": "2026-02-01T12:00:00.000Z"}});
    let answers = [refuse(503, "E_UNAVAILABLE"), reply(200, tokens.to_string())];
    let (client, _) = serve(Credentials::Anonymous, answers).await;
    assert_eq!(client.log_in(&login()).await.unwrap().access_token.expose(), "jwt");
}

#[tokio::test]
async fn the_last_refusal_is_returned() {
    let (client, log) = serve(Credentials::Anonymous, [(); 5].map(|()| refuse(503, "E_UNAVAILABLE"))).await;
    let error = client.get_order(1).await.unwrap_err();
    assert_eq!(error.code(), Some(&ErrorCode::Unavailable));
    assert_eq!(log.all().len(), 5);
}

#[tokio::test]
async fn a_pause_that_is_too_long_is_left_to_the_caller() {
    let limited = reply(429, r#"{"error": "rate_limit_exceeded", "message": "Wait."}"#).with("retry-after", 2);
    let (client, log) = serve(Credentials::Anonymous, [limited]).await;
    let error = client.get_order(1).await.unwrap_err();
    assert_eq!(error.to_string(), "429 rate_limit_exceeded: Wait");
    assert_eq!(log.all().len(), 1);
}

#[tokio::test]
async fn without_retries_each_request_is_sent_once() {
    let (client, log) = serve(Credentials::Anonymous, [refuse(503, "E_UNAVAILABLE")]).await;
    client.with_retries(RetryPolicy::NEVER).get_order(1).await.unwrap_err();
    assert_eq!(log.all().len(), 1);
}

#[tokio::test]
async fn an_attempt_without_a_response_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let accepting = tokio::spawn(async move { [listener.accept().await.unwrap(), listener.accept().await.unwrap()] });
    let client = Client::new(&base, Credentials::Anonymous).unwrap();
    let client = client.with_retries(RetryPolicy { attempts: 2, ..QUICK }).with_timeout(Duration::from_millis(300));
    let error = client.get_order(1).await.unwrap_err();
    assert!(matches!(&error, Error::Connection { source, .. } if source.is_timeout()), "{error}");
    accepting.await.unwrap();
}

#[tokio::test]
async fn without_a_listener_the_error_names_the_service() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::new(&base, Credentials::Anonymous).unwrap().with_retries(QUICK);
    let error = client.log_in(&login()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("no response from {base}/"));
}
