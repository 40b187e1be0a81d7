//! `events export` and `events import`: write the log to a file, and load it into an empty database.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use clap::Args;
use clap::builder::PossibleValuesParser;
use ledger_database::{PgConnectOptions, PgPool};
use ledger_events::{AccountId, Event, Position, ShardId};
use serde_json::json;

use super::escape::Escaping;
use super::output::{Bar, Output};
use super::quorum::QuorumArgs;
use crate::audit::Progress;
use crate::export::import::{ImportError, Imported};
use crate::export::selection::Range;
use crate::export::{self, ExportError, ExportFile, Manifest, Plan, Selection, Stream, tiles};
use crate::ledger::FIRST_SHARD;
use crate::ledger::reader::Filter;
use crate::transparency::{cosignature, store};

#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Output file; - writes to stdout. An export that was interrupted resumes in the same file [default: -, unless --tiles]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Export the whole log of each shard, or the selected part of each, into a file of this directory, such as shard-2.ndjson
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["out", "tiles"])]
    out_dir: Option<PathBuf>,
    /// Copy the transparency log (checkpoint, hashes, and entries) into this directory; existing files are compared and
    /// completed
    #[arg(long, value_name = "DIRECTORY")]
    tiles: Option<PathBuf>,
    /// Export only events at or after this position
    #[arg(long, value_name = "POSITION", value_parser = clap::value_parser!(i64).range(1..))]
    from: Option<Position>,
    /// Export only events up to this position [default: the log's head when the export starts]
    #[arg(long, value_name = "POSITION", value_parser = clap::value_parser!(i64).range(1..))]
    to: Option<Position>,
    /// Export only events recorded at or after this time, for example 2030-12-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<DateTime<Utc>>,
    /// Export only events recorded before this time
    #[arg(long, value_name = "TIME")]
    until: Option<DateTime<Utc>>,
    /// Export only events of this account
    #[arg(long, value_name = "ID")]
    account: Option<AccountId>,
    /// Export only events of this stream, for example order/42
    #[arg(long, value_name = "STREAM")]
    stream: Option<Stream>,
    /// Export only events of this type; may be repeated
    #[arg(long = "type", value_name = "TYPE", value_parser = PossibleValuesParser::new(Event::types().map(|(_, name, _)| name)), hide_possible_values = true)]
    types: Vec<String>,
    /// Compress the output with zstd
    #[arg(long)]
    zstd: bool,
    #[command(flatten)]
    quorum: QuorumArgs,
}

#[derive(Args, Debug)]
pub struct ImportArgs {
    /// Complete log written by `events export`, compressed or not, or the directory of `--out-dir`
    #[arg(value_name = "FILE")]
    path: PathBuf,
}

impl ExportArgs {
    /// Plans the export. If a checkpoint covers every event that the log has now, a file ends where that checkpoint ends.
    /// Its manifest then proves all of it.
    ///
    /// With `end`, the export ends at that position.
    async fn plan(&self, pool: &PgPool, shard_id: ShardId, is_file: bool, end: Option<Position>) -> anyhow::Result<Plan> {
        let end = end.unwrap_or(Position::MAX);
        let quorum = self.quorum.of_named()?;
        // Read the checkpoint before the head, so that the log has every event that the checkpoint covers.
        let newest = store::newest_cosigned(pool, shard_id, &quorum).await?;
        if newest.is_none() && quorum.count > 0 {
            return Err(ExportError::Uncosigned(shard_id, quorum.count).into());
        }
        let (mut head, mut epoch) = self::head(pool, shard_id).await?;
        head = head.min(end);
        let wanted = self.to.unwrap_or(head).min(head);
        let covering = match newest {
            Some(_) if is_file => cosignature::covering(pool, shard_id, wanted, &quorum).await?,
            _ => None,
        };
        if let Some(covering) = &covering {
            (head, epoch) = self::head(pool, shard_id).await?;
            head = head.min(Position::try_from(covering.size)?).min(end);
        } else if let Some(newest) = newest.as_ref().filter(|_| is_file) {
            let first = newest.size + 1;
            tracing::warn!("no signed checkpoint covers positions {first} to {wanted}: the export cannot be proven there");
        }
        let checkpoint = match covering.or(newest) {
            Some(bound) => Some(cosignature::with_cosignatures(pool, shard_id, &bound).await?),
            None => None,
        };
        let range = Range { from: self.from, to: self.to, since: self.since, until: self.until };
        let (from, to) = range.resolve(pool, shard_id, head).await?;
        let filter = Filter { account_id: self.account, types: self.types.clone() };
        let selection = Selection { shard_id, from, to, stream: self.stream.clone(), filter };
        Ok(Plan { range, selection, head, epoch, is_compressed: self.zstd, checkpoint })
    }
}

/// Returns the log's head position and epoch.
async fn head(pool: &PgPool, shard: ShardId) -> anyhow::Result<(Position, i64)> {
    store::head(pool, shard).await.with_context(|| format!("cannot read the log of shard {shard}"))
}

