//! Time to rebuild projections over a log of a million events, compared with Postgres's own `COPY` of the same events
//! in the same run:
//!
//! ```text
//! cargo bench --bench rebuild
//! ```

mod support;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ledger_projections::Inline;
use rewards_ledger::audit::{Rebuild, rebuild, verify};
use sqlx::AssertSqlSafe;
use support::report::Report;
use support::table::thousands;

#[tokio::main]
async fn main() -> Result<()> {
    let mut report = Report::start("rebuild");
    let server = support::postgres().await?;
    let options = support::database(&server, "rebuild").await?;
    let mut admin = options.connect().await?;
    sqlx::raw_sql(include_str!("support/million.sql")).execute(&mut admin).await?;
    // Fill the empty tables first. The measured rebuilds then compare the rows of a million events and find them
    // correct.
    rebuild(&options, Rebuild::All, |_| {}).await?;
    let audit = verify(&options, |_| {}).await?;
    ensure!(audit.is_clean(), "the measured log is not sound: {:?}", audit.differences.first());
    let events: i64 = sqlx::query_scalar("SELECT count(*) FROM events").fetch_one(&mut admin).await?;

    // In the server's own directory, which is removed together with the server.
    let directory: String = sqlx::query_scalar("SHOW data_directory").fetch_one(&mut admin).await?;
    let file = format!("{directory}/events.copy");
    let prepare =
        format!("VACUUM ANALYZE; COPY events TO '{file}'; CREATE TABLE copied (LIKE events INCLUDING INDEXES); CHECKPOINT");
    for statement in prepare.split("; ") {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut admin).await?;
    }
    let started = Instant::now();
    sqlx::raw_sql(AssertSqlSafe(format!("COPY copied FROM '{file}'"))).execute(&mut admin).await?;
    let copy = started.elapsed();

    let row = |what: &str, took: Duration| {
        vec![
            what.to_owned(),
            format!("{:.1} s", took.as_secs_f64()),
            thousands(events as f64 / took.as_secs_f64()),
            format!("{:.2}×", copy.as_secs_f64() / took.as_secs_f64()),
        ]
    };
    let (mut rows, mut both) = (vec![row("Postgres: COPY of the events", copy)], Duration::ZERO);
    for (what, which) in
        [("rebuild orders", Rebuild::Inline(Inline::Orders)), ("rebuild wallets", Rebuild::Inline(Inline::Wallets))]
    {
        sqlx::raw_sql("CHECKPOINT").execute(&mut admin).await?;
        let started = Instant::now();
        let rebuilt = rebuild(&options, which, |_| {}).await.context(what)?;
        let took = started.elapsed();
        both += took;
        rows.push(row(what, took));
        ensure!(rebuilt.was_clean(), "{what}: {:?}", rebuilt.differences.first());
    }
    rows.push(row("both, one after the other", both));
    report.table(
        &format!("Rebuilding the tables of {} events", thousands(events as f64)),
        "A rebuild folds the log, compares the result with the rows that are there, and swaps them. The comparison is Postgres's \
         own `COPY` of the same events. The target is a third of its speed.",
        &["", "took", "events/s", "of COPY"],
        &rows,
    );
    report.end(&server).await?;
    server.stop().await?;
    Ok(())
}
