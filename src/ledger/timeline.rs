//! History of an order for people: the actors and their actions, the movements in the wallet, and the webhook deliveries
//! with their outcomes.
//!
//! The events come from the log. Deliveries and attempts come from the worker's records, which exclude attempts that have
//! been deleted since. Names and texts come from the vault, unless they were erased.

use std::collections::{HashMap, HashSet, VecDeque};

use chrono::{DateTime, Utc};
use ledger_database::PgPool;
use ledger_events::order::{CancelledBy, Order, OrderEvent};
use ledger_events::webhook::WebhookEvent;
use ledger_events::{Actor, Event, OrderId, Position, Recorded, ReplayId, ShardId, WebhookId};
use ledger_projections::deliveries::{self, DeliveryHistory};
use ledger_projections::state;
use ledger_projections::wallets::Transaction;
use uuid::Uuid;

use super::actors::{self, ActorNames};
use super::history::{self, Point};
use super::reader::{self, ReadError};
use super::texts::{self, CANCEL_REASON, ERASURE_REASON, METADATA, Texts, VaultError, WEBHOOK_NAME};
use crate::secrets::seal::{Keyring, Secret};

#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<sqlx::Error> for TimelineError {
    fn from(error: sqlx::Error) -> TimelineError {
        TimelineError::Read(error.into())
    }
}

/// An order with its complete history, oldest first.
#[derive(Debug)]
pub struct Timeline {
    /// State of the order after the last entry.
    pub order: Order,
    /// Texts of the order, and the names in its history.
    pub texts: Texts,
    pub entries: Vec<TimelineEntry>,
    /// Number of events for reading codes that are left out of `entries`.
    pub left_out: u64,
}

/// One event of the order, with its consequences.
#[derive(Debug)]
pub struct TimelineEntry {
    pub recorded: Recorded,
    pub actor: Who,
    /// Description of the event for people.
    pub description: String,
    /// Reason that a person gave.
    pub reason: Option<Secret>,
    /// Movement of the wallet that belongs to the event.
    pub movement: Option<Transaction>,
    pub deliveries: Vec<TimelineDelivery>,
}

/// Actor of an event, with the name if it is known.
#[derive(Clone, Debug)]
pub struct Who {
    pub actor: Actor,
    pub name: Option<Secret>,
}

/// A delivery with the name of its webhook, and the requests to retry it.
#[derive(Debug)]
pub struct TimelineDelivery {
    pub delivery: DeliveryHistory,
    pub webhook_name: Option<Secret>,
    pub retries: Vec<(DateTime<Utc>, Who)>,
}

/// Number of events that are listed before reads of codes are left out, and the page size.
const MAX_EVENTS: usize = 1_000;
/// Number of requested retries per query.
const PAGE_RETRIES: i64 = 1_000;
/// Number of the latest reads of codes that are listed in addition.
const LAST_READINGS: usize = 100;

/// Returns the history of an order up to a point, or up to now. Returns none if the order was placed later. Without a
/// keyring the history has no texts and no names of people.
pub async fn of_order(
    pool: &PgPool,
    keyring: Option<&Keyring>,
    shard: ShardId,
    id: OrderId,
    point: Option<Point>,
) -> Result<Option<Timeline>, TimelineError> {
    let upto = point.map_or(Position::MAX, |point| point.position);
    let Past { order, listed: recorded, left_out } = past_of(pool, shard, id, upto).await?;
    let Some(order) = order else { return Ok(None) };

    let mut movements = movements(pool, shard, &order, &recorded).await?;
    let mut histories = deliveries::of_order(pool, shard, id).await?;
    if let Some(at) = point.and_then(|point| point.ends_at) {
        histories = histories.into_iter().filter_map(|delivery| delivery.as_of(at)).collect();
    }
    let retries = retries(pool, shard, &recorded, &histories, upto).await?;
    let names = Names::load(pool, keyring, shard, &order, &recorded, &histories, &retries).await?;
    let mut by_event: HashMap<Uuid, Vec<TimelineDelivery>> = HashMap::new();
    for delivery in histories {
        let asked = retries.iter().filter(|r| r.is_of(&delivery)).map(|r| (r.at, names.who(r.actor))).collect();
        let webhook_name = names.texts.get(&(WEBHOOK_NAME, delivery.webhook_id.0)).cloned();
        by_event.entry(delivery.event_id).or_default().push(TimelineDelivery { delivery, webhook_name, retries: asked });
    }
    let entries = recorded.into_iter().filter_map(|recorded| {
        let Event::Order(event) = &recorded.event else { return None };
        let reason = match event {
            OrderEvent::OrderCancelled(_) => names.texts.get(&(CANCEL_REASON, id.0)).cloned(),
            OrderEvent::PersonalDataErased(_) => names.texts.get(&(ERASURE_REASON, recorded.moment.position)).cloned(),
            _ => None,
        };
        Some(TimelineEntry {
            actor: names.who(recorded.metadata.actor),
            description: description(&order, event),
            reason,
            movement: movements.remove(&recorded.moment.position),
            deliveries: by_event.remove(&recorded.moment.event_id).unwrap_or_default(),
            recorded,
        })
    });
    let entries = entries.collect();
    Ok(Some(Timeline { order, texts: names.texts, entries, left_out }))
}

