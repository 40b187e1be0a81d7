//! `webhook_envelopes`, `deliveries` and `webhook_audience`: which webhook receives which event, under which
//! delivery id.
//!
//! This projection catches up with the log by position. It folds the webhook events itself, in position order. The
//! audience of a delivery is therefore the one that the log had at the position of the event. The worker keeps its
//! own record of what it does with a delivery (`delivery_state`, `delivery_attempts`).

mod attempts;
mod deep;
mod envelopes;
mod history;
mod model;
mod pending;
mod period;
mod read;
mod retried;
mod statistics;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::order::{Order, OrderEvent};
use ledger_events::payout::{Payout, PayoutEvent};
use ledger_events::replay::{NO_REPLAY, ReplayEvent};
use ledger_events::webhook::{Webhook, WebhookEvent, WebhookEventType};
use ledger_events::{AccountId, Event, OrderId, PayoutId, Position, Recorded, ReplayId, ShardId, WebhookId};
use sqlx::PgExecutor;
use uuid::Uuid;

use crate::ProjectionError;
use crate::state::{self, Read};
pub use attempts::{AnyAttempt, AttemptFilter, AttemptKey, Attempts, list_attempts};
use envelopes::EnvelopeRow;
pub use envelopes::{Past, payload};
pub use history::{DeliveryHistory, of_order};
pub use model::{Attempt, AttemptOutcome, Delivery, DeliveryFilter, DeliveryStatus, Retry};
pub use read::{find, list, list_by, owner, retryable};
pub use statistics::{Statistics, statistics};
pub use write::{
    FAIL_OF_REPLAYS, FAIL_OF_WEBHOOKS, MAX_FAILED_PER_TRANSACTION, fail_pending, forget_payloads, write, write_shadow,
};

pub const NAME: &str = "deliveries";
pub const TABLES: &[&str] = &["webhook_audience", "webhook_envelopes", "deliveries"];
/// Maximum number of deliveries from one batch of events. It bounds the memory of a batch and the statement that
/// writes it, whatever is replayed.
pub const MAX_MADE: usize = 5_000;

/// Returns the position up to which the projection has processed the log.
pub async fn checkpoint(db: impl PgExecutor<'_>, shard: ShardId) -> Result<Position, sqlx::Error> {
    let position = sqlx::query_scalar("SELECT position FROM projection_checkpoints WHERE shard_id = $1 AND projection = $2")
        .bind(shard)
        .bind(NAME)
        .fetch_optional(db)
        .await?;
    Ok(position.unwrap_or_default())
}

/// Requirements of a batch of events, before it can be folded.
#[derive(Debug)]
pub struct Plan {
    /// Number of events in the batch, counted from the first. The others belong to later batches.
    pub events: usize,
    audience: HashMap<WebhookId, Webhook>,
    /// Orders whose events a webhook may receive and whose history begins before the batch. The caller reads their
    /// streams up to the batch.
    pub orders: Vec<OrderId>,
    /// Payouts whose events a webhook may receive and whose history begins before the batch.
    pub payouts: Vec<PayoutId>,
    /// Earlier events that are delivered again. The caller reads each as a [`Past`].
    pub past: Vec<Uuid>,
}

/// Data that the caller has read for a plan.
#[derive(Debug, Default)]
pub struct Inputs {
    /// Planned orders, in their state right before the batch.
    pub before: HashMap<OrderId, Order>,
    pub payouts: HashMap<PayoutId, Payout>,
    pub past: HashMap<Uuid, Past>,
}

