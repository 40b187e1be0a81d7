//! Lists of orders: of one account, of all accounts, and by reference.

use std::ops::Range;

use chrono::{DateTime, Utc};
use ledger_database::{PgConnection, PgPool, Transaction};
use ledger_events::order::{Order, OrderStatus};
use ledger_events::{AccountId, Position, ProductId, ShardId, placement};
use sqlx::{Postgres, QueryBuilder};

use crate::listing::moves::{Move, Uncounted};
use crate::listing::page_anchors::{self, ORDERS, Span};
use crate::listing::pages::{self, Group, ORDER_GROUPS, Thresholds};
use crate::listing::segments::{self, Segment};
use crate::page::{self, Listed, Page};
use crate::state::{Read, Row, all, select};

/// Filter of an order list. `account_id` is `None` for operators.
#[derive(Clone, Debug, Default)]
pub struct OrderFilter {
    pub account_id: Option<AccountId>,
    pub status: Option<OrderStatus>,
    pub product_id: Option<ProductId>,
    pub reference_code: Option<String>,
    pub client_reference: Option<String>,
    pub created_from: Option<DateTime<Utc>>,
    pub created_to: Option<DateTime<Utc>>,
    /// Order before which the page begins, in a list of all accounts. The total includes the newer orders, too.
    pub before: Option<PlacedOrder>,
}

/// An order's place in the log.
#[derive(Clone, Copy, Debug)]
pub struct PlacedOrder {
    pub shard: ShardId,
    pub position: Position,
    pub created_at: DateTime<Utc>,
}

/// Positions of the log that bound a list.
#[derive(Clone, Debug)]
pub struct ListBounds {
    /// Positions at which the orders of the list were placed.
    pub placed: Range<Position>,
    /// Position before which those of the page were placed.
    pub page_before: Position,
    /// Position before which all orders were placed.
    pub end: Position,
}

impl ListBounds {
    /// Bounds that contain every order.
    pub const ALL: ListBounds = ListBounds { placed: 0..Position::MAX, page_before: Position::MAX, end: Position::MAX };

    /// Returns the number of positions within the list, and the number of the other positions.
    fn positions(&self) -> (i64, i64) {
        let within = self.placed.end - self.placed.start;
        (within, self.end - within)
    }
}

impl OrderFilter {
    /// Returns whether the filter names an order by a reference. Then [`list_by_reference`] finds it.
    pub fn has_reference(&self) -> bool {
        self.reference_code.is_some() || self.client_reference.is_some()
    }

    /// Returns whether a page within these bounds may need the counts of orders. A short period is counted without them.
    pub fn needs_counts(&self, bounds: &ListBounds, thresholds: &Thresholds) -> bool {
        let is_short = self.account_id.is_none() && bounds.positions().0 <= thresholds.skipped;
        (self.product_id.is_some() || self.status.is_some()) && !is_short
    }
}

/// Returns the status of a filter, or all statuses without one.
fn statuses(status: Option<OrderStatus>) -> Vec<OrderStatus> {
    status.map_or(OrderStatus::ALL.to_vec(), |status| vec![status])
}

/// Begins the snapshot in which [`list`] runs.
pub async fn snapshot(pool: &PgPool, filter: &OrderFilter) -> Result<Transaction<'static>, sqlx::Error> {
    match filter.account_id {
        Some(_) => page::snapshot(pool).await,
        None => page::planned_snapshot(pool).await,
    }
}

/// Lists one page of orders, newest first, with the total. The caller holds the snapshot, and has read in it the changes
/// that the counts do not include, and the bounds of a list of all accounts.
pub async fn list(
    conn: &mut PgConnection,
    shard: ShardId,
    filter: &OrderFilter,
    bounds: &ListBounds,
    page: Page,
    thresholds: &Thresholds,
    uncounted: &Uncounted,
) -> Result<Listed<Order>, sqlx::Error> {
    match filter.account_id {
        Some(account) => list_of_account(conn, (shard, account), filter, page, thresholds, uncounted).await,
        None => list_of_all(conn, shard, filter, bounds, page, uncounted).await,
    }
}

