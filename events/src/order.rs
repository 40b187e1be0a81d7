//! The order stream: from placed to delivered or cancelled.
//!
//! The contract's table "Order states" defines the states and transitions. DELIVERED and CANCELLED are final.

use chrono::{DateTime, Utc};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use crate::erasure::PersonalDataErased;
use crate::price::refund_due;
use crate::{AccountId, Currency, Moment, Money, OrderId, Percent, Position, ProductId, Rejection, TransactionId, WalletId};

/// A new order, priced, paid from the wallet and accepted. Contains the inputs of the price, so that an auditor
/// can compute it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderPlaced {
    pub account_id: AccountId,
    pub reference_code: String,
    pub client_reference: Option<String>,
    pub product_id: ProductId,
    pub product_name: String,
    pub currency: Currency,
    pub denomination: Money,
    pub quantity: i32,
    pub face_value: Money,
    pub discount: Percent,
    pub discount_amount: Money,
    pub amount: Money,
    pub wallet_id: WalletId,
    pub transaction_id: TransactionId,
    /// SHA-256 (hex) over a salt and the client's metadata. The vault stores both.
    pub metadata_hash: Option<String>,
}

/// Start of fulfilment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderQueued {}

/// A first allocation attempt that found no stock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderDelayed {}

/// A delivery of some units. The rest waits for stock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderPartiallyDelivered {
    /// `voucher_reference_number` of each unit in this delivery.
    pub vouchers: Vec<String>,
}

/// The delivery of the last units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderDelivered {
    /// `voucher_reference_number` of each unit in this delivery.
    pub vouchers: Vec<String>,
}

/// A cancellation, with a refund of the undelivered units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderCancelled {
    pub by: CancelledBy,
    pub refunded_amount: Money,
    /// Id of the refund's wallet movement. `None` if nothing was left to refund.
    pub transaction_id: Option<TransactionId>,
    /// SHA-256 (hex) over a salt and the reason. The vault stores both.
    pub reason_hash: Option<String>,
}

/// A read of the order's voucher codes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VouchersRevealed {
    pub units: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CancelledBy {
    Client,
    Operator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OrderStatus {
    Pending,
    Delayed,
    PartiallyDelivered,
    Delivered,
    Cancelled,
}

impl OrderStatus {
    pub const ALL: [OrderStatus; 5] = [Self::Pending, Self::Delayed, Self::PartiallyDelivered, Self::Delivered, Self::Cancelled];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Delayed => "DELAYED",
            Self::PartiallyDelivered => "PARTIALLY_DELIVERED",
            Self::Delivered => "DELIVERED",
            Self::Cancelled => "CANCELLED",
        }
    }

    pub fn parse(text: &str) -> Option<OrderStatus> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    pub fn is_final(self) -> bool {
        matches!(self, Self::Delivered | Self::Cancelled)
    }
}

/// One delivery of units. An order that is delivered in parts has several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderItem {
    pub delivered_on: DateTime<Utc>,
    pub vouchers: Vec<String>,
}

/// Text of [`SUB_STATUSES`].
pub type SubStatus = &'static str;

/// State of an order: the fold of its stream, and the row of the table `orders`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    pub id: OrderId,
    pub version: i64,
    /// Position of `OrderPlaced`. It determines the place in the fulfilment queue.
    pub placed_position: Position,
    /// Event id of `OrderPlaced`: the correlation id of all later events.
    pub placed_event_id: Uuid,
    pub placed: OrderPlaced,
    pub status: OrderStatus,
    /// One of [`SUB_STATUSES`]; empty if there is none.
    #[serde(deserialize_with = "known_sub_status")]
    pub sub_status: SubStatus,
    /// True once fulfilment has started on the order.
    pub is_queued: bool,
    pub delivered_quantity: i32,
    pub items: Vec<OrderItem>,
    pub delivered_on: Option<DateTime<Utc>>,
    pub cancelled_on: Option<DateTime<Utc>>,
    pub refunded_amount: Money,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub last_event_id: Uuid,
}

impl Order {
    pub fn is_waiting(&self) -> bool {
        !self.status.is_final()
    }

    pub fn undelivered_quantity(&self) -> i32 {
        self.placed.quantity - self.delivered_quantity
    }
}

/// All sub-statuses (contract, "Order states").
pub const SUB_STATUSES: [&str; 6] =
    ["", "OUT_OF_STOCK", "AWAITING_REMAINDER", "CANCELLED_BY_CLIENT", "CANCELLED_BY_OPERATOR", "REMAINDER_CANCELLED"];

fn known_sub_status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SubStatus, D::Error> {
    let text = String::deserialize(deserializer)?;
    sub_status(&text).ok_or_else(|| D::Error::custom("an unknown sub-status"))
}

/// Returns the sub-status with this text, if it exists.
pub fn sub_status(text: &str) -> Option<&'static str> {
    SUB_STATUSES.into_iter().find(|known| *known == text)
}

#[derive(Clone, Debug, PartialEq)]
pub enum OrderCommand {
    /// Allocates these vouchers. With fewer vouchers than undelivered units, or none, the order keeps waiting.
    Fulfil {
        vouchers: Vec<String>,
    },
    /// Cancels the order. `refund_transaction_id` becomes the id of the refund's movement, if there is something
    /// to refund.
    Cancel {
        by: CancelledBy,
        refund_transaction_id: TransactionId,
        reason_hash: Option<String>,
    },
    RevealVouchers,
}

