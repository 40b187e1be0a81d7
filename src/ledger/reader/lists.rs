//! Lists of orders and of movements, with the changes of the counts of orders, folded from their streams.

use std::ops::Range;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_database::{PgConnection, PgPool, replanned};
use ledger_events::order::{Order, OrderStatus};
use ledger_events::{AccountId, OrderId, Position, ShardId, TransactionId};
use ledger_projections::listing::moves::{self, Move, Uncounted};
use ledger_projections::listing::pages::{self, Thresholds};
use ledger_projections::orders::{self, ListBounds, OrderFilter};
use ledger_projections::page::{Listed, Page, planned_snapshot};
use ledger_projections::wallets::{self, Transaction, TransactionBounds, TransactionFilter};

use super::{ReadError, Stored, first_at, head, select_events};

/// Smallest difference between two times in the log.
const RESOLUTION: TimeDelta = TimeDelta::milliseconds(1);

/// Lists one page of orders, newest first, with the total.
pub async fn list_orders(pool: &PgPool, shard: ShardId, filter: &OrderFilter, page: Page) -> Result<Listed<Order>, sqlx::Error> {
    list_orders_by(pool, shard, filter, page, &Thresholds::default()).await
}

/// Lists a page like [`list_orders`], with the caller's thresholds.
pub async fn list_orders_by(
    pool: &PgPool,
    shard: ShardId,
    filter: &OrderFilter,
    page: Page,
    thresholds: &Thresholds,
) -> Result<Listed<Order>, sqlx::Error> {
    if filter.has_reference() {
        return orders::list_by_reference(pool, shard, filter, page).await;
    }
    replanned(|| list_once(pool, shard, filter, page, thresholds)).await
}

async fn list_once(
    pool: &PgPool,
    shard: ShardId,
    filter: &OrderFilter,
    page: Page,
    thresholds: &Thresholds,
) -> Result<Listed<Order>, sqlx::Error> {
    let mut tx = orders::snapshot(pool, filter).await?;
    let bounds = bounds(&mut tx, shard, filter).await?;
    let uncounted = match filter.needs_counts(&bounds, thresholds) {
        true => uncounted(&mut tx, shard, filter.account_id, thresholds).await?,
        false => Uncounted::Unknown,
    };
    let listed = orders::list(&mut tx, shard, filter, &bounds, page, thresholds, &uncounted).await?;
    tx.commit().await?;
    Ok(listed)
}

/// Returns the bounds of a list in one shard. Those of one account's list are found by its page anchors instead. Shards have no
/// order in common but that of time.
async fn bounds(conn: &mut PgConnection, shard: ShardId, filter: &OrderFilter) -> Result<ListBounds, sqlx::Error> {
    if filter.account_id.is_some() {
        return Ok(ListBounds::ALL);
    }
    let (placed, end) = positions_between(&mut *conn, shard, filter.created_from, filter.created_to).await?;
    let page_before = match filter.before {
        None => Position::MAX,
        Some(order) if order.shard == shard => order.position,
        Some(order) => {
            // Among orders with the same time, the first shard's come first.
            let is_later = shard > order.shard;
            let before = if is_later { order.created_at + RESOLUTION } else { order.created_at };
            positions_between(conn, shard, None, Some(before)).await?.0.end
        }
    };
    Ok(ListBounds { placed, page_before, end })
}

/// Lists one page of an account's movements, newest first, with the total.
pub async fn list_transactions(
    pool: &PgPool,
    shard: ShardId,
    filter: &TransactionFilter,
    page: Page,
) -> Result<Listed<Transaction>, sqlx::Error> {
    let list = async || {
        let mut tx = planned_snapshot(pool).await?;
        let (positions, _) = positions_between(&mut tx, shard, filter.created_from, filter.created_to).await?;
        let ids = match filter.order() {
            Some(order) => Some(movements_of(&mut tx, shard, order).await?),
            None => None,
        };
        let bounds = TransactionBounds { positions, ids };
        let listed = wallets::list_transactions(&mut tx, shard, filter, &bounds, page).await?;
        tx.commit().await?;
        Ok(listed)
    };
    replanned(list).await
}

/// Returns the movements that the events of an order name: its payment and its refund.
async fn movements_of(conn: &mut PgConnection, shard: ShardId, order: OrderId) -> Result<Vec<TransactionId>, sqlx::Error> {
    let named = "SELECT (data->>'transaction_id')::bigint FROM events
        WHERE shard_id = $1 AND stream_type = 'order' AND stream_id = $2 AND data->>'transaction_id' IS NOT NULL";
    sqlx::query_scalar(named).bind(shard).bind(order).fetch_all(conn).await
}

