//! A node's log at the most verbose level contains no secret that the node received or returned.

use nix::sys::signal::Signal;
use rewards_ledger::access::request_signature;
use serde_json::{Value, json};
use webhook_client::receiver::ReceiverResponse;

use crate::support::ledger::{LOG_KEY, MASTER_KEY};
use crate::support::node::PASSWORD;
use crate::support::postgres;
use crate::support::program::{DEADLINE, OPERATOR_TOKEN, Program};
use crate::support::shop::receiver;

const CARD: &str = "card-4929-1111-7777";
const PIN: &str = "pin-80812";
const CLAIM: &str = "https://claim.example.com/c0ffee";
const ACCOUNT_NUMBER: &str = "DE89370400440532013000";

/// Sends a request with these headers as its credentials. Returns the status, and the body's `data` or else the whole
/// body.
async fn ask(program: &Program, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
    let request = reqwest::Client::new().request(method.parse().unwrap(), format!("{}{path}", program.url()));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let answer = request.header("Content-Type", "application/json").body(body.to_string()).send().await.unwrap();
    let status = answer.status().as_u16();
    let mut value: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default();
    (status, if value.get("data").is_some() { value["data"].take() } else { value })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_the_log_at_debug_level() {
    let database = postgres::database().await;
    let (hooks, mut arrived) = receiver(|_| ReceiverResponse::StatusWithBody(200, "thank you".to_owned())).await;
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), hooks.ca_pem()).unwrap();
    let reach = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let mut program = Program::logging("debug", &database.url, &reach).await;
    let client = program.client("100.00").await;
    let operator = [("Authorization", &*format!("Bearer {OPERATOR_TOKEN}"))];

    // Stock is loaded, once with success and once with a refusal.
    let product = program.product(0).await;
    let stock = format!("/products/{product}/vouchers");
    let voucher = json!({"card_number": CARD, "pin": PIN, "claim_url": CLAIM});
    program.operator(&stock, json!({"denomination": "10.00", "vouchers": [voucher]})).await;
    for wrong in [json!({"denomination": "10.00", "vouchers": [voucher], "x": 1}), json!({"denomination": voucher})] {
        let (status, answer) = program.try_operator(&stock, &wrong).await.unwrap();
        assert_eq!(status, 400, "{answer}");
    }

    // An order is delivered, its webhook is sent, and its codes are read.
    let hook = json!({"name": "all", "url": hooks.url(), "events": ["order.created", "order.delivered"]});
    let (status, hook) = program.call(&client, "POST", "/webhooks", Some("hook"), &hook).await.unwrap();
    assert_eq!(status, 201, "{hook}");
    let order = json!({"product_id": product, "denomination": 10, "quantity": 1});
    let (status, order) = program.call(&client, "POST", "/orders", Some("order"), &order).await.unwrap();
    assert_eq!(status, 201, "{order}");
    let told = tokio::time::timeout(DEADLINE, async {
        while arrived.recv().await.expect("a webhook").event_type() != Some("order.delivered") {}
    });
    told.await.expect("it is delivered and announced");
    let path = format!("/orders/{}/vouchers", order["id"]);
    let (status, shown) = program.call(&client, "GET", &path, None, &Value::Null).await.unwrap();
    assert_eq!((status, &shown["vouchers"][0]["card_number"]), (200, &json!(CARD)), "{shown}");

    // Signed requests, one with a wrong signature, then a beneficiary and logins.
    let path = format!("/admin/v1/credentials/{}", client.credential_id);
    let (status, credential) = ask(&program, "PUT", &path, &operator, &json!({"hmac_required": true})).await;
    assert_eq!(status, 200, "{credential}");
    let signing_secret = text(&credential["signing_secret"]);
    let person = json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": ACCOUNT_NUMBER,
        "bank_code": "COBADEFFXXX"});
    let body = person.to_string();
    let now = chrono::Utc::now().timestamp();
    let canonical = request_signature::canonical_string("POST", "/api/v1/beneficiaries", None, body.as_bytes(), now);
    let signed = request_signature::header(now, &request_signature::sign(&signing_secret, &canonical));
    for (signature, expected) in [(&*signed, 201), ("t=1,v1=wrong", 401)] {
        let headers = [("X-API-Key", &*client.key), ("X-API-Secret", &client.secret), ("X-Signature", signature)];
        let (status, answer) = ask(&program, "POST", "/api/v1/beneficiaries", &headers, &person).await;
        assert_eq!(status, expected, "{answer}");
    }
    let (status, answer) =
        ask(&program, "GET", "/api/v1/orders", &[("X-API-Key", &client.key), ("X-API-Secret", "a wrong secret")], &Value::Null)
            .await;
    assert_eq!(status, 401, "{answer}");
    let user = json!({"email": "ada@example.com", "password": PASSWORD, "role": "owner"});
    program.operator(&format!("/accounts/{}/users", client.account_id), user).await;
    let login = json!({"email": "ada@example.com", "password": PASSWORD});
    let (status, session) = ask(&program, "POST", "/auth/login", &[], &login).await;
    assert_eq!(status, 200, "{session}");
    let refresh = json!({"refresh_token": session["refresh_token"]});
    let (status, refreshed) = ask(&program, "POST", "/auth/refresh", &[], &refresh).await;
    assert_eq!(status, 200, "{refreshed}");
    let bearer = format!("Bearer {}", text(&refreshed["access_token"]));
    let (status, answer) = ask(&program, "GET", "/api/v1/products", &[("Authorization", &bearer)], &Value::Null).await;
    assert_eq!(status, 200, "{answer}");

    program.signal(Signal::SIGTERM);
    assert!(program.ended().await.success());
    let log = program.log();
    let debug = log.lines().filter(|line| line.contains("\"level\":\"DEBUG\"")).count();
    assert!(debug > 20 && log.contains("/api/v1/orders"), "the log contains what the node did: {log}");
    let password = database.url.split(['/', ':', '@']).nth(4).unwrap().to_owned();
    let secrets = [
        ("a card number", CARD.to_owned()),
        ("a PIN", PIN.to_owned()),
        ("a claim URL", CLAIM.to_owned()),
        ("an account number", ACCOUNT_NUMBER.to_owned()),
        ("an API key in full", client.key.clone()),
        ("an API secret", client.secret.clone()),
        ("a wrong API secret", "a wrong secret".to_owned()),
        ("a webhook's token", text(&hook["token"])),
        ("a signing secret", signing_secret),
        ("an operator's token", OPERATOR_TOKEN.to_owned()),
        ("a password", PASSWORD.to_owned()),
        ("an email", "ada@example.com".to_owned()),
        ("an access token", text(&session["access_token"])),
        ("another access token", text(&refreshed["access_token"])),
        ("a refresh token", text(&session["refresh_token"])),
        ("another refresh token", text(&refreshed["refresh_token"])),
        ("the master key", MASTER_KEY.to_owned()),
        ("the log's key", LOG_KEY.to_owned()),
        ("the database's password", password),
    ];
    for (name, secret) in secrets {
        assert!(secret.len() >= 8, "too short to be searched for: {name}");
        let found = log.lines().find(|line| line.contains(&secret));
        assert!(found.is_none(), "{name} is in the log: {found:?}");
    }
}
