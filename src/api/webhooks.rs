//! `/api/v1/webhooks`: who is told of what.

use ledger_events::webhook;
use ledger_events::webhook::WebhookEventType as EventType;
use ledger_projections::{accounts, webhooks};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;
use serde_json::value::RawValue;

use super::body::{NoFields, StrictJson};
use super::error::ApiError;
use super::fields::{Fields, FromFields};
use super::idempotency::IdempotencyKey;
use super::outcome::{answered, respond, secret_not_visible, unrenderable};
use super::page::Page;
use super::principal::{Caller, ClientOperator};
use super::problems::Read;
use super::readers::{boolean, integer, line, list, one_of, text};
use super::reply::{Data, Listed, NoStore, Plural, Reply, Stored, render};
use super::scalars::Timestamp;
use super::state::{ApiState, State, Tag, listed, not_found, origin, rows_of};
use crate::access::Principal;
use crate::delivery::address::{MAX_URL_CHARACTERS, check_url};
use crate::ledger::answer::WebhookView;
use crate::ledger::command::{self, CredentialLink, WebhookChange};
use crate::ledger::texts::{self, Texts, WEBHOOK_NAME as NAME, WEBHOOK_URL as URL};
use crate::ledger::{Answer, Command, Rendered};
use crate::secrets::seal::{Private, random_secret};

/// What a webhook can be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Enum, Serialize)]
#[oai(rename = "WebhookEventType")]
pub enum Event {
    /// Placed, and debited from the wallet.
    #[oai(rename = "order.created")]
    #[serde(rename = "order.created")]
    Created,
    /// Fulfilment has taken it up.
    #[oai(rename = "order.pending")]
    #[serde(rename = "order.pending")]
    Pending,
    /// Every unit is allocated.
    #[oai(rename = "order.delivered")]
    #[serde(rename = "order.delivered")]
    Delivered,
    /// Some units are allocated.
    #[oai(rename = "order.partially_delivered")]
    #[serde(rename = "order.partially_delivered")]
    PartiallyDelivered,
    /// Cancelled; what was not delivered is refunded.
    #[oai(rename = "order.cancelled")]
    #[serde(rename = "order.cancelled")]
    Cancelled,
}

impl Event {
    pub(super) fn as_str(self) -> &'static str {
        EventType::from(self).as_str()
    }

    const ALL: [(&'static str, Event); 5] = [
        ("order.created", Self::Created),
        ("order.pending", Self::Pending),
        ("order.delivered", Self::Delivered),
        ("order.partially_delivered", Self::PartiallyDelivered),
        ("order.cancelled", Self::Cancelled),
    ];
}

impl From<EventType> for Event {
    fn from(event: EventType) -> Self {
        match event {
            EventType::OrderCreated => Self::Created,
            EventType::OrderPending => Self::Pending,
            EventType::OrderDelivered => Self::Delivered,
            EventType::OrderPartiallyDelivered => Self::PartiallyDelivered,
            EventType::OrderCancelled => Self::Cancelled,
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
        }
    }
}

/// One or more event types, none twice.
fn events(value: &RawValue) -> Read<Vec<Event>> {
    let events = list(1..=Event::ALL.len(), || one_of(&Event::ALL))(value)?;
    let is_repeated = |(index, event)| events[..index].contains(event);
    if events.iter().enumerate().any(is_repeated) { Err("must not have an entry twice".into()) } else { Ok(events) }
}

fn url(value: &RawValue) -> Read<String> {
    let url = text(1..=MAX_URL_CHARACTERS)(value)?;
    match check_url(&url) {
        Ok(_) => Ok(url),
        Err(refused) => Err(refused.to_string().into()),
    }
}

fn types(events: Vec<Event>) -> Vec<EventType> {
    events.into_iter().map(Into::into).collect()
}

/// A new webhook.
#[derive(Object, Serialize)]
struct RegisterWebhook {
    /// For people.
    #[oai(validator(min_length = 1, max_length = 100))]
    name: String,
    /// Where events are sent: `https://`, without user name and password.
    #[oai(validator(min_length = 1, max_length = 2048))]
    url: String,
    /// What it is told of.
    #[oai(validator(min_items = 1, unique_items))]
    events: Vec<Event>,
    /// The API credential whose signing secret becomes the token; without one, a token of its own
    /// is made. Takes the owner's role, or that very credential.
    credential_id: Option<i64>,
}

