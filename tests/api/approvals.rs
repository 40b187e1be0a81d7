//! Two pairs of eyes: above a limit, a second operator approves fundings, adjustments and paid payouts.

use rewards_ledger::access::Role;
use rewards_ledger::secrets::seal::Secret;
use serde_json::{Value, json};

use crate::support::node::{Node, Setup, TestResponse};

/// A node that lets 2,000.00 EUR pass unseen, and its operators.
struct World {
    node: Node,
    setup: Setup,
    /// Tokens of two operators with the role finance.
    ada: Secret,
    grace: Secret,
    /// The two, as the actors of events.
    by_ada: Value,
    by_grace: Value,
}

/// Issues the token of an operator with the role finance. Returns it with the actor of its events.
async fn finance(node: &Node) -> (Secret, Value) {
    let issued = node.operator("POST", "/operator-tokens", json!({"name": "finance", "role": "finance"})).await.data(201);
    (Secret::new(issued["token"].as_str().unwrap()), json!({"operator": issued["id"]}))
}

impl World {
    async fn start() -> World {
        let node = Node::supervised("EUR=2000").await;
        let setup = node.setup().await;
        let ((ada, by_ada), (grace, by_grace)) = (finance(&node).await, finance(&node).await);
        World { node, setup, ada, grace, by_ada, by_grace }
    }

    async fn ask(&self, token: &Secret, method: &str, path: &str, body: Value) -> TestResponse {
        self.node.operator_with(token, method, path, body).await
    }

    async fn fund(&self, token: &Secret, amount: &str, reference: &str) -> TestResponse {
        let body = json!({"amount": amount, "reference": reference, "note": "wire of March"});
        self.ask(token, "POST", &format!("/wallets/{}/fund", self.setup.wallet_id), body).await
    }

    async fn adjust(&self, token: &Secret, direction: &str, amount: &str) -> TestResponse {
        let body = json!({"type": direction, "amount": amount, "reason": "a mistake"});
        self.ask(token, "POST", &format!("/wallets/{}/adjust", self.setup.wallet_id), body).await
    }

    async fn decide(&self, token: &Secret, id: &Value, decision: &str) -> TestResponse {
        self.ask(token, "POST", &format!("/approvals/{id}/{decision}"), Value::Null).await
    }

    async fn listed(&self, status: &str) -> Vec<Value> {
        let path = format!("/approvals?status={status}");
        let listed = self.ask(&self.ada, "GET", &path, Value::Null).await.data(200);
        listed["approvals"].as_array().unwrap().clone()
    }

    async fn balance(&self) -> String {
        let wallets = self.node.client(&self.setup.client, "GET", "/wallets", Value::Null).await.data(200);
        wallets["wallets"][0]["balance"].as_str().unwrap().to_owned()
    }

    /// Types, actors and transactions of the last events.
    async fn last_events(&self, count: i64) -> Vec<(String, Value, String)> {
        let mut events: Vec<_> =
            sqlx::query_as("SELECT type, metadata::jsonb->'actor', xmin::text FROM events ORDER BY position DESC LIMIT $1")
                .bind(count)
                .fetch_all(self.node.ledger.pool())
                .await
                .unwrap();
        events.reverse();
        events
    }

    /// Checks that the newest event is of this type and by this actor, and that the audit lists it as such.
    async fn newest_is(&self, event: &str, by: &Value) {
        let newest = self.last_events(1).await;
        assert_eq!((&*newest[0].0, &newest[0].1), (event, by));
        let listed = self.ask(&self.ada, "GET", "/audit?limit=1", Value::Null).await.data(200)["entries"][0].take();
        let [kind, actor, id] = ["type", "actor_type", "actor_id"].map(|name| &listed[name]);
        assert_eq!((kind, actor, id), (&json!(event), &json!("operator"), &by["operator"]), "{listed}");
    }
}

