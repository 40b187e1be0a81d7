//! Switching off a webhook, or ending a replay, with any number of pending deliveries.

use ledger_projections::deliveries::{FAIL_OF_REPLAYS, FAIL_OF_WEBHOOKS, MAX_FAILED_PER_TRANSACTION};
use rewards_ledger::ledger::FIRST_SHARD;
use rewards_ledger::ledger::connect;
use rewards_ledger::ledger::projector::{ProjectionStep, Projector};
use serde_json::Value;
use serde_json::json;
use sqlx::AssertSqlSafe;

use super::{order, webhook};
use crate::support::node::Node;

/// Adds this many pending deliveries of a webhook, every other one already attempted.
async fn backlog(node: &Node, webhook: i64, count: i64) {
    sqlx::query(
        "INSERT INTO delivery_state (shard_id, delivery_id, webhook_id, event_type, attempt_count, next_attempt_at)
         SELECT 1, $1 * 1000000 + n, $1, 'order.created', n % 2, now() FROM generate_series(1, $2) AS n",
    )
    .bind(webhook)
    .bind(count)
    .execute(&mut node.admin().await)
    .await
    .unwrap();
}

/// Assigns the pending deliveries that match the SQL to a replay, and all others to none.
async fn of_replays(node: &Node, replay: i64, which: &str) {
    let made = format!(
        "INSERT INTO deliveries (shard_id, id, event_id, webhook_id, replay_id, account_id, order_id, event_type, created_at)
         SELECT 1, delivery_id, gen_random_uuid(), webhook_id, CASE WHEN {which} THEN {replay} ELSE 0 END, 1, 1, 'order.created', now()
         FROM delivery_state"
    );
    // The node's own connections end a statement after seconds, which is short for so many rows on a busy machine.
    sqlx::raw_sql(AssertSqlSafe(made)).execute(&mut node.admin().await).await.unwrap();
}

async fn pending(node: &Node, webhook: i64) -> usize {
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM delivery_state WHERE webhook_id = $1 AND status = 'pending'")
        .bind(webhook)
        .fetch_one(node.ledger.pool())
        .await
        .unwrap();
    count.try_into().unwrap()
}

#[tokio::test]
async fn pending_deliveries_fail_in_short_transactions_and_the_projection_then_continues() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (id, _) = webhook(&node, &setup.client, "https://example.com/one", &["order.created"]).await;
    let (other, _) = webhook(&node, &setup.client, "https://example.com/two", &["order.created"]).await;
    node.project().await;
    let left = 2_000;
    backlog(&node, id, (2 * MAX_FAILED_PER_TRANSACTION + left).try_into().unwrap()).await;
    backlog(&node, other, 10).await;
    let path = format!("/webhooks/{id}");
    node.client(&setup.client, "PUT", &path, json!({"is_active": false})).await.data(200);
    order(&node, &setup).await;

    let projector = Projector::new(&node.ledger, &node.options, node.metrics.clone());
    for left in [MAX_FAILED_PER_TRANSACTION + left, left] {
        assert_eq!(projector.step(FIRST_SHARD).await.unwrap(), ProjectionStep::Applied { events: 0, is_more: true });
        assert_eq!(pending(&node, id).await, left);
    }
    // The webhook is switched on again in between. The deliveries pending at the switch-off still fail.
    node.client(&setup.client, "PUT", &path, json!({"is_active": true})).await.data(200);
    order(&node, &setup).await;
    let ProjectionStep::Applied { events, is_more: false } = projector.step(FIRST_SHARD).await.unwrap() else {
        panic!("not all")
    };
    assert!(events > 4, "the events of both orders and switches: {events}");
    assert_eq!((pending(&node, id).await, pending(&node, other).await), (1, 12));
}

#[tokio::test]
async fn pending_deliveries_of_a_replay_fail_in_short_transactions() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (id, _) = webhook(&node, &setup.client, "https://example.com/one", &["order.created"]).await;
    let path = format!("/webhooks/{id}/replays");
    let replay = node.operator("POST", &path, json!({"kind": "missed"})).await.data(201)["replay"]["id"].as_i64().unwrap();
    node.project().await;
    let left = 2_000;
    backlog(&node, id, (MAX_FAILED_PER_TRANSACTION + left).try_into().unwrap()).await;
    // All but ten belong to the replay.
    of_replays(&node, replay, "delivery_id % 1000000 > 10").await;
    node.operator("POST", &format!("/replays/{replay}/cancel"), Value::Null).await.data(200);
    order(&node, &setup).await;

    let projector = Projector::new(&node.ledger, &node.options, node.metrics.clone());
    assert_eq!(projector.step(FIRST_SHARD).await.unwrap(), ProjectionStep::Applied { events: 0, is_more: true });
    assert_eq!(pending(&node, id).await, left);
    let ProjectionStep::Applied { events: 2.., is_more: false } = projector.step(FIRST_SHARD).await.unwrap() else {
        panic!("not all")
    };
    assert_eq!(pending(&node, id).await, 10 + 1, "deliveries that do not belong to the replay");
}

