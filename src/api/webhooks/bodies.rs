//! Bodies of requests and responses about webhooks.

use ledger_events::webhook;
use ledger_events::webhook::WebhookEventType as EventType;
use ledger_events::webhook::{Deactivated, Deactivation};
use poem_openapi::{Enum, Object};
use serde::Serialize;
use webhook_client::address::{MAX_URL_CHARACTERS, check_url};
use webhook_client::custom::{MAX_HEADERS, MAX_NAME_CHARACTERS, MAX_VALUE_CHARACTERS, check_name, check_value};

use crate::api::error::ApiError;
use crate::api::fields::{Fields, body};
use crate::api::limits::Reader;
use crate::api::readers::{boolean, id, integer, line, list, object, one_of, text};
use crate::api::reply::Plural;
use crate::api::scalars::Timestamp;
use crate::ledger::command_result::WebhookView;
use crate::ledger::previous_secret::MAX_HOURS;
use crate::ledger::texts::{Texts, WEBHOOK_HEADERS as HEADERS, WEBHOOK_NAME as NAME, WEBHOOK_URL as URL};
use crate::ledger::webhook_headers;
use crate::secrets::seal::Secret;

/// Type of an event that a webhook can subscribe to. New types may be added.
///
/// - `order.created`: an order was placed and debited from the wallet.
/// - `order.pending`: fulfilment has started to process the order.
/// - `order.partially_delivered`: some units of the order are delivered.
/// - `order.delivered`: all units of the order are delivered.
/// - `order.cancelled`: the order was cancelled, and its undelivered units are refunded.
/// - `payout.requested`: a payout was requested and debited from the wallet.
/// - `payout.paid`: the money of the payout was sent.
/// - `payout.failed`: the money could not be sent, and was returned to the wallet.
/// - `payout.cancelled`: the payout was cancelled, and the money was returned to the wallet.
/// - `wallet.low_balance`: the balance of a wallet fell below the amount that is set for notices about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Enum, Serialize)]
#[oai(rename = "WebhookEventType")]
pub enum Event {
    /// The order was placed and debited from the wallet.
    #[oai(rename = "order.created")]
    #[serde(rename = "order.created")]
    Created,
    /// Fulfilment has started to process the order.
    #[oai(rename = "order.pending")]
    #[serde(rename = "order.pending")]
    Pending,
    /// All units are delivered.
    #[oai(rename = "order.delivered")]
    #[serde(rename = "order.delivered")]
    Delivered,
    /// Some units are delivered.
    #[oai(rename = "order.partially_delivered")]
    #[serde(rename = "order.partially_delivered")]
    PartiallyDelivered,
    /// The order was cancelled, and its undelivered units are refunded.
    #[oai(rename = "order.cancelled")]
    #[serde(rename = "order.cancelled")]
    Cancelled,
    /// The payout was requested and debited from the wallet.
    #[oai(rename = "payout.requested")]
    #[serde(rename = "payout.requested")]
    PayoutRequested,
    /// The money was sent.
    #[oai(rename = "payout.paid")]
    #[serde(rename = "payout.paid")]
    PayoutPaid,
    /// The money could not be sent, and was returned to the wallet.
    #[oai(rename = "payout.failed")]
    #[serde(rename = "payout.failed")]
    PayoutFailed,
    /// The payout was cancelled, and the money was returned to the wallet.
    #[oai(rename = "payout.cancelled")]
    #[serde(rename = "payout.cancelled")]
    PayoutCancelled,
    /// The balance fell below the amount that is set for notices about it.
    #[oai(rename = "wallet.low_balance")]
    #[serde(rename = "wallet.low_balance")]
    LowBalance,
}

impl Event {
    pub fn as_str(self) -> &'static str {
        EventType::from(self).as_str()
    }
}

