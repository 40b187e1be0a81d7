//! `orders`: the state of every order, written inline.

use std::collections::HashSet;

use ledger_database::{PgConnection, PgPool};
use ledger_events::order::{self, Order, OrderEvent, OrderPlaced, OrderStatus, evolve};
use ledger_events::{AccountId, OrderId, Recorded, ShardId};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::state::{Row, State, first, fold, load_changed, select, state};
use crate::write::Write;
use crate::{ProjectionError, known, money, percent};

mod list;
mod queue;
mod writing;

pub use list::{ListBounds, OrderFilter, PlacedOrder, list, list_by_reference, snapshot};
pub use queue::{Queued, WaitingSince, first_in_line, oldest_waiting, waiting_for, waiting_since};
pub use writing::push;

/// Writes orders as rows: inserts `new` ones, and updates `changed` ones.
pub async fn write(conn: &mut PgConnection, shard: ShardId, new: &[&Order], changed: &[&Order]) -> Result<(), ProjectionError> {
    let mut write = Write::new();
    push(&mut write, shard, new, changed)?;
    write.execute(conn).await?;
    Ok(())
}

/// Folds the next events of the log into the table.
pub async fn apply(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ProjectionError> {
    let mut orders = load_changed::<Order>(conn, shard, events).await?;
    let stored: HashSet<OrderId> = orders.keys().copied().collect();
    for recorded in events {
        fold(&mut orders, recorded);
    }
    let (changed, new): (Vec<_>, Vec<_>) = orders.values().partition(|order| stored.contains(&order.id));
    write(conn, shard, &new, &changed).await
}

impl Row for Order {
    const COLUMNS: &'static str =
        "id, version, placed_position, placed_event_id, last_event_id, account_id, reference_code, client_reference,
         product_id, product_name, currency, denomination, quantity, face_value, discount, discount_amount, amount,
         wallet_id, transaction_id, metadata_hash, status, sub_status, is_queued, delivered_quantity, items,
         delivered_on, cancelled_on, refunded_amount, created_at, updated_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let status: &str = row.try_get("status")?;
        let sub_status: &str = row.try_get("sub_status")?;
        let currency: &str = row.try_get("currency")?;
        Ok(Order {
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
        })
    }
}

impl State for Order {
    state!(OrderId, OrderEvent, Order, evolve, "orders");
}

/// Finds one order. Returns `None` if it is unknown, or belongs to an account other than `account`.
pub async fn find(pool: &PgPool, shard: ShardId, id: OrderId, account: Option<AccountId>) -> Result<Option<Order>, sqlx::Error> {
    let found: Option<Order> = first(select("FROM orders WHERE shard_id = $1 AND id = $2").bind(shard).bind(id), pool).await?;
    Ok(found.filter(|order| account.is_none_or(|account| order.placed.account_id == account)))
}
