//! Beneficiaries and payouts over HTTP.

use rewards_ledger::access::Role;
use serde_json::{Value, json};

use crate::support::node::{Node, Setup};

const IBAN: &str = "DE89370400440532013000";

fn person() -> Value {
    json!({"name": "Ada Lovelace", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": IBAN, "bank_code": "COBADEFFXXX"})
}

async fn beneficiary(node: &Node, setup: &Setup) -> i64 {
    node.client(&setup.client, "POST", "/beneficiaries", person()).await.data(201)["id"].as_i64().unwrap()
}

fn payout(setup: &Setup, beneficiary: i64, amount: &str) -> Value {
    json!({"beneficiary_id": beneficiary, "wallet_id": setup.wallet_id, "amount": amount})
}

async fn balance(node: &Node, setup: &Setup) -> Value {
    node.client(&setup.client, "GET", "/wallets", Value::Null).await.data(200)["wallets"][0]["balance"].take()
}

#[tokio::test]
async fn the_account_number_of_a_beneficiary_is_never_shown() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let added = node.keyed(client, "/beneficiaries", "ada", &person()).await;
    let view = added.data(201);
    let expected = json!({
        "id": view["id"], "name": "Ada Lovelace", "type": "BANK", "country": "DE", "currency": "EUR", "account_last4": "3000",
        "bank_code": "COBADEFFXXX", "created_at": view["created_at"],
    });
    assert_eq!(view, expected);
    let again = node.keyed(client, "/beneficiaries", "ada", &person()).await;
    assert_eq!((&again.text, again.header("idempotent-replayed")), (&added.text, "true"));
    let phone =
        json!({"name": "Bob", "type": "MOBILE_WALLET", "country": "KE", "currency": "EUR", "account_number": "+254700123456"});
    let phone = node.client(client, "POST", "/beneficiaries", phone).await.data(201);
    assert_eq!((&phone["account_last4"], &phone["bank_code"]), (&json!("3456"), &Value::Null));

    let path = format!("/beneficiaries/{}", view["id"]);
    assert_eq!(node.client(client, "GET", &path, Value::Null).await.data(200), view);
    let listed = node.client(client, "GET", "/beneficiaries", Value::Null).await;
    assert_eq!(listed.header("x-total-count"), "2");
    assert_eq!(listed.data(200), json!({"beneficiaries": [phone, view]}));

    // A beneficiary of another account is not found.
    let other = node.account("Other").await;
    for method in ["GET", "DELETE"] {
        node.client(&other, method, &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    }
    let deleted = node.client(client, "DELETE", &path, Value::Null).await.data(200);
    assert_eq!(deleted["beneficiary_id"], view["id"]);
    node.client(client, "GET", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    node.client(client, "DELETE", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    assert_eq!(node.client(client, "GET", "/beneficiaries", Value::Null).await.header("x-total-count"), "1");
    let refused = node.client(client, "POST", "/payouts", payout(&setup, view["id"].as_i64().unwrap(), "1.00")).await;
    assert!(refused.refused(400, "E_VALIDATION_FAILURE")["messages"]["beneficiary_id"].is_array());

    let logged: Vec<String> =
        sqlx::query_scalar("SELECT data::text || metadata::text FROM events").fetch_all(node.ledger.pool()).await.unwrap();
    for personal in ["Lovelace", IBAN, "3000\"", "COBADEFFXXX", "254700123456"] {
        assert!(logged.iter().all(|event| !event.contains(personal)), "{personal} is in the log");
    }
}

#[tokio::test]
async fn erased_data_is_shown_as_null_and_breaks_nothing() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let to = beneficiary(&node, &setup).await;
    let made = node.client(&setup.client, "POST", "/payouts", payout(&setup, to, "10.00")).await.data(201);
    let erase = "DELETE FROM vault.texts WHERE kind IN ('beneficiary.profile', 'beneficiary.account_number') AND id = $1";
    sqlx::query(erase).bind(to).execute(&mut node.options.connect().await.unwrap()).await.unwrap();
    let erased = node.client(&setup.client, "GET", &format!("/beneficiaries/{to}"), Value::Null).await.data(200);
    assert_eq!((&erased["name"], &erased["account_last4"], &erased["bank_code"]), (&json!(""), &json!(""), &Value::Null));
    assert_eq!(
        node.client(&setup.client, "GET", "/beneficiaries", Value::Null).await.data(200),
        json!({"beneficiaries": [erased]})
    );
    node.client(&setup.client, "DELETE", &format!("/beneficiaries/{to}"), Value::Null).await.data(200);
    let path = format!("/payouts/{}/cancel", made["id"]);
    assert_eq!(node.client(&setup.client, "POST", &path, Value::Null).await.data(200)["status"], "CANCELLED");
    let report = rewards_ledger::audit::verify(&node.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:?}", report.differences);
}

#[tokio::test]
async fn a_wrong_beneficiary_is_refused_field_by_field() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    for (field, value) in [
        ("name", json!("")),
        ("name", json!("two\nlines")),
        ("type", json!("CASH")),
        ("country", json!("Germany")),
        ("country", json!("de")),
        ("currency", json!("KWD")),
        ("account_number", json!("1234")),
        ("account_number", json!("DE89 3704 0044")),
        ("account_number", json!("+")),
        ("account_number", json!("12é456")),
        ("account_number", json!("1".repeat(35))),
        ("account_number", Value::Null),
        ("bank_code", json!("")),
        ("account_last4", json!("3000")),
    ] {
        let mut body = person();
        body[field] = value.clone();
        let error = node.client(&client, "POST", "/beneficiaries", body).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][field].is_array(), "{field} {value}: {error}");
        assert!(!error.to_string().contains(IBAN), "{error}");
    }
}

