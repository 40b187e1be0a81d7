//! The webhook envelope (specification, "Event envelope" and "Order data carried in events"). The data of payouts and wallets
//! are additions to the specification.

mod sample;

use chrono::{DateTime, SecondsFormat, Utc};
use ledger_events::account::LowBalanceReached;
use ledger_events::order::Order;
use ledger_events::payout::Payout;
use ledger_events::webhook::WebhookEventType;
use ledger_events::{BeneficiaryId, Currency, Money, OrderId, PayoutId, WalletId};
pub use sample::test_payload;
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

/// Fields of an envelope that come from the event itself.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub event_id: Uuid,
    pub event_type: WebhookEventType,
    pub recorded_at: DateTime<Utc>,
}

#[derive(Serialize)]
struct Envelope<T> {
    event_id: Uuid,
    event_type: WebhookEventType,
    #[serde(serialize_with = "time")]
    created_at: DateTime<Utc>,
    data: T,
}

impl Head {
    fn with(self, data: impl Serialize) -> Result<String, serde_json::Error> {
        let Head { event_id, event_type, recorded_at } = self;
        serde_json::to_string(&Envelope { event_id, event_type, created_at: recorded_at, data })
    }
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
struct PayoutData<'a> {
    id: PayoutId,
    beneficiary_id: BeneficiaryId,
    wallet_id: WalletId,
    amount: Money,
    currency: Currency,
    client_reference: Option<&'a str>,
    status: &'a str,
    #[serde(serialize_with = "time")]
    created_at: DateTime<Utc>,
    #[serde(serialize_with = "optional_time")]
    settled_at: Option<DateTime<Utc>>,
}

#[derive(Serialize)]
struct LowBalanceData {
    wallet_id: WalletId,
    currency: Currency,
    balance: Money,
    below: Money,
    #[serde(serialize_with = "time")]
    fell_at: DateTime<Utc>,
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

/// Builds the bytes of the envelope for an order in its state right after the event. The envelope is built once,
/// then stored, signed and sent unchanged.
pub fn payload(head: Head, order: &Order) -> Result<String, serde_json::Error> {
    let carries_items = matches!(head.event_type, WebhookEventType::OrderDelivered | WebhookEventType::OrderPartiallyDelivered);
    head.with(OrderData {
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
    })
}

/// Builds the bytes of the envelope for a payout in its state right after the event.
pub fn payout_payload(head: Head, payout: &Payout) -> Result<String, serde_json::Error> {
    let requested = &payout.requested;
    head.with(PayoutData {
        id: payout.id,
        beneficiary_id: requested.beneficiary_id,
        wallet_id: requested.wallet_id,
        amount: requested.amount,
        currency: requested.currency,
        client_reference: requested.client_reference.as_deref(),
        status: payout.status.as_str(),
        created_at: payout.created_at,
        settled_at: payout.settled_at,
    })
}

/// Builds the bytes of the envelope for a balance that fell below the amount that its account has set.
pub fn low_balance_payload(head: Head, reached: &LowBalanceReached) -> Result<String, serde_json::Error> {
    let LowBalanceReached { wallet_id, currency, below, balance, fell_at, .. } = *reached;
    head.with(LowBalanceData { wallet_id, currency, balance, below, fell_at })
}