/// Loads the audience. Determines how many of the events make at most [`MAX_MADE`] deliveries, and which order
/// histories they need.
pub async fn plan(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<Plan, ProjectionError> {
    let accounts: HashSet<AccountId> = events
        .iter()
        .filter(|r| matches!(r.event, Event::Webhook(_)) || WebhookEventType::announcing(&r.event).is_some())
        .filter_map(|r| r.metadata.account_id)
        .collect();
    let mut audience: HashMap<WebhookId, Webhook> = HashMap::new();
    if !accounts.is_empty() {
        let rows: Vec<Read<Webhook>> = sqlx::query_as(
            "SELECT webhook_id AS id, version, account_id, credential_id, events, is_active, is_deleted, created_at, updated_at,
                further_events, NULL::jsonb AS deactivation_reason, NULL::timestamptz AS deactivated_at
             FROM webhook_audience WHERE shard_id = $1 AND account_id = ANY($2)",
        )
        .bind(shard)
        .bind(accounts.into_iter().collect::<Vec<_>>())
        .fetch_all(conn)
        .await?;
        audience.extend(rows.into_iter().map(|row| (row.0.id, row.0)));
    }
    let events = batch(events, &audience);

    // Accounts with a webhook now, or from somewhere within the batch.
    let mut listening: HashSet<AccountId> = audience.values().map(|w| w.account_id).collect();
    listening.extend(events.iter().filter(|r| matches!(r.event, Event::Webhook(_))).filter_map(|r| r.metadata.account_id));
    let is_heard = |recorded: &&Recorded| recorded.metadata.account_id.is_some_and(|account| listening.contains(&account));
    let (orders, payouts) = earlier(events.iter().filter(is_heard));
    Ok(Plan { events: events.len(), audience, orders, payouts, past: past(events) })
}

/// Collects the orders and payouts of events that webhooks receive, if their history begins before these events.
fn earlier<'a>(events: impl Iterator<Item = &'a Recorded>) -> (Vec<OrderId>, Vec<PayoutId>) {
    let mut begun = HashSet::new();
    let (mut orders, mut payouts) = (HashSet::new(), HashSet::new());
    for recorded in events {
        let stream = (recorded.stream_type, recorded.stream_id);
        match &recorded.event {
            Event::Order(OrderEvent::OrderPlaced(_)) | Event::Payout(PayoutEvent::PayoutRequested(_)) => _ = begun.insert(stream),
            _ if begun.contains(&stream) => {}
            event if WebhookEventType::announcing(event).is_none() => {}
            Event::Order(_) => _ = orders.insert(OrderId(recorded.stream_id)),
            Event::Payout(_) => _ = payouts.insert(PayoutId(recorded.stream_id)),
            _ => {}
        }
    }
    (orders.into_iter().collect(), payouts.into_iter().collect())
}

/// Returns the first events that make at most [`MAX_MADE`] deliveries, but at least one event.
fn batch<'a>(events: &'a [Recorded], audience: &HashMap<WebhookId, Webhook>) -> &'a [Recorded] {
    let mut webhooks: HashMap<Option<AccountId>, usize> = HashMap::new();
    for webhook in audience.values().filter(|webhook| !webhook.is_deleted) {
        *webhooks.entry(Some(webhook.account_id)).or_default() += 1;
    }
    let mut made = 0;
    let mut is_room = |recorded: &Recorded| {
        let of_account = webhooks.entry(recorded.metadata.account_id).or_default();
        made += match &recorded.event {
            event if WebhookEventType::announcing(event).is_some() => *of_account,
            Event::Replay(ReplayEvent::WebhookReplayAdvanced(step)) => step.events.len(),
            Event::Webhook(WebhookEvent::WebhookTested(_) | WebhookEvent::DeliveryRetryRequested(_)) => 1,
            Event::Webhook(WebhookEvent::WebhookRegistered(_)) => {
                *of_account += 1;
                0
            }
            _ => 0,
        };
        made <= MAX_MADE
    };
    let room = events.iter().position(|recorded| !is_room(recorded)).unwrap_or(events.len());
    events.get(..room.max(1)).unwrap_or(events)
}

/// Collects the earlier events that a batch delivers again.
fn past(events: &[Recorded]) -> Vec<Uuid> {
    let mut past = HashSet::new();
    for recorded in events {
        match &recorded.event {
            Event::Replay(ReplayEvent::WebhookReplayAdvanced(e)) => past.extend(&e.events),
            Event::Webhook(WebhookEvent::DeliveryRetryRequested(e)) => _ = past.insert(e.event_id),
            _ => {}
        }
    }
    past.into_iter().collect()
}

