//! `reconcile`: a period's totals and everything that does not add up, straight from the database.

mod statement;

use std::process::ExitCode;

use anyhow::{Context, bail};
use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use clap::{Args, Subcommand, ValueEnum};
use ledger_events::{AccountId, ShardId};
use ledger_projections::accounts;
use sqlx::PgPool;

use super::audit::Bar;
use super::output::{Output, with_progress};
use crate::config::DatabaseSettings;
use crate::ledger::connect;
use crate::node::Database;
use crate::reconciliation::{Period, Report, render, report, walk_all};

#[derive(Args, Debug)]
pub struct ReconcileArgs {
    #[command(flatten)]
    database: DatabaseSettings,
    /// From this time on, as 2030-12-31 (midnight UTC) or 2030-12-31T12:00:00Z [default: the log's beginning]
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<DateTime<Utc>>,
    /// Before this time [default: the log's end]
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<DateTime<Utc>>,
    /// One account's wallets only
    #[arg(long, value_name = "ID")]
    account: Option<AccountId>,
    /// [default: table; json with --json]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Only the totals, without looking at each movement, order and payout
    #[arg(long)]
    totals_only: bool,
    #[command(subcommand)]
    what: Option<Reconcile>,
}

#[derive(Subcommand, Debug)]
enum Reconcile {
    /// Match a bank's or payment processor's statement with fundings and payouts
    Statement(statement::StatementArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Csv,
}

/// A date, which begins at midnight UTC, or a time.
fn time(text: &str) -> Result<DateTime<Utc>, String> {
    let day = text.parse::<NaiveDate>().ok().map(|day| day.and_time(NaiveTime::MIN).and_utc());
    let time = day.or_else(|| DateTime::parse_from_rfc3339(text).ok().map(|time| time.to_utc()));
    time.ok_or_else(|| "a time looks like 2030-12-31 or 2030-12-31T12:00:00Z".to_owned())
}

/// Fails when there is a difference.
pub async fn run(args: ReconcileArgs, output: &Output) -> anyhow::Result<ExitCode> {
    if let Some(Reconcile::Statement(statement)) = args.what {
        return statement::run(statement, output).await;
    }
    if args.from.zip(args.to).is_some_and(|(from, to)| to < from) {
        bail!("--to must not be before --from");
    }
    let database = with_progress("starting the embedded Postgres", Database::open(&args.database)).await?;
    let pool = connect::pool(database.options());
    let done = reconcile(&pool, &args).await;
    pool.close().await;
    database.close().await?;
    let report = done?;
    let format = args.format.unwrap_or(if output.json { Format::Json } else { Format::Table });
    match format {
        Format::Table => print(&report, output)?,
        Format::Json => output.line(serde_json::to_string_pretty(&report)?)?,
        Format::Csv => output.line(String::from_utf8(render::csv(&report)?)?.trim_end())?,
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn reconcile(pool: &PgPool, args: &ReconcileArgs) -> anyhow::Result<Report> {
    let shards: Vec<ShardId> = match args.account {
        Some(account) => {
            let (shard, _) = accounts::find(pool, account).await?.with_context(|| format!("there is no account {account}"))?;
            vec![shard]
        }
        None => sqlx::query_scalar("SELECT shard_id FROM log_head ORDER BY shard_id").fetch_all(pool).await?,
    };
    let period = Period { from: args.from, to: args.to, account_id: args.account };
    let (mut report, bounds) = with_progress("adding up", report(pool, &shards, period, usize::MAX)).await?;
    if !args.totals_only {
        let bar = Bar::new();
        let walked = walk_all(pool, &mut report, &bounds, |progress| bar.show(progress)).await;
        bar.end();
        walked?;
    }
    Ok(report)
}

fn print(report: &Report, output: &Output) -> anyhow::Result<()> {
    let tables = render::tables(report);
    if !tables.is_empty() {
        output.line(format!("{tables}\n"))?;
    }
    for difference in &report.differences.differences {
        output.line(difference)?;
    }
    for as_of in &report.as_of {
        let checkpoint = match &as_of.log_checkpoint {
            Some(checkpoint) => format!(", under the log's checkpoint of {} events, {}", checkpoint.size, checkpoint.root),
            None => String::new(),
        };
        output.line(format!("shard {}: as of position {} of {}{checkpoint}", as_of.shard_id, as_of.position, as_of.head))?;
    }
    output.line(match report.differences.found {
        0 => "everything adds up".to_owned(),
        1 => "1 difference".to_owned(),
        found => format!("{found} differences"),
    })?;
    Ok(())
}
