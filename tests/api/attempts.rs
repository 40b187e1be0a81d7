//! `GET /admin/v1/attempts`: attempts of all accounts by time, outcome and webhook.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_events::WebhookId;
use ledger_projections::deliveries::{AttemptFilter, AttemptOutcome, list_attempts};
use rewards_ledger::access::Role;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use webhook_client::receiver::ReceiverResponse as Received;

use crate::support::ledger::SHARD;
use crate::support::node::{Node, Setup};
use crate::support::shop::{DEADLINE, Shop, receiver, worker};

async fn list(node: &Node, query: &str) -> Value {
    node.operator("GET", &format!("/attempts?{query}"), Value::Null).await.data(200)
}

fn outcomes(page: &Value) -> Vec<&str> {
    page["attempts"].as_array().unwrap().iter().map(|attempt| attempt["outcome"].as_str().unwrap()).collect()
}

async fn sql(node: &Node, statement: &str) {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut node.admin().await).await.unwrap();
}

async fn order(node: &Node, setup: &Setup) {
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
    node.project().await;
}

#[tokio::test]
async fn attempts_of_all_accounts_have_their_outcome_and_their_time() {
    let node = Node::start().await;
    let setups = [node.setup().await, node.setup().await];
    let (receiver, _arrived) = receiver(|received| Received::Status(if received.path == "/bad" { 500 } else { 200 })).await;
    for (setup, path) in setups.iter().zip(["good", "bad"]) {
        let hook = json!({"name": "a", "url": format!("{}/{path}", receiver.url()), "events": ["order.created"]});
        node.client(&setup.client, "POST", "/webhooks", hook).await.json();
        order(&node, setup).await;
    }
    let worker = worker(&node.options, &receiver, DEADLINE);
    worker.once().await.unwrap();

    let [good, bad] = [list(&node, "outcome=delivered").await, list(&node, "outcome=failed").await];
    assert_eq!((outcomes(&good), outcomes(&bad)), (vec!["delivered"], vec!["failed"]));
    let (good, bad) = (&good["attempts"][0], &bad["attempts"][0]);
    assert_eq!(
        (&good["account_id"], &bad["account_id"]),
        (&json!(setups[0].client.account_id), &json!(setups[1].client.account_id))
    );
    assert_eq!((&bad["response_status"], &bad["error"], &bad["attempt"]), (&json!(500), &json!("HTTP 500"), &json!(1)));
    let delivery = node.operator("GET", &format!("/deliveries/{}", bad["delivery_id"]), Value::Null).await.data(200);
    for field in ["account_id", "webhook_url_id", "order_id", "event_id", "event_type"] {
        assert_eq!(bad[field], delivery[field], "{field}");
    }
    assert_eq!(bad["position"], delivery["sequence"]);
    for of in [good, bad] {
        let of_webhook = list(&node, &format!("webhook_url_id={}", of["webhook_url_id"])).await;
        assert_eq!(of_webhook["attempts"], json!([of]));
    }
    assert_eq!(list(&node, "webhook_url_id=999999").await, json!({"attempts": [], "next_before": null}));
    assert_eq!(bad["request_id"], delivery["attempts"][0]["request_id"]);

    // The counts of the day are those of the list.
    let days = node.operator("GET", "/operations", Value::Null).await.data(200)["days"].clone();
    let mut counted = (0, 0);
    for day in days.as_array().unwrap() {
        let from: DateTime<Utc> = format!("{}T00:00:00Z", day["day"].as_str().unwrap()).parse().unwrap();
        let until = (from + TimeDelta::days(1)).format("%FT%TZ");
        let of_day = list(&node, &format!("since={}&until={until}", from.format("%FT%TZ"))).await;
        let (attempts, delivered) =
            (outcomes(&of_day).len(), outcomes(&of_day).iter().filter(|one| **one == "delivered").count());
        assert_eq!((&day["attempts"], &day["delivered"]), (&json!(attempts), &json!(delivered)));
        counted = (counted.0 + attempts, counted.1 + delivered);
    }
    assert_eq!(counted, (2, 1));
    let ended = bad["finished_at"].as_str().unwrap();
    let not_before: Vec<_> = list(&node, &format!("since={ended}")).await["attempts"].as_array().unwrap().clone();
    assert!(not_before.contains(bad), "a period includes its beginning");
    assert!(!list(&node, &format!("until={ended}")).await["attempts"].as_array().unwrap().contains(bad), "and not its end");
    assert_eq!(outcomes(&list(&node, "until=2020-01-01T00:00:00Z").await).len(), 0);

    // A slow attempt belongs to the time of its end.
    let slow = "UPDATE delivery_attempts SET claimed_at = claimed_at - interval '50 min' WHERE response_status = 500";
    sql(&node, slow).await;
    assert!(list(&node, &format!("since={ended}")).await["attempts"].as_array().unwrap().contains(bad));

    // An attempt without a recorded end.
    order(&node, &setups[0]).await;
    let claimed = worker.claim_once(SHARD, 1).await.unwrap();
    assert_eq!(outcomes(&list(&node, "").await)[0], "in_flight");
    sql(&node, "UPDATE delivery_state SET leased_until = now() - interval '1 s' WHERE leased_until IS NOT NULL").await;
    let lost = list(&node, "outcome=unknown").await;
    assert_eq!(lost["attempts"][0]["request_id"], claimed[0].request_id.to_string());
    assert_eq!((&lost["attempts"][0]["finished_at"], &lost["attempts"].as_array().unwrap().len()), (&Value::Null, &1));
    assert_eq!(list(&node, "outcome=in_flight").await["attempts"], json!([]));

    // Page by page.
    let mut seen = vec![];
    let mut query = "limit=1".to_owned();
    loop {
        let page = list(&node, &query).await;
        seen.extend(page["attempts"].as_array().unwrap().clone());
        let Some(next) = page["next_before"].as_str() else { break };
        query = format!("limit=1&before={next}");
    }
    assert_eq!(seen, *list(&node, "").await["attempts"].as_array().unwrap());
    assert_eq!(seen.len(), 3);

    // An attempt without its envelope is left out, and those after it are not.
    sql(&node, &format!("DELETE FROM webhook_envelopes WHERE event_id = '{}'", seen[0]["event_id"].as_str().unwrap())).await;
    let first = list(&node, "limit=1").await;
    assert_eq!(first["attempts"], json!([]));
    let rest = list(&node, &format!("before={}", first["next_before"].as_str().unwrap())).await;
    assert_eq!(rest["attempts"].as_array().unwrap()[..], seen[1..]);

    // Attempts from before the upgrade have no time of their claim.
    sql(&node, "UPDATE delivery_attempts SET claimed_at = NULL").await;
    assert_eq!(list(&node, "").await, json!({"attempts": [], "next_before": null}));
}

