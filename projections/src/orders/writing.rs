//! Orders as rows of the writer's single statement.

use chrono::{DateTime, Utc};
use ledger_events::order::Order;
use ledger_events::{AccountId, Money, OrderId, Position, ProductId, ShardId, TransactionId, WalletId};
use rust_decimal::Decimal;
use uuid::Uuid;

use crate::row_type;
use crate::write::{JsonText, Write};

/// Adds orders to a statement that writes other tables too: inserts `new` ones, and updates `changed` ones.
pub fn push(write: &mut Write, shard: ShardId, new: &[&Order], changed: &[&Order]) -> Result<(), serde_json::Error> {
    let new = new.iter().map(|order| NewRow::of(shard, order)).collect::<Result<Vec<_>, _>>()?;
    write.insert(
        "orders (shard_id, id, version, placed_position, placed_event_id, last_event_id, account_id, reference_code,
            client_reference, product_id, product_name, currency, denomination, quantity, face_value, discount,
            discount_amount, amount, wallet_id, transaction_id, metadata_hash, status, sub_status, is_queued,
            delivered_quantity, items, delivered_on, cancelled_on, refunded_amount, created_at, updated_at)",
        &new,
        "",
    );
    let changed = changed.iter().map(|order| Change::of(shard, order)).collect::<Result<Vec<_>, _>>()?;
    write.update(
        "UPDATE orders o SET version = r.version, last_event_id = r.last_event_id, status = r.status,
            sub_status = r.sub_status, is_queued = r.is_queued, delivered_quantity = r.delivered_quantity,
            items = r.items, delivered_on = r.delivered_on, cancelled_on = r.cancelled_on,
            refunded_amount = r.refunded_amount, updated_at = r.updated_at",
        &changed,
        "WHERE o.shard_id = r.shard_id AND o.id = r.id",
    );
    Ok(())
}

row_type! {
    /// A complete row of `orders`, for an insert.
    struct NewRow<'a> as "public.order_row" {
        shard_id: ShardId,
        id: OrderId,
        version: i64,
        placed_position: Position,
        placed_event_id: Uuid,
        last_event_id: Uuid,
        account_id: AccountId,
        reference_code: &'a str,
        client_reference: Option<&'a str>,
        product_id: ProductId,
        product_name: &'a str,
        currency: &'a str,
        denomination: Decimal,
        quantity: i32,
        face_value: Decimal,
        discount: Decimal,
        discount_amount: Decimal,
        amount: Decimal,
        wallet_id: WalletId,
        transaction_id: TransactionId,
        metadata_hash: Option<&'a str>,
        status: &'a str,
        sub_status: &'a str,
        is_queued: bool,
        delivered_quantity: i32,
        items: JsonText<'a>,
        delivered_on: Option<DateTime<Utc>>,
        cancelled_on: Option<DateTime<Utc>>,
        refunded_amount: Decimal,
        created_at: DateTime<Utc>,
        updated_at: DateTime<Utc>,
    }
}

impl<'a> NewRow<'a> {
    fn of(shard_id: ShardId, order: &'a Order) -> Result<NewRow<'a>, serde_json::Error> {
        let placed = &order.placed;
        Ok(NewRow {
            shard_id,
            id: order.id,
            version: order.version,
            placed_position: order.placed_position,
            placed_event_id: order.placed_event_id,
            last_event_id: order.last_event_id,
            account_id: placed.account_id,
            reference_code: &placed.reference_code,
            client_reference: placed.client_reference.as_deref(),
            product_id: placed.product_id,
            product_name: &placed.product_name,
            currency: placed.currency.as_str(),
            denomination: placed.denomination.decimal(),
            quantity: placed.quantity,
            face_value: placed.face_value.decimal(),
            discount: Money::from(placed.discount).decimal(),
            discount_amount: placed.discount_amount.decimal(),
            amount: placed.amount.decimal(),
            wallet_id: placed.wallet_id,
            transaction_id: placed.transaction_id,
            metadata_hash: placed.metadata_hash.as_deref(),
            status: order.status.as_str(),
            sub_status: order.sub_status,
            is_queued: order.is_queued,
            delivered_quantity: order.delivered_quantity,
            items: items(order)?,
            delivered_on: order.delivered_on,
            cancelled_on: order.cancelled_on,
            refunded_amount: order.refunded_amount.decimal(),
            created_at: order.created_at,
            updated_at: order.updated_at,
        })
    }
}

row_type! {
    /// The mutable columns of a row, for an update.
    struct Change<'a> as "public.order_change" {
        shard_id: ShardId,
        id: OrderId,
        version: i64,
        last_event_id: Uuid,
        status: &'a str,
        sub_status: &'a str,
        is_queued: bool,
        delivered_quantity: i32,
        items: JsonText<'a>,
        delivered_on: Option<DateTime<Utc>>,
        cancelled_on: Option<DateTime<Utc>>,
        refunded_amount: Decimal,
        updated_at: DateTime<Utc>,
    }
}

impl<'a> Change<'a> {
    fn of(shard_id: ShardId, order: &'a Order) -> Result<Change<'a>, serde_json::Error> {
        Ok(Change {
            shard_id,
            id: order.id,
            version: order.version,
            last_event_id: order.last_event_id,
            status: order.status.as_str(),
            sub_status: order.sub_status,
            is_queued: order.is_queued,
            delivered_quantity: order.delivered_quantity,
            items: items(order)?,
            delivered_on: order.delivered_on,
            cancelled_on: order.cancelled_on,
            refunded_amount: order.refunded_amount.decimal(),
            updated_at: order.updated_at,
        })
    }
}

fn items<'a>(order: &Order) -> Result<JsonText<'a>, serde_json::Error> {
    let text = if order.items.is_empty() { "[]".into() } else { serde_json::to_string(&order.items)?.into() };
    Ok(JsonText(text))
}