/// Decides a command on an existing order. [`crate::placement::place`] decides new orders.
pub fn decide(order: &Order, command: OrderCommand) -> Result<Vec<OrderEvent>, Rejection> {
    match command {
        OrderCommand::Fulfil { vouchers } => {
            // A final order needs nothing more. Fulfilment may act on an outdated view, so this is no error.
            if order.status.is_final() {
                return Ok(vec![]);
            }
            let mut events = vec![];
            if !order.is_queued {
                events.push(OrderQueued {}.into());
            }
            let missing = order.undelivered_quantity();
            match i32::try_from(vouchers.len()).unwrap_or(i32::MAX) {
                0 if order.status == OrderStatus::Pending => events.push(OrderDelayed {}.into()),
                0 => {}
                n if n < missing => events.push(OrderPartiallyDelivered { vouchers }.into()),
                n if n == missing => events.push(OrderDelivered { vouchers }.into()),
                _ => return Err(Rejection::Conflict("the command has more vouchers than the order has undelivered units")),
            }
            Ok(events)
        }
        OrderCommand::Cancel { by, refund_transaction_id, reason_hash } => {
            if order.status.is_final() {
                return Err(Rejection::OrderNotCancellable);
            }
            let refunded_amount = refund_due(order.placed.amount, order.delivered_quantity, order.placed.quantity)
                .map_err(|_| Rejection::Conflict("the refund is out of range"))?;
            let transaction_id = refunded_amount.is_positive().then_some(refund_transaction_id);
            Ok(vec![OrderCancelled { by, refunded_amount, transaction_id, reason_hash }.into()])
        }
        OrderCommand::RevealVouchers => Ok(vec![VouchersRevealed { units: order.delivered_quantity }.into()]),
    }
}

/// Folds an event into the state. This is the only fold of the order stream. Returns `None` only before
/// `OrderPlaced`.
///
/// An event that cannot follow leaves the state unchanged, as in a stream that starts with anything but
/// `OrderPlaced`. The log is the source of truth, and `verify` reports such a stream.
pub fn evolve(state: Option<Order>, id: OrderId, event: &OrderEvent, at: &Moment) -> Option<Order> {
    let mut order = match (state, event) {
        (None, OrderEvent::OrderPlaced(placed)) => {
            return Some(Order {
                id,
                version: at.version,
                placed_position: at.position,
                placed_event_id: at.event_id,
                placed: placed.clone(),
                status: OrderStatus::Pending,
                sub_status: "",
                is_queued: false,
                delivered_quantity: 0,
                items: vec![],
                delivered_on: None,
                cancelled_on: None,
                refunded_amount: Money::ZERO,
                created_at: at.recorded_at,
                updated_at: at.recorded_at,
                last_event_id: at.event_id,
            });
        }
        (None, _) => return None,
        (Some(order), _) => order,
    };
    match event {
        OrderEvent::OrderPlaced(_) => return Some(order),
        OrderEvent::OrderQueued(_) => order.is_queued = true,
        OrderEvent::OrderDelayed(_) => {
            order.status = OrderStatus::Delayed;
            order.sub_status = "OUT_OF_STOCK";
        }
        OrderEvent::OrderPartiallyDelivered(e) => {
            deliver(&mut order, &e.vouchers, at);
            order.status = OrderStatus::PartiallyDelivered;
            order.sub_status = "AWAITING_REMAINDER";
        }
        OrderEvent::OrderDelivered(e) => {
            deliver(&mut order, &e.vouchers, at);
            order.status = OrderStatus::Delivered;
            order.sub_status = "";
            order.delivered_on = Some(at.recorded_at);
        }
        OrderEvent::OrderCancelled(e) => {
            order.sub_status = match e.by {
                _ if order.delivered_quantity > 0 => "REMAINDER_CANCELLED",
                CancelledBy::Client => "CANCELLED_BY_CLIENT",
                CancelledBy::Operator => "CANCELLED_BY_OPERATOR",
            };
            order.status = OrderStatus::Cancelled;
            order.cancelled_on = Some(at.recorded_at);
            order.refunded_amount = e.refunded_amount;
        }
        // Reading codes changes no visible field, and erased data was never part of the state.
        OrderEvent::VouchersRevealed(_) | OrderEvent::PersonalDataErased(_) => {
            order.version = at.version;
            order.last_event_id = at.event_id;
            return Some(order);
        }
    }
    order.version = at.version;
    order.updated_at = at.recorded_at;
    order.last_event_id = at.event_id;
    Some(order)
}

fn deliver(order: &mut Order, vouchers: &[String], at: &Moment) {
    order.delivered_quantity += i32::try_from(vouchers.len()).unwrap_or(i32::MAX);
    order.items.push(OrderItem { delivered_on: at.recorded_at, vouchers: vouchers.to_vec() });
}

crate::codec::stream_events! {
    /// Events of an order.
    OrderEvent {
        OrderPlaced = 1,
        OrderQueued = 1,
        OrderDelayed = 1,
        OrderPartiallyDelivered = 1,
        OrderDelivered = 1,
        OrderCancelled = 1,
        VouchersRevealed = 1,
        PersonalDataErased = 1,
    }
}

#[cfg(test)]
mod tests;
