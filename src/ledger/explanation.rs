//! Explanation of which events of an order a webhook received, and why it did not receive the others.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_database::{PgPool, replanned};
use ledger_events::webhook::{Hearing, Webhook, WebhookEventType};
use ledger_events::{OrderId, ShardId, StreamType, WebhookId};
use ledger_projections::deliveries::{self, DeliveryHistory};
use ledger_projections::state::fold;
use uuid::Uuid;

use super::reader::{self, Filter, ReadError, Stored};

/// Maximum number of events of the order that are explained. The oldest come first.
const MAX_EVENTS: i64 = 1_000;
/// Maximum number of changes of the webhook that are read.
const MAX_CHANGES: i64 = 100_000;

/// An event of an order, as one webhook saw it.
#[derive(Clone, Debug)]
pub struct ExplainedEvent {
    pub event_id: Uuid,
    pub event_type: WebhookEventType,
    pub recorded_at: DateTime<Utc>,
    /// Whether the webhook was in the audience of the event, by the state that it had then.
    pub hearing: Hearing,
    /// Whether the projection has made the deliveries of the event.
    pub is_projected: bool,
    /// Deliveries of the event to the webhook, oldest first. Replays make further ones.
    pub deliveries: Vec<DeliveryHistory>,
}

/// Explains every event of an order that webhooks may receive, in the order of the log.
pub async fn explain(
    pool: &PgPool,
    shard: ShardId,
    webhook: WebhookId,
    order: OrderId,
) -> Result<Vec<ExplainedEvent>, ReadError> {
    replanned(|| explain_once(pool, shard, webhook, order)).await
}

async fn explain_once(
    pool: &PgPool,
    shard: ShardId,
    webhook: WebhookId,
    order: OrderId,
) -> Result<Vec<ExplainedEvent>, ReadError> {
    let mut connection = pool.acquire().await?;
    // The checkpoint comes first: deliveries up to it are visible to every later query.
    let checkpoint = deliveries::checkpoint(&mut *connection, shard).await?;
    let of_order =
        Filter { types: WebhookEventType::OF_ORDERS.map(|event| event.announced().to_owned()).into(), ..Filter::default() };
    let stream = (StreamType::Order.as_str(), order.0);
    let events = reader::matching_of_stream(&mut *connection, shard, stream, (0, i64::MAX), &of_order, MAX_EVENTS).await?;
    let last = events.last().map_or(0, |event| event.position);
    let stream = (StreamType::Webhook.as_str(), webhook.0);
    let types = ["WebhookRegistered", "WebhookUpdated", "WebhookDeleted"].map(str::to_owned).into();
    let changes = Filter { types, ..Filter::default() };
    let changes = reader::matching_of_stream(&mut *connection, shard, stream, (0, last), &changes, MAX_CHANGES).await?;
    drop(connection);
    let mut made: HashMap<Uuid, Vec<DeliveryHistory>> = HashMap::new();
    for delivery in deliveries::of_order(pool, shard, order).await? {
        if delivery.webhook_id == webhook {
            made.entry(delivery.event_id).or_default().push(delivery);
        }
    }
    let heard = heard(webhook, &events, &changes)?;
    let explained = heard.into_iter().map(|(event, event_type, hearing)| ExplainedEvent {
        event_id: event.event_id,
        event_type,
        recorded_at: event.recorded_at,
        hearing,
        is_projected: event.position <= checkpoint,
        deliveries: made.remove(&event.event_id).unwrap_or_default(),
    });
    Ok(explained.collect())
}

/// Folds the webhook's changes up to each event, and applies the rule about the audience to the state before the event.
fn heard<'e>(
    webhook: WebhookId,
    events: &'e [Stored],
    changes: &[Stored],
) -> Result<Vec<(&'e Stored, WebhookEventType, Hearing)>, ReadError> {
    let (mut states, mut changes) = (HashMap::new(), changes.iter().peekable());
    let mut heard = Vec::with_capacity(events.len());
    for stored in events {
        while let Some(change) = changes.next_if(|change| change.position < stored.position) {
            fold::<Webhook>(&mut states, &change.decode()?);
        }
        if let Some(event_type) = WebhookEventType::announcing(&stored.decode()?.event) {
            heard.push((stored, event_type, Hearing::of(states.get(&webhook), event_type)));
        }
    }
    Ok(heard)
}
