//! `events`: reads the log directly from the database.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use ledger_database::PgPool;
use ledger_events::{Position, ShardId};
use ledger_projections::envelope::iso8601;
use owo_colors::OwoColorize;
use serde_json::{Value, json};

use super::output::{Format, Output, shown, with_progress};
use super::{STATUSES, export, lost};
use crate::config::DatabaseSettings;
use crate::ledger::reader::{self, Stored};
use crate::ledger::{FIRST_SHARD, connect};
use crate::node::Database;
use crate::spreadsheet::inert;

/// Polling interval of `tail --follow`. Each poll is one short statement.
const LOOK_EVERY: Duration = Duration::from_millis(300);
const PAGE_EVENTS: i64 = 500;
/// Columns of the CSV, which are those of [`line`].
const COLUMNS: [&str; 5] = ["position", "recorded_at", "stream", "type", "summary"];

#[derive(Args, Debug)]
pub struct EventsArgs {
    #[command(flatten)]
    database: DatabaseSettings,
    /// Shard whose log to read
    #[arg(long, value_name = "ID", default_value_t = FIRST_SHARD)]
    shard: ShardId,
    #[command(subcommand)]
    what: Events,
}

#[derive(Subcommand, Debug)]
enum Events {
    /// Print the newest events, or the events after a position
    Tail {
        /// Keep printing events as they are appended
        #[arg(long, short)]
        follow: bool,
        /// Start after this position [default: shows the newest events]
        #[arg(long, value_name = "POSITION")]
        after: Option<Position>,
        /// Maximum number of events; with --follow, the number of existing events to print first
        #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(i64).range(0..=1_000_000))]
        limit: i64,
    },
    /// Print one event with all stored fields
    Show {
        /// Position of the event in the log
        position: Position,
    },
    /// Export the log or a part of it, one event per line
    Export(export::ExportArgs),
    /// Import an exported log into an empty, migrated database; needs the role that migrates
    Import(export::ImportArgs),
    /// List the events of an export or of a copy of the tiles that the database has lost; fails if there are any
    #[command(after_help = STATUSES)]
    Lost(lost::LostArgs),
}

impl EventsArgs {
    /// Returns whether the command compares the log with a copy. It then prints a list, and its exit status is that of a
    /// comparison.
    pub fn is_comparison(&self) -> bool {
        matches!(self.what, Events::Lost(_))
    }

    /// Returns whether the command prints a list, which CSV can hold.
    pub fn prints_list(&self) -> bool {
        matches!(self.what, Events::Lost(_) | Events::Tail { .. })
    }
}

pub async fn run(args: EventsArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let database = with_progress("starting the embedded Postgres", Database::open(&args.database)).await?;
    let pool = match args.what {
        // The primary may have no log yet. A standby may lack events that are not lost.
        Events::Import(_) | Events::Lost(_) => connect::pool(database.options()),
        _ => database.read_pool(connect::pool).await,
    };
    let done = match args.what {
        Events::Tail { follow, after, limit } => {
            let mut printed = 0;
            tokio::select! {
                done = tail(&pool, args.shard, follow, after, limit, output, &mut printed) => done,
                // Return, so that an embedded server that this command started shuts down cleanly.
                _ = tokio::signal::ctrl_c() => Ok(()),
            }
            .map(|()| ExitCode::SUCCESS)
        }
        Events::Show { position } => show(&pool, args.shard, position, output).await.map(|()| ExitCode::SUCCESS),
        Events::Export(export) => export::export(&pool, args.shard, &export, output).await.map(|()| ExitCode::SUCCESS),
        Events::Import(import) => export::import(database.migrating(), &import, output).await.map(|()| ExitCode::SUCCESS),
        Events::Lost(lost) => lost::run(&pool, args.shard, &lost, output).await,
    };
    pool.close().await;
    database.close().await?;
    done
}