/// Returns the positions of the events from one time on and before another one, and the position after the last event. Times
/// never decrease with the position, so a list by time reads an index of positions. Without times, both ends are the largest
/// position.
async fn positions_between(
    conn: &mut PgConnection,
    shard: ShardId,
    from: Option<DateTime<Utc>>,
    to: Option<DateTime<Utc>>,
) -> Result<(Range<Position>, Position), sqlx::Error> {
    if from.is_none() && to.is_none() {
        return Ok((0..Position::MAX, Position::MAX));
    }
    let head = head(&mut *conn, shard).await?;
    let mut positions = 0..head + 1;
    if let Some(from) = from {
        positions.start = first_at(conn, shard, from, head).await?;
    }
    if let Some(to) = to {
        positions.end = first_at(conn, shard, to, head).await?;
    }
    Ok((positions, head + 1))
}

/// Counts the orders of an account by their present status.
pub async fn orders_by_status(
    conn: &mut PgConnection,
    shard: ShardId,
    account: AccountId,
) -> Result<Vec<(OrderStatus, i64)>, sqlx::Error> {
    let uncounted = uncounted(&mut *conn, shard, Some(account), &Thresholds::default()).await?;
    let groups = pages::order_groups(conn, (shard, account), None, None, &uncounted).await?;
    let of = |status: OrderStatus| groups.iter().filter(|group| group.kind == status.as_str()).map(|group| group.rows).sum();
    Ok(OrderStatus::ALL.into_iter().map(|status| (status, of(status))).collect())
}

/// Returns the changes that the stored counts of an account, or of all accounts, do not include.
async fn uncounted(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    thresholds: &Thresholds,
) -> Result<Uncounted, sqlx::Error> {
    let (counted, head) = pages::counted(&mut *conn, shard).await?;
    if head - counted > thresholds.uncounted {
        return Ok(Uncounted::Unknown);
    }
    match order_moves(conn, shard, account, (counted, head)).await {
        Ok(moves) => Ok(Uncounted::Moves(moves)),
        Err(ReadError::Database(error)) => Err(error),
        // An event that this program cannot read, for example of a newer release.
        Err(_) => Ok(Uncounted::Unknown),
    }
}

/// Returns how the events after one position and up to another one move orders from one status to another, of one account
/// or of all.
pub async fn order_moves(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    (after, upto): (Position, Position),
) -> Result<Vec<Move>, ReadError> {
    let stored = changed_orders(conn, shard, account, (after, upto)).await?;
    let recorded = stored.iter().map(Stored::decode).collect::<Result<Vec<_>, _>>()?;
    Ok(moves::after(after, recorded))
}

/// Returns the moves like [`order_moves`], of all accounts, without the events that cannot be read.
pub async fn readable_order_moves(
    conn: &mut PgConnection,
    shard: ShardId,
    (after, upto): (Position, Position),
) -> Result<Vec<Move>, sqlx::Error> {
    let stored = changed_orders(conn, shard, None, (after, upto)).await?;
    Ok(moves::after(after, stored.iter().filter_map(|stored| stored.decode().ok())))
}

/// Returns the streams, up to `upto`, of the orders with events after `after`: one stream after the other. Leaves out
/// reads of codes, which change no status, and of which an order may have any number.
async fn changed_orders(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    (after, upto): (Position, Position),
) -> Result<Vec<Stored>, sqlx::Error> {
    if upto <= after {
        return Ok(vec![]);
    }
    // One index lookup per stream, whatever the statistics.
    sqlx::query_as(concat!(
        "WITH changed AS MATERIALIZED (
            SELECT DISTINCT stream_id FROM events
            WHERE shard_id = $1 AND position > $2 AND position <= $3 AND stream_type = 'order' AND type <> 'VouchersRevealed'
              AND ($4::bigint IS NULL OR (metadata->>'account_id')::bigint = $4))
         SELECT e.* FROM changed CROSS JOIN LATERAL (",
        select_events!(
            "WHERE shard_id = $1 AND stream_type = 'order' AND stream_id = changed.stream_id AND position <= $3
                AND type <> 'VouchersRevealed' ORDER BY version"
        ),
        ") AS e ORDER BY e.stream_id, e.version"
    ))
    .bind(shard)
    .bind(after)
    .bind(upto)
    .bind(account)
    .fetch_all(conn)
    .await
}
