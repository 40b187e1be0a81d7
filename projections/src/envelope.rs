//! The webhook envelope (specification, "Event envelope" and "Order data carried in events").

use chrono::{DateTime, SecondsFormat, Utc};
use ledger_events::order::Order;
use ledger_events::webhook::WebhookEventType;
use ledger_events::{Money, OrderId};
use serde::{Serialize, Serializer};
use uuid::Uuid;

/// Formats a time as ISO 8601 in UTC, with milliseconds and `Z`. Clients see all times in this form.
pub fn iso8601(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn time<S: Serializer>(time: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&iso8601(*time))
}

fn optional_time<S: Serializer>(time: &Option<DateTime<Utc>>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(at) => serializer.serialize_str(&iso8601(*at)),
        None => serializer.serialize_none(),
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    event_id: Uuid,
    event_type: WebhookEventType,
    #[serde(serialize_with = "time")]
    created_at: DateTime<Utc>,
    data: OrderData<'a>,
}

#[derive(Serialize)]
struct OrderData<'a> {
    id: OrderId,
    reference_code: &'a str,
    status: &'a str,
    sub_status: &'a str,
    product_name: &'a str,
    denomination: Money,
    quantity: i32,
    amount: Money,
    delivered_quantity: i32,
    #[serde(serialize_with = "optional_time")]
    delivered_on: Option<DateTime<Utc>>,
    #[serde(serialize_with = "time")]
    created_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    order_items: Option<Vec<Item<'a>>>,
}

#[derive(Serialize)]
struct Item<'a> {
    status: &'static str,
    #[serde(serialize_with = "time")]
    delivered_on: DateTime<Utc>,
    vouchers: Vec<Voucher<'a>>,
}

#[derive(Serialize)]
struct Voucher<'a> {
    voucher_reference_number: &'a str,
}

/// Builds the bytes of a test delivery's envelope. Its order does not exist, and has the state that the event type
/// implies (contract, "Webhooks": `data.id` 0, `reference_code` "TEST").
pub fn test_payload(
    event_id: Uuid,
    event_type: WebhookEventType,
    recorded_at: DateTime<Utc>,
) -> Result<String, serde_json::Error> {
    let (status, sub_status, quantity, delivered_quantity) = match event_type {
        WebhookEventType::OrderCreated | WebhookEventType::OrderPending => ("PENDING", "", 1, 0),
        WebhookEventType::OrderDelivered => ("DELIVERED", "", 1, 1),
        WebhookEventType::OrderPartiallyDelivered => ("PARTIALLY_DELIVERED", "AWAITING_REMAINDER", 2, 1),
        WebhookEventType::OrderCancelled => ("CANCELLED", "CANCELLED_BY_CLIENT", 1, 0),
    };
    let money = |cents| Money::from_cents(cents).map_err(serde::ser::Error::custom);
    let item =
        || Item { status: "DELIVERED", delivered_on: recorded_at, vouchers: vec![Voucher { voucher_reference_number: "TEST" }] };
    serde_json::to_string(&Envelope {
        event_id,
        event_type,
        created_at: recorded_at,
        data: OrderData {
            id: OrderId(0),
            reference_code: "TEST",
            status,
            sub_status,
            product_name: "Test product",
            denomination: money(10_00)?,
            quantity,
            amount: money(10_00 * i64::from(quantity))?,
            delivered_quantity,
            delivered_on: (delivered_quantity == quantity).then_some(recorded_at),
            created_at: recorded_at,
            order_items: (delivered_quantity > 0).then(|| vec![item()]),
        },
    })
}

/// Builds the bytes of the envelope for an order in its state right after the event. The envelope is built once,
/// then stored, signed and sent unchanged.
pub fn payload(
    event_id: Uuid,
    event_type: WebhookEventType,
    recorded_at: DateTime<Utc>,
    order: &Order,
) -> Result<String, serde_json::Error> {
    let carries_items = matches!(event_type, WebhookEventType::OrderDelivered | WebhookEventType::OrderPartiallyDelivered);
    serde_json::to_string(&Envelope {
        event_id,
        event_type,
        created_at: recorded_at,
        data: OrderData {
            id: order.id,
            reference_code: &order.placed.reference_code,
            status: order.status.as_str(),
            sub_status: order.sub_status,
            product_name: &order.placed.product_name,
            denomination: order.placed.denomination,
            quantity: order.placed.quantity,
            amount: order.placed.amount,
            delivered_quantity: order.delivered_quantity,
            delivered_on: order.delivered_on,
            created_at: order.created_at,
            order_items: carries_items.then(|| {
                order
                    .items
                    .iter()
                    .map(|item| Item {
                        status: "DELIVERED",
                        delivered_on: item.delivered_on,
                        vouchers: item.vouchers.iter().map(|reference| Voucher { voucher_reference_number: reference }).collect(),
                    })
                    .collect()
            }),
        },
    })
}
