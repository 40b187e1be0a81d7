//! A month's totals over ten million movements, compared with the sum of the movements in plain SQL:
//!
//! ```text
//! cargo bench --bench totals
//! ```

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, Utc};
use ledger_database::PgConnectOptions;
use rewards_ledger::ledger::projector::{ProjectionStep, Projector};
use rewards_ledger::ledger::{FIRST_SHARD, Ledger};
use rewards_ledger::secrets::seal::Keyring;
use rewards_ledger::telemetry::Metrics;
use rust_decimal::Decimal;
use sqlx::{AssertSqlSafe, PgConnection};
use support::report::Report;
use support::table::{mebibytes, millis, thousands};
use support::{Serve, load};
use tokio_util::task::TaskTracker;

/// Number of times each report is read. The result is the median.
const READS: usize = 9;
const MONTH: &str = "from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z";
const HOUR: &str = "from=2026-01-15T10:00:00Z&to=2026-01-15T11:00:00Z";
const DAY: &str = "from=2026-01-15T00:00:00Z&to=2026-01-16T00:00:00Z";
const JSON: &str = "application/json";
/// A period of which neither end is at midnight.
const EDGES: &str = "from=2026-01-01T10:30:00Z&to=2026-01-31T15:45:00Z";

#[tokio::main]
async fn main() -> Result<()> {
    let mut report = Report::start("totals");
    let server = support::postgres().await?;
    let options = support::database(&server, "totals").await?;
    let serve = Serve::start(&server.url_of("totals"), "api", &[]).await?;
    let client = serve.clients(1).await?[0].clone();
    let mut admin = options.connect().await?;
    let (account, wallet) = seed(&mut admin).await?;
    let (folded, took) = project(&options).await?;
    for statement in ["VACUUM ANALYZE", "CHECKPOINT"] {
        sqlx::raw_sql(statement).execute(&mut admin).await?;
    }

    let mut rows = vec![plain(&mut admin, "everybody's movements of the month", "").await?];
    let periods = [
        ("the month of everybody's wallets", MONTH.to_owned(), None),
        ("the same, but for its first and last hours", EDGES.to_owned(), None),
        ("the whole log", String::new(), None),
        ("the month of one account", format!("{MONTH}&account_id={account}"), Some(account)),
    ];
    for (what, query, _) in &periods {
        let path = format!("/admin/v1/reconciliation?{query}");
        rows.push(row(&format!("GET /admin/v1/reconciliation: {what}"), ask(&serve, None, &path, JSON).await?));
    }
    rows.push(
        plain(
            &mut admin,
            "the hot wallet's movements of the month",
            &format!("AND account_id = {account} AND wallet_id = {wallet}"),
        )
        .await?,
    );
    for (what, query) in [("the month of the hot wallet", MONTH), ("the same, but for its first and last hours", EDGES)] {
        let path = format!("/api/v1/wallets/{wallet}/statement?totals_only=true&{query}");
        rows.push(row(
            &format!("GET /api/v1/wallets/:id/statement, totals: {what}"),
            ask(&serve, Some(&client), &path, JSON).await?,
        ));
    }
    let path = format!("/admin/v1/wallets/{wallet}/statement?totals_only=true&as_of=2026-02-01&{MONTH}");
    let times = ask(&serve, None, &path, JSON).await?;
    rows.push(row("GET /admin/v1/wallets/:id/statement, totals as of a time: the month of the hot wallet", times));
    for (what, query, accept) in [
        ("an hour of the hot wallet with its 1,000 movements", HOUR, JSON),
        ("the same as CSV", HOUR, "text/csv"),
        ("a day of it, 32,000 movements", DAY, JSON),
    ] {
        let path = format!("/api/v1/wallets/{wallet}/statement?{query}");
        rows.push(row(&format!("GET /api/v1/wallets/:id/statement: {what}"), ask(&serve, Some(&client), &path, accept).await?));
    }
    let path = format!("/api/v1/wallets/{wallet}/statement?{MONTH}");
    let whole = serve.stream(&client, &path, "text/csv").await?;
    for (_, query, account) in &periods {
        adds_up(&serve, &mut admin, &format!("/admin/v1/reconciliation?{query}"), *account).await?;
    }
    agree(&serve, &client, &mut admin, wallet).await?;
    report.table(
        "Totals over ten million movements in a month",
        "9,000 wallets have 1,000 movements each, and one has a million. Each request is sent nine times. The target for a month's \
         totals is under a second.",
        &["", "median", "most"],
        &rows,
    );
    let (first, all, bytes) = whole;
    report.text(&format!(
        "The month's statement of the hot wallet with its million movements, as CSV: {} to its first bytes, {} in all ({}).",
        millis(first),
        millis(all),
        mebibytes(bytes)
    ));
    report.text(&format!(
        "The projection folded the last {} events in {} ({} events/s).",
        thousands(folded as f64),
        millis(took),
        thousands(folded as f64 / took.as_secs_f64())
    ));
    report.end(&server).await?;
    server.stop().await?;
    Ok(())
}

