//! Replays that clients request: what failed, what was missed, or both.

use rewards_ledger::delivery::replay::Replayer;
use rewards_ledger::ledger::FIRST_SHARD;
use rewards_ledger::ledger::low_balance::announce;
use serde_json::{Value, json};
use webhook_client::receiver::ReceiverResponse;

use crate::support::node::{Node, Setup};
use crate::support::shop::{DEADLINE, receiver, worker};

async fn order(node: &Node, setup: &Setup) {
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
}

/// An account with a webhook that never got its first order, got the second, and failed to get the third.
async fn world() -> (Node, Setup, String) {
    let node = Node::start().await;
    let setup = node.setup().await;
    order(&node, &setup).await;
    let hook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});
    let webhook = node.client(&setup.client, "POST", "/webhooks", hook).await.json()["id"].clone();
    for _ in 0..2 {
        order(&node, &setup).await;
    }
    node.project().await;
    let outcomes = "UPDATE delivery_state SET status = 'delivered', delivered_at = now();
         UPDATE delivery_state SET status = 'failed', attempt_count = 5, delivered_at = NULL WHERE delivery_id = (SELECT max(delivery_id) FROM delivery_state)";
    sqlx::raw_sql(outcomes).execute(node.ledger.pool()).await.unwrap();
    (node, setup, format!("/webhooks/{webhook}/replays"))
}

/// Pays 5.00 out to a new beneficiary.
async fn pay_out(node: &Node, setup: &Setup) {
    let ada =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let ada = node.client(&setup.client, "POST", "/beneficiaries", ada).await.data(201);
    let payout = json!({"beneficiary_id": ada["id"], "wallet_id": setup.wallet_id, "amount": "5.00"});
    let payout = node.client(&setup.client, "POST", "/payouts", payout).await.data(201);
    node.operator("PUT", &format!("/payouts/{}", payout["id"]), json!({"status": "PAID"})).await.data(200);
}

/// Runs the steps of all replays.
async fn run(node: &Node) {
    node.project().await;
    let replayer = Replayer { ledger: node.ledger.clone(), pool: node.ledger.pool().clone() };
    replayer.once(FIRST_SHARD).await.unwrap();
    node.project().await;
}

const SINCE: &str = "2026-01-01T00:00:00Z";

