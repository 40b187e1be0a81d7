//! Responses that show a secret, as the OpenAPI documents describe them: each is an event, which the audit finds.
//!
//! A new response with a secret needs a request in the test, or a row in [`WITHOUT_EVENT`].

use std::collections::BTreeSet;

use chrono::Utc;
use reqwest::RequestBuilder;
use rewards_ledger::access::{Role, two_factor};
use rewards_ledger::api;
use rewards_ledger::secrets::seal::Secret;
use serde_json::{Value, json};

use super::audit::all;
use crate::support::node::Node;

/// Operations that show a secret without an event. `docs/console.md` names them.
const WITHOUT_EVENT: [&str; 6] = [
    // The confirmation of the enrolment is the event. Until then, the secret opens nothing.
    "POST /client/api/two-factor",
    "POST /admin/auth/two-factor",
    // The tokens of a session. Whoever gets them has just proved who they are.
    "POST /auth/login",
    "POST /auth/refresh",
    "POST /admin/auth/login",
    // Only a sandbox and the demo have it.
    "GET /client/api/outbox",
];

/// Operations without a secret whose responses no cache may store, because they are different each time.
const WITHOUT_SECRET: [&str; 4] = ["GET /admin/v1/alerts", "GET /admin/v1/operations", "GET /healthz", "GET /readyz"];

/// Words in the names of fields that hold a secret.
const WORDS: [&str; 9] = ["card", "claim", "codes", "otpauth", "password", "pin", "secret", "token", "tokens"];
/// Fields that have such a name and no secret: a kind, a number, and the name of a list.
const PLAIN: [&str; 3] = ["token_type", "recovery_codes_left", "operator_tokens"];

fn is_secret(field: &str) -> bool {
    !PLAIN.contains(&field) && field.split('_').any(|word| WORDS.contains(&word))
}

/// Returns whether a part of a document, or what it refers to, has a field with a secret. `seen` holds the references that were
/// followed.
fn has_secret(document: &Value, part: &Value, seen: &mut BTreeSet<String>) -> bool {
    let parts: Vec<&Value> = match part {
        Value::Object(fields) => {
            let properties = fields.get("properties").and_then(Value::as_object);
            if properties.is_some_and(|properties| properties.keys().any(|name| is_secret(name))) {
                return true;
            }
            let reference = fields.get("$ref").and_then(Value::as_str).filter(|name| seen.insert((*name).to_owned()));
            let referred = reference.map(|name| document.pointer(name.trim_start_matches('#')).unwrap());
            let nested = fields.iter().filter(|(name, _)| !name.starts_with("example")).map(|(_, value)| value);
            referred.into_iter().chain(nested).collect()
        }
        Value::Array(parts) => parts.iter().collect(),
        _ => vec![],
    };
    parts.into_iter().any(|part| has_secret(document, part, seen))
}

/// Returns the operations with a successful response that has a secret, or that no cache may store.
fn showing() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, text) in api::documents() {
        let document: Value = serde_json::from_str(&text).unwrap();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let responses = operation["responses"].as_object().unwrap().iter();
                let mut successful = responses.filter(|(status, _)| status.starts_with('2')).map(|(_, response)| response);
                let is_unstored = |response: &Value| response["headers"]["Cache-Control"]["description"] == "`no-store`";
                let shows = |response: &Value| is_unstored(response) || has_secret(&document, response, &mut BTreeSet::new());
                if successful.any(shows) {
                    found.insert(format!("{} {path}", method.to_uppercase()));
                }
            }
        }
    }
    found
}

/// Sends requests that show secrets.
struct Reveals<'a> {
    node: &'a Node,
    /// Operations of the requests.
    shown: BTreeSet<String>,
}

impl Reveals<'_> {
    /// Sends a request of an operation. Its only reveal in the audit must be an event of this type. Returns the response.
    async fn reveal(&mut self, operation: &str, event: &str, request: RequestBuilder) -> Value {
        let head = self.node.head().await;
        let answer = self.node.send(request).await;
        assert!((200..300).contains(&answer.status), "{operation}: {}", answer.text);
        assert_eq!(answer.header("cache-control"), "no-store", "{operation}");
        let reveals = all(self.node, "&reveals=true").await;
        let types = reveals.iter().filter(|entry| entry["position"].as_i64() > Some(head)).map(|entry| &entry["type"]);
        assert_eq!(types.collect::<Vec<_>>(), [event], "{operation}");
        self.shown.insert(operation.to_owned());
        answer.json()
    }
}

/// Returns the code that confirms an enrolment.
fn code(enrolment: &Value) -> String {
    let secret = Secret::new(enrolment["secret"].as_str().unwrap());
    two_factor::code_at(&secret, Utc::now()).unwrap().expose().to_owned()
}

