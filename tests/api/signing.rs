//! Signed requests: which credentials must sign, and which signatures are refused.

use chrono::Utc;
use ledger_events::{AccountId, CredentialId};
use rewards_ledger::access::request_signature::{header, sign};
use rewards_ledger::ledger::{CommandResult as Outcome, commands};
use rewards_ledger::secrets::seal::random_secret;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::ledger::run;
use crate::support::node::{AMPLE_LIMITS, Client, Node, TestResponse};

#[tokio::test]
async fn the_signing_secret_is_shown_once_when_it_is_made() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let path = format!("/credentials/{}", client.credential_id);
    let off = node.operator("PUT", &path, json!({"hmac_required": false})).await.data(200);
    assert_eq!(off, json!({"id": client.credential_id, "hmac_required": false, "signing_secret": null}));
    let head = node.head().await;
    let on = node.operator("PUT", &path, json!({"hmac_required": true})).await;
    assert_eq!(on.header("cache-control"), "no-store");
    let on = on.data(200);
    let secret = on["signing_secret"].as_str().unwrap();
    assert_eq!((secret.len(), &on["hmac_required"]), (64, &json!(true)));
    assert_eq!(node.head().await, head + 2, "SigningSecretRotated, HmacRequirementChanged");
    let again = node.operator("PUT", &path, json!({"hmac_required": true})).await.data(200);
    assert_eq!(again["signing_secret"], Value::Null);
    assert_eq!(node.head().await, head + 2, "nothing changed");
    let log: String =
        sqlx::query_scalar("SELECT string_agg(data::text, ' ') FROM events").fetch_one(node.ledger.pool()).await.unwrap();
    assert!(!log.contains(secret));

    node.operator("PUT", &path, json!({})).await.refused(400, "E_VALIDATION_FAILURE");
    node.operator("PUT", "/credentials/999999", json!({"hmac_required": true})).await.refused(404, "E_NOT_FOUND");
    node.operator("DELETE", &path, Value::Null).await.data(200);
    node.operator("PUT", &path, json!({"hmac_required": false})).await.refused(409, "E_CONFLICT");
}

#[tokio::test]
async fn a_new_linked_webhook_gets_the_rotated_secret_as_its_token() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let (account_id, credential_id) = (client.account_id, client.credential_id);
    let new_secret = random_secret();
    let rotate = commands::RotateSigningSecret {
        account_id: AccountId(account_id),
        credential_id: CredentialId(credential_id),
        new_secret: new_secret.clone(),
        previous_valid_hours: None,
    };
    let Outcome::Signing { credential, signing_secret, .. } = run(&node.ledger, rotate.clone()).await else { panic!() };
    assert!(credential.has_signing_secret && !credential.hmac_required);
    assert_eq!(signing_secret.as_ref(), Some(&new_secret));
    let hook =
        json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"], "credential_id": credential_id});
    let webhook = node.client(&client, "POST", "/webhooks", hook).await.json();
    assert_eq!(webhook["token"], new_secret.expose());

    // This command is a change by the account, so the suspension applies. A change by an operator would pass.
    node.operator("PUT", &format!("/accounts/{account_id}"), json!({"status": "SUSPENDED"})).await.data(200);
    let refused = node.ledger.execute(1, rotate, crate::support::ledger::origin()).await;
    assert!(format!("{refused:?}").contains("AccountSuspended"), "{refused:?}");
}

/// SHA-256 of the empty string.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Creates a client whose requests must be signed, and returns it with its signing secret.
async fn signing_client(node: &Node) -> (Client, String) {
    let client = node.setup().await.client;
    let path = format!("/credentials/{}", client.credential_id);
    let on = node.operator("PUT", &path, json!({"hmac_required": true})).await.data(200);
    (client, on["signing_secret"].as_str().unwrap().to_owned())
}

/// Sends a request with exactly these bytes and, if given, this signature.
async fn send(node: &Node, client: &Client, method: &str, target: &str, body: &[u8], signature: Option<&str>) -> TestResponse {
    let mut headers = vec![("X-API-Key", &*client.key), ("X-API-Secret", &*client.secret), ("Content-Type", "application/json")];
    headers.extend(signature.map(|signature| ("X-Signature", signature)));
    node.raw(method, target, &headers, body).await
}