#[tokio::test]
async fn a_payout_debits_the_wallet_and_a_cancelled_one_refunds_it() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let to = beneficiary(&node, &setup).await;
    let made = node.client(client, "POST", "/payouts", payout(&setup, to, "120.00")).await.data(201);
    let expected = json!({
        "id": made["id"], "beneficiary_id": to, "wallet_id": setup.wallet_id, "amount": "120.00", "currency": "EUR",
        "client_reference": null, "status": "PENDING", "failure_reason": null, "created_at": made["created_at"], "settled_at": null,
    });
    assert_eq!(made, expected);
    assert_eq!(balance(&node, &setup).await, "880.00");
    let path = format!("/payouts/{}", made["id"]);
    assert_eq!(node.client(client, "GET", &path, Value::Null).await.data(200), made);
    let other = node.account("Other").await;
    node.client(&other, "GET", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    node.client(&other, "POST", &format!("{path}/cancel"), Value::Null).await.refused(404, "E_NOT_FOUND");
    node.client(client, "GET", "/payouts/none", Value::Null).await.refused(404, "E_NOT_FOUND");

    let reason = node.client(client, "POST", &format!("{path}/cancel"), json!({"reason": "r"})).await;
    assert!(reason.refused(400, "E_VALIDATION_FAILURE")["messages"]["reason"].is_array());
    let cancelled = node.keyed(client, &format!("{path}/cancel"), "c", &Value::Null).await;
    let view = cancelled.data(200);
    assert_eq!((&view["status"], view["settled_at"].is_string()), (&json!("CANCELLED"), true));
    assert_eq!(balance(&node, &setup).await, "1000.00");
    let again = node.keyed(client, &format!("{path}/cancel"), "c", &json!({})).await;
    assert_eq!((&again.text, again.header("idempotent-replayed")), (&cancelled.text, "true"));
    node.client(client, "POST", &format!("{path}/cancel"), Value::Null).await.refused(409, "E_PAYOUT_NOT_CANCELLABLE");
    let moved = node.client(client, "GET", "/transactions?limit=2", Value::Null).await.data(200);
    let [refund, debit] = [&moved["transactions"][0], &moved["transactions"][1]];
    let reference = format!("PAY-{:010}", made["id"].as_i64().unwrap());
    for (transaction, category, direction, balance_after) in
        [(refund, "PAYOUT_REFUND", "CREDIT", "1000.00"), (debit, "PAYOUT", "DEBIT", "880.00")]
    {
        assert_eq!((&transaction["category"], &transaction["type"]), (&json!(category), &json!(direction)));
        assert_eq!((&transaction["amount"], &transaction["balance_after"]), (&json!("120.00"), &json!(balance_after)));
        assert_eq!((&transaction["order_id"], &transaction["reference"]), (&Value::Null, &json!(reference)));
        assert!(transaction["description"].as_str().unwrap().contains(&reference), "{transaction}");
    }
    let filtered = node.client(client, "GET", "/transactions?category=PAYOUT_REFUND", Value::Null).await;
    assert_eq!(filtered.header("x-total-count"), "1");
}

