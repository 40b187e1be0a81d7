//! `log incident`: records that signed events are lost, so that the log continues under another origin.

use anyhow::{Context, bail, ensure};
use chrono::Utc;
use clap::Args;
use ledger_events::ShardId;
use serde::Deserialize;
use serde_json::json;
use transparency_log::checkpoint::Trust;
use transparency_log::note::is_name;

use super::ask;
use crate::cli::client::Client;
use crate::cli::output::{Output, with_progress};
use crate::cli::writing::{self, ByArgs, Writing};
use crate::config::{DatabaseSettings, MasterKeySettings};
use crate::ledger::commands::RecordLogIncident;
use crate::ledger::{Command, CommandResult, Origin, WriteError};
use crate::node::Database;
use crate::secrets::seal::Secret;
use crate::transparency::{incidents, store};

#[derive(Args, Debug)]
pub struct IncidentArgs {
    #[command(flatten)]
    database: DatabaseSettings,
    #[command(flatten)]
    master_key: MasterKeySettings,
    #[command(flatten)]
    by: ByArgs,
    /// Description of what happened, for the record; at most 500 characters
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// New origin of the log, under which nothing may have been signed yet [default: the log's first origin and the time]
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,
}

pub async fn run(shard: ShardId, args: &IncidentArgs, output: &Output) -> anyhow::Result<()> {
    let database = with_progress("starting the embedded Postgres", Database::open(&args.database)).await?;
    let done = on(shard, args, &database, output).await;
    database.close().await?;
    done
}

async fn on(shard: ShardId, args: &IncidentArgs, database: &Database, output: &Output) -> anyhow::Result<()> {
    database.migrate_if_allowed().await?;
    let reason = writing::reason(&args.reason)?;
    let writing = Writing::open(database, &args.master_key, &args.database.data_dir).await?;
    let recorded = record(shard, args, reason, &writing).await;
    let is_unknown = matches!(recorded, Ok((_, Err(WriteError::OutcomeUnknown))));
    writing.close(is_unknown).await;
    match recorded? {
        (incident, Ok(CommandResult::LogIncident { position })) => Ok(output.facts(&json!({
            "shard": shard,
            "position": position,
            "origin": incident.origin,
            "next_origin": incident.next_origin,
            "signed": incident.signed,
            "kept": incident.kept,
        }))?),
        (_, Ok(_)) => bail!("the ledger returned an unexpected result instead of an incident"),
        (_, Err(WriteError::OutcomeUnknown)) => {
            bail!(
                "it is not known whether the incident was recorded: run `rewards-ledger verify`, and if it still names the refusal, run this command again"
            )
        }
        (_, Err(error)) => Err(error.into()),
    }
}

async fn record(
    shard: ShardId,
    args: &IncidentArgs,
    reason: Secret,
    writing: &Writing,
) -> anyhow::Result<(RecordLogIncident, Result<CommandResult, WriteError>)> {
    let pool = writing.ledger.pool();
    ensure!(writing.ledger.shards().contains(&shard), "there is no shard {shard}");
    let mut connection = pool.acquire().await?;
    let situation = incidents::situation(&mut connection, shard).await?;
    let Some(refusal) = situation.refusals.first() else {
        bail!("nothing to record: no node refuses to sign the log of shard {shard}");
    };
    let origin = refusal.origin.clone();
    let next_origin = args.origin.clone().unwrap_or_else(|| situation.next_origin(&origin, Utc::now()));
    ensure!(
        is_name(&next_origin),
        "{next_origin:?} is not a valid origin: it must not contain spaces, plus signs or control characters"
    );
    ensure!(
        next_origin != origin && !store::has_signed(&mut *connection, shard, &next_origin).await?,
        "trees were already signed under {next_origin}: choose an origin under which nothing was signed"
    );
    let incident = RecordLogIncident {
        kept: situation.kept(&origin),
        signed: refusal.signed(),
        refusal: refusal.reason.clone(),
        origin,
        next_origin,
        reason,
        known: i64::try_from(situation.incidents.len())?,
    };
    drop(connection);
    let by = Origin { actor: args.by.actor(pool).await?, request_id: "log incident".to_owned() };
    let answer = writing.ledger.execute(shard, Command::RecordLogIncident(incident.clone()), by).await;
    Ok((incident, answer))
}

#[derive(Deserialize)]
struct Keys {
    #[serde(default)]
    incidents: Vec<Ended>,
}

#[derive(Deserialize)]
struct Ended {
    recorded_at: String,
    origin: String,
    next_origin: String,
    signed: Option<Tree>,
    kept: Option<Tree>,
}

#[derive(Deserialize)]
struct Tree {
    size: u64,
    root: String,
}

/// Describes how the origin of a trusted key ended, if the log reports that it did. Also returns none if the log cannot
/// be reached, because the description only explains another error.
pub async fn ending(client: &Client, prefix: &str, trust: &Trust) -> Option<String> {
    let keys = ask(client, &format!("{prefix}/keys")).await.context("no keys").ok()?;
    let Keys { incidents } = Keys::deserialize(&keys).ok()?;
    let ended = incidents.into_iter().find(|ended| trust.keys.iter().any(|key| key.name() == ended.origin))?;
    let tree = |tree: Option<Tree>| tree.map_or("unknown".to_owned(), |tree| format!("{} events, root {}", tree.size, tree.root));
    let Ended { recorded_at, origin, next_origin, signed, kept } = ended;
    Some(format!(
        "the log {origin} has ended: events that it had signed were lost (recorded at {recorded_at}). \
         Largest signed tree: {}. Largest signed tree that the log still has: {}. \
         It continues as {next_origin} with another verifier key: see docs/transparency.md, \"For verifiers: a log that has ended\"",
        tree(signed),
        tree(kept)
    ))
}