/// Rows and changes that a batch of events produces.
#[derive(Debug, Default)]
pub struct Made {
    /// Number of processed events, counted from the first that the caller passed.
    pub events: usize,
    envelopes: Vec<EnvelopeRow>,
    deliveries: Vec<NewDelivery>,
    changed: HashMap<WebhookId, Webhook>,
    /// Webhooks that were switched off or deleted. Their pending deliveries fail.
    switched_off: HashSet<WebhookId>,
    /// Replays that ended early. Their pending deliveries fail, too.
    stopped: HashSet<ReplayId>,
    /// Envelopes of replayed events. An event may not have had an envelope before.
    replayed: BTreeMap<Uuid, EnvelopeRow>,
    /// Deliveries to retry. They are applied after everything that fails deliveries.
    retried: Vec<Retried>,
}

#[derive(Debug)]
struct Retried {
    webhook_id: WebhookId,
    replay_id: ReplayId,
    /// Envelope, built again because the stored payload may be gone.
    envelope: EnvelopeRow,
}

impl Made {
    /// Returns the webhooks, with their accounts, that have a first attempt due now.
    pub fn addressees(&self) -> BTreeSet<(WebhookId, AccountId)> {
        let pending = self.deliveries.iter().filter(|delivery| delivery.status == "pending");
        pending.map(|delivery| (delivery.webhook_id, delivery.account_id)).collect()
    }

    /// Returns whether the batch retries earlier deliveries.
    pub fn has_retried(&self) -> bool {
        !self.retried.is_empty()
    }

    /// Fails the pending deliveries of the selected webhooks or replays.
    fn fail(&mut self, is_meant: impl Fn(WebhookId, ReplayId) -> bool) {
        for delivery in self.deliveries.iter_mut().filter(|d| is_meant(d.webhook_id, d.replay_id)) {
            delivery.status = "failed";
        }
        self.retried.retain(|r| !is_meant(r.webhook_id, r.replay_id));
    }