/// Appends the month's events at the log head. Returns the hot wallet's account and id.
async fn seed(admin: &mut PgConnection) -> Result<(i64, i64)> {
    let (account, wallet, head): (i64, i64, i64) =
        sqlx::query_as("SELECT w.account_id, w.id, h.position FROM wallets w, log_head h").fetch_one(&mut *admin).await?;
    // Move the events that were there before to a time before the month.
    sqlx::raw_sql(
        "ALTER TABLE events DISABLE TRIGGER ALL; UPDATE events SET recorded_at = '2025-12-31T00:00:00Z'; ALTER TABLE events ENABLE ALWAYS TRIGGER events_append_only;
         ALTER TABLE events ENABLE ALWAYS TRIGGER events_no_truncate;
         UPDATE wallets SET created_at = '2025-12-31T00:00:00Z'; UPDATE wallet_transactions SET created_at = '2025-12-31T00:00:00Z'",
    )
    .execute(&mut *admin)
    .await?;
    let names = [("{account}", account), ("{wallet}", wallet), ("{head}", head)];
    let sql =
        names.iter().fold(include_str!("support/totals.sql").to_owned(), |sql, (name, id)| sql.replace(name, &id.to_string()));
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(admin).await.context("the seed")?;
    Ok((account, wallet))
}

/// Lets the projection fold the remaining events. Returns their number and the time that it took.
async fn project(options: &PgConnectOptions) -> Result<(i64, Duration)> {
    let metrics = Metrics::default();
    let keyring = Arc::new(Keyring::from_base64(&Keyring::generate())?);
    let ledger = Ledger::open(options, keyring, metrics.clone(), &TaskTracker::new()).await?;
    let projector = Projector::new(&ledger, options, metrics);
    let (started, mut folded) = (Instant::now(), 0);
    while let ProjectionStep::Applied { is_more, .. } = projector.total(FIRST_SHARD).await? {
        folded += 5_000;
        if !is_more {
            break;
        }
    }
    ensure!(folded == 100_000, "{folded} events were folded");
    Ok((folded, started.elapsed()))
}

/// Sums the month's movements in straightforward SQL.
async fn plain(admin: &mut PgConnection, what: &str, condition: &str) -> Result<Vec<String>> {
    let sql = format!(
        "SELECT wallet_id, category, type, sum(amount), count(*) FROM wallet_transactions
         WHERE shard_id = 1 AND created_at >= '2026-01-01T00:00:00Z' AND created_at < '2026-02-01T00:00:00Z' {condition}
         GROUP BY wallet_id, category, type"
    );
    let mut times = vec![];
    for _ in 0..READS.min(3) {
        let started = Instant::now();
        sqlx::raw_sql(AssertSqlSafe(sql.clone())).fetch_all(&mut *admin).await?;
        times.push(started.elapsed());
    }
    Ok(row(&format!("plain SQL, sum … GROUP BY: {what}"), times))
}