impl FromFields for RegisterWebhook {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self {
            name: fields.required("name", line(1..=100)),
            url: fields.required("url", url),
            events: fields.required("events", events),
            credential_id: fields.optional("credential_id", integer(1..=i64::MAX)),
        }
    }
}

/// What to change; at least one field. What is left out stays.
#[derive(Object, Serialize)]
struct ChangeWebhook {
    /// For people.
    #[oai(validator(min_length = 1, max_length = 100))]
    name: Option<String>,
    /// Where events are sent: `https://`, without user name and password.
    #[oai(validator(min_length = 1, max_length = 2048))]
    url: Option<String>,
    /// What it is told of.
    #[oai(validator(min_items = 1, unique_items))]
    events: Option<Vec<Event>>,
    /// An inactive webhook is told of nothing, and its pending deliveries fail.
    is_active: Option<bool>,
    /// The API credential whose signing secret becomes the token, from the next delivery on. Takes the owner's role,
    /// or that very credential.
    credential_id: Option<i64>,
}

impl FromFields for ChangeWebhook {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        let change = Self {
            name: fields.optional("name", line(1..=100)),
            url: fields.optional("url", url),
            events: fields.optional("events", events),
            is_active: fields.optional("is_active", boolean),
            credential_id: fields.optional("credential_id", integer(1..=i64::MAX)),
        };
        let ChangeWebhook { name, url, events, is_active, credential_id } = &change;
        if name.is_none() && url.is_none() && events.is_none() && is_active.is_none() && credential_id.is_none() {
            fields.problem("body", "must change something: name, url, events, is_active or credential_id");
        }
        change
    }
}

/// A webhook right after it was registered: the one time that its token is shown.
#[derive(Object, Serialize)]
struct RegisteredWebhook {
    /// Sent with each delivery as `X-Webhook-ID`.
    id: i64,
    /// For people.
    name: String,
    /// Where events are sent.
    url: String,
    /// The secret that deliveries are signed with. Keep it; it is never shown again.
    token: String,
    /// What it is told of.
    events: Vec<Event>,
    /// Whether it is in use.
    is_active: bool,
    /// When it was made.
    created_at: Timestamp,
}

/// A webhook.
#[derive(Object, Serialize)]
struct Webhook {
    /// Sent with each delivery as `X-Webhook-ID`.
    id: i64,
    /// For people.
    name: String,
    /// Where events are sent.
    url: String,
    /// What it is told of.
    events: Vec<Event>,
    /// The credential whose signing secret is the token.
    credential_id: Option<i64>,
    /// Whether it is in use.
    is_active: bool,
    /// When it was made.
    created_at: Timestamp,
    /// When it last changed.
    updated_at: Timestamp,
}

impl Plural for Webhook {
    const PLURAL: &'static str = "webhooks";
}

impl Webhook {
    fn of(webhook: webhook::Webhook, name: &Private, url: &Private) -> Self {
        Self {
            id: webhook.id,
            name: name.expose().to_owned(),
            url: url.expose().to_owned(),
            events: webhook.events.into_iter().map(Into::into).collect(),
            credential_id: webhook.credential_id,
            is_active: webhook.is_active,
            created_at: webhook.created_at.into(),
            updated_at: webhook.updated_at.into(),
        }
    }

    /// A webhook whose texts were erased shows empty ones.
    fn with_texts(webhook: webhook::Webhook, texts: &Texts) -> Self {
        let erased = Private::new("");
        let name = texts.get(&(NAME, webhook.id)).unwrap_or(&erased);
        let url = texts.get(&(URL, webhook.id)).unwrap_or(&erased);
        Self::of(webhook, name, url)
    }

    fn of_view(view: WebhookView) -> Self {
        Self::of(view.webhook, &view.name, &view.url)
    }
}

/// A webhook was deleted; the history of its deliveries stays.
#[derive(Object, Serialize)]
struct DeletedWebhook {
    /// For people.
    message: String,
    /// The webhook that was deleted.
    webhook_id: i64,
}