impl From<EventType> for Event {
    fn from(event: EventType) -> Self {
        match event {
            EventType::OrderCreated => Self::Created,
            EventType::OrderPending => Self::Pending,
            EventType::OrderDelivered => Self::Delivered,
            EventType::OrderPartiallyDelivered => Self::PartiallyDelivered,
            EventType::OrderCancelled => Self::Cancelled,
            EventType::PayoutRequested => Self::PayoutRequested,
            EventType::PayoutPaid => Self::PayoutPaid,
            EventType::PayoutFailed => Self::PayoutFailed,
            EventType::PayoutCancelled => Self::PayoutCancelled,
            EventType::WalletLowBalance => Self::LowBalance,
        }
    }
}

impl From<Event> for EventType {
    fn from(event: Event) -> Self {
        match event {
            Event::Created => Self::OrderCreated,
            Event::Pending => Self::OrderPending,
            Event::Delivered => Self::OrderDelivered,
            Event::PartiallyDelivered => Self::OrderPartiallyDelivered,
            Event::Cancelled => Self::OrderCancelled,
            Event::PayoutRequested => Self::PayoutRequested,
            Event::PayoutPaid => Self::PayoutPaid,
            Event::PayoutFailed => Self::PayoutFailed,
            Event::PayoutCancelled => Self::PayoutCancelled,
            Event::LowBalance => Self::WalletLowBalance,
        }
    }
}

/// Reads a list of one or more event types without duplicates.
fn events() -> impl Reader<Vec<Event>> {
    list(1..=EventType::ALL.len(), || one_of).and(|events: Vec<Event>| {
        let is_repeated = |(index, event)| events[..index].contains(event);
        if events.iter().enumerate().any(is_repeated) { Err("must not have an entry twice".into()) } else { Ok(events) }
    })
}

/// Reads the custom headers of a webhook.
fn headers() -> impl Reader<Vec<WebhookHeader>> {
    list(0..=MAX_HEADERS, object::<WebhookHeader>).and(|headers: Vec<WebhookHeader>| {
        let is_repeated =
            |(index, header): (usize, &WebhookHeader)| headers[..index].iter().any(|other| other.name == header.name);
        if headers.iter().enumerate().any(is_repeated) { Err("must not have a name twice".into()) } else { Ok(headers) }
    })
}

fn header_name() -> impl Reader<String> {
    text(1..=MAX_NAME_CHARACTERS).and(|name: String| check_name(&name).map_err(|refused| refused.to_string().into()))
}

fn header_value() -> impl Reader<String> {
    text(1..=MAX_VALUE_CHARACTERS).and(|value: String| match check_value(&value) {
        Ok(()) => Ok(value),
        Err(refused) => Err(refused.to_string().into()),
    })
}

/// Returns the text under which the vault keeps headers.
pub fn sealed(headers: Option<Vec<WebhookHeader>>) -> Result<Option<Secret>, ApiError> {
    let header = |header: WebhookHeader| webhook_headers::WebhookHeader { name: header.name, value: Secret::new(header.value) };
    let text = |headers: Vec<WebhookHeader>| webhook_headers::text(&headers.into_iter().map(header).collect::<Vec<_>>());
    headers.map(text).transpose().map_err(ApiError::internal)
}

fn url() -> impl Reader<String> {
    text(1..=MAX_URL_CHARACTERS).and(|url: String| match check_url(&url) {
        Ok(_) => Ok(url),
        Err(refused) => Err(refused.to_string().into()),
    })
}

pub fn types(events: Vec<Event>) -> Vec<EventType> {
    events.into_iter().map(Into::into).collect()
}

body! {
    /// A header of your own that each delivery of a webhook carries.
    #[derive(Object, Serialize)]
    pub struct WebhookHeader {
        /// Name of the header: letters, digits, hyphens and underscores. Upper and lower case are the same. Headers of HTTP, of
        /// proxies, of cloud metadata and of the service itself are refused.
        pub name: String = required(header_name()),
        /// Value of the header: printable ASCII characters. It is never shown again.
        pub value: String = required(header_value()),
    }
}