#[tokio::test]
async fn a_client_counts_and_replays_what_failed_or_what_was_missed() {
    let (node, setup, path) = world().await;
    let client = &setup.client;
    let head = node.head().await;
    let found = async |body: Value| {
        let mut body = body;
        body["dry_run"] = json!(true);
        let counted = node.client(client, "POST", &path, body).await.data(200);
        assert_eq!((&counted["is_complete"], &counted["replay"]), (&json!(true), &Value::Null));
        assert_eq!((&counted["next_position"], &counted["until_position"]), (&Value::Null, &json!(node.head().await + 1)));
        counted["found"].as_i64().unwrap()
    };
    assert_eq!(found(json!({"since": SINCE})).await, 2);
    for only in ["failed", "missed"] {
        assert_eq!(found(json!({"since": SINCE, "only": only})).await, 1, "{only}");
    }
    assert_eq!(found(json!({"since": "2100-01-01T00:00:00Z"})).await, 0);
    assert_eq!(node.head().await, head, "a count leaves no trace");
    let placed = "SELECT position FROM events WHERE type = 'OrderPlaced' ORDER BY position";
    let placed: Vec<i64> = sqlx::query_scalar(placed).fetch_all(node.ledger.pool()).await.unwrap();
    for (from, events) in [(placed[0], 2), (placed[0] + 1, 1), (placed[2], 1), (placed[2] + 1, 0), (i64::MAX, 0)] {
        assert_eq!(found(json!({"since": SINCE, "from_position": from})).await, events, "{from} of {placed:?}");
    }

    for (number, only, oldest) in [(1, "failed", 3), (2, "missed", 1)] {
        let request = json!({"since": SINCE, "only": only});
        let key = format!("replay-{number}");
        let first = node.keyed(client, &path, &key, &request).await;
        let repeated = node.keyed(client, &path, &key, &request).await;
        assert_eq!((first.text.as_str(), repeated.header("idempotent-replayed")), (repeated.text.as_str(), "true"));
        let started = first.data(201);
        assert_eq!((&started["found"], &started["replay"]["status"]), (&Value::Null, &json!("RUNNING")));
        assert_eq!(started["replay"]["progress_percent"], 0);
        node.client(client, "POST", &path, request).await.refused(409, "E_CONFLICT");
        run(&node).await;
        let replays = node.client(client, "GET", &path, Value::Null).await.data(200)["replays"].clone();
        let newest = &replays[0];
        assert_eq!((&newest["id"], &newest["status"]), (&started["replay"]["id"], &json!("COMPLETED")));
        assert_eq!(newest["progress_percent"], 100);
        assert_eq!((&newest["deliveries"], &newest["pending_count"]), (&json!(1), &json!(1)));
        for (status, count) in [("", 1), ("&status=pending", 1), ("&status=failed", 0)] {
            let of_replay = format!("deliveries?replay_id={}{status}", newest["id"]);
            let of_client = node.client(client, "GET", &format!("/webhooks/{of_replay}"), Value::Null).await.data(200);
            assert_eq!(of_client["deliveries"].as_array().unwrap().len(), count, "{of_replay}");
            let of_operator = format!("/accounts/{}/{of_replay}", client.account_id);
            let of_operator = node.operator("GET", &of_operator, Value::Null).await.data(200);
            assert_eq!(of_operator["deliveries"], of_client["deliveries"]);
        }
        let order: i64 = sqlx::query_scalar(
            "SELECT (SELECT count(*) FROM orders o WHERE o.id <= d.order_id) FROM deliveries d WHERE d.replay_id = $1",
        )
        .bind(newest["id"].as_i64().unwrap())
        .fetch_one(node.ledger.pool())
        .await
        .unwrap();
        assert_eq!(order, oldest, "{only}");
    }
    assert_eq!(found(json!({"since": SINCE})).await, 0, "the deliveries of the replays are pending");
}

