//! `show order` and `show wallet`: show the current or a past state, directly from the database.

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::{Args, ValueEnum};
use ledger_database::PgPool;
use ledger_events::replay::NO_REPLAY;
use ledger_events::wallet::Direction;
use ledger_events::{OrderId, Position, ShardId, WalletId};
use ledger_projections::deliveries::{Attempt, AttemptOutcome};
use ledger_projections::wallets;
use owo_colors::OwoColorize;
use serde_json::json;

use super::escape;
use super::events::by_outcome;
use super::output::{Output, with_progress};
use crate::api::{AnyOrder, AnyWallet, OrderHistory};
use crate::config::{DatabaseSettings, MasterKeySettings};
use crate::ledger::connect;
use crate::ledger::history::{self, AsOf, Point};
use crate::ledger::texts::METADATA;
use crate::ledger::timeline::{self, Timeline, TimelineDelivery, TimelineEntry, Who};
use crate::node::{self, Database};
use crate::secrets::seal::{Keyring, Secret};

#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    database: DatabaseSettings,
    #[command(flatten)]
    master_key: MasterKeySettings,
    /// Kind of object to show
    what: Thing,
    /// Order or wallet id
    id: i64,
    /// Show the state right after this log position, or at this time, for example 2030-12-31 (midnight UTC) or
    /// 2030-12-31T12:00:00Z [default: the current state]
    #[arg(long, value_name = "POSITION|TIME")]
    as_of: Option<AsOf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Thing {
    /// An order with its history: who did what, and which webhooks were delivered
    Order,
    /// A wallet with its balance
    Wallet,
}

pub async fn run(args: ShowArgs, output: &Output) -> anyhow::Result<()> {
    let database = with_progress("starting the embedded Postgres", Database::open(&args.database)).await?;
    let pool = database.read_pool(connect::pool).await;
    let done = show(&args, &database, &pool, output).await;
    pool.close().await;
    database.close().await?;
    done
}

async fn show(args: &ShowArgs, database: &Database, pool: &PgPool, output: &Output) -> anyhow::Result<()> {
    let (name, shard) = match args.what {
        Thing::Order => ("order", history::shard_of_order(pool, OrderId(args.id)).await),
        Thing::Wallet => ("wallet", history::shard_of_wallet(pool, WalletId(args.id)).await),
    };
    let shard = shard.context("cannot read the ledger")?.with_context(|| format!("there is no {name} {}", args.id))?;
    let point = match args.as_of {
        Some(as_of) => Some(history::point(pool, shard, as_of).await?),
        None => None,
    };
    let at = point.map(|point| point.position);
    let not_yet = || format!("there was no {name} {} as of {}", args.id, args.as_of.map(|a| a.to_string()).unwrap_or_default());
    match args.what {
        Thing::Wallet => {
            let wallet = match at {
                Some(at) => history::wallet_at(pool, shard, WalletId(args.id), at).await?,
                None => wallets::find(pool, shard, WalletId(args.id)).await?,
            };
            let wallet = wallet.with_context(not_yet)?;
            Ok(output.facts(&serde_json::to_value(AnyWallet::of(wallet, at))?)?)
        }
        Thing::Order => {
            let keyring = keyring(args, database)?;
            let timeline = find(pool, keyring.as_deref(), shard, args.id, point).await?.with_context(not_yet)?;
            match output.json {
                true => {
                    let order = AnyOrder::of(timeline.order.clone(), at, &timeline.texts);
                    output.facts(&json!({"order": order, "history": OrderHistory::of(timeline, at)}))?;
                }
                false => print(&timeline, shard, at, output)?,
            }
            Ok(())
        }
    }
}

async fn find(
    pool: &PgPool,
    keyring: Option<&Keyring>,
    shard: ShardId,
    id: i64,
    point: Option<Point>,
) -> anyhow::Result<Option<Timeline>> {
    Ok(with_progress("reading the log", timeline::of_order(pool, keyring, shard, OrderId(id), point)).await?)
}

/// Loads the master key, if there is one. Without it, texts that people wrote stay sealed; everything else is shown.
fn keyring(args: &ShowArgs, database: &Database) -> anyhow::Result<Option<std::sync::Arc<Keyring>>> {
    if args.master_key.master_key_file.is_none() && !database.is_embedded() {
        anstream::eprintln!("without --master-key-file, texts that people wrote and names of users are not shown");
        return Ok(None);
    }
    Ok(Some(node::keyring(&args.master_key, &args.database.data_dir, database.is_embedded())?))
}

