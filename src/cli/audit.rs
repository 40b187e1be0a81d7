//! `verify` and `rebuild`: compare the derived rows with the log, and rebuild them from it.

use std::process::ExitCode;

use ledger_database::{PgConnectOptions, PgPool};
use tokio::sync::watch;

use super::offline::{self, OfflineArgs};
use super::output::{Bar, Output, print_differences, with_progress};
use crate::audit::runs::{self, Kind, Outcome};
use crate::audit::{self, AuditError, Progress, Rebuild};
use crate::config::{DatabaseSettings, MasterKeySettings};
use crate::ledger::connect;
use crate::node::{self, Database};

/// Record of a command's run, which the console shows. The run goes on without one if it cannot be written.
struct Record {
    pool: PgPool,
    id: Option<i64>,
    bar: Bar,
    progress: watch::Sender<Option<Progress>>,
}

impl Record {
    async fn begin(options: &PgConnectOptions, kind: Kind<'_>) -> Record {
        let pool = connect::maintenance(options);
        let id = runs::begin(&pool, kind).await;
        let id = id.inspect_err(|error| match error {
            sqlx::Error::Database(_) => tracing::warn!(%error, "failed to record the run, so the console does not show it"),
            // The command itself fails, too, and says so.
            _ => tracing::debug!(%error, "failed to record the run"),
        });
        Record { pool, id: id.ok(), bar: Bar::new(), progress: watch::Sender::new(None) }
    }

    fn show(&self, progress: Progress) {
        self.bar.show(progress);
        self.progress.send_replace(Some(progress));
    }

    /// Does the work, and records its progress and its outcome.
    async fn follow<T>(
        &self,
        work: impl Future<Output = Result<T, AuditError>>,
        outcome: impl FnOnce(&Result<T, AuditError>) -> Outcome,
    ) -> anyhow::Result<Result<T, AuditError>> {
        let done = match self.id {
            Some(id) => runs::follow(&self.pool, id, self.progress.subscribe(), work).await,
            None => Ok(work.await),
        };
        self.bar.end();
        let done = done?;
        if let Some(id) = self.id
            && let Err(error) = runs::end(&self.pool, id, &outcome(&done)).await
        {
            tracing::warn!(%error, "failed to record the result of the run; the console shows it as interrupted");
        }
        self.pool.close().await;
        Ok(done)
    }
}

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

impl VerifyArgs {
    /// Returns whether the command prints a list, which CSV can hold.
    pub fn prints_list(&self) -> bool {
        !self.offline.is_about_receipt()
    }
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
    let record = Record::begin(database.options(), Kind::Verify).await;
    let verify = audit::verify_with(database.options(), keyring.as_deref(), |progress| record.show(progress));
    let report = record.follow(verify, Outcome::of_verify).await??;
    if output.json {
        output.line(serde_json::to_string_pretty(&report)?)?;
    } else {
        print_differences(output, &report.differences, report.found)?;
        for reach in &report.reached {
            let (projection, checkpoint, behind) = (reach.projection, reach.checkpoint, reach.behind());
            output.remark(format!(
                "shard {}: {projection}: up to position {checkpoint}, {behind} events behind the head",
                reach.shard
            ))?;
        }
        output.remark(report.delivery_health)?;
        if !report.secrets_compared {
            output.remark("keys, passwords, sessions and secrets: not compared (needs --master-key-file)")?;
        }
        output.remark(&report)?;
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs `rebuild`. The exit status is 1 if the replaced rows differed from the log, so that nobody overlooks a repair.
pub async fn rebuild(args: &RebuildArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let database = with_progress("starting the embedded Postgres", Database::open(&args.database)).await?;
    let done = run_rebuild(&database, args, output).await;
    database.close().await?;
    done
}

async fn run_rebuild(database: &Database, args: &RebuildArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let name = if args.all { "all" } else { args.projection.as_deref().unwrap_or("all") };
    let which = Rebuild::parse(name).ok_or_else(|| anyhow::anyhow!("unknown projection {name:?}"))?;
    let record = Record::begin(database.options(), Kind::Rebuild(name)).await;
    let rebuild = audit::rebuild(database.migrating(), which, |progress| record.show(progress));
    let rebuilt = record.follow(rebuild, Outcome::of_rebuild).await??;
    if output.json {
        output.line(serde_json::to_string_pretty(&rebuilt)?)?;
    } else {
        print_differences(output, &rebuilt.differences, rebuilt.found)?;
        for (table, rows) in &rebuilt.rows {
            output.remark(format!("{table}: {rows} rows"))?;
        }
        output.remark(&rebuilt)?;
    }
    Ok(if rebuilt.was_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
