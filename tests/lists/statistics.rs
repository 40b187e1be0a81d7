//! Statistics of deliveries by state and age, compared with a plain count of the rows.

use ledger_database::PgPool;
use ledger_events::AccountId;
use ledger_events::webhook::WebhookEventType;
use ledger_projections::deliveries::{self, Statistics};
use ledger_projections::listing::maintain;
use sqlx::AssertSqlSafe;

use crate::support::shop::{SHARD, Shop};
use crate::support::wait::until_true;

/// Counts the rows one by one.
async fn counted(shop: &Shop) -> Statistics {
    let counts: (i64, i64, i64, i64, i64, i64, i64) = sqlx::query_as(
        "SELECT count(*), count(*) FILTER (WHERE status = 'pending'), count(*) FILTER (WHERE status = 'delivered'),
            count(*) FILTER (WHERE status = 'failed'), count(*) FILTER (WHERE is_recent),
            count(*) FILTER (WHERE is_recent AND status = 'delivered'), count(*) FILTER (WHERE is_recent AND status = 'failed')
         FROM (SELECT s.status, d.created_at >= now() - interval '24 hours' AS is_recent
               FROM deliveries d JOIN delivery_state s ON s.delivery_id = d.id WHERE d.account_id = $1) AS d",
    )
    .bind(shop.customer.account_id)
    .fetch_one(shop.pool())
    .await
    .unwrap();
    let (total_count, pending_count, delivered_count, failed_count, last_24h_total, last_24h_delivered, last_24h_failed) = counts;
    Statistics { total_count, pending_count, delivered_count, failed_count, last_24h_total, last_24h_delivered, last_24h_failed }
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_equal_a_plain_count() {
    let shop = Shop::open().await;
    let account = shop.customer.account_id;
    let other = shop.account("Other").await.0;
    let url = "https://example.com/hook";
    for account in [account, account, other] {
        shop.webhook_for(account, url, &[WebhookEventType::OrderCreated]).await;
    }
    for _ in 0..4 {
        shop.orders(account, 200).await;
        shop.orders(other, 30).await;
        shop.project().await;
    }
    shop.tamper_with(
        "UPDATE delivery_state SET status = 'delivered', delivered_at = now(), attempt_count = 1 WHERE delivery_id % 3 <> 0;
         UPDATE delivery_state SET status = 'failed', attempt_count = 5 WHERE delivery_id % 21 = 0;
         UPDATE delivery_state SET attempt_count = 2 WHERE delivery_id % 30 = 3 AND status = 'pending'",
    )
    .await;
    let marks: i64 = sqlx::query_scalar("SELECT count(*) FROM delivery_marks").fetch_one(shop.pool()).await.unwrap();
    assert_eq!(marks, 3, "every 500th of 1,600 deliveries");
    // Turn deliveries into tests, whose ids are assigned earlier: a few, none, the rows at the marks, and a long
    // segment.
    let by_ordinal =
        "FROM (SELECT id, row_number() OVER (PARTITION BY account_id ORDER BY id) AS n FROM deliveries) AS o WHERE o.id = d.id";
    for tests in ["n % 97 = 0", "false", "n % 500 < 2", "n BETWEEN 480 AND 1100", "true"] {
        shop.tamper_with(&format!("UPDATE deliveries d SET order_id = CASE WHEN {tests} THEN 0 ELSE 1 END {by_ordinal}")).await;
        let mut seen = vec![];
        for older in [0, 1, 499, 500, 501, 777, 1000, 1001, 1599, 1600] {
            // Make the oldest rows old, and give every third test a time that does not follow its id.
            let age = format!(
                "UPDATE deliveries d SET created_at = now()
                    - CASE WHEN (n <= {older}) <> (d.order_id = 0 AND n % 3 = 0) THEN interval '25 hours' ELSE interval '23 hours' END {by_ordinal}"
            );
            shop.tamper_with(&age).await;
            let found = deliveries::statistics(shop.pool(), SHARD, account, &[]).await.unwrap();
            assert_eq!(found, counted(&shop).await, "{older} old, tests: {tests}");
            seen.push(found.last_24h_total);
        }
        assert!(tests == "true" || (seen[0] > 1_000 && seen[9] < 500), "{tests}: {seen:?}");
    }
    assert_eq!(deliveries::statistics(shop.pool(), SHARD, AccountId(99_999), &[]).await.unwrap().total_count, 0);
}

/// However many deliveries there are, few of their rows are read.
#[tokio::test(flavor = "multi_thread")]
async fn statistics_read_few_of_many_rows() {
    let shop = Shop::open().await;
    shop.webhook("https://example.com/hook").await;
    shop.orders(shop.customer.account_id, 20).await;
    shop.project().await;
    let account = shop.customer.account_id;
    let many = format!(
        "INSERT INTO deliveries (shard_id, id, event_id, webhook_id, account_id, order_id, event_type, created_at)
            SELECT 1, 1000 + n, gen_random_uuid(), (SELECT id FROM webhooks), {account}, 1, 'order.created', now() - interval '1 hour'
            FROM generate_series(1, 200000) AS n;
         INSERT INTO delivery_state (shard_id, delivery_id, webhook_id, event_type, status, delivered_at, attempt_count, next_attempt_at)
            SELECT shard_id, id, webhook_id, event_type, 'delivered', now(), 1, now() FROM deliveries WHERE id > 1000"
    );
    // A connection's row counts become visible once it has ended.
    let looking = connect(&shop, "looking").await;
    let seeding = connect(&shop, "seeding").await;
    sqlx::raw_sql(AssertSqlSafe(many)).execute(&seeding).await.unwrap();
    maintain::rebuild_lists(&mut seeding.acquire().await.unwrap(), SHARD, deliveries::NAME).await.unwrap();
    sqlx::raw_sql("VACUUM ANALYZE deliveries, delivery_state, delivery_marks").execute(&seeding).await.unwrap();
    let ended = async |pool: PgPool, name: &str| -> i64 {
        pool.close().await;
        let has_ended = format!(
            "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = '{name}' AND datname = current_database())"
        );
        until_true("its connection has ended", &looking, &has_ended).await;
        let read = "SELECT ((SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname ~ '^deliver')
            + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname ~ '^deliver'))::bigint";
        sqlx::query_scalar(read).fetch_one(&looking).await.unwrap()
    };
    let before = ended(seeding, "seeding").await;
    let counting = connect(&shop, "counting").await;
    let found = deliveries::statistics(&counting, SHARD, account, &[]).await.unwrap();
    assert_eq!((found.last_24h_total, found.last_24h_delivered, found.pending_count), (200_020, 200_000, 20));
    let rows = ended(counting, "counting").await - before;
    assert!((1..5_000).contains(&rows), "{rows} rows are read");
}

/// Opens one connection as superuser, who may see the names of other sessions.
async fn connect(shop: &Shop, name: &str) -> PgPool {
    PgPool::patient(shop.options.clone().application_name(name), 1)
}