#[tokio::test]
async fn every_response_that_shows_a_secret_is_a_reveal_in_the_audit() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (client, kim) = (&setup.client, node.console_user(Role::Auditor).await);
    let owner = node.user(client.account_id, "owner").await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(order).await;
    let mut reveals = Reveals { node: &node, shown: BTreeSet::new() };

    let codes = node.by(client, "GET", &format!("/orders/{order}/vouchers"));
    reveals.reveal("GET /api/v1/orders/{id}/vouchers", "VouchersRevealed", codes).await;
    let hook = json!({"name": "Shop", "url": "https://shop.example/a", "events": ["order.created"]});
    let hook = node.by(client, "POST", "/webhooks").json(&hook);
    let hook = reveals.reveal("POST /api/v1/webhooks", "WebhookRegistered", hook).await["id"].clone();
    let rotate = node.by(client, "POST", &format!("/webhooks/{hook}/rotate-token")).json(&json!({}));
    reveals.reveal("POST /api/v1/webhooks/{id}/rotate-token", "WebhookUpdated", rotate).await;

    let of_owner =
        |method: &str, path: &str| node.request(method, &format!("/client/api{path}")).bearer_auth(&owner.access_token);
    let key = of_owner("POST", "/api-keys").json(&json!({"name": "Shop"}));
    reveals.reveal("POST /client/api/api-keys", "CredentialIssued", key).await;
    let rotate = of_owner("POST", &format!("/api-keys/{}/rotate-signing-secret", client.credential_id)).json(&json!({}));
    reveals.reveal("POST /client/api/api-keys/{id}/rotate-signing-secret", "SigningSecretRotated", rotate).await;

    let key = node.by_operator("POST", &format!("/accounts/{}/credentials", client.account_id)).json(&json!({"name": "Till"}));
    let key = reveals.reveal("POST /admin/v1/accounts/{id}/credentials", "CredentialIssued", key).await;
    let signed = node.by_operator("PUT", &format!("/credentials/{}", key["data"]["id"])).json(&json!({"hmac_required": true}));
    reveals.reveal("PUT /admin/v1/credentials/{id}", "SigningSecretRotated", signed).await;
    let token = node.by_operator("POST", "/operator-tokens").json(&json!({"name": "a program", "role": "auditor"}));
    reveals.reveal("POST /admin/v1/operator-tokens", "OperatorTokenIssued", token).await;

    // Neither the beginning of an enrolment nor another change of a webhook is a reveal.
    let head = node.head().await;
    let of_kim = |path: &str| node.request("POST", path).header("Cookie", &kim.cookie).header("Origin", node.url());
    let users = node.send(of_owner("POST", "/two-factor")).await.data(201);
    let operators = node.send(of_kim("/admin/auth/two-factor")).await.data(200);
    assert_eq!(node.head().await, head);
    node.client(client, "PUT", &format!("/webhooks/{hook}"), json!({"name": "Till"})).await;
    assert_eq!((node.head().await, all(&node, "&reveals=true&type=WebhookUpdated").await.len()), (head + 1, 1));
    let confirm = of_owner("POST", "/two-factor/confirm").json(&json!({"otp": code(&users)}));
    reveals.reveal("POST /client/api/two-factor/confirm", "UserTwoFactorEnabled", confirm).await;
    let confirm = of_kim("/admin/auth/two-factor/confirm").json(&json!({"code": code(&operators)}));
    reveals.reveal("POST /admin/auth/two-factor/confirm", "OperatorTwoFactorEnabled", confirm).await;

    let mut expected = reveals.shown;
    expected.extend(WITHOUT_EVENT.iter().chain(&WITHOUT_SECRET).map(|operation| (*operation).to_owned()));
    assert_eq!(showing(), expected);
}

#[tokio::test]
async fn a_request_that_is_repeated_under_its_key_shows_its_token_again_without_an_event() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let hook = json!({"name": "Shop", "url": "https://shop.example/a", "events": ["order.created"]});
    let first = node.keyed(&client, "/webhooks", "hook-1", &hook).await;
    let head = node.head().await;
    let again = node.keyed(&client, "/webhooks", "hook-1", &hook).await;
    assert_eq!((first.status, &first.text, again.header("idempotent-replayed")), (again.status, &again.text, "true"));
    assert!(first.json()["token"].as_str().is_some_and(|token| token.len() >= 32), "{}", first.text);
    assert_eq!((node.head().await, all(&node, "&reveals=true&type=WebhookRegistered").await.len()), (head, 1));
}
