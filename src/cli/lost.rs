//! `events lost`: lists the events of an export, or of a copy of the tiles, that the database lacks.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use ledger_database::PgPool;
use ledger_events::ShardId;
use serde_json::{Value, json};

use super::output::{Bar, Format, Output};
use crate::export::lost::{self, KeptLog, Lost};

/// Fields that would make the lines of a table too long.
const NOT_IN_TABLE: [&str; 2] = ["event_id", "request_id"];

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct LostArgs {
    /// Export of the log from before the loss
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// Copy of the log's tiles from before the loss; without entries, it lists only positions and leaf hashes
    #[arg(long, value_name = "DIRECTORY")]
    tiles: Option<PathBuf>,
}

/// Runs `events lost`. The exit status is 1 if the database lacks anything.
pub async fn run(pool: &PgPool, shard: ShardId, args: &LostArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let kept = match (&args.export, &args.tiles) {
        (Some(path), _) => KeptLog::export(path)?,
        (None, Some(path)) => KeptLog::tiles(path)?,
        (None, None) => bail!("nothing to compare with"),
    };
    let bar = Bar::new();
    let lost = lost::find(pool, shard, &kept, |progress| bar.show(progress)).await;
    bar.end();
    let lost = lost?;
    if let Some(part) = &lost.part {
        tracing::warn!("the export is only a part of the log ({part}): other lost events are not listed");
    }
    if let Some((first, last)) = lost.unlisted {
        tracing::warn!("positions {first} to {last} were signed and are lost, too, but the copy ends before them");
    }
    print(shard, &lost, output)?;
    Ok(if lost.is_nothing() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(shard: ShardId, lost: &Lost, output: &Output) -> anyhow::Result<()> {
    let mut events: Vec<Value> = lost.events.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    let by_type = lost.by_type();
    match output.format() {
        Format::Json => output.facts(&json!({
            "shard": shard,
            "compared": lost.compared,
            "lost": events.len(),
            "by_type": by_type,
            "unlisted": lost.unlisted,
            "part": lost.part,
            "events": events,
        }))?,
        Format::Csv if events.is_empty() => {}
        Format::Csv => output.facts(&json!({"events": events}))?,
        Format::Table => {
            // The hash stands for the event if that is unknown.
            let is_known = lost.events.iter().all(|event| event.r#type.is_some());
            for fields in events.iter_mut().filter_map(Value::as_object_mut) {
                fields.retain(|name, _| !NOT_IN_TABLE.contains(&name.as_str()) && (name != "leaf_hash" || !is_known));
            }
            if !events.is_empty() {
                output.facts(&json!({"events": events}))?;
            }
            let types: Vec<String> = by_type.iter().map(|(name, count)| format!("{count} {name}")).collect();
            let types = if types.is_empty() { String::new() } else { format!(": {}", types.join(", ")) };
            output.line(format!("{} of {} events are lost{types}", events.len(), lost.compared))?;
        }
    }
    Ok(())
}
