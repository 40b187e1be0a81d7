//! `verify` and `rebuild`: compare the derived rows with the log, and rebuild them from it.

use std::process::ExitCode;

use sqlx::postgres::PgConnectOptions;

use super::offline::{self, OfflineArgs};
use super::output::{Bar, Output, print_differences, with_progress};
use crate::audit::{self, Rebuild};
use crate::config::{DatabaseSettings, MasterKeySettings};
use crate::node::{self, Database};

#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    #[command(flatten)]
    database: DatabaseSettings,
    #[command(flatten)]
    master_key: MasterKeySettings,
    #[command(flatten)]
    offline: OfflineArgs,
}

#[derive(Debug, clap::Args)]
pub struct RebuildArgs {
    #[command(flatten)]
    database: DatabaseSettings,
    /// Projection to rebuild
    #[arg(value_parser = Rebuild::NAMES, required_unless_present = "all")]
    projection: Option<String>,
    /// Rebuild every projection and swap all tables in one transaction
    #[arg(long, conflicts_with = "projection")]
    all: bool,
}

/// Runs `verify` against the database or, with offline arguments, against files. The exit status is 1 if anything
/// differs.
pub async fn verify(args: &VerifyArgs, output: &Output) -> anyhow::Result<ExitCode> {
    if args.offline.is_wanted() {
        return offline::verify(&args.offline, output);
    }
    let database = with_progress("starting the embedded Postgres", Database::open(&args.database)).await?;
    let done = run_verify(&database, args, output).await;
    database.close().await?;
    done
}

async fn run_verify(database: &Database, args: &VerifyArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let keyring = node::keyring_if_any(&args.master_key, &args.database.data_dir, database.is_embedded())?;
    let bar = Bar::new();
    let report = audit::verify_with(database.options(), keyring.as_deref(), |progress| bar.show(progress)).await;
    bar.end();
    let report = report?;
    if output.json {
        output.line(serde_json::to_string_pretty(&report)?)?;
    } else {
        print_differences(output, &report.differences, report.found)?;
        for reach in &report.reached {
            let (projection, checkpoint, behind) = (reach.projection, reach.checkpoint, reach.behind());
            output.line(format!(
                "shard {}: {projection}: up to position {checkpoint}, {behind} events behind the head",
                reach.shard
            ))?;
        }
        output.line(report.delivery_health.to_string())?;
        if !report.secrets_compared {
            output.line("keys, passwords, sessions and secrets: not compared (needs --master-key-file)")?;
        }
        let counts = report.counts;
        output.line(format!(
            "{} events in {} streams, {} movements, {} vouchers, {} deliveries: {}",
            counts.events,
            counts.streams,
            counts.transactions,
            counts.vouchers,
            counts.deliveries,
            if report.is_clean() { "everything matches the log".to_owned() } else { format!("{} differences", report.found) },
        ))?;
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs `rebuild`. The exit status is 1 if the replaced rows differed from the log, so that nobody overlooks a repair.
pub async fn rebuild(args: &RebuildArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let database = with_progress("starting the embedded Postgres", Database::open(&args.database)).await?;
    let done = run_rebuild(database.migrating(), args, output).await;
    database.close().await?;
    done
}

async fn run_rebuild(options: &PgConnectOptions, args: &RebuildArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let name = if args.all { "all" } else { args.projection.as_deref().unwrap_or("all") };
    let which = Rebuild::parse(name).ok_or_else(|| anyhow::anyhow!("unknown projection {name:?}"))?;
    let bar = Bar::new();
    let rebuilt = audit::rebuild(options, which, |progress| bar.show(progress)).await;
    bar.end();
    let rebuilt = rebuilt?;
    if output.json {
        output.line(serde_json::to_string_pretty(&rebuilt)?)?;
    } else {
        print_differences(output, &rebuilt.differences, rebuilt.found)?;
        for (table, rows) in &rebuilt.rows {
            output.line(format!("{table}: {rows} rows"))?;
        }
        let outcome = if rebuilt.was_clean() {
            "rebuilt; no row differed".to_owned()
        } else {
            format!("rebuilt; {} differences repaired", rebuilt.found)
        };
        output.line(format!("{}: {outcome}", rebuilt.projections.join(", ")))?;
    }
    Ok(if rebuilt.was_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
