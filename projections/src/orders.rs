//! `orders`: the state of every order, written inline.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool, Transaction};
use ledger_events::order::{self, Order, OrderPlaced, OrderStatus, evolve};
use ledger_events::{AccountId, Event, OrderId, Position, ProductId, Recorded, ShardId, placement};
use rust_decimal::Decimal;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};
use uuid::Uuid;

use crate::listing::marks::{self, ORDERS, Span};
use crate::listing::moves::Uncounted;
use crate::listing::pages::{self, Group, ORDER_GROUPS, Thresholds};
use crate::listing::stretches::{self, Stretch};
use crate::page::{self, Listed, Page};
use crate::write::Write;
use crate::{ProjectionError, known, money, percent};

mod writing;

pub use writing::push;

/// The columns of [`OrderRow`], as a literal for `concat!`.
macro_rules! order_columns {
    () => {
        "id, version, placed_position, placed_event_id, last_event_id, account_id, reference_code,
         client_reference, product_id, product_name, currency, denomination, quantity, face_value, discount,
         discount_amount, amount, wallet_id, transaction_id, metadata_hash, status, sub_status, is_queued,
         delivered_quantity, items, delivered_on, cancelled_on, refunded_amount, created_at, updated_at"
    };
}

/// Loads orders by id. Skips unknown ids.
pub async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[OrderId]) -> Result<Vec<Order>, sqlx::Error> {
    rows(
        sqlx::query_as(concat!(
            "SELECT ",
            order_columns!(),
            " FROM unnest($2::bigint[]) AS wanted (wanted_id) JOIN orders ON shard_id = $1 AND id = wanted_id"
        ))
        .bind(shard)
        .bind(ids)
        .fetch_all(conn)
        .await?,
    )
}

/// Loads the orders with these (account, `client_reference`) pairs.
pub async fn load_by_client_reference(
    conn: &mut PgConnection,
    shard: ShardId,
    accounts: &[AccountId],
    references: &[&str],
) -> Result<Vec<Order>, sqlx::Error> {
    rows(
        sqlx::query_as(concat!(
            "SELECT ",
            order_columns!(),
            " FROM unnest($2::bigint[], $3::text[]) AS wanted (wanted_account, wanted_reference)
             JOIN orders ON shard_id = $1 AND account_id = wanted_account AND client_reference = wanted_reference
                AND client_reference COLLATE \"C\" = wanted_reference"
        ))
        .bind(shard)
        .bind(accounts)
        .bind(references)
        .fetch_all(conn)
        .await?,
    )
}

/// Loads orders in id order, after an id. `verify` compares them with the fold.
pub async fn after(conn: &mut PgConnection, shard: ShardId, id: OrderId, limit: i64) -> Result<Vec<Order>, sqlx::Error> {
    rows(
        sqlx::query_as(concat!("SELECT ", order_columns!(), " FROM orders WHERE shard_id = $1 AND id > $2 ORDER BY id LIMIT $3"))
            .bind(shard)
            .bind(id)
            .bind(limit)
            .fetch_all(conn)
            .await?,
    )
}

fn rows(rows: Vec<OrderRow>) -> Result<Vec<Order>, sqlx::Error> {
    Ok(rows.into_iter().map(|row| row.0).collect())
}

/// Writes orders as rows: inserts `new` ones, and updates `changed` ones.
pub async fn write(conn: &mut PgConnection, shard: ShardId, new: &[&Order], changed: &[&Order]) -> Result<(), ProjectionError> {
    let mut write = Write::new();
    push(&mut write, shard, new, changed)?;
    write.execute(conn).await?;
    Ok(())
}