#[tokio::test]
async fn the_list_is_for_every_operator_and_refuses_what_it_does_not_understand() {
    let node = Node::start().await;
    for role in [Role::Admin, Role::Finance, Role::Auditor] {
        let token = node.token(role).await;
        node.operator_with(&token, "GET", "/attempts", Value::Null).await.data(200);
    }
    for wrong in ["before=1", "before=x-y", "outcome=lost", "since=yesterday", "limit=101"] {
        node.operator("GET", &format!("/attempts?{wrong}"), Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
    }
}

#[tokio::test]
async fn long_lists_are_read_part_by_part_and_hold_each_attempt_once() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| Received::Status(500)).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    shop.worker(&receiver, DEADLINE).once().await.unwrap();
    // More than two windows of newer attempts that succeeded, many of them at one time.
    let many = "INSERT INTO delivery_attempts (shard_id, delivery_id, webhook_id, request_id, attempt, claimed_at, started_at, finished_at,
            response_status, url_hash, secret_hash)
         SELECT shard_id, delivery_id, webhook_id, gen_random_uuid(), 1, claimed_at + n / 3500 * interval '1 ms', started_at, finished_at, 200, '', ''
         FROM delivery_attempts, generate_series(1, 22500) AS n";
    sqlx::raw_sql(many).execute(&mut shop.admin().await).await.unwrap();
    // As many of a webhook that another account has.
    let of_another =
        "INSERT INTO delivery_attempts (shard_id, delivery_id, webhook_id, request_id, attempt, claimed_at, started_at,
            finished_at, response_status, url_hash, secret_hash)
         SELECT shard_id, delivery_id, webhook_id + 1, gen_random_uuid(), 1, claimed_at, started_at, finished_at, 200, '', ''
         FROM delivery_attempts";
    let webhook: WebhookId = sqlx::query_scalar("SELECT id FROM webhooks").fetch_one(shop.pool()).await.unwrap();
    let read = async |webhook, outcome, limit| {
        let filter = AttemptFilter { webhook, outcome, ..AttemptFilter::default() };
        let (mut seen, mut count, mut before) = (HashSet::new(), 0, None);
        loop {
            let page = list_attempts(shop.pool(), &filter, before, limit).await.unwrap();
            assert!(page.attempts.len() <= limit);
            count += page.attempts.len();
            seen.extend(page.attempts.iter().map(|any| any.attempt.request_id));
            before = page.next_before;
            if before.is_none() {
                return (count, seen.len());
            }
        }
    };
    // A page that ends with a window, too.
    for limit in [3_499, 5_000] {
        assert_eq!(read(None, None, limit).await, (22_501, 22_501));
    }
    sqlx::raw_sql(of_another).execute(&mut shop.admin().await).await.unwrap();
    let of_one = Some((SHARD, webhook));
    for limit in [3_499, 5_000] {
        assert_eq!(read(of_one, None, limit).await, (22_501, 22_501));
    }
    for of in [None, of_one] {
        assert_eq!(read(of, Some(AttemptOutcome::Failed), 20).await, (1, 1));
        assert_eq!(read(of, Some(AttemptOutcome::Unknown), 20).await, (0, 0));
    }
    // Attempts from before the upgrade, and of nodes of the last release.
    sqlx::raw_sql("UPDATE delivery_attempts SET webhook_id = NULL").execute(&mut shop.admin().await).await.unwrap();
    assert_eq!(read(of_one, None, 5_000).await, (0, 0));
}