#[tokio::test]
async fn a_replay_delivers_the_missed_and_failed_events_of_payouts_and_wallets() {
    let node = Node::start().await;
    let (setup, other) = (node.setup().await, node.setup().await);
    let client = &setup.client;
    let owner = node.user(client.account_id, "owner").await;
    let notice = format!("/client/api/wallets/{}/notice", setup.wallet_id);
    node.bearer(&owner.access_token, "PUT", &notice, json!({"below": "900.00"})).await.data(200);
    for paying in [&setup, &other] {
        pay_out(&node, paying).await;
    }
    let debit = json!({"type": "DEBIT", "amount": "200.00", "reason": "r"});
    node.operator("POST", &format!("/wallets/{}/adjust", setup.wallet_id), debit).await.data(201);
    node.project().await;
    announce(&node.ledger, FIRST_SHARD).await.unwrap();
    // No webhook has received these events, so the feed folds them from the log.
    let feed = node.client(client, "GET", "/events?types=payout.paid,wallet.low_balance", Value::Null).await;
    let events = feed.data(200)["events"].as_array().unwrap().clone();
    let types: Vec<&Value> = events.iter().map(|event| &event["event_type"]).collect();
    assert_eq!(types, ["payout.paid", "wallet.low_balance"]);
    let ids: Vec<&str> = events.iter().map(|event| event["event_id"].as_str().unwrap()).collect();

    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let hook = json!({"name": "a", "url": receiver.url(), "events": ["payout.paid", "wallet.low_balance"]});
    let webhook = node.client(client, "POST", "/webhooks", hook).await.json()["id"].clone();
    let path = format!("/webhooks/{webhook}/replays");
    let found = async |only: Value| {
        let counted = json!({"since": SINCE, "only": only, "dry_run": true});
        node.client(client, "POST", &path, counted).await.data(200)["found"].as_i64().unwrap()
    };
    let sender = worker(&node.options, &receiver, DEADLINE);
    for (only, without) in [("missed", "failed"), ("failed", "missed")] {
        let counts = [found(Value::Null).await, found(json!(only)).await, found(json!(without)).await];
        assert_eq!(counts, [2, 2, 0], "{only}");
        let started = node.client(client, "POST", &path, json!({"since": SINCE, "only": only})).await.data(201);
        run(&node).await;
        let replays = node.client(client, "GET", &path, Value::Null).await.data(200)["replays"].clone();
        assert_eq!((&replays[0]["id"], &replays[0]["status"]), (&started["replay"]["id"], &json!("COMPLETED")));
        assert_eq!((&replays[0]["deliveries"], &replays[0]["pending_count"]), (&json!(2), &json!(2)));
        while sender.once().await.unwrap().claimed > 0 {}
        let mut received = vec![];
        while let Ok(one) = arrived.try_recv() {
            let body = str::from_utf8(&one.body).unwrap();
            assert!(feed.text.contains(body), "{only}: {body} is not in {}", feed.text);
            assert_eq!(serde_json::from_str::<Value>(body).unwrap()["event_id"], one.event_id().unwrap());
            received.push(one.event_id().unwrap().to_owned());
        }
        received.sort_by_key(|id| ids.iter().position(|known| known == id));
        assert_eq!(received, ids, "{only}");
        let delivered = node.client(client, "GET", "/webhooks/deliveries?status=delivered", Value::Null).await.data(200);
        let delivered = delivered["deliveries"].as_array().unwrap();
        assert!(delivered.len() == 2 && delivered.iter().all(|delivery| delivery["order_id"] == 0), "{delivered:?}");
        assert_eq!(found(Value::Null).await, 0, "{only}");
        let of_operator = json!({"kind": "deliveries", "from_position": 1, "dry_run": true});
        assert_eq!(node.operator("POST", &path, of_operator).await.data(200)["found"], 2, "{only}");
        let fail = "UPDATE delivery_state SET status = 'failed', attempt_count = 5, delivered_at = NULL";
        sqlx::raw_sql(fail).execute(node.ledger.pool()).await.unwrap();
    }
}

#[tokio::test]
async fn replays_that_cannot_run_are_refused() {
    let (node, setup, path) = world().await;
    let client = &setup.client;
    let replay = json!({"since": SINCE});
    for (body, field) in [
        (json!({}), "since"),
        (json!({"since": "yesterday"}), "since"),
        (json!({"since": SINCE, "only": "all"}), "only"),
        (json!({"since": SINCE, "kind": "missed"}), "kind"),
        (json!({"from_position": 2}), "since"),
        (json!({"since": SINCE, "from_position": 0}), "from_position"),
    ] {
        let refused = node.client(client, "POST", &path, body).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(refused["messages"][field].is_array(), "{refused}");
    }
    let other = node.account("Other").await;
    node.client(&other, "POST", &path, replay.clone()).await.refused(404, "E_NOT_FOUND");
    node.client(&other, "GET", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    let webhook = path.trim_end_matches("/replays");
    node.client(client, "PUT", webhook, json!({"is_active": false})).await.data(200);
    for body in [replay.clone(), json!({"since": SINCE, "dry_run": true})] {
        node.client(client, "POST", &path, body).await.refused(409, "E_WEBHOOK_INACTIVE");
    }
    node.client(client, "PUT", webhook, json!({"is_active": true})).await.data(200);
    node.operator("PUT", &format!("/accounts/{}", client.account_id), json!({"status": "SUSPENDED"})).await.data(200);
    node.client(client, "POST", &path, replay).await.refused(403, "E_ACCOUNT_SUSPENDED");
    node.operator("POST", &path, json!({"kind": "missed"})).await.data(201);
}
