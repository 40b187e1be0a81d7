//! Past states of orders and payouts, folded from their streams, and the inputs of the deliveries' fold.

use std::collections::{HashMap, HashSet};

use ledger_database::PgConnection;
use ledger_events::order::Order;
use ledger_events::payout::Payout;
use ledger_events::{Id, OrderId, PayoutId, Position, Recorded, ShardId, StreamType};
use ledger_projections::deliveries::{self, Inputs, Made, Past};
use ledger_projections::state::{self, State};
use ledger_projections::stock;
use uuid::Uuid;

use super::{ReadError, Stored, select_events};

/// Returns the state of these orders immediately before a position, folded from their streams.
pub async fn orders_before(
    conn: &mut PgConnection,
    shard: ShardId,
    ids: &[OrderId],
    before: Position,
) -> Result<HashMap<OrderId, Order>, ReadError> {
    let mut states = HashMap::with_capacity(ids.len());
    for stored in &streams_upto(conn, shard, StreamType::Order, ids, before - 1).await? {
        state::fold(&mut states, &stored.decode()?);
    }
    Ok(states)
}

/// Returns the state of these payouts immediately before a position.
pub async fn payouts_before(
    conn: &mut PgConnection,
    shard: ShardId,
    ids: &[PayoutId],
    before: Position,
) -> Result<HashMap<PayoutId, Payout>, ReadError> {
    let mut states = HashMap::with_capacity(ids.len());
    for stored in &streams_upto(conn, shard, StreamType::Payout, ids, before - 1).await? {
        state::fold(&mut states, &stored.decode()?);
    }
    Ok(states)
}

/// Returns the events of these streams up to a position, one stream after the other. `ids` has no duplicates.
async fn streams_upto(
    conn: &mut PgConnection,
    shard: ShardId,
    stream_type: StreamType,
    ids: &[impl Id],
    upto: Position,
) -> Result<Vec<Stored>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(vec![]);
    }
    // One index lookup per stream, whatever the statistics: with `= ANY` and stale statistics, the server reads all
    // streams of the type.
    sqlx::query_as(concat!(
        "SELECT e.* FROM unnest($3::bigint[]) AS wanted (id) CROSS JOIN LATERAL (",
        select_events!("WHERE shard_id = $1 AND stream_type = $2 AND stream_id = wanted.id AND position <= $4 ORDER BY version"),
        ") AS e ORDER BY e.stream_id, e.version"
    ))
    .bind(shard)
    .bind(stream_type.as_str())
    .bind(ids.iter().map(|id| id.number()).collect::<Vec<_>>())
    .bind(upto)
    .fetch_all(conn)
    .await
}

/// Returns these past events, each with the state of its order or payout after it. Omits events that are missing or
/// unreadable; the caller that needs them reports that.
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
    let (mut orders, mut payouts): (Vec<OrderId>, Vec<PayoutId>) = (vec![], vec![]);
    for stored in &wanted {
        let Ok(recorded) = stored.decode() else { continue };
        match recorded.stream_type {
            StreamType::Order => orders.push(OrderId(recorded.stream_id)),
            StreamType::Payout => payouts.push(PayoutId(recorded.stream_id)),
            _ => {}
        }
        past.insert(stored.event_id, Past { recorded, order: None, payout: None });
    }
    states_after(conn, shard, (StreamType::Order, orders, last), |event_id, order: Option<&Order>| {
        if let Some(wanted) = past.get_mut(&event_id) {
            wanted.order = order.cloned();
        }
    })
    .await?;
    states_after(conn, shard, (StreamType::Payout, payouts, last), |event_id, payout: Option<&Payout>| {
        if let Some(wanted) = past.get_mut(&event_id) {
            wanted.payout = payout.cloned();
        }
    })
    .await?;
    Ok(past)
}

/// Folds streams up to a position, and reports each event with the state after it; `None` if an event before it is unreadable.
async fn states_after<S: State>(
    conn: &mut PgConnection,
    shard: ShardId,
    (stream_type, mut ids, upto): (StreamType, Vec<S::Id>, Position),
    mut report: impl FnMut(Uuid, Option<&S>),
) -> Result<(), ReadError> {
    ids.sort_unstable();
    ids.dedup();
    let history = streams_upto(conn, shard, stream_type, &ids, upto).await?;
    let mut states: HashMap<S::Id, S> = HashMap::new();
    let mut unreadable = HashSet::new();
    for stored in &history {
        let Ok(recorded) = stored.decode() else {
            unreadable.insert(stored.stream_id);
            continue;
        };
        state::fold(&mut states, &recorded);
        let is_readable = !unreadable.contains(&stored.stream_id);
        report(stored.event_id, states.get(&S::Id::new(stored.stream_id)).filter(|_| is_readable));
    }
    Ok(())
}

/// Folds the next events of the log into deliveries, and loads the earlier state that this needs. Processes only as many
/// events as make at most [`deliveries::MAX_MADE`] deliveries. [`Made::events`] is their number.
pub async fn fold_deliveries(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<Made, ReadError> {
    let plan = deliveries::plan(conn, shard, events).await?;
    let first = events.first().map(|recorded| recorded.moment.position).unwrap_or_default();
    let before = orders_before(conn, shard, &plan.orders, first).await?;
    let payouts = payouts_before(conn, shard, &plan.payouts, first).await?;
    let past = past(conn, shard, &plan.past).await?;
    Ok(deliveries::fold(plan, Inputs { before, payouts, past }, events)?)
}

/// Folds the next events of the log into the tables of the voucher stock, and loads the orders that this needs.
pub async fn fold_stock(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ReadError> {
    let Some(last) = events.last() else { return Ok(()) };
    let orders = orders_before(conn, shard, &stock::orders(events), last.moment.position + 1).await?;
    Ok(stock::apply(conn, shard, events, &orders).await?)
}