body! {
    /// A webhook to register.
    #[derive(Object, Serialize)]
    pub struct RegisterWebhook {
        /// Name of the webhook, for people to recognize it.
        pub name: String = required(line(1..=100)),
        /// URL that receives the events. It must begin with `https://` and must not contain a user name or a password.
        pub url: String = required(url()),
        /// Event types that the webhook is subscribed to.
        #[oai(validator(unique_items))]
        pub events: Vec<Event> = required(events()),
        /// API credential to link: its signing secret becomes the token. Without it, the service generates a separate token.
        /// Linking requires the role owner, or a request made with that credential.
        pub credential_id: Option<i64> = optional(id),
        /// Headers of your own that each delivery carries, such as `Authorization`. At most 10.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub headers: Option<Vec<WebhookHeader>> = optional(headers()),
    }
}

body! {
    /// Changes to a webhook. At least one field is required. Fields that are left out keep their values.
    #[derive(Object, Serialize)]
    pub struct ChangeWebhook {
        /// Name of the webhook, for people to recognize it.
        pub name: Option<String> = optional(line(1..=100)),
        /// URL that receives the events. It must begin with `https://` and must not contain a user name or a password.
        pub url: Option<String> = optional(url()),
        /// Event types that the webhook is subscribed to.
        #[oai(validator(unique_items))]
        pub events: Option<Vec<Event>> = optional(events()),
        /// Whether the webhook is active. An inactive webhook receives no events, and its pending deliveries fail.
        pub is_active: Option<bool> = optional(boolean),
        /// API credential to link: its signing secret becomes the token, from the next delivery on. Linking requires the role
        /// owner, or a request made with that credential.
        pub credential_id: Option<i64> = optional(id),
        /// Headers of your own that each delivery carries from the next one on. They replace all earlier ones; an empty list
        /// removes them.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub headers: Option<Vec<WebhookHeader>> = optional(headers()),
    }
    check ChangeWebhook::check
}

impl ChangeWebhook {
    /// Checks the rules between fields.
    fn check(&self, fields: &mut Fields<'_>) {
        let ChangeWebhook { name, url, events, is_active, credential_id, headers } = self;
        let is_text = name.is_some() || url.is_some() || headers.is_some();
        if !is_text && events.is_none() && is_active.is_none() && credential_id.is_none() {
            fields.problem("body", "must change something: name, url, events, is_active, credential_id or headers");
        }
    }
}

/// A newly registered webhook. The token is shown only in this response.
#[derive(Object, Serialize)]
pub struct RegisteredWebhook {
    /// Unique identifier of the webhook. Each delivery has it in the header `X-Webhook-ID`.
    pub id: i64,
    /// Name of the webhook, for people to recognize it.
    pub name: String,
    /// URL that receives the events.
    pub url: String,
    /// Secret that signs the deliveries. Store it safely: it is not shown again.
    pub token: String,
    /// Event types that the webhook is subscribed to.
    pub events: Vec<Event>,
    /// Whether the webhook is active. An inactive webhook receives no events.
    pub is_active: bool,
    /// Time at which the webhook was registered.
    pub created_at: Timestamp,
}

/// Reason why the service has deactivated a webhook. New values may be added.
#[derive(Debug, Clone, Copy, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum DeactivationReason {
    /// All attempts have failed for a time that the operators of the service have set.
    Failing,
}

/// A deactivation of a webhook by the service.
#[derive(Object, Serialize)]
pub struct WebhookDeactivation {
    /// Reason for the deactivation.
    pub reason: DeactivationReason,
    /// Time since which all attempts have failed. Null for other reasons.
    pub failing_since: Option<Timestamp>,
    /// Time of the deactivation.
    pub deactivated_at: Timestamp,
}

impl From<Deactivated> for WebhookDeactivation {
    fn from(Deactivated { reason: Deactivation::Failing { failing_since }, at }: Deactivated) -> Self {
        Self { reason: DeactivationReason::Failing, failing_since: Some(failing_since.into()), deactivated_at: at.into() }
    }
}