#[tokio::test]
async fn the_signature_covers_the_bytes_on_the_wire() {
    let node = Node::start().await;
    let (client, secret) = signing_client(&node).await;
    let order = br#"{"product_id":999999,"denomination":10,"quantity":1}"#;
    let hash = |body: &[u8]| hex::encode(Sha256::digest(body));
    let binary: Vec<u8> = (0..=255).collect();
    for (method, target, body, path, query) in [
        ("GET", "/api/v1/orders", &b""[..], "/api/v1/orders", ""),
        ("GET", "/api/v1/orders/", b"", "/api/v1/orders", ""),
        ("GET", "/api/v1/orders//", b"", "/api/v1/orders", ""),
        ("GET", "/api/v1/orders?", b"", "/api/v1/orders", ""),
        ("GET", "/api/v1/orders?page=1&limit=5", b"", "/api/v1/orders", "limit=5&page=1"),
        ("GET", "/api/v1/products?search=b&country=DE&search=a", b"", "/api/v1/products", "country=DE&search=b&search=a"),
        ("GET", "/api/v1/products?search=%C3%A9+x%2F&a-b=1&a", b"", "/api/v1/products", "a=&a-b=1&search=%C3%A9+x%2F"),
        ("GET", "/api/v1/products?&b=1&&a=x=y&", b"", "/api/v1/products", "a=x=y&b=1"),
        ("GET", "/api/v1/products/%31", b"", "/api/v1/products/%31", ""),
        ("POST", "/api/v1/orders", order, "/api/v1/orders", ""),
        ("POST", "/api/v1/orders/?x=1", &binary, "/api/v1/orders", "x=1"),
        ("DELETE", "/api/v1/webhooks/999999", b"", "/api/v1/webhooks/999999", ""),
    ] {
        let now = Utc::now().timestamp();
        let body_hash = if body.is_empty() { EMPTY.to_owned() } else { hash(body) };
        let good = header(now, &sign(&secret, &format!("{method}\n{path}\n{query}\n{body_hash}\n{now}")));
        let answer = send(&node, &client, method, target, body, Some(&good)).await;
        assert_ne!(answer.status, 401, "{method} {target}: {}", answer.text);
        let bad = header(now, &sign(&secret, &format!("{method}\n{path}/\n{query}\n{body_hash}\n{now}")));
        let answer = send(&node, &client, method, target, body, Some(&bad)).await;
        answer.refused(401, "E_HMAC_SIGNATURE_INVALID");
        // The signature covers one body, the request has another.
        let other = [body, b" "].concat();
        send(&node, &client, method, target, &other, Some(&good)).await.refused(401, "E_HMAC_SIGNATURE_INVALID");
    }
}

