//! A ledger with long lists: an account with a million orders and as many deliveries, and a catalogue of 10,000 products.

use anyhow::{Context, Result};
use futures::StreamExt;
use ledger_database::PgConnectOptions;
use rewards_ledger::audit::{Rebuild, rebuild};
use serde_json::json;
use sqlx::{AssertSqlSafe, PgConnection};

use super::{Serve, load};

/// Number of products in the catalogue. The orders use the first hundred.
const PRODUCTS: usize = 10_000;

/// Ids of a ledger with long lists.
#[derive(Debug)]
pub struct LongLists {
    pub account: i64,
    pub client: load::Client,
    /// Product of a hundredth of the orders.
    pub product: i64,
    /// Webhook of most deliveries.
    pub webhook: i64,
    /// Time before which half of the orders were placed, in RFC 3339.
    pub middle: String,
}

/// Fills the ledger of a program that has just started.
pub async fn fill(serve: &Serve, options: &PgConnectOptions) -> Result<LongLists> {
    let product = serve.product().await?;
    let more: Vec<Result<i64>> = futures::stream::iter(1..PRODUCTS).map(|_| serve.product()).buffer_unordered(64).collect().await;
    more.into_iter().collect::<Result<Vec<_>>>()?;
    let client = serve.clients(1).await?[0].clone();
    let mut admin = options.connect().await?;
    let account = sqlx::query_scalar("SELECT account_id FROM wallets").fetch_one(&mut admin).await?;
    serve.discount(account, json!({"discount": "2.50"})).await?;
    serve.discount(account, json!({"discount": "5.00", "product_id": product})).await?;
    let events = json!(["order.created", "order.delivered", "order.cancelled"]);
    let webhook = json!({"name": "bench", "url": "https://example.com/hook", "events": events});
    let webhook = serve.client(&client, "/webhooks", webhook).await?["id"].as_i64().context("a webhook's id")?;
    // A second webhook, so that the first one's deliveries are not all there are.
    let other = json!({"name": "other", "url": "https://example.com/other", "events": ["order.cancelled"]});
    serve.client(&client, "/webhooks", other).await?;
    seed(&mut admin, product).await?;
    rebuild(options, Rebuild::All, |_| {}).await.context("the rebuild")?;
    // Put all deliveries but the newest into the state in which a worker would have left them.
    for settle in [
        "UPDATE delivery_state SET status = CASE delivery_id % 20 WHEN 0 THEN 'failed' ELSE 'delivered' END, attempt_count = 1,
            delivered_at = CASE delivery_id % 20 WHEN 0 THEN NULL ELSE now() END
         WHERE delivery_id < (SELECT max(delivery_id) - 5000 FROM delivery_state)",
        "INSERT INTO delivery_attempts (shard_id, delivery_id, webhook_id, request_id, attempt, claimed_at, started_at, finished_at,
            response_status, response_time_ms, error, url_hash, secret_hash)
         SELECT d.shard_id, d.id, d.webhook_id, gen_random_uuid(), 1, d.created_at, d.created_at, d.created_at + interval '17 ms',
            CASE s.status WHEN 'failed' THEN 500 ELSE 200 END, 17, CASE s.status WHEN 'failed' THEN 'HTTP 500' END, 'u', 's'
         FROM deliveries d JOIN delivery_state s ON s.shard_id = d.shard_id AND s.delivery_id = d.id
         WHERE s.attempt_count = 1 ORDER BY d.created_at, d.id",
        // Half of the others wait for another attempt.
        "UPDATE delivery_state SET attempt_count = 1, next_attempt_at = now() + interval '1 day' WHERE status = 'pending' AND delivery_id % 2 = 0",
        "VACUUM ANALYZE",
        "CHECKPOINT",
    ] {
        sqlx::raw_sql(settle).execute(&mut admin).await?;
    }
    let middle = sqlx::query_scalar(
        "SELECT to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') FROM orders WHERE id = 500000",
    )
    .fetch_one(&mut admin)
    .await?;
    Ok(LongLists { account, client, product, webhook, middle })
}

/// Appends the events at the log head, and writes their rows in the vault.
async fn seed(admin: &mut PgConnection, product: i64) -> Result<()> {
    let (account, wallet, head): (i64, i64, i64) =
        sqlx::query_as("SELECT w.account_id, w.id, h.position FROM wallets w, log_head h").fetch_one(&mut *admin).await?;
    let names = [("{account}", account), ("{wallet}", wallet), ("{product}", product), ("{head}", head)];
    let sql = names.iter().fold(include_str!("lists.sql").to_owned(), |sql, (name, id)| sql.replace(name, &id.to_string()));
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(admin).await.context("the seed")?;
    Ok(())
}