/// Flat, without the wrapper: the specification's one exception.
fn registered(answer: &Answer) -> Result<Rendered, serde_json::Error> {
    let Answer::Webhook(WebhookView { webhook, name, url, token: Some(token) }) = answer else { return unrenderable() };
    let body = serde_json::to_string(&RegisteredWebhook {
        id: webhook.id,
        name: name.expose().to_owned(),
        url: url.expose().to_owned(),
        token: token.expose().to_owned(),
        events: webhook.events.iter().copied().map(Into::into).collect(),
        is_active: webhook.is_active,
        created_at: webhook.created_at.into(),
    })?;
    Ok(Rendered { status: 201, body, is_secret: true })
}

/// A webhook's new token: this answer alone shows it.
#[derive(Object, Serialize)]
struct RotatedToken {
    /// The webhook.
    webhook_id: i64,
    /// The secret that deliveries are signed with from now on. Keep it; it is never shown again.
    token: String,
    /// Since when.
    rotated_at: Timestamp,
}

fn rotated(answer: &Answer) -> Result<Rendered, serde_json::Error> {
    let Answer::Webhook(WebhookView { webhook, token: Some(token), .. }) = answer else { return unrenderable() };
    let body = render(&RotatedToken {
        webhook_id: webhook.id,
        token: token.expose().to_owned(),
        rotated_at: webhook.updated_at.into(),
    })?;
    Ok(Rendered { status: 200, body, is_secret: true })
}

/// Refuses to link a webhook to a credential of the account for those who may not be shown its signing secret: the
/// webhook's token is that secret, and is sent to the webhook's URL. A credential that there is not for the account
/// is left to the ledger, which says so.
async fn check_link(state: &ApiState, caller: &Principal, credential: Option<i64>) -> Result<(), ApiError> {
    let Some(id) = credential.filter(|id| !caller.visible_secrets().contains(*id)) else { return Ok(()) };
    let found = accounts::load_credentials(&mut *state.ledger.pool().acquire().await?, caller.shard_id, &[id]).await?;
    match found.iter().any(|credential| credential.account_id == caller.account_id) {
        true => Err(secret_not_visible()),
        false => Ok(()),
    }
}

/// A test delivery is on its way.
#[derive(Object, Serialize)]
struct WebhookTest {
    /// For people.
    message: String,
    /// The delivery, among all others.
    delivery_id: i64,
    /// The same in the envelope and in the header `X-Event-ID`.
    event_id: String,
}

fn tested(answer: &Answer) -> Result<Rendered, serde_json::Error> {
    let Answer::Test { delivery_id, event_id } = answer else { return unrenderable() };
    let message = "A test delivery is on its way.".to_owned();
    let body = render(&WebhookTest { message, delivery_id: *delivery_id, event_id: event_id.to_string() })?;
    Ok(Rendered { status: 200, body, is_secret: false })
}