#[tokio::test]
async fn a_large_funding_waits_for_a_second_operator() {
    let world = World::start().await;
    world.fund(&world.ada, "2000.00", "small").await.data(201);
    let requested = world.fund(&world.ada, "2000.01", "large").await.data(202);
    assert_eq!(
        (&requested["action"], &requested["status"], &requested["amount"], &requested["reference"], &requested["note"]),
        (&json!("FUND"), &json!("PENDING"), &json!("2000.01"), &json!("large"), &json!("wire of March"))
    );
    world.newest_is("ApprovalRequested", &world.by_ada).await;
    assert_eq!(world.balance().await, "3000.00");
    assert_eq!(world.listed("PENDING").await, std::slice::from_ref(&requested));
    let one = world.ask(&world.ada, "GET", &format!("/approvals/{}", requested["id"]), Value::Null).await;
    assert_eq!(one.data(200), requested);

    // The reference is taken, whatever the amount and whoever asks.
    assert_eq!(world.fund(&world.grace, "2000.01", "large").await.data(202), requested);
    for amount in ["2000.02", "1.00"] {
        world.fund(&world.grace, amount, "large").await.refused(409, "E_CONFLICT");
    }
    let id = &requested["id"];
    for decision in ["approve", "reject"] {
        world.decide(&world.ada, id, decision).await.refused(403, "E_FORBIDDEN");
    }
    world.newest_is("ApprovalRequested", &world.by_ada).await;
    let granted = world.decide(&world.grace, id, "approve").await.data(200);
    assert_eq!((&granted["status"], &granted["note"]), (&json!("GRANTED"), &json!("wire of March")));
    assert_ne!(granted["requested_by"], granted["decided_by"]);
    assert_eq!(world.balance().await, "5000.01");
    let events = world.last_events(2).await;
    let [(first, by, within), (second, also_by, also_within)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&**first, &**second, within), ("ApprovalGranted", "WalletFunded", also_within));
    assert_eq!((by, also_by), (&world.by_grace, &world.by_grace));

    // A repetition changes nothing.
    let transaction = world.fund(&world.ada, "2000.01", "large").await.data(200);
    assert_eq!(transaction["id"], granted["transaction_id"]);
    assert_eq!(world.decide(&world.grace, id, "approve").await.data(200), granted);
    world.decide(&world.grace, id, "reject").await.refused(409, "E_CONFLICT");
    world.decide(&world.ada, id, "approve").await.refused(409, "E_CONFLICT");
    assert_eq!(world.balance().await, "5000.01");
    world.decide(&world.ada, &json!(999_999), "approve").await.refused(404, "E_NOT_FOUND");
}

#[tokio::test]
async fn a_rejected_adjustment_moves_nothing_and_an_impossible_one_is_refused_at_once() {
    let world = World::start().await;
    world.adjust(&world.ada, "DEBIT", "2500.00").await.refused(402, "E_INSUFFICIENT_BALANCE");
    let requested = world.adjust(&world.ada, "CREDIT", "2500.00").await.data(202);
    assert_eq!((&requested["action"], &requested["type"]), (&json!("ADJUST"), &json!("CREDIT")));
    world.newest_is("ApprovalRequested", &world.by_ada).await;
    let body = json!({"reason": "no such mistake"});
    let path = format!("/approvals/{}/reject", requested["id"]);
    let rejected = world.ask(&world.grace, "POST", &path, body).await.data(200);
    assert_eq!((&rejected["status"], &rejected["rejection_reason"]), (&json!("REJECTED"), &json!("no such mistake")));
    world.newest_is("ApprovalRejected", &world.by_grace).await;
    assert_eq!(world.listed("REJECTED").await, [rejected]);
    world.decide(&world.grace, &requested["id"], "approve").await.refused(409, "E_CONFLICT");

    // A change that has become impossible meanwhile stays pending.
    world.adjust(&world.ada, "CREDIT", "2000.00").await.data(201);
    let debit = world.adjust(&world.ada, "DEBIT", "2500.00").await.data(202);
    world.adjust(&world.ada, "DEBIT", "1000.00").await.data(201);
    world.decide(&world.grace, &debit["id"], "approve").await.refused(402, "E_INSUFFICIENT_BALANCE");
    assert_eq!(world.listed("PENDING").await, [debit]);
    assert_eq!(world.balance().await, "2000.00");
}