/// An endpoint of yours that receives events by HTTP POST.
#[derive(Object, Serialize)]
pub struct Webhook {
    /// Unique identifier of the webhook. Each delivery has it in the header `X-Webhook-ID`.
    pub id: i64,
    /// Name of the webhook, for people to recognize it.
    pub name: String,
    /// URL that receives the events.
    pub url: String,
    /// Event types that the webhook is subscribed to.
    pub events: Vec<Event>,
    /// Linked API credential, whose signing secret is the token. Null if the webhook has a separate token.
    pub credential_id: Option<i64>,
    /// Names of the headers of your own that each delivery carries, in lower case. Their values are never shown.
    pub header_names: Vec<String>,
    /// Whether the webhook is active. An inactive webhook receives no events.
    pub is_active: bool,
    /// Deactivation by the service. Null if the webhook is active, or if a request switched it off. To activate the webhook again,
    /// change `is_active` to true.
    pub deactivation: Option<WebhookDeactivation>,
    /// Time at which the webhook was registered.
    pub created_at: Timestamp,
    /// Time of the webhook's latest change.
    pub updated_at: Timestamp,
}

impl Plural for Webhook {
    const PLURAL: &'static str = "webhooks";
}

impl Webhook {
    fn of(webhook: webhook::Webhook, name: &Secret, url: &Secret, headers: Option<&Secret>) -> Self {
        let headers = headers.and_then(webhook_headers::open).unwrap_or_default();
        Self {
            id: webhook.id.0,
            name: name.expose().to_owned(),
            url: url.expose().to_owned(),
            events: webhook.events.into_iter().map(Into::into).collect(),
            credential_id: webhook.credential_id.map(|id| id.0),
            header_names: headers.into_iter().map(|header| header.name).collect(),
            is_active: webhook.is_active,
            deactivation: webhook.deactivated.map(Into::into),
            created_at: webhook.created_at.into(),
            updated_at: webhook.updated_at.into(),
        }
    }

    /// Builds a webhook with its name, URL and headers from the texts of a page. Erased texts become empty strings.
    pub fn with_texts(webhook: webhook::Webhook, texts: &Texts) -> Self {
        let erased = Secret::new("");
        let name = texts.get(&(NAME, webhook.id.0)).unwrap_or(&erased);
        let url = texts.get(&(URL, webhook.id.0)).unwrap_or(&erased);
        let headers = texts.get(&(HEADERS, webhook.id.0));
        Self::of(webhook, name, url, headers)
    }

    pub fn of_view(view: WebhookView) -> Self {
        Self::of(view.webhook, &view.name, &view.url, view.headers.as_ref())
    }
}

/// Confirmation that a webhook is deleted. The history of its deliveries is kept.
#[derive(Object, Serialize)]
pub struct DeletedWebhook {
    /// Confirmation in plain English.
    pub message: String,
    /// Unique identifier of the deleted webhook.
    pub webhook_id: i64,
}

body! {
    /// Details of a rotation.
    #[derive(Object, Serialize)]
    pub struct RotateToken {
        /// Hours for which deliveries are signed with the replaced secret, too, in the header `X-Signature-Previous`. Without it,
        /// they are signed with the new one alone.
        pub previous_valid_hours: Option<i64> = optional(integer(1..=MAX_HOURS)),
    }
}

/// The new token of a webhook. It is shown only in this response.
#[derive(Object, Serialize)]
pub struct RotatedToken {
    /// Unique identifier of the webhook.
    pub webhook_id: i64,
    /// Secret that signs the deliveries from now on. Store it safely: it is not shown again.
    pub token: String,
    /// Time up to which deliveries are signed with the replaced token, too. Null if it stopped at once.
    pub previous_valid_until: Option<Timestamp>,
    /// Time of the rotation.
    pub rotated_at: Timestamp,
}

body! {
    /// A test of a webhook.
    #[derive(Object, Serialize)]
    pub struct TestWebhook {
        /// Event type of the sample data, to which the webhook must be subscribed. Default: the first one of its list.
        pub event_type: Option<Event> = optional(one_of),
    }
}

/// Confirmation that a test delivery was created.
#[derive(Object, Serialize)]
pub struct WebhookTest {
    /// Confirmation in plain English.
    pub message: String,
    /// Unique identifier of the test delivery.
    pub delivery_id: i64,
    /// ID of the event. The envelope's `event_id` and the header `X-Event-ID` have the same value.
    pub event_id: String,
}