/// Lists the orders of one account with page anchors and counts (see [`crate::listing`]).
async fn list_of_account(
    conn: &mut PgConnection,
    owner: (ShardId, AccountId),
    filter: &OrderFilter,
    page: Page,
    thresholds: &Thresholds,
    uncounted: &Uncounted,
) -> Result<Listed<Order>, sqlx::Error> {
    let (shard, account) = owner;
    let mut span = Span { after: 0, upto: 0, after_key: 0, upto_key: Position::MAX };
    if let Some(from) = filter.created_from {
        (span.after, span.after_key) = page_anchors::orders_before(&mut *conn, shard, account, from).await?;
    }
    if let Some(to) = filter.created_to {
        (span.upto, span.upto_key) = page_anchors::orders_before(&mut *conn, shard, account, to).await?;
    }
    let is_dated = filter.created_from.is_some() || filter.created_to.is_some();
    let status = filter.status.map(OrderStatus::as_str);
    if filter.created_to.is_none() && status.is_none() && (is_dated || filter.product_id.is_none()) {
        span.upto = ORDERS.total(&mut *conn, shard, account).await?;
    }
    let within = (span.after_key, span.upto_key);
    let (total, keys) = match (filter.product_id, status) {
        (None, None) => (span.rows(), ORDERS.keys(&mut *conn, shard, account, span, page.rows()).await?),
        (None, Some(status)) => {
            let segments = segments::of_status(&mut *conn, owner, status, within, uncounted).await?;
            let keys = segments::keys(&mut *conn, owner, status, &segments, page.rows()).await?;
            (Segment::orders_of(&segments), keys)
        }
        (Some(product), status) => {
            let groups = pages::order_groups(&mut *conn, owner, Some(product), status, uncounted).await?;
            let total = match is_dated {
                true => count_of_product(&mut *conn, owner, (product, status), (&groups, span), thresholds, uncounted).await?,
                false => Group::rows_of(&groups),
            };
            (total, ORDER_GROUPS.keys(&mut *conn, owner, &groups, within, (total, page.rows()), thresholds).await?)
        }
    };
    let query = select(
        "FROM unnest($3::bigint[]) AS wanted (wanted_position)
         JOIN orders ON shard_id = $1 AND account_id = $2 AND status = ANY($4) AND placed_position = wanted_position
         ORDER BY placed_position DESC",
    )
    .bind(shard)
    .bind(account)
    .bind(keys)
    .bind(status.map_or(page_anchors::any_status().to_vec(), |status| vec![status]));
    Ok(Listed { rows: all(query, conn).await?, total })
}

/// Counts the orders of a product within a span; `groups` are the product's groups. If the other products have
/// fewer orders, counts those and subtracts them from the total.
async fn count_of_product(
    conn: &mut PgConnection,
    owner: (ShardId, AccountId),
    (product, status): (ProductId, Option<&str>),
    (groups, span): (&[Group<ProductId>], Span),
    thresholds: &Thresholds,
    uncounted: &Uncounted,
) -> Result<i64, sqlx::Error> {
    let within = (span.after_key, span.upto_key);
    if Group::rows_of(groups) > thresholds.skipped {
        let mut others = pages::order_groups(&mut *conn, owner, None, status, uncounted).await?;
        others.retain(|group| group.id != product);
        if Group::rows_of(&others) < Group::rows_of(groups) {
            let all = match status {
                Some(status) => Segment::orders_of(&segments::of_status(&mut *conn, owner, status, within, uncounted).await?),
                None => span.rows(),
            };
            return Ok(all - ORDER_GROUPS.count(conn, owner, &others, within).await?);
        }
    }
    ORDER_GROUPS.count(conn, owner, groups, within).await
}

/// Lists the orders of all accounts, for operators. Reads the newest orders of each account and status within the bounds, up
/// to the end of the page.
async fn list_of_all(
    conn: &mut PgConnection,
    shard: ShardId,
    filter: &OrderFilter,
    bounds: &ListBounds,
    page: Page,
    uncounted: &Uncounted,
) -> Result<Listed<Order>, sqlx::Error> {
    let statuses = statuses(filter.status);
    let total = match (filter.product_id, filter.status, uncounted) {
        (None, None, _) => page_anchors::orders_of_all(&mut *conn, shard, &bounds.placed).await?,
        (product, _, Uncounted::Unknown) => count_of_all(&mut *conn, shard, (product, &statuses), &bounds.placed).await?,
        (None, Some(status), Uncounted::Moves(moves)) => {
            segments::orders_of_all(&mut *conn, shard, status, &bounds.placed, moves).await?
        }
        (Some(product), status, Uncounted::Moves(moves)) => {
            count_product_of_all(&mut *conn, shard, (product, status), bounds, moves).await?
        }
    };
    let listed = bounds.placed.start..bounds.placed.end.min(bounds.page_before);
    let mut select = QueryBuilder::new(Order::select());
    select.push(" FROM (SELECT r.id AS wanted_id, r.placed_position AS wanted_position FROM accounts a CROSS JOIN LATERAL (");
    for (n, status) in statuses.iter().enumerate() {
        select.push(if n > 0 { " UNION ALL (SELECT o.id, o.placed_position" } else { "(SELECT o.id, o.placed_position" });
        push_of_account(&mut select, shard, filter.product_id, &listed);
        page::equals(&mut select, "o.status", Some(status.as_str()));
        select.push(" ORDER BY o.placed_position DESC LIMIT ").push_bind(page.rows().end).push(")");
    }
    select.push(") AS r WHERE a.shard_id = ").push_bind(shard);
    select.push(" ORDER BY r.placed_position DESC LIMIT ").push_bind(page.size).push(" OFFSET ").push_bind(page.offset());
    select.push(") AS wanted JOIN orders ON shard_id = ").push_bind(shard);
    select.push(" AND id = wanted_id ORDER BY placed_position DESC");
    let found = select.build_query_as().persistent(false).fetch_all(conn).await?;
    Ok(Listed { rows: found.into_iter().map(|Read(order)| order).collect(), total })
}