pub struct Webhooks;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Webhooks")]
impl Webhooks {
    /// Register a webhook
    ///
    /// The answer is flat, and the only one that shows the token. At most 20 webhooks an account.
    #[oai(path = "/webhooks", method = "post", operation_id = "register_webhook")]
    async fn register(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// A name for this request: the same one again is answered with the first answer.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<RegisterWebhook>,
    ) -> Result<NoStore<Stored<RegisteredWebhook, 201>>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        check_link(&state, &caller, request.credential_id).await?;
        let idempotency = key.of(&caller, "/api/v1/webhooks", &request, registered)?;
        let command = Command::RegisterWebhook(command::RegisterWebhook {
            account_id: caller.account_id,
            name: Private::new(request.name),
            url: Private::new(request.url),
            events: types(request.events),
            credential_id: request.credential_id,
            new_secret: random_secret(),
        });
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, registered).map(NoStore)
    }

    /// List webhooks
    ///
    /// Newest first.
    #[oai(path = "/webhooks", method = "get", operation_id = "list_webhooks")]
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// From 1.
        page: Query<Option<i64>>,
        /// Webhooks on a page: 1 to 100, by default 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<Webhook>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let (pool, shard) = (state.ledger.pool(), caller.0.shard_id);
        let found = webhooks::list(pool, shard, caller.0.account_id, rows_of(page)).await?;
        let wanted: Vec<_> = found.rows.iter().flat_map(|webhook| [(NAME, webhook.id), (URL, webhook.id)]).collect();
        let texts = texts::load(pool, &state.keyring, shard, &wanted).await?;
        Ok(listed(found, page, |webhook| Webhook::with_texts(webhook, &texts)))
    }

    /// Find a webhook
    #[oai(path = "/webhooks/:id", method = "get", operation_id = "get_webhook")]
    async fn get(
        &self,
        caller: Caller,
        state: State<'_>,
        /// The webhook's id.
        id: Path<i64>,
    ) -> Result<Reply<Webhook>, ApiError> {
        let (pool, shard) = (state.ledger.pool(), caller.0.shard_id);
        let found = webhooks::load(&mut *pool.acquire().await?, shard, &[id.0]).await?.pop();
        let webhook = found.filter(|w| w.account_id == caller.0.account_id && !w.is_deleted).ok_or_else(not_found)?;
        let texts = texts::load(pool, &state.keyring, shard, &[(NAME, id.0), (URL, id.0)]).await?;
        Ok(Reply(Webhook::with_texts(webhook, &texts)))
    }

    /// Change a webhook
    ///
    /// With a `credential_id` the credential's signing secret becomes the token; a webhook stays linked. That, and a new `url`
    /// of a linked webhook, takes the owner's role or that very credential: the URL is shown the secret.
    #[oai(path = "/webhooks/:id", method = "put", operation_id = "change_webhook")]
    async fn change(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// The webhook's id.
        id: Path<i64>,
        body: StrictJson<ChangeWebhook>,
    ) -> Result<Reply<Webhook>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        check_link(&state, &caller, request.credential_id).await?;
        let change = WebhookChange {
            name: request.name.map(Private::new),
            url: request.url.map(Private::new),
            events: request.events.map(types),
            is_active: request.is_active,
            link: request.credential_id.map(|credential_id| CredentialLink { credential_id, new_secret: random_secret() }),
            visible: caller.visible_secrets(),
        };
        let command = Command::UpdateWebhook { account_id: caller.account_id, webhook_id: id.0, change };
        let answer = state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
        Ok(Reply(Webhook::of_view(answered!(answer, Answer::Webhook(view) => view)?)))
    }

    /// Rotate a webhook's token
    ///
    /// Replaces the token of its own: deliveries are signed with the new one from now on, and no other answer shows it.
    /// A webhook that is linked to a credential answers 409: rotate the credential's signing secret instead.
    #[oai(path = "/webhooks/:id/rotate-token", method = "post", operation_id = "rotate_webhook_token")]
    async fn rotate_token(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// The webhook's id.
        id: Path<i64>,
        /// A name for this request: the same one again is answered with the first answer.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        _no_fields: NoFields,
    ) -> Result<NoStore<Stored<Data<RotatedToken>>>, ApiError> {
        let caller = caller.0;
        let idempotency = key.of(&caller, &format!("/api/v1/webhooks/{}/rotate-token", id.0), &(), rotated)?;
        let (account_id, new_token) = (caller.account_id, random_secret());
        let command = Command::RotateWebhookToken { account_id, webhook_id: id.0, new_token };
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, rotated).map(NoStore)
    }

    /// Delete a webhook
    ///
    /// Its pending deliveries fail; their history stays.
    #[oai(path = "/webhooks/:id", method = "delete", operation_id = "delete_webhook")]
    async fn delete(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// The webhook's id.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<DeletedWebhook>, ApiError> {
        let caller = caller.0;
        let command = Command::DeleteWebhook { account_id: caller.account_id, webhook_id: id.0 };
        state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
        Ok(Reply(DeletedWebhook { message: "The webhook is deleted.".to_owned(), webhook_id: id.0 }))
    }

    /// Test a webhook
    ///
    /// Makes a real delivery with sample data, of the first type it is told of: `order_id` and
    /// `data.id` are 0, `data.reference_code` is `TEST`. It is signed, retried and listed like any other.
    #[oai(path = "/webhooks/:id/test", method = "post", operation_id = "test_webhook")]
    async fn test(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// The webhook's id.
        id: Path<i64>,
        /// A name for this request: the same one again is answered with the first answer.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        _no_fields: NoFields,
    ) -> Result<Stored<Data<WebhookTest>>, ApiError> {
        let caller = caller.0;
        let idempotency = key.of(&caller, &format!("/api/v1/webhooks/{}/test", id.0), &(), tested)?;
        let command = Command::TestWebhook { account_id: caller.account_id, webhook_id: id.0 };
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, tested)
    }
}