/// Folds the next events of the log into the table.
pub async fn apply(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ProjectionError> {
    let mut known = Vec::new();
    let mut seen = HashSet::new();
    for recorded in events.iter().filter(|r| matches!(r.event, Event::Order(_))) {
        if seen.insert(recorded.stream_id) && recorded.moment.version > 1 {
            known.push(recorded.stream_id);
        }
    }
    let mut orders: HashMap<OrderId, Order> = HashMap::with_capacity(seen.len());
    let mut stored = HashSet::new();
    if !known.is_empty() {
        orders.extend(load(conn, shard, &known).await?.into_iter().map(|o| (o.id, o)));
        stored.extend(orders.keys().copied());
    }
    for recorded in events {
        if let Event::Order(event) = &recorded.event {
            fold(&mut orders, recorded, event);
        }
    }
    let (changed, new): (Vec<_>, Vec<_>) = orders.values().partition(|order| stored.contains(&order.id));
    write(conn, shard, &new, &changed).await
}

/// Folds one event into a map of orders.
pub fn fold(orders: &mut HashMap<OrderId, Order>, recorded: &Recorded, event: &order::OrderEvent) {
    let before = orders.remove(&recorded.stream_id);
    if let Some(after) = evolve(before, recorded.stream_id, event, &recorded.moment) {
        orders.insert(recorded.stream_id, after);
    }
}

struct OrderRow(Order);

impl FromRow<'_, PgRow> for OrderRow {
    fn from_row(row: &PgRow) -> Result<OrderRow, sqlx::Error> {
        let status: &str = row.try_get("status")?;
        let sub_status: &str = row.try_get("sub_status")?;
        let currency: &str = row.try_get("currency")?;
        Ok(OrderRow(Order {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            placed_position: row.try_get("placed_position")?,
            placed_event_id: row.try_get::<Uuid, _>("placed_event_id")?,
            placed: OrderPlaced {
                account_id: row.try_get("account_id")?,
                reference_code: row.try_get("reference_code")?,
                client_reference: row.try_get("client_reference")?,
                product_id: row.try_get("product_id")?,
                product_name: row.try_get("product_name")?,
                currency: known(currency.parse().ok(), currency)?,
                denomination: money(row.try_get("denomination")?)?,
                quantity: row.try_get("quantity")?,
                face_value: money(row.try_get("face_value")?)?,
                discount: percent(row.try_get("discount")?)?,
                discount_amount: money(row.try_get("discount_amount")?)?,
                amount: money(row.try_get("amount")?)?,
                wallet_id: row.try_get("wallet_id")?,
                transaction_id: row.try_get("transaction_id")?,
                metadata_hash: row.try_get("metadata_hash")?,
            },
            status: known(OrderStatus::parse(status), status)?,
            sub_status: known(order::sub_status(sub_status), sub_status)?,
            is_queued: row.try_get("is_queued")?,
            delivered_quantity: row.try_get("delivered_quantity")?,
            items: row.try_get::<sqlx::types::Json<_>, _>("items")?.0,
            delivered_on: row.try_get("delivered_on")?,
            cancelled_on: row.try_get("cancelled_on")?,
            refunded_amount: money(row.try_get("refunded_amount")?)?,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
            last_event_id: row.try_get("last_event_id")?,
        }))
    }
}

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
}

impl OrderFilter {
    /// Whether the filter names an order by a reference. Then [`list_by_reference`] finds it.
    pub fn has_reference(&self) -> bool {
        self.reference_code.is_some() || self.client_reference.is_some()
    }

    /// Whether the page may need the counts of orders.
    pub fn needs_counts(&self) -> bool {
        self.account_id.is_none() || self.product_id.is_some() || self.status.is_some()
    }
}

/// Begins the snapshot in which [`list`] runs.
pub async fn snapshot(pool: &PgPool, filter: &OrderFilter) -> Result<Transaction<'static>, sqlx::Error> {
    match filter.account_id {
        Some(_) => page::snapshot(pool).await,
        None => page::planned_snapshot(pool).await,
    }
}

