//! The event types that webhooks subscribe to.

use serde::{Deserialize, Serialize};

use crate::Event;
use crate::account::AccountEvent;
use crate::order::OrderEvent;
use crate::payout::PayoutEvent;

/// Event type that a webhook can subscribe to (specification, "Events"). Those of payouts and wallets are additions to the
/// specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WebhookEventType {
    #[serde(rename = "order.created")]
    OrderCreated,
    #[serde(rename = "order.pending")]
    OrderPending,
    #[serde(rename = "order.delivered")]
    OrderDelivered,
    #[serde(rename = "order.partially_delivered")]
    OrderPartiallyDelivered,
    #[serde(rename = "order.cancelled")]
    OrderCancelled,
    #[serde(rename = "payout.requested")]
    PayoutRequested,
    #[serde(rename = "payout.paid")]
    PayoutPaid,
    #[serde(rename = "payout.failed")]
    PayoutFailed,
    #[serde(rename = "payout.cancelled")]
    PayoutCancelled,
    #[serde(rename = "wallet.low_balance")]
    WalletLowBalance,
}

impl WebhookEventType {
    pub const ALL: [WebhookEventType; 10] = [
        Self::OrderCreated,
        Self::OrderPending,
        Self::OrderDelivered,
        Self::OrderPartiallyDelivered,
        Self::OrderCancelled,
        Self::PayoutRequested,
        Self::PayoutPaid,
        Self::PayoutFailed,
        Self::PayoutCancelled,
        Self::WalletLowBalance,
    ];

    /// Types of the specification: those of orders.
    pub const OF_ORDERS: [WebhookEventType; 5] =
        [Self::OrderCreated, Self::OrderPending, Self::OrderDelivered, Self::OrderPartiallyDelivered, Self::OrderCancelled];

    pub fn is_of_orders(self) -> bool {
        Self::OF_ORDERS.contains(&self)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::OrderCreated => "order.created",
            Self::OrderPending => "order.pending",
            Self::OrderDelivered => "order.delivered",
            Self::OrderPartiallyDelivered => "order.partially_delivered",
            Self::OrderCancelled => "order.cancelled",
            Self::PayoutRequested => "payout.requested",
            Self::PayoutPaid => "payout.paid",
            Self::PayoutFailed => "payout.failed",
            Self::PayoutCancelled => "payout.cancelled",
            Self::WalletLowBalance => "wallet.low_balance",
        }
    }

    pub fn parse(text: &str) -> Option<WebhookEventType> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }

    /// Returns the type under which webhooks receive an event; `None` if they do not receive it.
    pub fn announcing(event: &Event) -> Option<WebhookEventType> {
        match event {
            Event::Order(event) => Self::announcing_order(event),
            Event::Payout(event) => Some(match event {
                PayoutEvent::PayoutRequested(_) => Self::PayoutRequested,
                PayoutEvent::PayoutPaid(_) => Self::PayoutPaid,
                PayoutEvent::PayoutFailed(_) => Self::PayoutFailed,
                PayoutEvent::PayoutCancelled(_) => Self::PayoutCancelled,
            }),
            Event::Account(AccountEvent::LowBalanceReached(_)) => Some(Self::WalletLowBalance),
            _ => None,
        }
    }

    fn announcing_order(event: &OrderEvent) -> Option<WebhookEventType> {
        match event {
            OrderEvent::OrderPlaced(_) => Some(Self::OrderCreated),
            OrderEvent::OrderQueued(_) => Some(Self::OrderPending),
            OrderEvent::OrderDelivered(_) => Some(Self::OrderDelivered),
            OrderEvent::OrderPartiallyDelivered(_) => Some(Self::OrderPartiallyDelivered),
            OrderEvent::OrderCancelled(_) => Some(Self::OrderCancelled),
            OrderEvent::OrderDelayed(_) | OrderEvent::VouchersRevealed(_) | OrderEvent::PersonalDataErased(_) => None,
        }
    }

    /// Returns the log's event type that webhooks receive under this type.
    pub fn announced(self) -> &'static str {
        match self {
            Self::OrderCreated => "OrderPlaced",
            Self::OrderPending => "OrderQueued",
            Self::OrderDelivered => "OrderDelivered",
            Self::OrderPartiallyDelivered => "OrderPartiallyDelivered",
            Self::OrderCancelled => "OrderCancelled",
            Self::PayoutRequested => "PayoutRequested",
            Self::PayoutPaid => "PayoutPaid",
            Self::PayoutFailed => "PayoutFailed",
            Self::PayoutCancelled => "PayoutCancelled",
            Self::WalletLowBalance => "LowBalanceReached",
        }
    }

    /// Splits types into those of orders and the further ones. The log stores them in separate fields: nodes of a release
    /// that knows only the types of orders ignore the second one.
    pub fn split(types: Vec<WebhookEventType>) -> (Vec<WebhookEventType>, Vec<WebhookEventType>) {
        types.into_iter().partition(|event_type| event_type.is_of_orders())
    }
}
