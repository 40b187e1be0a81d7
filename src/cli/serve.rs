//! `serve` and `migrate`: run a node, and migrate the database schema.

mod introduction;
mod sandbox;

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::output::{Output, with_progress};
use crate::config::{Config, DatabaseSettings};
use crate::ledger::schema::contract::contract;
use crate::ledger::schema::migration::PATIENCE;
use crate::node::{Database, Node};
use sandbox::SandboxStart;

#[derive(Args, Debug)]
pub struct MigrateArgs {
    #[command(flatten)]
    database: DatabaseSettings,
    /// Also run the contract step; only when no node of an older release runs any more
    #[arg(long)]
    contract: bool,
}

/// Listener for SIGTERM and SIGINT. The first signal requests a graceful shutdown, a second one ends the process at once.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub fn listen() -> std::io::Result<StopSignals> {
        Ok(StopSignals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal. Returns the exit status that a shell would report for it (128 + signal number).
    pub async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.terminate.recv() => 128 + 15,
            _ = self.interrupt.recv() => 128 + 2,
        }
    }
}

/// Runs a node until a signal arrives.
pub async fn run(config: Config, output: &Output) -> anyhow::Result<ExitCode> {
    let mut signals = StopSignals::listen()?;
    let roles = config.roles.clone();
    // Before the node has started there is nothing to shut down; the embedded server ends by itself.
    let (mut node, sandbox) = tokio::select! {
        started = start(config, output) => started?,
        status = signals.next() => return Ok(ExitCode::from(status)),
    };
    let (address, operator_address) = (node.address().map(|a| a.to_string()), node.operator_address().map(|a| a.to_string()));
    tracing::info!(address, operator_address, roles = %roles, "ready");
    let failure = tokio::select! {
        error = node.failed() => Some(error),
        _ = signals.next() => None,
    };
    stop(node, &mut signals).await?;
    if let Some(sandbox) = sandbox {
        sandbox.stop().await;
    }
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Starts a node. A sandbox of one person also gets a receiver, and is introduced on stdout.
async fn start(mut config: Config, output: &Output) -> anyhow::Result<(Node, Option<SandboxStart>)> {
    if !SandboxStart::is_wanted(&config)? {
        return Ok((Node::start(&config).await?, None));
    }
    // The database comes first, because it makes the data directory.
    let database = Database::open_or_create(&config.database).await?;
    let sandbox = SandboxStart::prepare(&mut config).await?;
    let node = Node::start_on(&config, database).await?;
    match sandbox.introduce(&node, output).await {
        Ok(()) => Ok((node, Some(sandbox))),
        Err(error) => {
            node.stop().await?;
            Err(error.context("cannot set up the sandbox"))
        }
    }
}

/// Stops a node gracefully. Another signal ends the process at once.
pub async fn stop(node: Node, signals: &mut StopSignals) -> anyhow::Result<()> {
    tracing::info!("stopping");
    tokio::select! {
        stopped = node.stop() => stopped?,
        status = signals.next() => {
            tracing::warn!("stopped at once, by a second signal");
            std::process::exit(status.into());
        }
    }
    tracing::info!("stopped");
    Ok(())
}

/// Migrates the database and prints the applied migrations.
pub async fn migrate(args: &MigrateArgs, output: &Output) -> anyhow::Result<()> {
    let database = with_progress("starting the embedded Postgres", Database::open_or_create(&args.database)).await?;
    let migrated = async {
        let pending = database.pending().await?;
        database.migrate().await?;
        let contracted = match args.contract {
            true => Some(contract(database.migrating(), PATIENCE).await?),
            false => None,
        };
        anyhow::Ok((pending, contracted))
    };
    let migrated = with_progress("migrating", migrated).await;
    database.close().await?;
    let (applied, contracted) = migrated?;
    match output.json {
        true if contracted.is_some() => output.json_line(&json!({"applied": applied, "contracted": contracted}))?,
        true => output.json_line(&json!({"applied": applied}))?,
        false if applied.is_empty() => output.line("the schema is current")?,
        false => output.line(format!("applied {}", applied.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")))?,
    }
    if let Some(contracted) = contracted.filter(|_| !output.json) {
        output.line(format!("unique indexes changed to the collation C: {}", contracted.len()))?;
    }
    Ok(())
}