/// Exports the selected events up to the current head of the log.
pub async fn export(pool: &PgPool, shard: ShardId, args: &ExportArgs, output: &Output) -> anyhow::Result<()> {
    if let Some(directory) = &args.out_dir {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        // A move of vouchers commits two heads at once, so the logs up to the heads of one moment agree about it.
        let heads: Vec<(ShardId, Position)> =
            sqlx::query_as("SELECT shard_id, position FROM log_head WHERE position > 0 ORDER BY shard_id")
                .fetch_all(pool)
                .await?;
        for (shard, end) in heads {
            to_file(pool, shard, args, Some(end), &directory.join(file_name(shard, args.zstd)), output).await?;
        }
        return Ok(());
    }
    if let Some(directory) = &args.tiles {
        let bar = Bar::new();
        let copied = tiles::copy(pool, shard, directory, &args.quorum.of_named()?, |progress| bar.show(progress)).await;
        bar.end();
        let (size, directory) = (copied?, directory.display());
        match output.json {
            true => output.json_line(&json!({"tiles": directory.to_string(), "size": size}))?,
            false => output.line(format!("{directory}: the tree of {size} events"))?,
        }
    }
    let path = match &args.out {
        Some(path) if path != Path::new("-") => path,
        None if args.tiles.is_some() => return Ok(()),
        _ => return to_stdout(pool, &args.plan(pool, shard, false, None).await?).await,
    };
    to_file(pool, shard, args, None, path, output).await
}

/// Returns the name of a shard's file in a directory with the logs of all shards.
fn file_name(shard: ShardId, is_compressed: bool) -> String {
    format!("shard-{shard}.ndjson{}", if is_compressed { ".zst" } else { "" })
}

/// Returns the shard of a file in such a directory.
fn shard_of(name: &str) -> Option<ShardId> {
    let number = name.strip_prefix("shard-")?;
    number.strip_suffix(".ndjson").or_else(|| number.strip_suffix(".ndjson.zst"))?.parse().ok()
}

async fn to_file(
    pool: &PgPool,
    shard: ShardId,
    args: &ExportArgs,
    end: Option<Position>,
    path: &Path,
    output: &Output,
) -> anyhow::Result<()> {
    let mut file = ExportFile::open(path, args.plan(pool, shard, true, end).await?)?;
    let selection = file.plan.selection.clone();
    let bar = Bar::new();
    let (mut at, begun_at) = (file.reached(), file.reached());
    while at < selection.to {
        let page = selection.page(pool, at).await?;
        file.append(&page.events)?;
        at = page.reached;
        bar.show(Progress { stage: "export", shard, done: at, total: selection.to });
    }
    bar.end();
    let manifest = file.finish(Utc::now())?;
    report(path, &manifest, begun_at, output)
}

async fn to_stdout(pool: &PgPool, plan: &Plan) -> anyhow::Result<()> {
    // On a terminal, the lines themselves show the progress.
    let bar = (!std::io::stdout().is_terminal()).then(Bar::new);
    let (mut at, selection) = (0, &plan.selection);
    while at < selection.to {
        let page = selection.page(pool, at).await?;
        let mut out = std::io::stdout().lock();
        let lines = export::page(&page.events, plan.is_compressed)?;
        // Never escape the output to a file: it is imported and compared byte for byte.
        match out.is_terminal() && !plan.is_compressed {
            true => Escaping(&mut out).write_all(&lines)?,
            false => out.write_all(&lines)?,
        }
        out.flush()?;
        at = page.reached;
        if let Some(bar) = &bar {
            bar.show(Progress { stage: "export", shard: selection.shard_id, done: at, total: selection.to });
        }
    }
    if let Some(bar) = bar {
        bar.end();
    }
    Ok(())
}

fn report(path: &Path, manifest: &Manifest, begun_at: Position, output: &Output) -> anyhow::Result<()> {
    if output.json {
        return Ok(output.facts(&serde_json::to_value(manifest)?)?);
    }
    let range = match (manifest.first, manifest.last) {
        (Some(first), Some(last)) => format!(", positions {first} to {last}"),
        _ => String::new(),
    };
    let went_on = if begun_at > 0 { format!(", resumed after position {begun_at}") } else { String::new() };
    let (events, bytes) = (manifest.events, manifest.bytes);
    Ok(output.line(format!("{}: {events} events{range}, {bytes} bytes{went_on}", path.display()))?)
}

/// Imports a log, or those of all shards, into an empty database. The first shard's log adds the other shards, so it is the first.
pub async fn import(options: &PgConnectOptions, args: &ImportArgs, output: &Output) -> anyhow::Result<()> {
    if args.path.is_file() {
        let bar = Bar::new();
        let imported = export::import(options, &args.path, |progress| bar.show(progress)).await;
        return tell_imported(&bar, imported, output);
    }
    let entries = std::fs::read_dir(&args.path).with_context(|| format!("{} is no file or directory", args.path.display()))?;
    let mut logs = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        if let Some(shard) = entry.file_name().to_str().and_then(shard_of)
            && let Some(other) = logs.insert(shard, entry.path())
        {
            bail!("{} and {} have the same shard", other.display(), entry.path().display());
        }
    }
    if logs.is_empty() {
        bail!("{} has no file such as {}", args.path.display(), file_name(FIRST_SHARD, false));
    }
    for path in logs.values() {
        let bar = Bar::new();
        // An earlier run may have imported some of them.
        let imported = export::import_again(options, path, |progress| bar.show(progress)).await;
        tell_imported(&bar, imported, output)?;
    }
    Ok(())
}

fn tell_imported(bar: &Bar, imported: Result<Imported, ImportError>, output: &Output) -> anyhow::Result<()> {
    bar.end();
    let imported = imported?;
    if output.json {
        return Ok(output.facts(&json!(imported))?);
    }
    let went_on = if imported.before > 0 { format!(", resumed after position {}", imported.before) } else { String::new() };
    Ok(output.line(format!(
        "shard {}: {} events imported{went_on}; their webhooks are not sent",
        imported.shard_id, imported.events
    ))?)
}