#[tokio::test]
async fn an_invalid_payout_is_refused_and_has_no_effect() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let to = beneficiary(&node, &setup).await;
    let dollars = json!({"name": "Bob", "type": "BANK", "country": "US", "currency": "USD", "account_number": "000123456789"});
    let dollars = node.client(client, "POST", "/beneficiaries", dollars).await.data(201)["id"].as_i64().unwrap();
    let other = node.setup().await;
    let head = node.head().await;
    let request = async |body: Value| node.client(client, "POST", "/payouts", body).await;
    request(payout(&setup, to, "1000.01")).await.refused(402, "E_INSUFFICIENT_BALANCE");
    request(payout(&setup, dollars, "1.00")).await.refused(422, "E_CURRENCY_MISMATCH");
    for (field, body) in [
        ("beneficiary_id", payout(&setup, 999, "1.00")),
        ("wallet_id", payout(&other, to, "1.00")),
        ("wallet_id", json!({"beneficiary_id": to, "amount": "1.00"})),
        ("amount", payout(&setup, to, "0.00")),
        ("amount", payout(&setup, to, "-1.00")),
        ("amount", payout(&setup, to, "1.001")),
        ("amount", payout(&setup, to, "10000000000000000.00")),
        (
            "client_reference",
            json!({"beneficiary_id": to, "wallet_id": setup.wallet_id, "amount": "1.00", "client_reference": ""}),
        ),
        ("currency", json!({"beneficiary_id": to, "wallet_id": setup.wallet_id, "amount": "1.00", "currency": "EUR"})),
    ] {
        let error = request(body).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][field].is_array(), "{field}: {error}");
    }
    let theirs = beneficiary(&node, &other).await;
    request(payout(&setup, theirs, "1.00")).await.refused(400, "E_VALIDATION_FAILURE");
    assert_eq!(node.head().await, head + 1);

    let made = request(payout(&setup, to, "1.00")).await.data(201);
    node.operator("PUT", &format!("/accounts/{}", client.account_id), json!({"status": "SUSPENDED"})).await.data(200);
    let head = node.head().await;
    request(payout(&setup, to, "1.00")).await.refused(403, "E_ACCOUNT_SUSPENDED");
    node.client(client, "POST", "/beneficiaries", person()).await.refused(403, "E_ACCOUNT_SUSPENDED");
    node.client(client, "DELETE", &format!("/beneficiaries/{to}"), Value::Null).await.refused(403, "E_ACCOUNT_SUSPENDED");
    let cancel = format!("/payouts/{}/cancel", made["id"]);
    node.client(client, "POST", &cancel, Value::Null).await.refused(403, "E_ACCOUNT_SUSPENDED");
    assert_eq!(node.head().await, head);
    assert_eq!(node.client(client, "GET", "/payouts", Value::Null).await.header("x-total-count"), "1");
}