    /// Marks all deliveries as past, for an imported log. None of them is sent or retried, whatever their outcome
    /// was where they happened. `draw` assigns ids to the deliveries that the log gives no id.
    pub fn settle(&mut self, mut draw: impl FnMut() -> i64) {
        self.fail(|_, _| true);
        for delivery in &mut self.deliveries {
            delivery.id.get_or_insert_with(&mut draw);
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct NewDelivery {
    /// `None` draws an id from the sequence.
    id: Option<i64>,
    event_id: Uuid,
    webhook_id: WebhookId,
    replay_id: ReplayId,
    account_id: AccountId,
    order_id: OrderId,
    event_type: WebhookEventType,
    created_at: DateTime<Utc>,
    status: &'static str,
}

impl NewDelivery {
    /// Creates the delivery that the event itself makes, due when the event was recorded.
    fn of(envelope: &EnvelopeRow, webhook_id: WebhookId) -> NewDelivery {
        NewDelivery {
            id: None,
            event_id: envelope.event_id,
            webhook_id,
            replay_id: NO_REPLAY,
            account_id: envelope.account_id,
            order_id: envelope.order_id,
            event_type: envelope.event_type,
            created_at: envelope.created_at,
            status: "pending",
        }
    }
}

/// Lists the webhooks that receive an event when it happens, in id order. `audience` is the state right before the
/// event.
pub fn listeners(audience: &HashMap<WebhookId, Webhook>, account: AccountId, event_type: WebhookEventType) -> Vec<WebhookId> {
    let mut listeners: Vec<WebhookId> =
        audience.values().filter(|w| w.account_id == account && w.hears(event_type)).map(|w| w.id).collect();
    listeners.sort_unstable();
    listeners
}

/// Folds the events of a plan.
pub fn fold(plan: Plan, inputs: Inputs, events: &[Recorded]) -> Result<Made, ProjectionError> {
    let Inputs { before: mut orders, mut payouts, past } = inputs;
    let mut audience = plan.audience;
    let mut made = Made { events: plan.events, ..Made::default() };
    for recorded in events.iter().take(plan.events) {
        match &recorded.event {
            Event::Webhook(event) => {
                let id = WebhookId(recorded.stream_id);
                let was_active = audience.get(&id).is_some_and(|w| w.is_active);
                state::fold(&mut audience, recorded);
                if let Some(now) = audience.get(&id) {
                    made.changed.insert(id, now.clone());
                    if was_active && !now.is_active {
                        made.switched_off.insert(id);
                        made.fail(|webhook, _| webhook == id);
                    }
                }
                asked(&mut made, &past, recorded, event)?;
            }
            Event::Replay(event) => replayed(&mut made, &past, recorded, event)?,
            event => {
                let Some(account_id) = recorded.metadata.account_id else { continue };
                state::fold(&mut orders, recorded);
                state::fold(&mut payouts, recorded);
                let Some(event_type) = WebhookEventType::announcing(event) else { continue };
                let listeners = listeners(&audience, account_id, event_type);
                if listeners.is_empty() {
                    continue;
                }
                let (order, payout) = (OrderId(recorded.stream_id), PayoutId(recorded.stream_id));
                let (order, payout) = (orders.get(&order), payouts.get(&payout));
                let envelope = EnvelopeRow::announcing(recorded, account_id, event_type, order, payout)?;
                let envelope = envelope.ok_or_else(|| {
                    damaged(recorded, format!("{} {} has no first event", recorded.stream_type, recorded.stream_id))
                })?;
                made.deliveries.extend(listeners.into_iter().map(|webhook_id| NewDelivery::of(&envelope, webhook_id)));
                made.envelopes.push(envelope);
            }
        }
    }
    Ok(made)
}

/// Applies a client's request on a webhook: a test, or a retry.
fn asked(made: &mut Made, past: &HashMap<Uuid, Past>, recorded: &Recorded, event: &WebhookEvent) -> Result<(), ProjectionError> {
    match event {
        WebhookEvent::WebhookTested(e) => {
            let test = Past { recorded: recorded.clone(), order: None, payout: None };
            let envelope = EnvelopeRow::of(&test)?.ok_or_else(|| damaged(recorded, "the test event has no account"))?;
            made.deliveries
                .push(NewDelivery { id: Some(e.delivery_id), ..NewDelivery::of(&envelope, WebhookId(recorded.stream_id)) });
            made.envelopes.push(envelope);
        }
        WebhookEvent::DeliveryRetryRequested(e) => {
            let envelope = again(past, recorded, e.event_id)?;
            made.retried.push(Retried { webhook_id: WebhookId(recorded.stream_id), replay_id: e.replay_id, envelope });
        }
        _ => {}
    }
    Ok(())
}

/// Applies a step of an operator's replay, or its early end.
fn replayed(
    made: &mut Made,
    past: &HashMap<Uuid, Past>,
    recorded: &Recorded,
    event: &ReplayEvent,
) -> Result<(), ProjectionError> {
    let replay_id = ReplayId(recorded.stream_id);
    match event {
        ReplayEvent::WebhookReplayAdvanced(e) => {
            for event_id in &e.events {
                let envelope = again(past, recorded, *event_id)?;
                let created_at = recorded.moment.recorded_at;
                made.deliveries.push(NewDelivery { replay_id, created_at, ..NewDelivery::of(&envelope, e.webhook_id) });
                made.replayed.insert(*event_id, envelope);
            }
        }
        ReplayEvent::WebhookReplayCancelled(_) | ReplayEvent::WebhookReplayFailed(_) => {
            made.stopped.insert(replay_id);
            made.fail(|_, replay| replay == replay_id);
        }
        ReplayEvent::WebhookReplayRequested(_) | ReplayEvent::WebhookReplayCompleted(_) => {}
    }
    Ok(())
}

fn again(past: &HashMap<Uuid, Past>, recorded: &Recorded, event_id: Uuid) -> Result<EnvelopeRow, ProjectionError> {
    let envelope = past.get(&event_id).map(EnvelopeRow::of).transpose()?.flatten();
    envelope.ok_or_else(|| {
        damaged(recorded, format!("it delivers event {event_id}, which webhooks do not receive or which cannot be read"))
    })
}

fn damaged(recorded: &Recorded, problem: impl Into<String>) -> ProjectionError {
    ProjectionError::Row { table: "events", id: recorded.moment.position, problem: problem.into() }
}
