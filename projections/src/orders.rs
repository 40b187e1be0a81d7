//! `orders`: the state of every order, written inline.

use std::collections::{HashMap, HashSet};

use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool};
use ledger_events::order::{self, Order, OrderPlaced, OrderStatus, evolve};
use ledger_events::{AccountId, Event, OrderId, Recorded, ShardId};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::write::Write;
use crate::{ProjectionError, known, money, percent};

mod list;
mod queue;
mod writing;

pub use list::{OrderFilter, list, list_by_reference, snapshot};
pub use queue::{Queued, first_in_line, oldest_waiting, waiting_for};
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

use order_columns;

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