/// An order's past state, and the events to list.
struct Past {
    order: Option<Order>,
    listed: Vec<Recorded>,
    left_out: u64,
}

/// Loads the order's state at a position, and its events. A client that reads its codes again and again appends an event
/// each time. After the first [`MAX_EVENTS`] events, only the latest reads are listed, together with all other events.
async fn past_of(pool: &PgPool, shard: ShardId, id: OrderId, upto: Position) -> Result<Past, TimelineError> {
    let (mut states, mut listed, mut latest, mut left_out) = (HashMap::new(), vec![], VecDeque::new(), 0);
    let (mut version, mut is_more) = (0, true);
    while is_more {
        let page = reader::stream_after(pool, shard, "order", id.0, version, i64::MAX, MAX_EVENTS as i64).await?;
        is_more = page.len() == MAX_EVENTS;
        for stored in &page {
            let recorded = stored.decode()?;
            version = recorded.moment.version;
            let Event::Order(event) = &recorded.event else { continue };
            if recorded.moment.position > upto {
                is_more = false;
                break;
            }
            state::fold(&mut states, &recorded);
            if listed.len() < MAX_EVENTS || !matches!(event, OrderEvent::VouchersRevealed(_)) {
                listed.push(recorded);
                continue;
            }
            latest.push_back(recorded);
            if latest.len() > LAST_READINGS {
                latest.pop_front();
                left_out += 1;
            }
        }
    }
    listed.extend(latest);
    listed.sort_by_key(|recorded| recorded.moment.position);
    Ok(Past { order: states.remove(&id), listed, left_out })
}

/// Returns the movements of the order, by the position of the order's event. Each movement directly follows its event.
async fn movements(
    pool: &PgPool,
    shard: ShardId,
    order: &Order,
    recorded: &[Recorded],
) -> Result<HashMap<Position, Transaction>, TimelineError> {
    let moves = |event: &Event| match event {
        Event::Order(OrderEvent::OrderPlaced(_)) => true,
        Event::Order(OrderEvent::OrderCancelled(e)) => e.transaction_id.is_some(),
        _ => false,
    };
    let next: Vec<Position> = recorded.iter().filter(|r| moves(&r.event)).map(|r| r.moment.position + 1).collect();
    let wallet = history::wallet_at(pool, shard, order.placed.wallet_id, Position::MAX).await?;
    let mut movements = HashMap::new();
    for stored in reader::stored_at(pool, shard, &next).await? {
        let recorded = stored.decode()?;
        if let (Event::Wallet(event), Some(wallet)) = (&recorded.event, &wallet)
            && recorded.stream_id == wallet.id.0
            && let Some(movement) = Transaction::of(wallet, event, &recorded.moment)
            && movement.order_id == Some(order.id)
        {
            movements.insert(recorded.moment.position - 1, movement);
        }
    }
    Ok(movements)
}

/// A request to retry a failed delivery.
struct Retry {
    webhook_id: WebhookId,
    event_id: Uuid,
    replay_id: ReplayId,
    at: DateTime<Utc>,
    actor: Actor,
}

impl Retry {
    fn is_of(&self, delivery: &DeliveryHistory) -> bool {
        (self.webhook_id, self.event_id, self.replay_id) == (delivery.webhook_id, delivery.event_id, delivery.replay_id)
    }
}