#[tokio::test]
async fn pending_deliveries_of_a_replay_are_found_among_many_others() {
    let node = Node::start().await;
    backlog(&node, 1, 60_000).await;
    backlog(&node, 2, 60_000).await;
    // One replay has few pending deliveries, the other one has many.
    of_replays(&node, 7, "webhook_id = 1 AND delivery_id % 200 = 0").await;
    sqlx::raw_sql("UPDATE deliveries SET replay_id = 8 WHERE webhook_id = 2 AND id % 3 > 0")
        .execute(&mut node.admin().await)
        .await
        .unwrap();
    let of_seventh = 300;
    let mut connection = connect::projector(&node.options).acquire().await.unwrap();
    for analyzed in [false, true] {
        if analyzed {
            sqlx::raw_sql("ANALYZE delivery_state, deliveries").execute(&mut node.admin().await).await.unwrap();
        }
        let explain = format!(
            "BEGIN; DEALLOCATE ALL; PREPARE stop (smallint, bigint[], bigint) AS {FAIL_OF_REPLAYS};
             EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE stop (1, '{{7}}', {MAX_FAILED_PER_TRANSACTION}); ROLLBACK"
        );
        let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut *connection).await.unwrap();
        let plan: Value = sqlx::Row::get(&rows[0], 0);
        let most = most_rows(&plan[0]["Plan"]);
        assert_eq!(most, f64::from(of_seventh), "the plan reads more than the replay's own rows: {plan:#}");
    }
    let failed =
        sqlx::query(FAIL_OF_REPLAYS).bind(FIRST_SHARD).bind(vec![7_i64]).bind(i64::MAX).execute(&mut *connection).await.unwrap();
    assert_eq!(failed.rows_affected(), 300);
    let failed = "SELECT array_agg(DISTINCT d.replay_id), count(*) FROM delivery_state s JOIN deliveries d ON d.id = s.delivery_id WHERE s.status = 'failed'";
    let failed: (Vec<i64>, i64) = sqlx::query_as(failed).fetch_one(node.ledger.pool()).await.unwrap();
    assert_eq!(failed, (vec![7], 300));
}

/// Returns the most rows that any node of an executed plan has read, over all its loops.
fn most_rows(plan: &Value) -> f64 {
    let number = |name: &str| plan[name].as_f64().unwrap_or_default();
    let read = number("Actual Rows") + number("Rows Removed by Filter") + number("Rows Removed by Index Recheck");
    let parts = plan["Plans"].as_array().into_iter().flatten().map(most_rows);
    parts.fold(read * number("Actual Loops"), f64::max)
}

#[tokio::test]
async fn pending_deliveries_are_found_by_the_indexes_of_due_deliveries() {
    let node = Node::start().await;
    for webhook in 1..=3 {
        backlog(&node, webhook, 2_000).await;
    }
    // All deliveries of the second webhook belong to a replay.
    of_replays(&node, 1, "delivery_id / 1000000 = 2").await;
    sqlx::raw_sql("UPDATE delivery_state SET status = 'delivered', delivered_at = now() WHERE delivery_id % 10 > 0")
        .execute(node.ledger.pool())
        .await
        .unwrap();
    let mut connection = connect::projector(&node.options).acquire().await.unwrap();
    for analyzed in [false, true] {
        if analyzed {
            sqlx::raw_sql("ANALYZE delivery_state, deliveries").execute(&mut node.admin().await).await.unwrap();
        }
        for (statement, index) in [
            (FAIL_OF_WEBHOOKS[0], "delivery_state_due_first"),
            (FAIL_OF_WEBHOOKS[1], "delivery_state_due_retry"),
            (FAIL_OF_REPLAYS, "deliveries_replay"),
        ] {
            let explain = format!(
                "DEALLOCATE ALL; PREPARE silence (smallint, bigint[], bigint) AS {statement}; EXPLAIN EXECUTE silence (1, '{{2}}', 100)"
            );
            let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut *connection).await.unwrap();
            let plan: Vec<String> = rows.iter().map(|row| sqlx::Row::get(row, 0)).collect();
            let plan = plan.join("\n");
            assert!(plan.contains(index) && plan.contains("delivery_state_pkey") && !plan.contains("Seq Scan"), "{plan}");
        }
    }
}