#[tokio::test]
async fn each_refusal_has_its_message_and_its_precedence() {
    let node = Node::start().await;
    let (client, secret) = signing_client(&node).await;
    let signed = |at: i64| header(at, &sign(&secret, &format!("POST\n/api/v1/orders\n\n{EMPTY}\n{at}")));
    let now = Utc::now().timestamp();
    let wrong = |at: i64| header(at, &"0".repeat(64));
    for (signature, code, message) in [
        (None, "E_HMAC_SIGNATURE_REQUIRED", "hmac signature required"),
        (Some("t=1".to_owned()), "E_HMAC_HEADER_INVALID", "invalid signature header format"),
        (Some(signed(now).replace(",v1", ", v1")), "E_HMAC_HEADER_INVALID", "invalid signature header format"),
        (Some(signed(now - 310)), "E_HMAC_TIMESTAMP_EXPIRED", "request timestamp expired"),
        (Some(wrong(now + 310)), "E_HMAC_TIMESTAMP_EXPIRED", "request timestamp expired"),
        (Some(wrong(now)), "E_HMAC_SIGNATURE_INVALID", "invalid hmac signature"),
        (
            Some(signed(now).to_uppercase().replace("T=", "t=").replace("V1", "v1")),
            "E_HMAC_SIGNATURE_INVALID",
            "invalid hmac signature",
        ),
    ] {
        let answer = send(&node, &client, "POST", "/api/v1/orders", b"", signature.as_deref()).await;
        let error = answer.refused(401, code);
        assert_eq!((&error["message"], &error["name"]), (&json!(message), &json!("AuthenticationError")), "{signature:?}");
        assert!(!answer.header("x-ratelimit-remaining").is_empty());
    }
    for at in [now - 290, now + 290] {
        // The signature is accepted, and the empty body then fails to parse.
        send(&node, &client, "POST", "/api/v1/orders", b"", Some(&signed(at))).await.refused(400, "E_MALFORMED_JSON");
    }
    let twice = signed(now);
    let headers =
        [("X-API-Key", &*client.key), ("X-API-Secret", &*client.secret), ("X-Signature", &*twice), ("X-Signature", &*twice)];
    node.raw("POST", "/api/v1/orders", &headers, b"").await.refused(401, "E_HMAC_HEADER_INVALID");

    // The key and the size of the body are checked before the signature, everything that is parsed after it.
    let stranger = Client { secret: "0".repeat(64), ..client.clone() };
    send(&node, &stranger, "POST", "/api/v1/orders", b"{", None).await.refused(401, "E_UNAUTHORIZED");
    let large = vec![b' '; (1 << 20) + 1];
    send(&node, &client, "POST", "/api/v1/orders", &large, None).await.refused(413, "E_PAYLOAD_TOO_LARGE");
    for target in ["/api/v1/orders?page=x", "/api/v1/orders/%00", "/api/v1/nowhere"] {
        send(&node, &client, "GET", target, b"", None).await.refused(401, "E_HMAC_SIGNATURE_REQUIRED");
    }
    send(&node, &client, "POST", "/api/v1/orders", b"{", None).await.refused(401, "E_HMAC_SIGNATURE_REQUIRED");
}

#[tokio::test]
async fn requiring_signatures_and_rotating_apply_to_the_next_request_on_every_node() {
    let node = Node::start().await;
    let other = node.beside(AMPLE_LIMITS.parse().unwrap()).await;
    let client = node.account("Acme").await;
    let get = async |node: &Node, signature: Option<&str>| send(node, &client, "GET", "/api/v1/orders", b"", signature).await;
    let signed = |secret: &str| {
        let now = Utc::now().timestamp();
        header(now, &sign(secret, &format!("GET\n/api/v1/orders\n\n{EMPTY}\n{now}")))
    };
    for node in [&node, &other] {
        get(node, Some("not required, so not looked at")).await.data(200);
    }
    let path = format!("/credentials/{}", client.credential_id);
    let on = node.operator("PUT", &path, json!({"hmac_required": true})).await.data(200);
    let first = on["signing_secret"].as_str().unwrap();
    let second = random_secret();
    for node in [&node, &other] {
        get(node, None).await.refused(401, "E_HMAC_SIGNATURE_REQUIRED");
        get(node, Some(&signed(first))).await.data(200);
    }
    let (account_id, credential_id) = (client.account_id, client.credential_id);
    run(
        &node.ledger,
        commands::RotateSigningSecret {
            account_id: AccountId(account_id),
            credential_id: CredentialId(credential_id),
            new_secret: second.clone(),
            previous_valid_hours: None,
        },
    )
    .await;
    for node in [&other, &node] {
        get(node, Some(&signed(first))).await.refused(401, "E_HMAC_SIGNATURE_INVALID");
        get(node, Some(&signed(second.expose()))).await.data(200);
    }
    let owner = node.user(account_id, "owner").await;
    let rotate = format!("/client/api/api-keys/{credential_id}/rotate-signing-secret");
    let third = node.bearer(&owner.access_token, "POST", &rotate, Value::Null).await.data(200)["signing_secret"].clone();
    for node in [&other, &node] {
        get(node, Some(&signed(second.expose()))).await.refused(401, "E_HMAC_SIGNATURE_INVALID");
        get(node, Some(&signed(third.as_str().unwrap()))).await.data(200);
    }
    node.operator("PUT", &path, json!({"hmac_required": false})).await.data(200);
    for node in [&other, &node] {
        get(node, None).await.data(200);
    }
}
