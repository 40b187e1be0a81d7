//! The webhook stream: who was subscribed to what, at every position of the log.
//!
//! Name, URL and token stand in the vault; the events commit to name and URL by salted hashes.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::order::OrderEvent;
use crate::{AccountId, CredentialId, Moment, WebhookId};

/// The event types that a webhook can subscribe to (specification, "Events").
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
}

impl WebhookEventType {
    pub const ALL: [WebhookEventType; 5] =
        [Self::OrderCreated, Self::OrderPending, Self::OrderDelivered, Self::OrderPartiallyDelivered, Self::OrderCancelled];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::OrderCreated => "order.created",
            Self::OrderPending => "order.pending",
            Self::OrderDelivered => "order.delivered",
            Self::OrderPartiallyDelivered => "order.partially_delivered",
            Self::OrderCancelled => "order.cancelled",
        }
    }

    pub fn parse(text: &str) -> Option<WebhookEventType> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }

    /// What an order event is announced as, if it is announced at all.
    pub fn announcing(event: &OrderEvent) -> Option<WebhookEventType> {
        match event {
            OrderEvent::OrderPlaced(_) => Some(Self::OrderCreated),
            OrderEvent::OrderQueued(_) => Some(Self::OrderPending),
            OrderEvent::OrderDelivered(_) => Some(Self::OrderDelivered),
            OrderEvent::OrderPartiallyDelivered(_) => Some(Self::OrderPartiallyDelivered),
            OrderEvent::OrderCancelled(_) => Some(Self::OrderCancelled),
            OrderEvent::OrderDelayed(_) | OrderEvent::VouchersRevealed(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookRegistered {
    pub account_id: AccountId,
    /// Whose signing secret is the token; none for a standalone token.
    pub credential_id: Option<CredentialId>,
    pub events: Vec<WebhookEventType>,
    pub name_hash: String,
    pub url_hash: String,
}

/// What changed; what is absent stayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookUpdated {
    pub events: Option<Vec<WebhookEventType>>,
    pub is_active: Option<bool>,
    pub name_hash: Option<String>,
    pub url_hash: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookDeleted {}

/// A webhook's state: the fold of its stream, and the row of the table `webhooks`.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    pub id: WebhookId,
    pub version: i64,
    pub account_id: AccountId,
    pub credential_id: Option<CredentialId>,
    pub events: Vec<WebhookEventType>,
    pub is_active: bool,
    pub is_deleted: bool,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Webhook {
    /// At most so many webhooks an account (contract, "Webhooks").
    pub const MOST_PER_ACCOUNT: usize = 20;

    pub fn hears(&self, event_type: WebhookEventType) -> bool {
        self.is_active && !self.is_deleted && self.events.contains(&event_type)
    }
}

/// The one fold of the webhook stream. `None` only before `WebhookRegistered`.
pub fn evolve(state: Option<Webhook>, id: WebhookId, event: &WebhookEvent, at: &Moment) -> Option<Webhook> {
    let mut webhook = match (state, event) {
        (None, WebhookEvent::WebhookRegistered(e)) => Webhook {
            id,
            version: at.version,
            account_id: e.account_id,
            credential_id: e.credential_id,
            events: e.events.clone(),
            is_active: true,
            is_deleted: false,
            created_at: at.recorded_at,
            updated_at: at.recorded_at,
        },
        (None, _) => return None,
        (Some(webhook), _) => webhook,
    };
    match event {
        WebhookEvent::WebhookRegistered(_) => {}
        WebhookEvent::WebhookUpdated(e) => {
            webhook.events = e.events.clone().unwrap_or(webhook.events);
            webhook.is_active = e.is_active.unwrap_or(webhook.is_active);
        }
        WebhookEvent::WebhookDeleted(_) => {
            webhook.is_active = false;
            webhook.is_deleted = true;
        }
    }
    webhook.version = at.version;
    webhook.updated_at = at.recorded_at;
    Some(webhook)
}

crate::codec::stream_events! {
    /// What can happen to a webhook.
    WebhookEvent {
        WebhookRegistered = 1,
        WebhookUpdated = 1,
        WebhookDeleted = 1,
    }
}
