//! `replay …`: telling a webhook again, or of what it missed.

use std::time::Duration;

use anyhow::bail;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::admin;
use super::client::Client;
use super::output::{Output, progress_bar, with_progress};
use crate::config::OperatorTokenSettings;

/// How often a waiting command asks.
const ASK_EVERY: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// Where the service is
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
    /// A webhook's replays, newest first
    List {
        webhook: i64,
        #[arg(long, default_value_t = 1)]
        page: u32,
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// How far a replay has come, and what became of its deliveries
    Show { replay: i64 },
    /// Stop a replay; what it has made and is still pending fails
    Cancel { replay: i64 },
}

#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true).args(["missed", "since", "from_position"])))]
struct StartArgs {
    webhook: i64,
    /// What never reached it and is not on its way, also from before it existed [default: all deliveries it had]
    #[arg(long)]
    missed: bool,
    /// Only events recorded at this time or later, as 2030-12-31T00:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "from_position")]
    since: Option<DateTime<Utc>>,
    /// Only events at this position of the log or later
    #[arg(long, value_name = "POSITION")]
    from_position: Option<i64>,
    /// How many deliveries are made in a second at most
    #[arg(long, value_name = "COUNT", default_value_t = crate::delivery::replay::PER_SECOND)]
    per_second: i32,
    /// Only count them
    #[arg(long)]
    dry_run: bool,
    /// Wait until every delivery is made; fails when the replay does
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
    let data = with_progress("waiting for the answer", client.json(method, &path, body.as_ref())).await?;
    output.facts(&data)?;
    Ok(())
}

async fn start(args: StartArgs, client: &Client, output: &Output) -> anyhow::Result<()> {
    let body = json!({
        "kind": if args.missed { "missed" } else { "deliveries" },
        "since": args.since, "from_position": args.from_position, "per_second": args.per_second, "dry_run": args.dry_run,
    });
    let path = format!("/admin/v1/webhooks/{}/replays", args.webhook);
    let mut data = with_progress("counting", client.json(Method::POST, &path, Some(&body))).await?;
    if args.wait {
        let found = data["found"].as_u64().unwrap_or_default();
        data["replay"] = ended(client, data["replay"].take(), found).await?;
    }
    let facts = if args.dry_run { json!({"found": data["found"]}) } else { data["replay"].take() };
    output.facts(&facts)?;
    match facts["status"].as_str() {
        Some(status @ ("FAILED" | "CANCELLED")) => bail!("the replay is {status}: it did not make every delivery"),
        _ => Ok(()),
    }
}

/// Waits until a replay makes no more deliveries.
async fn ended(client: &Client, mut replay: Value, found: u64) -> anyhow::Result<Value> {
    let path = format!("/admin/v1/replays/{}", replay["id"]);
    let bar = progress_bar(found);
    while replay["status"] == "RUNNING" {
        tokio::time::sleep(ASK_EVERY).await;
        replay = client.json(Method::GET, &path, None).await?;
        bar.set_position(replay["deliveries"].as_u64().unwrap_or_default());
    }
    bar.finish_and_clear();
    Ok(replay)
}
