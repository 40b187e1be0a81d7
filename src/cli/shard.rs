//! `shard …`: adds, lists and drains the shards of the ledger.

use std::collections::BTreeSet;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use ledger_events::ShardId;
use ledger_events::shard::NUMBERS;
use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::admin;
use super::output::{Output, with_progress};
use crate::config::OperatorTokenSettings;

/// Path of the shards in the API.
const SHARDS: &str = "/admin/v1/shards";
const WAITING: &str = "waiting for the response";

#[derive(Args, Debug)]
pub struct ShardArgs {
    /// URL of the service
    #[arg(long, env = "LEDGER_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: Url,
    #[command(flatten)]
    operator_token: OperatorTokenSettings,
    #[command(subcommand)]
    what: Shard,
}

#[derive(Subcommand, Debug)]
enum Shard {
    /// Add a shard, which cannot be removed; with four, a node needs more than the 40 --database-connections of the default
    Add {
        /// Number of the shard, from 2 to 900 [default: the lowest one that is free]
        number: Option<ShardId>,
    },
    /// List the shards with their load
    List,
    /// Place no new accounts in a shard; those that it has stay in it
    Drain {
        /// Number of the shard
        number: ShardId,
        /// Place new accounts in the shard again
        #[arg(long)]
        undo: bool,
    },
}

pub async fn run(args: ShardArgs, output: &Output) -> anyhow::Result<()> {
    let client = admin::client(&args.url, &args.operator_token)?;
    let list = client.json(Method::GET, SHARDS, None);
    let (method, path, body) = match args.what {
        Shard::List => return Ok(output.facts(&with_progress(WAITING, list).await?)?),
        Shard::Add { number } => {
            let number = match number {
                Some(number) => number,
                None => {
                    lowest_free(&with_progress(WAITING, list).await?).context("the ledger has as many shards as it can have")?
                }
            };
            (Method::POST, SHARDS.to_owned(), Some(json!({"shard_id": number})))
        }
        Shard::Drain { number, undo } => (Method::PUT, format!("{SHARDS}/{number}/drain"), Some(json!({"draining": !undo}))),
    };
    let data = with_progress(WAITING, client.json(method, &path, body.as_ref())).await?;
    Ok(output.facts(&data)?)
}

/// Returns the lowest number that none of the listed shards has. The request names it, so that it can be repeated.
fn lowest_free(listed: &Value) -> Option<ShardId> {
    let taken: BTreeSet<i64> = listed["shards"].as_array()?.iter().filter_map(|shard| shard["id"].as_i64()).collect();
    NUMBERS.clone().find(|number| !taken.contains(&i64::from(*number)))
}