#[tokio::test]
async fn a_payout_reference_can_be_used_only_once() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let to = beneficiary(&node, &setup).await;
    let mut body = payout(&setup, to, "12.00");
    body["client_reference"] = json!("salary-1");
    let first = node.client(&setup.client, "POST", "/payouts", body.clone()).await;
    let id = first.data(201)["id"].clone();
    let again = node.client(&setup.client, "POST", "/payouts", body.clone()).await;
    assert_eq!((again.status, &again.text), (200, &first.text));
    body["amount"] = json!(12);
    assert_eq!(node.client(&setup.client, "POST", "/payouts", body.clone()).await.status, 200);
    let second = beneficiary(&node, &setup).await;
    for (field, value) in [("amount", json!("12.01")), ("beneficiary_id", json!(second))] {
        let mut other = body.clone();
        other[field] = value;
        node.client(&setup.client, "POST", "/payouts", other).await.refused(409, "E_DUPLICATE_REFERENCE");
    }
    node.operator("PUT", &format!("/payouts/{id}"), json!({"status": "FAILED", "failure_reason": "closed"})).await.data(200);
    // The response shows the payout's outcome, and no second payout is made.
    let later = node.client(&setup.client, "POST", "/payouts", body.clone()).await.data(200);
    assert_eq!((&later["id"], &later["status"], &later["failure_reason"]), (&id, &json!("FAILED"), &json!("closed")));
    let other = node.setup().await;
    let theirs = beneficiary(&node, &other).await;
    let mut same_name = payout(&other, theirs, "12.00");
    same_name["client_reference"] = json!("salary-1");
    node.client(&other.client, "POST", "/payouts", same_name).await.data(201);
}

#[tokio::test]
async fn an_idempotency_key_makes_one_payout() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let to = beneficiary(&node, &setup).await;
    let (body, head) = (payout(&setup, to, "10.00"), node.head().await);
    let answers = futures::future::join_all((0..100).map(|_| node.keyed(&setup.client, "/payouts", "same", &body))).await;
    assert!(answers.iter().all(|answer| answer.status == 201 && answer.text == answers[0].text));
    assert_eq!(answers.iter().filter(|answer| answer.header("idempotent-replayed").is_empty()).count(), 1);
    assert_eq!(node.head().await, head + 2);
    node.keyed(&setup.client, "/payouts", "same", &payout(&setup, to, "11.00")).await.refused(422, "E_IDEMPOTENCY_KEY_REUSED");
    // A refusal has no effect and is not stored, so the key works once there is money.
    let much = payout(&setup, to, "1000.00");
    node.keyed(&setup.client, "/payouts", "much", &much).await.refused(402, "E_INSUFFICIENT_BALANCE");
    let funding = json!({"amount": "10.00", "reference": "more"});
    node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), funding).await.data(201);
    node.keyed(&setup.client, "/payouts", "much", &much).await.data(201);
    assert_eq!(balance(&node, &setup).await, "0.00");
}

