//! How orders and payouts were at a position: their streams, folded; and what deliveries need of that.

use std::collections::{HashMap, HashSet};

use ledger_database::PgConnection;
use ledger_events::order::Order;
use ledger_events::payout::Payout;
use ledger_events::{Event, OrderId, PayoutId, Position, Recorded, ShardId, StreamType};
use ledger_projections::deliveries::{self, Inputs, Made, Past};
use ledger_projections::{orders, payouts};
use uuid::Uuid;

use super::{ReadError, Stored, select_events};

/// These orders as they were right before a position: their streams, folded.
pub async fn orders_before(
    conn: &mut PgConnection,
    shard: ShardId,
    ids: &[OrderId],
    before: Position,
) -> Result<HashMap<OrderId, Order>, ReadError> {
    let mut states = HashMap::with_capacity(ids.len());
    for stored in &streams_upto(conn, shard, StreamType::Order, ids, before - 1).await? {
        let recorded = stored.decode()?;
        if let Event::Order(event) = &recorded.event {
            orders::fold(&mut states, &recorded, event);
        }
    }
    Ok(states)
}

/// These payouts as they were right before a position.
pub async fn payouts_before(
    conn: &mut PgConnection,
    shard: ShardId,
    ids: &[PayoutId],
    before: Position,
) -> Result<HashMap<PayoutId, Payout>, ReadError> {
    let mut states = HashMap::with_capacity(ids.len());
    for stored in &streams_upto(conn, shard, StreamType::Payout, ids, before - 1).await? {
        payouts::fold(&mut states, &stored.decode()?);
    }
    Ok(states)
}

/// What happened to these streams, each named once, up to a position; a stream after the other.
async fn streams_upto(
    conn: &mut PgConnection,
    shard: ShardId,
    stream_type: StreamType,
    ids: &[i64],
    upto: Position,
) -> Result<Vec<Stored>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(vec![]);
    }
    // A look for each stream, whatever the statistics: with `= ANY` and stale ones, all streams of the type are read.
    sqlx::query_as(concat!(
        "SELECT e.* FROM unnest($3::bigint[]) AS wanted (id) CROSS JOIN LATERAL (",
        select_events!("WHERE shard_id = $1 AND stream_type = $2 AND stream_id = wanted.id AND position <= $4 ORDER BY version"),
        ") AS e ORDER BY e.stream_id, e.version"
    ))
    .bind(shard)
    .bind(stream_type.as_str())
    .bind(ids)
    .bind(upto)
    .fetch_all(conn)
    .await
}

/// These events of the past, each with its order as it was right after it. What is not in the log,
/// or cannot be read there, is left out: whoever needs it says so.
pub async fn past(conn: &mut PgConnection, shard: ShardId, events: &[Uuid]) -> Result<HashMap<Uuid, Past>, ReadError> {
    let mut past = HashMap::with_capacity(events.len());
    if events.is_empty() {
        return Ok(past);
    }
    let wanted: Vec<Stored> = sqlx::query_as(select_events!("WHERE shard_id = $1 AND event_id = ANY($2)"))
        .bind(shard)
        .bind(events)
        .fetch_all(&mut *conn)
        .await?;
    let last = wanted.iter().map(|stored| stored.position).max().unwrap_or_default();
    let mut orders: Vec<OrderId> = vec![];
    for stored in &wanted {
        let Ok(recorded) = stored.decode() else { continue };
        if recorded.stream_type == StreamType::Order {
            orders.push(recorded.stream_id);
        }
        past.insert(stored.event_id, Past { recorded, order: None });
    }
    orders.sort_unstable();
    orders.dedup();
    let history = streams_upto(conn, shard, StreamType::Order, &orders, last).await?;
    let mut states: HashMap<OrderId, Order> = HashMap::new();
    let mut unreadable = HashSet::new();
    for stored in &history {
        let Ok(recorded) = stored.decode() else {
            unreadable.insert(stored.stream_id);
            continue;
        };
        if let Event::Order(event) = &recorded.event {
            orders::fold(&mut states, &recorded, event);
        }
        if let Some(wanted) = past.get_mut(&stored.event_id) {
            wanted.order = states.get(&stored.stream_id).filter(|_| !unreadable.contains(&stored.stream_id)).cloned();
        }
    }
    Ok(past)
}

/// Folds the next events of the log into deliveries, with what that needs of the log before them: as many events as
/// make [`deliveries::MOST_MADE`] at most. [`Made::events`] says how many.
pub async fn fold_deliveries(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<Made, ReadError> {
    let plan = deliveries::plan(conn, shard, events).await?;
    let first = events.first().map(|recorded| recorded.moment.position).unwrap_or_default();
    let before = orders_before(conn, shard, &plan.orders, first).await?;
    let past = past(conn, shard, &plan.past).await?;
    Ok(deliveries::fold(plan, Inputs { before, past }, events)?)
}
