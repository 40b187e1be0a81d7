//! `replay …`: delivers events to a webhook again, or delivers the events that it missed.

use std::time::Duration;

use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::admin;
use super::client::Client;
use super::output::{Output, progress_bar, with_progress};
use crate::config::OperatorTokenSettings;

/// Polling interval of `--wait`.
const ASK_EVERY: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// URL of the service
    #[arg(long, env = "LEDGER_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: Url,
    #[command(flatten)]
    operator_token: OperatorTokenSettings,
    #[command(subcommand)]
    what: Replay,
}

#[derive(Subcommand, Debug)]
enum Replay {
    /// Deliver events to a webhook again, each as a new delivery with five attempts
    Start(StartArgs),
    /// List the replays of a webhook, newest first
    List {
        /// Webhook id
        webhook: i64,
        /// Page number, from 1
        #[arg(long, default_value_t = 1)]
        page: u32,
        /// Rows per page
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Show the progress of a replay and the status of its deliveries
    Show {
        /// Replay id
        replay: i64,
    },
    /// Cancel a replay; its pending deliveries fail
    Cancel {
        /// Replay id
        replay: i64,
    },
}

#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true).args(["missed", "since", "from_position"])))]
struct StartArgs {
    /// Webhook id
    webhook: i64,
    /// Deliver events that never reached the webhook and are not pending, also from before it existed [default: all
    /// deliveries it had]
    #[arg(long)]
    missed: bool,
    /// Deliver only events recorded at or after this time, for example 2030-12-31T00:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "from_position")]
    since: Option<DateTime<Utc>>,
    /// Deliver only events at or after this position of the log
    #[arg(long, value_name = "POSITION")]
    from_position: Option<i64>,
    /// Maximum number of deliveries created per second
    #[arg(long, value_name = "COUNT", default_value_t = crate::delivery::replay::PER_SECOND)]
    per_second: i32,
    /// Only count the events
    #[arg(long)]
    dry_run: bool,
    /// Wait until all deliveries are created; fails if the replay fails
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
}

pub async fn run(args: ReplayArgs, output: &Output) -> anyhow::Result<()> {
    let client = admin::client(&args.url, &args.operator_token)?;
    let (method, path, body) = match args.what {
        Replay::Start(start) => return self::start(start, &client, output).await,
        Replay::List { webhook, page, limit } => {
            (Method::GET, format!("/admin/v1/webhooks/{webhook}/replays?page={page}&limit={limit}"), None)
        }
        Replay::Show { replay } => (Method::GET, format!("/admin/v1/replays/{replay}"), None),
        Replay::Cancel { replay } => (Method::POST, format!("/admin/v1/replays/{replay}/cancel"), Some(json!({}))),
    };
    let data = with_progress("waiting for the response", client.json(method, &path, body.as_ref())).await?;
    output.facts(&data)?;
    Ok(())
}

async fn start(args: StartArgs, client: &Client, output: &Output) -> anyhow::Result<()> {
    let body = json!({
        "kind": if args.missed { "missed" } else { "deliveries" },
        "since": args.since, "from_position": args.from_position, "per_second": args.per_second, "dry_run": args.dry_run,
    });
    let path = format!("/admin/v1/webhooks/{}/replays", args.webhook);
    if args.dry_run {
        let found = counted(client, &path, body).await?;
        return Ok(output.facts(&json!({"found": found}))?);
    }
    let mut data = with_progress("waiting for the response", client.json(Method::POST, &path, Some(&body))).await?;
    let mut replay = data["replay"].take();
    if args.wait {
        replay = ended(client, replay).await?;
    }
    output.facts(&replay)?;
    match replay["status"].as_str() {
        Some(status @ ("FAILED" | "CANCELLED")) => bail!("the replay is {status}: not all deliveries were created"),
        _ => Ok(()),
    }
}

/// Counts the events to deliver. Each dry run counts a part of the log, and the next one continues where it ended.
async fn counted(client: &Client, path: &str, mut body: Value) -> anyhow::Result<u64> {
    let (mut found, mut bar) = (0, None);
    loop {
        let part = with_progress("counting", client.json(Method::POST, path, Some(&body))).await?;
        found += part["found"].as_u64().context("the service's response has no count")?;
        let Some(next) = part["next_position"].as_u64() else { break };
        body["since"] = Value::Null;
        body["from_position"] = json!(next);
        bar.get_or_insert_with(|| progress_bar(part["until_position"].as_u64().unwrap_or_default())).set_position(next);
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(found)
}

/// Waits until a replay has created all its deliveries. Progress is the part of the log that the replay has scanned.
async fn ended(client: &Client, mut replay: Value) -> anyhow::Result<Value> {
    let path = format!("/admin/v1/replays/{}", replay["id"]);
    let position = |replay: &Value, name: &str| replay[name].as_u64().unwrap_or_default();
    let from = position(&replay, "from_position");
    let bar = progress_bar(position(&replay, "until_position").saturating_sub(from));
    while replay["status"] == "RUNNING" {
        tokio::time::sleep(ASK_EVERY).await;
        replay = client.json(Method::GET, &path, None).await?;
        bar.set_position(position(&replay, "next_position").saturating_sub(from));
    }
    bar.finish_and_clear();
    Ok(replay)
}