/// Lists one page of orders, newest first, with the total. The caller holds the snapshot, and has read in it the changes
/// that the counts do not include.
pub async fn list(
    conn: &mut PgConnection,
    shard: ShardId,
    filter: &OrderFilter,
    page: Page,
    thresholds: &Thresholds,
    uncounted: &Uncounted,
) -> Result<Listed<Order>, sqlx::Error> {
    match filter.account_id {
        Some(account) => list_of_account(conn, (shard, account), filter, page, thresholds, uncounted).await,
        None => list_of_all(conn, shard, filter, page, uncounted).await,
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
        (span.after, span.after_key) = marks::orders_before(&mut *conn, shard, account, from).await?;
    }
    if let Some(to) = filter.created_to {
        (span.upto, span.upto_key) = marks::orders_before(&mut *conn, shard, account, to).await?;
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
            let stretches = stretches::of_status(&mut *conn, owner, status, within, uncounted).await?;
            let keys = stretches::keys(&mut *conn, owner, status, &stretches, page.rows()).await?;
            (Stretch::orders_of(&stretches), keys)
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
    let found = rows(
        sqlx::query_as(concat!(
            "SELECT ",
            order_columns!(),
            " FROM unnest($3::bigint[]) AS wanted (wanted_position)
             JOIN orders ON shard_id = $1 AND account_id = $2 AND status = ANY($4) AND placed_position = wanted_position
             ORDER BY placed_position DESC"
        ))
        .bind(shard)
        .bind(account)
        .bind(keys)
        .bind(status.map_or(marks::any_status().to_vec(), |status| vec![status]))
        .fetch_all(conn)
        .await?,
    )?;
    Ok(Listed { rows: found, total })
}

/// Counts the orders of a product within a span; `groups` are the product's groups. If the other products have
/// fewer orders, counts those and subtracts them from the total.
async fn count_of_product(
    conn: &mut PgConnection,
    owner: (ShardId, AccountId),
    (product, status): (ProductId, Option<&str>),
    (groups, span): (&[Group], Span),
    thresholds: &Thresholds,
    uncounted: &Uncounted,
) -> Result<i64, sqlx::Error> {
    let within = (span.after_key, span.upto_key);
    if Group::rows_of(groups) > thresholds.skipped {
        let mut others = pages::order_groups(&mut *conn, owner, None, status, uncounted).await?;
        others.retain(|group| group.id != product);
        if Group::rows_of(&others) < Group::rows_of(groups) {
            let all = match status {
                Some(status) => Stretch::orders_of(&stretches::of_status(&mut *conn, owner, status, within, uncounted).await?),
                None => span.rows(),
            };
            return Ok(all - ORDER_GROUPS.count(conn, owner, &others, within).await?);
        }
    }
    ORDER_GROUPS.count(conn, owner, groups, within).await
}

/// Lists the orders of all accounts, for operators. Reads the newest orders of each account and status, up to the
/// end of the page. Without dates, the total comes from the counts.
async fn list_of_all(
    conn: &mut PgConnection,
    shard: ShardId,
    filter: &OrderFilter,
    page: Page,
    uncounted: &Uncounted,
) -> Result<Listed<Order>, sqlx::Error> {
    let status = filter.status.map(OrderStatus::as_str);
    let matching = |query: &mut QueryBuilder<Postgres>, status: Option<&'static str>| {
        query.push(" FROM orders o WHERE o.shard_id = ").push_bind(shard);
        page::equals(query, "o.status", status);
        page::equals(query, "o.product_id", filter.product_id);
        page::between(query, "o.created_at", filter.created_from, filter.created_to);
    };
    let total = if filter.created_from.is_none() && filter.created_to.is_none() {
        pages::orders_of_all(&mut *conn, shard, filter.product_id, status, uncounted).await?
    } else {
        let mut count = QueryBuilder::new("SELECT count(*)");
        matching(&mut count, status);
        count.build_query_scalar().persistent(false).fetch_one(&mut *conn).await?
    };
    let mut select = QueryBuilder::new(concat!(
        "SELECT ",
        order_columns!(),
        " FROM (SELECT r.id AS wanted_id, r.placed_position AS wanted_position FROM accounts a CROSS JOIN LATERAL ("
    ));
    for (n, of) in marks::any_status().into_iter().filter(|of| status.is_none_or(|status| status == *of)).enumerate() {
        select.push(if n > 0 { " UNION ALL (SELECT o.id, o.placed_position" } else { "(SELECT o.id, o.placed_position" });
        matching(&mut select, Some(of));
        if let Some(from) = filter.created_from {
            // Skips everything before the last anchor older than `from`: an order's time never decreases with its
            // position.
            select
                .push(" AND o.placed_position > coalesce((SELECT m.key FROM order_marks m WHERE m.shard_id = ")
                .push_bind(shard);
            select.push(" AND m.account_id = a.id AND m.created_at < ").push_bind(from);
            select.push(" ORDER BY m.created_at DESC, m.ordinal DESC LIMIT 1), 0)");
        }
        select.push(" AND o.account_id = a.id ORDER BY o.placed_position DESC LIMIT ").push_bind(page.rows().end).push(")");
    }
    select.push(") AS r WHERE a.shard_id = ").push_bind(shard);
    select.push(" ORDER BY r.placed_position DESC LIMIT ").push_bind(page.size).push(" OFFSET ").push_bind(page.offset());
    select.push(") AS wanted JOIN orders ON shard_id = ").push_bind(shard);
    select.push(" AND id = wanted_id ORDER BY placed_position DESC");
    let found = rows(select.build_query_as().persistent(false).fetch_all(conn).await?)?;
    Ok(Listed { rows: found, total })
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
    let listed: Listed<OrderRow> = page::fetch(pool, order_columns!(), conditions, "placed_position", page).await?;
    Ok(listed.map(|row| row.0))
}