fn print(timeline: &Timeline, shard: ShardId, at: Option<Position>, output: &Output) -> std::io::Result<()> {
    let (order, placed) = (&timeline.order, &timeline.order.placed);
    let status = if order.sub_status.is_empty() {
        order.status.as_str().to_owned()
    } else {
        format!("{} ({})", order.status.as_str(), order.sub_status)
    };
    output.line(format!(
        "{}  order {} of account {}  {}",
        placed.reference_code.bold(),
        order.id,
        placed.account_id,
        status.bold()
    ))?;
    output.line(format!(
        "{} × {} {} of {}, {} {} paid, {} refunded, {} of {} units delivered",
        placed.quantity,
        placed.denomination,
        placed.currency,
        escape::value(&placed.product_name),
        placed.amount,
        placed.currency,
        order.refunded_amount,
        order.delivered_quantity,
        placed.quantity
    ))?;
    let facts = [
        ("client_reference", placed.client_reference.clone()),
        ("metadata", timeline.texts.get(&(METADATA, order.id.0)).map(|text| text.expose().to_owned())),
        ("as of", at.map(|at| format!("position {at}"))),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            output.line(format!("{}  {}", name.dimmed(), escape::value(&value)))?;
        }
    }
    for entry in &timeline.entries {
        output.line("")?;
        print_entry(entry, output)?;
    }
    if timeline.left_out > 0 {
        let all = format!("rewards-ledger events export --shard {shard} --stream order/{} --type VouchersRevealed", order.id);
        output.line(format!("\n{} more reads of its voucher codes are not shown; list them with: {all}", timeline.left_out))?;
    }
    Ok(())
}

fn print_entry(entry: &TimelineEntry, output: &Output) -> std::io::Result<()> {
    let moment = &entry.recorded.moment;
    output.line(format!("{}  {}", time(moment.recorded_at).dimmed(), escape::value(&entry.description).bold()))?;
    let (who, request) = (named(&entry.actor), &entry.recorded.metadata.request_id);
    output.line(format!("  by {who}, request {}, position {}", escape::value(request), moment.position).dimmed())?;
    if let Some(reason) = &entry.reason {
        output.line(format!("  reason: {}", escape::value(reason.expose())))?;
    }
    if let Some(movement) = &entry.movement {
        let sign = if movement.direction == Direction::Credit { '+' } else { '−' };
        output.line(format!(
            "  wallet {}: {sign}{} {}, balance {} (transaction {})",
            movement.wallet_id, movement.amount, movement.currency, movement.balance_after, movement.id
        ))?;
    }
    for delivery in &entry.deliveries {
        print_delivery(delivery, output)?;
    }
    Ok(())
}

fn print_delivery(delivery: &TimelineDelivery, output: &Output) -> std::io::Result<()> {
    let history = &delivery.delivery;
    let webhook = match &delivery.webhook_name {
        Some(name) => format!("webhook {} ({})", history.webhook_id, escape::value(name.expose())),
        None => format!("webhook {}", history.webhook_id),
    };
    let by = if history.replay_id != NO_REPLAY { format!(" by replay {}", history.replay_id) } else { String::new() };
    let next = history.next_attempt_at.map(|at| format!(", next attempt {}", time(at))).unwrap_or_default();
    let status = match history.status.as_str() {
        "pending" => history.status.yellow().to_string(),
        status => by_outcome(status == "delivered", status),
    };
    output.line(format!("  {} → {webhook}{by}: {status}{next}", history.event_type.cyan()))?;
    for attempt in &history.attempts {
        output.line(format!("    {}  attempt {}: {}", time(attempt.started_at).dimmed(), attempt.attempt, came_of(attempt)))?;
    }
    for (at, who) in &delivery.retries {
        output.line(format!("    {}  retry requested by {}", time(*at).dimmed(), named(who)))?;
    }
    Ok(())
}

fn came_of(attempt: &Attempt) -> String {
    let outcome = match attempt.outcome() {
        AttemptOutcome::InFlight => "in flight".to_owned(),
        AttemptOutcome::Unknown => "outcome unknown, repeated under the same number".yellow().to_string(),
        outcome => by_outcome(outcome == AttemptOutcome::Delivered, outcome.as_str()),
    };
    let status = attempt.response_status.map(|status| format!(", HTTP {status}")).unwrap_or_default();
    let took = attempt.response_time_ms.map(|took| format!(" in {took} ms")).unwrap_or_default();
    let error = attempt.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    format!("{outcome}{status}{took}{error}")
}

/// Formats an actor: `credential 3 (main)`, `operator 2`, `fulfilment`.
fn named(who: &Who) -> String {
    let name = who.name.as_ref().map(Secret::expose).map(|name| format!(" ({})", escape::value(name))).unwrap_or_default();
    format!("{}{name}", who.actor)
}

fn time(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string()
}