async fn ask(serve: &Serve, client: Option<&load::Client>, path: &str, accept: &str) -> Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        times.push(serve.get(client, path, accept).await?.0);
    }
    Ok(times)
}

/// Checks that the fast result is correct: a report has no differences, and its sums by currency, day and wallet
/// equal those of the movements.
async fn adds_up(serve: &Serve, admin: &mut PgConnection, path: &str, account: Option<i64>) -> Result<()> {
    let (_, text) = serve.get(None, path, JSON).await?;
    let told = serde_json::from_str::<serde_json::Value>(&text)?["data"].take();
    ensure!(told["found"] == 0, "{path}: {}", told["differences"]);
    ensure!(told["wallets_left_out"] == 0, "{path}: {} wallets are not listed", told["wallets_left_out"]);
    let plain: (Decimal, Decimal, Decimal, Decimal, i64) = sqlx::query_as(
        "SELECT coalesce(sum(amount) FILTER (WHERE category = 'FUNDING'), 0), coalesce(sum(amount) FILTER (WHERE category = 'ORDER'), 0),
            coalesce(sum(amount) FILTER (WHERE category = 'PAYOUT'), 0), coalesce(sum(CASE type WHEN 'CREDIT' THEN amount ELSE -amount END), 0),
            count(*)
         FROM wallet_transactions WHERE shard_id = 1 AND ($1 IS NULL OR created_at >= $1) AND ($2 IS NULL OR created_at < $2)
           AND ($3 IS NULL OR account_id = $3)",
    )
    .bind(time(&told["from"])?)
    .bind(time(&told["to"])?)
    .bind(account)
    .fetch_one(admin)
    .await?;
    for list in ["currencies", "days", "wallets"] {
        let rows = told[list].as_array().context("the response has a list of figures")?;
        let mut sums = <(Decimal, Decimal, Decimal, Decimal, i64)>::default();
        for row in rows {
            let figure = |name: &str| -> Result<Decimal> { Ok(row[name].as_str().context("an amount")?.parse()?) };
            sums.0 += figure("funding")?;
            sums.1 += figure("order_debits")?;
            sums.2 += figure("payout_debits")?;
            // Net movement: the difference between the balances where the rows have them.
            sums.3 += match list {
                "days" => figure("funding")? - figure("debits")? + figure("refunds")? + figure("adjustments")?,
                _ => figure("closing_balance")? - figure("opening_balance")?,
            };
            sums.4 += row["movements"].as_i64().context("the row has a number of movements")?;
        }
        ensure!(sums == plain, "{path}: {list}: {sums:?}, but plain SQL gives {plain:?}");
    }
    Ok(())
}

/// Parses one end of a report's period.
fn time(value: &serde_json::Value) -> Result<Option<DateTime<Utc>>> {
    Ok(value.as_str().map(str::parse).transpose()?)
}

/// Checks that the fast result is correct: the statement's sums equal those of the movements.
async fn agree(serve: &Serve, client: &load::Client, admin: &mut PgConnection, wallet: i64) -> Result<()> {
    let (_, text) =
        serve.get(Some(client), &format!("/api/v1/wallets/{wallet}/statement?totals_only=true&{EDGES}"), JSON).await?;
    let statement: serde_json::Value = serde_json::from_str(&text)?;
    let (debits, closing): (String, String) = sqlx::query_as(
        "SELECT sum(amount)::text, min(balance_after)::text FROM wallet_transactions WHERE shard_id = 1 AND wallet_id = $1
           AND created_at >= '2026-01-01T10:30:00Z' AND created_at < '2026-01-31T15:45:00Z'",
    )
    .bind(wallet)
    .fetch_one(admin)
    .await?;
    let told = &statement["data"];
    ensure!(told["total_debits"] == debits && told["closing_balance"] == closing, "{told}: {debits}, {closing}");
    Ok(())
}

fn row(what: &str, mut times: Vec<Duration>) -> Vec<String> {
    times.sort_unstable();
    let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
    vec![what.to_owned(), millis(median), millis(most)]
}