/// Finds one order. Returns `None` if it is unknown, or belongs to an account other than `account`.
pub async fn find(pool: &PgPool, shard: ShardId, id: OrderId, account: Option<AccountId>) -> Result<Option<Order>, sqlx::Error> {
    let found: Option<OrderRow> =
        sqlx::query_as(concat!("SELECT ", order_columns!(), " FROM orders WHERE shard_id = $1 AND id = $2"))
            .bind(shard)
            .bind(id)
            .fetch_optional(pool)
            .await?;
    Ok(found.map(|row| row.0).filter(|order| account.is_none_or(|account| order.placed.account_id == account)))
}

/// An order that waits for vouchers.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct Queued {
    pub id: OrderId,
    pub placed_position: Position,
    /// Number of undelivered units.
    pub missing: i32,
}

/// Lists what started orders still wait for: each (product, denomination) pair once.
pub async fn waiting_for(pool: &PgPool, shard: ShardId) -> Result<Vec<(ProductId, Decimal)>, sqlx::Error> {
    // Loose index scan: one step per pair, however many orders wait.
    sqlx::query_as(
        "WITH RECURSIVE pairs AS (
            (SELECT product_id, denomination FROM orders
             WHERE shard_id = $1 AND is_queued AND status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED')
             ORDER BY product_id, denomination LIMIT 1)
            UNION ALL
            SELECT next.product_id, next.denomination FROM pairs CROSS JOIN LATERAL
            (SELECT product_id, denomination FROM orders
             WHERE shard_id = $1 AND is_queued AND status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED')
               AND (product_id, denomination) > (pairs.product_id, pairs.denomination)
             ORDER BY product_id, denomination LIMIT 1) AS next)
         SELECT product_id, denomination FROM pairs",
    )
    .bind(shard)
    .fetch_all(pool)
    .await
}

/// Lists the oldest started orders that wait for one product and denomination.
pub async fn oldest_waiting(
    pool: &PgPool,
    shard: ShardId,
    product: ProductId,
    denomination: Decimal,
    limit: i64,
) -> Result<Vec<Queued>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, placed_position, quantity - delivered_quantity AS missing FROM orders
         WHERE shard_id = $1 AND is_queued AND status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED')
           AND product_id = $2 AND denomination = $3 ORDER BY placed_position LIMIT $4",
    )
    .bind(shard)
    .bind(product)
    .bind(denomination)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// Finds, for each (product, denomination), the oldest started order that still waits, except the orders in
/// `except`. No younger order may be served before it.
pub async fn first_in_line(
    conn: &mut PgConnection,
    shard: ShardId,
    products: &[ProductId],
    denominations: &[Decimal],
    except: &[OrderId],
) -> Result<Vec<(ProductId, Decimal, Position)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT wanted.product_id, wanted.denomination, first.placed_position
         FROM unnest($2::bigint[], $3::numeric[]) AS wanted (product_id, denomination)
         CROSS JOIN LATERAL
            (SELECT o.placed_position FROM orders o
             WHERE o.shard_id = $1 AND o.is_queued AND o.status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED')
               AND o.product_id = wanted.product_id AND o.denomination = wanted.denomination AND o.id <> ALL($4)
             ORDER BY o.placed_position LIMIT 1) AS first",
    )
    .bind(shard)
    .bind(products)
    .bind(denominations)
    .bind(except)
    .fetch_all(conn)
    .await
}