#[tokio::test]
async fn a_large_payout_is_paid_when_a_second_operator_approves_it() {
    let world = World::start().await;
    world.fund(&world.ada, "2000.00", "more").await.data(201);
    let person =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let client = &world.setup.client;
    let to = world.node.client(client, "POST", "/beneficiaries", person).await.data(201);
    let payout = json!({"beneficiary_id": to["id"], "wallet_id": world.setup.wallet_id, "amount": "2500.00"});
    let payout = world.node.client(client, "POST", "/payouts", payout).await.data(201);
    let path = format!("/payouts/{}", payout["id"]);
    let paid = || json!({"status": "PAID"});
    let requested = world.ask(&world.ada, "PUT", &path, paid()).await.data(202);
    assert_eq!((&requested["action"], &requested["payout_id"]), (&json!("PAYOUT"), &payout["id"]));
    world.newest_is("ApprovalRequested", &world.by_ada).await;
    assert_eq!(world.ask(&world.grace, "PUT", &path, paid()).await.data(202), requested);

    // The money may be on its way.
    world.ask(&world.grace, "PUT", &path, json!({"status": "FAILED"})).await.refused(409, "E_CONFLICT");
    let cancel = format!("{path}/cancel");
    world.node.client(client, "POST", &cancel, Value::Null).await.refused(409, "E_PAYOUT_NOT_CANCELLABLE");

    let granted = world.decide(&world.grace, &requested["id"], "approve").await.data(200);
    assert_eq!(granted["transaction_id"], Value::Null);
    let events: Vec<_> = world.last_events(2).await.into_iter().map(|(name, by, _)| (name, by)).collect();
    assert_eq!(events, ["ApprovalGranted", "PayoutPaid"].map(|name| (name.to_owned(), world.by_grace.clone())));
    assert_eq!(world.node.client(client, "GET", &path, Value::Null).await.data(200)["status"], "PAID");
    assert_eq!(world.ask(&world.ada, "PUT", &path, paid()).await.data(200)["status"], "PAID");
}

#[tokio::test]
async fn a_request_that_nobody_decides_expires_and_frees_its_reference() {
    let world = World::start().await;
    let requested = world.fund(&world.ada, "2500.00", "large").await.data(202);
    let past = "UPDATE approvals SET expires_at = now() - interval '1 s',
        requested = jsonb_set(requested::jsonb, '{expires_at}', to_jsonb(now() - interval '1 s'))::json";
    sqlx::raw_sql(past).execute(&mut world.node.admin().await).await.unwrap();
    for decision in ["approve", "reject"] {
        world.decide(&world.grace, &requested["id"], decision).await.refused(409, "E_CONFLICT");
    }
    assert_eq!(world.listed("PENDING").await.len(), 0);
    assert_eq!(world.listed("EXPIRED").await[0]["id"], requested["id"]);
    let again = world.fund(&world.grace, "2500.00", "large").await.data(202);
    assert_ne!(again["id"], requested["id"]);
    world.decide(&world.ada, &again["id"], "approve").await.data(200);
    assert_eq!(world.balance().await, "3500.00");
}