/// Returns all retries of these deliveries that were requested up to a position, oldest first.
async fn retries(
    pool: &PgPool,
    shard: ShardId,
    recorded: &[Recorded],
    histories: &[DeliveryHistory],
    upto: Position,
) -> Result<Vec<Retry>, TimelineError> {
    let webhooks: Vec<WebhookId> =
        histories.iter().map(|delivery| delivery.webhook_id).collect::<HashSet<_>>().into_iter().collect();
    let events: Vec<Uuid> = recorded.iter().map(|r| r.moment.event_id).collect();
    let mut after = 0;
    let mut retries = vec![];
    loop {
        let page = reader::retries_of(pool, shard, &webhooks, &events, (after, upto), PAGE_RETRIES).await?;
        for stored in &page {
            let recorded = stored.decode()?;
            if let Event::Webhook(WebhookEvent::DeliveryRetryRequested(e)) = &recorded.event {
                retries.push(Retry {
                    webhook_id: WebhookId(recorded.stream_id),
                    event_id: e.event_id,
                    replay_id: e.replay_id,
                    at: recorded.moment.recorded_at,
                    actor: recorded.metadata.actor,
                });
            }
        }
        match page.last() {
            Some(last) if i64::try_from(page.len()).is_ok_and(|n| n == PAGE_RETRIES) => after = last.position,
            _ => return Ok(retries),
        }
    }
}

/// Known names of actors, and the texts of the order.
struct Names {
    named: ActorNames,
    texts: Texts,
}

impl Names {
    async fn load(
        pool: &PgPool,
        keyring: Option<&Keyring>,
        shard: ShardId,
        order: &Order,
        recorded: &[Recorded],
        histories: &[DeliveryHistory],
        retries: &[Retry],
    ) -> Result<Names, TimelineError> {
        let actors: HashSet<Actor> =
            recorded.iter().map(|r| r.metadata.actor).chain(retries.iter().map(|retry| retry.actor)).collect();
        let named = actors::names(pool, keyring, shard, &actors).await?;
        let mut wanted: Vec<(&'static str, i64)> = vec![(METADATA, order.id.0)];
        wanted.extend(order.cancelled_on.is_some().then_some((CANCEL_REASON, order.id.0)));
        wanted.extend(histories.iter().map(|delivery| (WEBHOOK_NAME, delivery.webhook_id.0)));
        let is_erasure = |r: &&Recorded| matches!(r.event, Event::Order(OrderEvent::PersonalDataErased(_)));
        wanted.extend(recorded.iter().filter(is_erasure).map(|r| (ERASURE_REASON, r.moment.position)));
        wanted.sort_unstable();
        wanted.dedup();
        let texts = match keyring {
            Some(keyring) => texts::load(pool, keyring, shard, &wanted).await?,
            None => Texts::new(),
        };
        Ok(Names { named, texts })
    }

    fn who(&self, actor: Actor) -> Who {
        Who { actor, name: self.named.get(&actor).cloned() }
    }
}

/// Describes an event in a few words. Names vouchers by their references, never by their codes.
fn description(order: &Order, event: &OrderEvent) -> String {
    let placed = &order.placed;
    let currency = placed.currency.as_str();
    let units = |vouchers: &[String]| match vouchers {
        [one] => format!("1 unit delivered: {one}"),
        more => format!("{} units delivered: {}", more.len(), more.join(", ")),
    };
    match event {
        OrderEvent::OrderPlaced(e) => format!(
            "placed: {} × {} {currency} of {}, discount {} %, {} {currency} in all",
            e.quantity, e.denomination, e.product_name, e.discount, e.amount
        ),
        OrderEvent::OrderQueued(_) => "taken up by fulfilment".to_owned(),
        OrderEvent::OrderDelayed(_) => "delayed: out of stock".to_owned(),
        OrderEvent::OrderPartiallyDelivered(e) => format!("{}; the rest waits for stock", units(&e.vouchers)),
        OrderEvent::OrderDelivered(e) => format!("{}; the order is complete", units(&e.vouchers)),
        OrderEvent::OrderCancelled(e) => {
            let by = match e.by {
                CancelledBy::Client => "the client",
                CancelledBy::Operator => "an operator",
            };
            format!("cancelled by {by}, {} {currency} refunded", e.refunded_amount)
        }
        OrderEvent::VouchersRevealed(e) => format!("the codes of {} units were read", e.units),
        OrderEvent::PersonalDataErased(e) => {
            format!("personal data erased: {} texts, the codes of {} vouchers, {} stored answers", e.texts, e.vouchers, e.answers)
        }
    }
}