fn push_of_account(query: &mut QueryBuilder<Postgres>, shard: ShardId, product: Option<ProductId>, within: &Range<Position>) {
    query.push(" FROM orders o WHERE o.shard_id = ").push_bind(shard);
    page::equals(query, "o.product_id", product);
    page::within(query, "o.placed_position", within);
    query.push(" AND o.account_id = a.id");
}

/// Counts the orders of all accounts that were placed within these positions, one by one.
async fn count_of_all(
    conn: &mut PgConnection,
    shard: ShardId,
    (product, statuses): (Option<ProductId>, &[OrderStatus]),
    within: &Range<Position>,
) -> Result<i64, sqlx::Error> {
    if within.is_empty() {
        return Ok(0);
    }
    let mut count =
        QueryBuilder::new("SELECT coalesce(sum(r.n), 0)::bigint FROM accounts a CROSS JOIN LATERAL (SELECT count(*) AS n");
    push_of_account(&mut count, shard, product, within);
    let statuses: Vec<_> = statuses.iter().map(|status| status.as_str()).collect();
    count.push(" AND o.status = ANY(").push_bind(statuses).push(")) AS r WHERE a.shard_id = ").push_bind(shard);
    count.build_query_scalar().persistent(false).fetch_one(conn).await
}

/// Counts the orders of a product within the bounds. Of the orders that this takes one by one, the stored counts tell the
/// number, so it takes the fewest: those within the bounds, or those outside.
async fn count_product_of_all(
    conn: &mut PgConnection,
    shard: ShardId,
    (product, status): (ProductId, Option<OrderStatus>),
    bounds: &ListBounds,
    moves: &[Move],
) -> Result<i64, sqlx::Error> {
    let statuses = statuses(status);
    let wanted = (Some(product), &*statuses);
    let ListBounds { placed, end, .. } = bounds;
    let (within, outside) = bounds.positions();
    if within < outside {
        return count_of_all(conn, shard, wanted, placed).await;
    }
    let all = pages::orders_of_all(&mut *conn, shard, product, status, moves).await?;
    let older = count_of_all(&mut *conn, shard, wanted, &(0..placed.start)).await?;
    Ok(all - older - count_of_all(conn, shard, wanted, &(placed.end..*end)).await?)
}

/// Lists the order with a given reference. A reference identifies one order of an account.
pub async fn list_by_reference(
    pool: &PgPool,
    shard: ShardId,
    filter: &OrderFilter,
    page: Page,
) -> Result<Listed<Order>, sqlx::Error> {
    // The reference code contains the id of the order.
    let id = match filter.reference_code.as_deref().map(placement::order_of_reference) {
        Some(None) => return Ok(Listed { rows: vec![], total: 0 }),
        id => id.flatten(),
    };
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM orders WHERE shard_id = ").push_bind(shard);
        page::equals(query, "id", id);
        page::equals(query, "account_id", filter.account_id);
        page::equals(query, "status", filter.status.map(OrderStatus::as_str));
        page::equals(query, "product_id", filter.product_id);
        page::equals(query, "reference_code", filter.reference_code.clone());
        page::equals(query, "client_reference", filter.client_reference.clone());
        page::equals(query, "client_reference COLLATE \"C\"", filter.client_reference.clone());
        page::between(query, "created_at", filter.created_from, filter.created_to);
    };
    page::fetch(pool, conditions, "placed_position", page).await
}
