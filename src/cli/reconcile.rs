//! `reconcile`: computes the totals of a period and every discrepancy, directly from the database.

mod statement;

use std::process::ExitCode;

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use ledger_database::PgPool;
use ledger_events::{AccountId, ShardId};
use ledger_projections::accounts;
use transparency_log::quorum::Quorum;

use super::WrongUse;
use super::output::{Bar, Format, Output, with_progress};
use super::quorum::QuorumArgs;
use crate::config::DatabaseSettings;
use crate::ledger::{connect, history, list_shards};
use crate::node::Database;
use crate::reconciliation::{AsOf, Checked, Period, Report, await_checkpoints, render, report, walk_all};

#[derive(Args, Debug)]
pub struct ReconcileArgs {
    #[command(flatten)]
    database: DatabaseSettings,
    /// Start of the period, for example 2030-12-31 (midnight UTC) or 2030-12-31T12:00:00Z [default: the log's beginning]
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<DateTime<Utc>>,
    /// End of the period, exclusive [default: the log's end]
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<DateTime<Utc>>,
    /// Reconcile only the wallets of this account
    #[arg(long, value_name = "ID")]
    account: Option<AccountId>,
    /// Format of the report [default: that of --output]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Compute only the totals, without checking each movement, order, and payout
    #[arg(long)]
    totals_only: bool,
    #[command(flatten)]
    quorum: QuorumArgs,
    #[command(subcommand)]
    what: Option<Reconcile>,
}

#[derive(Subcommand, Debug)]
enum Reconcile {
    /// Match the statement of a bank or payment processor with fundings and payouts
    Statement(statement::StatementArgs),
}

impl ReconcileArgs {
    /// Returns the first given flag that applies only to the report, and that matching a statement would ignore.
    fn of_report(&self) -> Option<&'static str> {
        let given = [
            ("--from", self.from.is_some()),
            ("--to", self.to.is_some()),
            ("--account", self.account.is_some()),
            ("--format", self.format.is_some()),
            ("--totals-only", self.totals_only),
            ("--quorum and --witness", self.quorum.is_wanted()),
        ];
        given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }
}

/// Parses a date (midnight UTC) or a time, in a year that the database supports.
fn time(text: &str) -> Result<DateTime<Utc>, String> {
    history::time(text).ok_or_else(|| "a time looks like 2030-12-31 or 2030-12-31T12:00:00Z, in the years 1 to 9999".to_owned())
}

/// Runs `reconcile`. The exit status is 1 if there is a difference.
pub async fn run(args: ReconcileArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let of_report = args.of_report();
    if let Some(Reconcile::Statement(statement)) = args.what {
        if let Some(name) = of_report {
            return Err(WrongUse(format!("{name} cannot be used with `reconcile statement`")).into());
        }
        return statement::run(statement, output).await;
    }
    if args.from.zip(args.to).is_some_and(|(from, to)| to < from) {
        return Err(WrongUse("--to must not be before --from".to_owned()).into());
    }
    let quorum = args.quorum.of_named()?;
    let database = with_progress("starting the embedded Postgres", Database::open(&args.database)).await?;
    let pool = database.read_pool(connect::without_timeout).await;
    let done = reconcile(&pool, &args, &quorum).await;
    pool.close().await;
    database.close().await?;
    let report = done?;
    let format = args.format.unwrap_or(output.format());
    match format {
        Format::Table => print(&report, output)?,
        Format::Json => output.line(serde_json::to_string_pretty(&report)?)?,
        Format::Csv => output.verbatim(String::from_utf8(render::csv(&report)?)?.trim_end())?,
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn reconcile(pool: &PgPool, args: &ReconcileArgs, quorum: &Quorum) -> anyhow::Result<Report> {
    let shards: Vec<ShardId> = match args.account {
        Some(account) => {
            let (shard, _) = accounts::find(pool, account).await?.with_context(|| format!("there is no account {account}"))?;
            vec![shard]
        }
        None => list_shards(pool).await?,
    };
    let period = Period { from: args.from, to: args.to, account_id: args.account };
    let (mut report, bounds) = with_progress("adding up", report(pool, &shards, period, usize::MAX)).await?;
    with_progress("waiting for a checkpoint", await_checkpoints(pool, &mut report, quorum)).await?;
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
        output.line(tied(as_of))?;
    }
    output.line(match (report.differences.found, report.checked) {
        (0, Checked::Movements) => "everything adds up".to_owned(),
        (0, Checked::Totals) => "the totals add up; orders, payouts and movements were not checked".to_owned(),
        (1, _) => "1 difference".to_owned(),
        (found, _) => format!("{found} differences"),
    })?;
    Ok(())
}

/// Describes the log position and checkpoint that a shard's figures refer to.
fn tied(as_of: &AsOf) -> String {
    let checkpoint = match &as_of.log_checkpoint {
        Some(checkpoint) if checkpoint.size >= as_of.position => {
            format!(", under the log's checkpoint of {} events, {}", checkpoint.size, checkpoint.root)
        }
        Some(checkpoint) => format!("; the log's newest checkpoint, of {} events, does not cover it", checkpoint.size),
        None => "; no checkpoint of the log has been signed".to_owned(),
    };
    format!("shard {}: as of position {} of {}{checkpoint}", as_of.shard_id, as_of.position, as_of.head)
}