#[tokio::test]
async fn operators_settle_pending_payouts() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let to = beneficiary(&node, &setup).await;
    let mut ids = vec![];
    for amount in ["10.00", "20.00", "30.00"] {
        let mut body = payout(&setup, to, amount);
        body["client_reference"] = json!(format!("of {amount}"));
        let made = node.client(&setup.client, "POST", "/payouts", body).await.data(201);
        ids.push(made["id"].as_i64().unwrap());
    }
    let [paid, failed, cancelled] = ids[..] else { panic!() };
    let settle = async |id: i64, body: Value| node.operator("PUT", &format!("/payouts/{id}"), body).await;
    let view = settle(paid, json!({"status": "PAID"})).await.data(200);
    assert_eq!((&view["account_id"], &view["status"]), (&json!(setup.client.account_id), &json!("PAID")));
    let reason = json!({"status": "FAILED", "failure_reason": "account closed by Ada"});
    let view = settle(failed, reason.clone()).await.data(200);
    assert_eq!((&view["status"], &view["failure_reason"]), (&json!("FAILED"), &json!("account closed by Ada")));
    node.client(&setup.client, "POST", &format!("/payouts/{cancelled}/cancel"), Value::Null).await.data(200);
    assert_eq!(balance(&node, &setup).await, "990.00");

    // Settling again with the same outcome changes nothing, and any other outcome is too late.
    let head = node.head().await;
    assert_eq!(settle(failed, reason).await.data(200), view);
    settle(paid, json!({"status": "PAID"})).await.data(200);
    settle(paid, json!({"status": "FAILED"})).await.refused(409, "E_CONFLICT");
    settle(failed, json!({"status": "FAILED", "failure_reason": "another"})).await.refused(409, "E_CONFLICT");
    settle(cancelled, json!({"status": "PAID"})).await.refused(409, "E_CONFLICT");
    settle(999, json!({"status": "PAID"})).await.refused(404, "E_NOT_FOUND");
    settle(paid, json!({"status": "PAID", "failure_reason": "r"})).await.refused(400, "E_VALIDATION_FAILURE");
    settle(paid, json!({"status": "CANCELLED"})).await.refused(400, "E_VALIDATION_FAILURE");
    node.client(&setup.client, "POST", &format!("/payouts/{paid}/cancel"), Value::Null)
        .await
        .refused(409, "E_PAYOUT_NOT_CANCELLABLE");
    assert_eq!(node.head().await, head);

    let get = async |query: &str| node.client(&setup.client, "GET", &format!("/payouts{query}"), Value::Null).await;
    let seen = get("").await.data(200);
    let told: Vec<_> = seen["payouts"].as_array().unwrap().iter().map(|p| (&p["id"], &p["failure_reason"])).collect();
    let reason = json!("account closed by Ada");
    assert_eq!(told, [(&json!(cancelled), &Value::Null), (&json!(failed), &reason), (&json!(paid), &Value::Null)]);
    let first = seen["payouts"][2].clone();
    let (of_wallet, of_beneficiary) = (first["wallet_id"].to_string(), first["beneficiary_id"].to_string());
    let made = first["created_at"].as_str().unwrap();
    for (query, count) in [
        ("?status=PAID", "1"),
        ("?beneficiary_id=999", "0"),
        (&*format!("?beneficiary_id={of_beneficiary}"), "3"),
        (&format!("?wallet_id={of_wallet}"), "3"),
        ("?wallet_id=999", "0"),
        ("?client_reference=of%2020.00", "1"),
        ("?client_reference=none", "0"),
        ("?created_from=2000-01-01T00:00:00Z", "3"),
        (&format!("?created_to={made}"), "0"),
        ("?created_to=2999-01-01T00:00:00Z", "3"),
        ("?limit=1", "3"),
    ] {
        assert_eq!(get(query).await.header("x-total-count"), count, "{query}");
    }
    let all = node.operator("GET", "/payouts?status=FAILED", Value::Null).await.data(200);
    assert_eq!(all["payouts"].as_array().unwrap().len(), 1);
    assert_eq!(all["payouts"][0], view);
    let logged: Vec<String> = sqlx::query_scalar("SELECT data::text FROM events").fetch_all(node.ledger.pool()).await.unwrap();
    assert!(logged.iter().all(|data| !data.contains("Ada")));

    for (role, status) in [(Role::Finance, 200), (Role::Auditor, 403)] {
        let token = node.token(role).await;
        let answer = node.operator_with(&token, "PUT", &format!("/payouts/{paid}"), json!({"status": "PAID"})).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        node.operator_with(&token, "GET", "/payouts", Value::Null).await.data(200);
    }
    let report = rewards_ledger::audit::verify(&node.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:?}", report.differences);
}

#[tokio::test]
async fn the_sandbox_path_exists_only_in_a_sandbox() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let path = format!("/sandbox/wallets/{}/fund", setup.wallet_id);
    for (method, body) in [("POST", json!({"amount": "1.00"})), ("POST", json!({"nothing": true})), ("GET", Value::Null)] {
        node.client(&setup.client, method, &path, body).await.refused(404, "E_NOT_FOUND");
    }
    assert_eq!(balance(&node, &setup).await, "1000.00");
}
