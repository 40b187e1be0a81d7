//! Every change by an operator is in the log, with the operator's name.
//!
//! A new operation that changes something needs a row in [`table`]; without it, the test fails.

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::Utc;
use ledger_events::wallet::Direction;
use ledger_events::{Actor, OrderId, WalletId};
use rewards_ledger::access::{Role, two_factor};
use rewards_ledger::api;
use rewards_ledger::ledger::{CommandResult, Origin, commands};
use rewards_ledger::secrets::seal::Secret;
use serde_json::{Value, json};

use super::images::PNG;
use super::routes::{Things, World, world};
use crate::support::ledger::{self, execute, run};
use crate::support::node::{Node, product};

enum Body {
    None,
    Json(Value),
    Bytes(&'static str, Vec<u8>),
}

struct Change {
    /// Method and path, as in the OpenAPI document.
    route: &'static str,
    /// Values of the path's parameters.
    at: Vec<Value>,
    body: Body,
    /// Types of the events that the operation appends.
    events: &'static [&'static str],
}

fn change(route: &'static str, at: &[&Value], body: Body, events: &'static [&'static str]) -> Change {
    Change { route, at: at.iter().map(|value| (*value).clone()).collect(), body, events }
}

/// Every operation that changes something. The order matters, because each one needs something to change.
fn table(things: &Things) -> Vec<Change> {
    use Body::{Bytes, Json, None};
    let of = |name: &str| json!(things[name]);
    let (account, wallet, product_id, webhook) = (of("accounts"), of("wallets"), of("products"), of("webhooks"));
    let line = format!("date,amount,currency,reference\n{},5.00,EUR,unknown\n", Utc::now().date_naive());
    let user = json!({"email": "jo@example.com", "password": "correct horse battery staple", "role": "viewer"});
    let operator = json!({"email": "op@example.com", "password": "correct horse battery staple", "role": "finance"});
    let made = json!("the operator");
    let mut changed = product("Changed");
    changed["brand"] = json!("Acme");
    vec![
        change("POST /admin/v1/accounts", &[], Json(json!({"name": "New"})), &["AccountCreated"]),
        change("POST /admin/v1/accounts/{id}/credentials", &[&account], Json(json!({"name": "more"})), &["CredentialIssued"]),
        change("POST /admin/v1/accounts/{id}/users", &[&account], Json(user), &["UserCreated"]),
        change("POST /admin/v1/operators", &[], Json(operator), &["OperatorUserCreated"]),
        change("PUT /admin/v1/operators/{id}", &[&made], Json(json!({"role": "auditor"})), &["OperatorUserChanged"]),
        change("DELETE /admin/v1/operators/{id}/two-factor", &[&made], None, &["OperatorTwoFactorRemoved"]),
        change("DELETE /admin/v1/operators/{id}", &[&made], None, &["OperatorUserRemoved"]),
        change(
            "POST /admin/v1/operator-tokens",
            &[],
            Json(json!({"name": "a program", "role": "auditor"})),
            &["OperatorTokenIssued"],
        ),
        change("DELETE /admin/v1/operator-tokens/{id}", &[&json!("the token")], None, &["OperatorTokenRevoked"]),
        change("POST /admin/v1/accounts/{id}/wallets", &[&account], Json(json!({"currency": "USD"})), &["WalletOpened"]),
        change(
            "PUT /admin/v1/accounts/{id}/discounts",
            &[&account],
            Json(json!({"product_id": product_id, "discount": "2.50"})),
            &["DiscountSet"],
        ),
        change(
            "POST /admin/v1/wallets/{id}/fund",
            &[&wallet],
            Json(json!({"amount": "5.00", "reference": "r-1"})),
            &["WalletFunded"],
        ),
        change(
            "POST /admin/v1/wallets/{id}/adjust",
            &[&wallet],
            Json(json!({"type": "DEBIT", "amount": "1.00", "reason": "r"})),
            &["WalletAdjusted"],
        ),
        change("POST /admin/v1/categories", &[], Json(json!({"name": "Games"})), &["CategoryAdded"]),
        change("POST /admin/v1/products", &[], Json(product("Another")), &["ProductAdded"]),
        change("PUT /admin/v1/products/{id}", &[&product_id], Json(changed), &["ProductChanged"]),
        change("PUT /admin/v1/products/{id}/image", &[&product_id], Bytes("image/png", PNG.to_vec()), &["ProductImageSet"]),
        change(
            "POST /admin/v1/products/{id}/vouchers",
            &[&product_id],
            Json(json!({"denomination": "10.00", "vouchers": [{"card_number": "6006-1", "voucher_reference_number": "VCH-6"},
                {"card_number": "6006-2", "voucher_reference_number": "VCH-7"},
                {"card_number": "6006-3", "voucher_reference_number": "VCH-8"}]})),
            &["VoucherStockLoaded"],
        ),
        change(
            "POST /admin/v1/products/{id}/vouchers/transfer",
            &[&product_id],
            Json(json!({"vouchers": ["VCH-8"], "to_product_id": of("successor"), "reason": "a new product"})),
            &["VouchersTransferredOut", "VouchersTransferredIn"],
        ),
        change(
            "POST /admin/v1/products/{id}/vouchers/void",
            &[&product_id],
            Json(json!({"vouchers": ["VCH-6"], "reason": "stolen"})),
            &["VouchersVoided"],
        ),
        change(
            "POST /admin/v1/products/{id}/vouchers/expiry",
            &[&product_id],
            Json(json!({"vouchers": ["VCH-7"], "expires_on": "2027-12-31"})),
            &["VoucherExpirySet"],
        ),
        change(
            "PUT /admin/v1/products/{id}/stock-threshold",
            &[&product_id],
            Json(json!({"denomination": "10.00", "threshold": 5})),
            &["StockThresholdSet"],
        ),
        change(
            "PUT /admin/v1/products/{id}/supplier",
            &[&product_id],
            Json(json!({"supplier": "acme", "sku": "SKU-10"})),
            &["ProductSupplierSet"],
        ),
        change("POST /admin/v1/purchases/{id}/close", &[&json!("the purchase")], None, &["PurchaseRefused"]),
        change(
            "POST /admin/v1/orders/{id}/cancel",
            &[&of("orders")],
            Json(json!({"reason": "r"})),
            &["OrderCancelled", "WalletRefunded"],
        ),
        change("POST /admin/v1/approvals/{id}/approve", &[&json!("an approval")], None, &["ApprovalGranted", "WalletAdjusted"]),
        change(
            "POST /admin/v1/approvals/{id}/reject",
            &[&json!("another approval")],
            Json(json!({"reason": "r"})),
            &["ApprovalRejected"],
        ),
        change("POST /admin/v1/approvals/{id}/withdraw", &[&json!("an own approval")], None, &["ApprovalWithdrawn"]),
        change("PUT /admin/v1/payouts/{id}", &[&of("payouts")], Json(json!({"status": "PAID"})), &["PayoutPaid"]),
        change(
            "POST /admin/v1/webhooks/{id}/replays",
            &[&webhook],
            Json(json!({"kind": "deliveries", "from_position": 1})),
            &["WebhookReplayRequested"],
        ),
        change("POST /admin/v1/replays/{id}/cancel", &[&json!("the replay")], None, &["WebhookReplayCancelled"]),
        change("POST /admin/v1/reconciliation/statements", &[], Bytes("text/csv", line.into_bytes()), &["StatementImported"]),
        change(
            "POST /admin/v1/reconciliation/statements/{id}/lines/{line}/decide",
            &[&json!("the statement"), &json!(1)],
            Json(json!({"decision": "IGNORED", "reason": "a fee"})),
            &["MatchDecided"],
        ),
        change(
            "POST /admin/v1/reconciliation/statements/{id}/lines/{line}/revoke",
            &[&json!("the statement"), &json!(1)],
            Json(json!({"reason": "no fee"})),
            &["MatchDecisionRevoked"],
        ),
        change("POST /admin/v1/audit-runs", &[], None, &["VerificationStarted"]),
        change("DELETE /admin/v1/audit-runs/{id}", &[&json!("the run")], None, &["VerificationStopped"]),
        change("DELETE /admin/v1/ip-blocks/{ip}", &[&json!("192.0.2.1")], None, &["IpBlockLifted"]),
        change(
            "PUT /admin/v1/credentials/{id}",
            &[&of("credentials")],
            Json(json!({"hmac_required": true})),
            &["SigningSecretRotated", "HmacRequirementChanged"],
        ),
        change("DELETE /admin/v1/credentials/{id}", &[&of("credentials")], None, &["CredentialRevoked"]),
        change(
            "PUT /admin/v1/users/{id}",
            &[&of("users")],
            Json(json!({"role": "owner", "password": "a quite different one"})),
            &["UserRoleChanged", "UserPasswordReset"],
        ),
        change("DELETE /admin/v1/users/{id}/sessions", &[&of("users")], None, &["UserSessionsEnded"]),
        change("DELETE /admin/v1/users/{id}", &[&of("users")], None, &["UserRemoved"]),
        change("POST /admin/v1/shards", &[], Json(json!({"shard_id": 2})), &["ShardAdded"]),
        change("PUT /admin/v1/shards/{id}/drain", &[&json!(2)], Json(json!({"draining": true})), &["ShardDrainSet"]),
        change("PUT /admin/v1/accounts/{id}", &[&account], Json(json!({"status": "SUSPENDED"})), &["AccountStatusChanged"]),
    ]
}

/// Fills the values of its parameters into `route`.
fn path(route: &str, at: &[Value], made: &[(&str, Value)]) -> String {
    let mut values = at.iter().map(|value| match made.iter().find(|(name, _)| value == name) {
        Some((_, id)) => id.to_string(),
        None => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
    });
    let segments = route.split('/').map(|segment| match segment.starts_with('{') {
        true => values.next().expect("a value for each parameter"),
        false => segment.to_owned(),
    });
    segments.collect::<Vec<_>>().join("/")
}

/// Enables an operator's second factor, for the operation that removes it.
async fn enrol(node: &Node, id: i64) {
    let secret = two_factor::generate_secret();
    run(&node.ledger, commands::EnableOperatorTwoFactor { id, secret, step: 1, recovery_codes: vec![], session_id: 0 }).await;
}

/// Requests an approval as an operator.
async fn requested(node: &Node, wallet_id: i64, operator: i64) -> i64 {
    let (direction, amount) = (Direction::Credit, "2.00".parse().unwrap());
    let adjust = commands::AdjustWallet { wallet_id: WalletId(wallet_id), direction, amount, reason: Secret::new("r") };
    let limits = Arc::new("1".parse().unwrap());
    let command = commands::Supervise { change: commands::MoneyChange::Adjust(adjust), limits };
    let origin = Origin { actor: Actor::Operator(operator), request_id: "test".to_owned() };
    let CommandResult::Approval(view) = execute(&node.ledger, command, origin).await.unwrap() else { panic!() };
    view.approval.id.0
}

/// Makes a purchase for an order of a product without stock.
async fn bought(node: &Node, world: &World) -> i64 {
    let product_id = ledger::product(&node.ledger, "Bought").await;
    let order = json!({"product_id": product_id.0, "denomination": 10, "quantity": 1});
    let order_id = node.client(&world.key, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(order_id).await;
    ledger::buy(&node.ledger, OrderId(order_id), product_id, "SKU-10").await.0
}

#[tokio::test]
async fn every_change_by_an_operator_is_an_event_that_names_them() {
    let node = Node::start().await;
    let world = world(&node).await;
    let token = node.token(Role::Admin).await;
    let operator: i64 = sqlx::query_scalar("SELECT max(id) FROM vault.operators").fetch_one(node.ledger.pool()).await.unwrap();
    assert!(operator > 0, "operator 0 is the one of the configuration");
    sqlx::query("INSERT INTO ip_blocks (ip, started_at, ends_at) VALUES ('192.0.2.1', now(), now() + interval '15 min')")
        .execute(node.ledger.pool())
        .await
        .unwrap();

    let mut made: Vec<(&str, Value)> = vec![];
    for (name, requester) in [("an approval", 0), ("another approval", 0), ("an own approval", operator)] {
        made.push((name, json!(requested(&node, world.things["wallets"], requester).await)));
    }
    // A verification that was interrupted can be stopped, and does not keep another one from its start.
    let run = "INSERT INTO audit_runs (kind, host, beat_at) VALUES ('verify', 'here', now() - interval '1 h') RETURNING id";
    let run: i64 = sqlx::query_scalar(run).fetch_one(node.ledger.pool()).await.unwrap();
    made.push(("the run", json!(run)));
    made.push(("the purchase", json!(bought(&node, &world).await)));
    let mut things = world.things.clone();
    things.insert("successor", ledger::product(&node.ledger, "Successor").await.0);
    let changes = table(&things);
    for change in &changes {
        let head = node.head().await;
        let (method, route) = change.route.split_once(' ').unwrap();
        let request = node.request(method, &path(route, &change.at, &made)).bearer_auth(token.expose());
        let request = match &change.body {
            Body::None => request,
            Body::Json(body) => request.json(body),
            Body::Bytes(kind, bytes) => request.header("Content-Type", *kind).body(bytes.clone()),
        };
        let answer = node.send(request).await;
        assert!((200..300).contains(&answer.status), "{}: {}", change.route, answer.text);
        match change.route {
            "POST /admin/v1/webhooks/{id}/replays" => made.push(("the replay", answer.json()["data"]["replay"]["id"].take())),
            "POST /admin/v1/operators" => {
                let id = answer.json()["data"]["id"].take();
                enrol(&node, id.as_i64().unwrap()).await;
                made.push(("the operator", id));
            }
            "POST /admin/v1/operator-tokens" => made.push(("the token", answer.json()["data"]["id"].take())),
            "POST /admin/v1/reconciliation/statements" => made.push(("the statement", answer.json()["data"]["id"].take())),
            _ => (),
        }
        let appended: Vec<(String, Value)> =
            sqlx::query_as("SELECT type, metadata::jsonb->'actor' FROM events WHERE position > $1 AND metadata->>'request_id' <> 'test' ORDER BY position")
                .bind(head)
                .fetch_all(node.ledger.pool())
                .await
                .unwrap();
        let (types, actors): (Vec<&str>, Vec<&Value>) = appended.iter().map(|(kind, actor)| (&**kind, actor)).unzip();
        assert_eq!(types, change.events, "{}", change.route);
        assert!(actors.iter().all(|actor| **actor == json!({"operator": operator})), "{}: {actors:?}", change.route);
    }

    let document: Value = api::documents()
        .into_iter()
        .map(|(_, text)| serde_json::from_str::<Value>(&text).unwrap())
        .find(|document| document["paths"].get("/admin/v1/accounts").is_some())
        .unwrap();
    let mut operations = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let changing = methods.as_object().unwrap().keys().filter(|method| *method != "get" && path.starts_with("/admin/v1/"));
        operations.extend(changing.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    let rows: BTreeSet<String> = changes.iter().map(|change| change.route.to_owned()).collect();
    assert_eq!(rows, operations);
}