#[tokio::test]
async fn of_two_simultaneous_decisions_one_counts() {
    let world = World::start().await;
    let requested = world.adjust(&world.ada, "CREDIT", "2500.00").await.data(202);
    let third = world.node.token(Role::Admin).await;
    let (approved, rejected) =
        tokio::join!(world.decide(&world.grace, &requested["id"], "approve"), world.decide(&third, &requested["id"], "reject"));
    let mut statuses = [approved.status, rejected.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
    let expected = if approved.status == 200 { "3500.00" } else { "1000.00" };
    assert_eq!(world.balance().await, expected);
}

#[tokio::test]
async fn an_adjustment_under_one_key_is_made_once() {
    let world = World::start().await;
    let adjust = async |token: &Secret, key: &str, amount: &str| {
        let body = json!({"type": "CREDIT", "amount": amount, "reason": "a mistake"});
        let path = format!("/admin/v1/wallets/{}/adjust", world.setup.wallet_id);
        let request = world.node.request("POST", &path).bearer_auth(token.expose()).header("Idempotency-Key", key);
        world.node.send(request.json(&body)).await
    };
    for (amount, status) in [("1.00", 201), ("5000.00", 202)] {
        let (first, second) = tokio::join!(adjust(&world.ada, amount, amount), adjust(&world.ada, amount, amount));
        assert_eq!(first.data(status), second.data(status));
        let mut replayed = [first.header("idempotent-replayed"), second.header("idempotent-replayed")];
        replayed.sort_unstable();
        assert_eq!(replayed, ["", "true"]);
        adjust(&world.ada, amount, "2.00").await.refused(422, "E_IDEMPOTENCY_KEY_REUSED");
    }
    assert_eq!((world.balance().await.as_str(), world.listed("PENDING").await.len()), ("1001.00", 1));
    // A key counts within its operator.
    adjust(&world.grace, "1.00", "1.00").await.data(201);
    assert_eq!(world.balance().await, "1002.00");

    let kept: Vec<Vec<u8>> =
        sqlx::query_scalar("SELECT body FROM idempotency_keys").fetch_all(world.node.ledger.pool()).await.unwrap();
    assert!(kept.len() == 3 && kept.iter().all(|body| !String::from_utf8_lossy(body).contains("mistake")), "{kept:?}");
}

#[tokio::test]
async fn only_the_requester_withdraws_a_request_and_only_while_it_is_pending() {
    let world = World::start().await;
    let requested = world.fund(&world.ada, "2500.00", "large").await.data(202);
    let id = &requested["id"];
    world.decide(&world.grace, id, "withdraw").await.refused(403, "E_FORBIDDEN");
    let withdrawn = world.decide(&world.ada, id, "withdraw").await.data(200);
    assert_eq!((&withdrawn["status"], &withdrawn["decided_by"]), (&json!("WITHDRAWN"), &requested["requested_by"]));
    world.newest_is("ApprovalWithdrawn", &world.by_ada).await;
    assert_eq!(world.decide(&world.ada, id, "withdraw").await.data(200), withdrawn);
    for decision in ["approve", "reject"] {
        world.decide(&world.grace, id, decision).await.refused(409, "E_CONFLICT");
    }
    assert_eq!((world.listed("WITHDRAWN").await, world.listed("PENDING").await.len()), (vec![withdrawn], 0));
    // The reference is free again.
    let again = world.fund(&world.grace, "2500.00", "large").await.data(202);
    world.decide(&world.ada, &again["id"], "approve").await.data(200);
    world.decide(&world.grace, &again["id"], "withdraw").await.refused(409, "E_CONFLICT");
    assert_eq!(world.balance().await, "3500.00");
}

#[tokio::test]
async fn approvals_are_found_by_wallet_and_by_payout() {
    let world = World::start().await;
    let other = world.node.setup().await;
    world.fund(&world.ada, "2000.00", "more").await.data(201);
    let adjusted = world.adjust(&world.ada, "CREDIT", "2500.00").await.data(202);
    let body = json!({"amount": "2500.00", "reference": "other"});
    let path = format!("/wallets/{}/fund", other.wallet_id);
    let of_other = world.ask(&world.ada, "POST", &path, body).await.data(202);
    let person =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let client = &world.setup.client;
    let person = world.node.client(client, "POST", "/beneficiaries", person).await.data(201)["id"].clone();
    let payout = json!({"beneficiary_id": person, "wallet_id": world.setup.wallet_id, "amount": "2200.00"});
    let payout = world.node.client(client, "POST", "/payouts", payout).await.data(201)["id"].clone();
    let settled = world.ask(&world.ada, "PUT", &format!("/payouts/{payout}"), json!({"status": "PAID"})).await.data(202);

    for (filter, expected) in [
        (format!("wallet_id={}", world.setup.wallet_id), vec![&settled, &adjusted]),
        (format!("status=PENDING&wallet_id={}", other.wallet_id), vec![&of_other]),
        (format!("payout_id={payout}"), vec![&settled]),
        (format!("status=GRANTED&payout_id={payout}"), vec![]),
        (format!("wallet_id={}&payout_id={payout}", other.wallet_id), vec![]),
        ("wallet_id=999999".to_owned(), vec![]),
    ] {
        let found = world.ask(&world.ada, "GET", &format!("/approvals?{filter}"), Value::Null).await;
        assert_eq!(found.header("x-total-count"), expected.len().to_string(), "{filter}");
        assert_eq!(found.data(200)["approvals"], json!(expected), "{filter}");
    }
}