async fn tail(
    pool: &PgPool,
    shard: ShardId,
    follow: bool,
    after: Option<Position>,
    limit: i64,
    output: &Output,
    printed: &mut i64,
) -> anyhow::Result<()> {
    let head = reader::head(pool, shard).await.with_context(|| format!("cannot read the log of shard {shard}"))?;
    let mut position = after.unwrap_or((head - limit).max(0));
    if output.format() == Format::Csv {
        output.record(COLUMNS)?;
    }
    loop {
        let is_full = !follow && *printed >= limit;
        let wanted = if follow { PAGE_EVENTS } else { (limit - *printed).min(PAGE_EVENTS) };
        let page = if is_full { Vec::new() } else { reader::stored_after(pool, shard, position, wanted).await? };
        for event in &page {
            position = event.position;
            *printed += 1;
            match output.format() {
                Format::Table => output.line(line(event))?,
                Format::Json => output.json_line(&as_json(event))?,
                Format::Csv => output.record(cells(event))?,
            }
        }
        if page.is_empty() {
            if !follow {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

async fn show(pool: &PgPool, shard: ShardId, position: Position, output: &Output) -> anyhow::Result<()> {
    let found = reader::stored_after(pool, shard, position - 1, 1).await.context("cannot read the log")?;
    let Some(event) = found.first().filter(|event| event.position == position) else {
        bail!("the log of shard {shard} has no event at position {position}");
    };
    if output.json {
        output.json_line(&as_json(event))?;
    } else {
        output.line(line(event))?;
        output.line(format!("{}  {}", "event_id".dimmed(), event.event_id))?;
        output.line(format!(
            "{}   version {} of {}/{}",
            "stream ".dimmed(),
            event.version,
            event.stream_type,
            event.stream_id
        ))?;
        output.line(format!("{}   version {}", "schema ".dimmed(), event.schema_version))?;
        for (name, text) in [("data", &event.data), ("metadata", &event.metadata)] {
            output.line(name.dimmed())?;
            output.line(format!("{:#}", serde_json::from_str::<Value>(text)?))?;
        }
    }
    Ok(())
}

fn as_json(event: &Stored) -> Value {
    // The hash covers the stored text. Parsing it may only change the order of keys.
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|_| text.into());
    json!({
        "shard_id": event.shard_id, "position": event.position, "event_id": event.event_id,
        "stream_type": event.stream_type, "stream_id": event.stream_id, "version": event.version,
        "type": event.event_type, "schema_version": event.schema_version,
        "data": parsed(&event.data), "metadata": parsed(&event.metadata), "recorded_at": iso8601(event.recorded_at),
    })
}

/// Payload fields that [`summary`] shows, in this order.
const SUMMARY_FIELDS: [&str; 23] = [
    "name",
    "product_name",
    "key_prefix",
    "status",
    "denomination",
    "quantity",
    "discount",
    "direction",
    "amount",
    "refunded_amount",
    "currency",
    "balance_after",
    "accepted",
    "duplicates",
    "units",
    "vouchers",
    "lots",
    "from_shard",
    "to_shard",
    "by",
    "events",
    "reference",
    "draining",
];

/// Summarises an event's payload in one line: `amount 47.50  balance after 452.50`.
pub fn summary(event: &Stored) -> String {
    let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
    // The fields of a product are nested in `details`.
    let field = |name: &str| data.get(name).or_else(|| data.get("details")?.get(name)).filter(|value| !value.is_null());
    let fields = SUMMARY_FIELDS.iter().filter_map(|name| {
        let value = field(name)?;
        Some(match value.as_array() {
            Some(items) if items.len() == 1 => format!("1 {}", name.trim_end_matches('s')),
            Some(items) => format!("{} {name}", items.len()),
            None if *name == "name" || *name == "product_name" => shown(value),
            None => format!("{} {}", name.replace('_', " "), shown(value)),
        })
    });
    fields.collect::<Vec<_>>().join("  ")
}

/// Formats an event as one line: position, time, stream, type, and [`summary`].
pub fn line(event: &Stored) -> String {
    let stream = format!("{} {}", event.stream_type, event.stream_id);
    let time = event.recorded_at.format("%Y-%m-%d %H:%M:%S%.3f");
    let line = format!(
        "{:>8}  {}  {stream:<16}  {:<24}  {}",
        event.position.bold(),
        time.dimmed(),
        event.event_type.cyan(),
        summary(event)
    );
    line.trim_end().to_owned()
}

/// Returns the cells of an event, in the order of [`COLUMNS`].
fn cells(event: &Stored) -> [String; 5] {
    [
        event.position.to_string(),
        iso8601(event.recorded_at),
        format!("{}/{}", event.stream_type, event.stream_id),
        event.event_type.clone(),
        inert(&summary(event)).into_owned(),
    ]
}

/// Colours a text green for success and red for failure.
pub fn by_outcome(is_good: bool, text: &str) -> String {
    if is_good { text.green().to_string() } else { text.red().to_string() }
}
