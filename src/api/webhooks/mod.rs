//! `/api/v1/webhooks`: registration and management of webhooks.

mod bodies;
mod explanation;
mod replays;

use ledger_database::replanned;
use ledger_events::account::Credential;
use ledger_events::{AccountId, CredentialId, ShardId, WebhookId, webhook};
use ledger_projections::state::State as _;
use ledger_projections::webhooks;
use poem_openapi::OpenApi;
use poem_openapi::param::{Path, Query};

use super::body::{NoFields, OptionalJson, StrictJson};
use super::error::ApiError;
use super::idempotency::IdempotencyKey;
use super::outcome::{answered, respond, secret_not_visible, unrenderable};
use super::page::Page;
use super::principal::{Caller, WebhookOperator};
use super::reply::{Data, Listed, Reply, Revealing, Stored, render};
use super::state::{ApiState, State, Tag, listed, not_found, origin, rows_of};
use crate::access::Principal;
use crate::ledger::command_result::WebhookView;
use crate::ledger::commands::{self, CredentialLink, WebhookChange};
use crate::ledger::texts::{self, WEBHOOK_HEADERS as HEADERS, WEBHOOK_NAME as NAME, WEBHOOK_URL as URL};
use crate::ledger::{Command, CommandResult, StoredResponse};
use crate::secrets::seal::{Secret, random_secret};
use bodies::{
    ChangeWebhook, DeletedWebhook, RegisterWebhook, RegisteredWebhook, RotateToken, RotatedToken, TestWebhook, WebhookTest,
    sealed, types,
};
pub use bodies::{Event, Webhook};
pub use explanation::Explanations;
pub use replays::{ReplayStatus, Replays};

/// Renders the response without the `success`/`data` wrapper: the specification's only exception.
fn registered(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Webhook(WebhookView { webhook, name, url, token: Some(token), .. }) = answer else {
        return unrenderable();
    };
    let body = serde_json::to_string(&RegisteredWebhook {
        id: webhook.id.0,
        name: name.expose().to_owned(),
        url: url.expose().to_owned(),
        token: token.expose().to_owned(),
        events: webhook.events.iter().copied().map(Into::into).collect(),
        is_active: webhook.is_active,
        created_at: webhook.created_at.into(),
    })?;
    Ok(StoredResponse { status: 201, body, is_secret: true })
}

fn rotated(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Webhook(WebhookView { webhook, token: Some(token), previous_until, .. }) = answer else {
        return unrenderable();
    };
    let body = render(&RotatedToken {
        webhook_id: webhook.id.0,
        token: token.expose().to_owned(),
        previous_valid_until: previous_until.map(Into::into),
        rotated_at: webhook.updated_at.into(),
    })?;
    Ok(StoredResponse { status: 200, body, is_secret: true })
}

/// Checks that the caller may link a webhook to a credential of the account. The credential's signing secret becomes the
/// webhook's token, which deliveries send to the webhook's URL. So the caller must be allowed to see that secret.
/// The ledger rejects a credential that the account does not have.
///
/// # Errors
/// 403 if the caller may not see the secret.
async fn check_link(state: &ApiState, caller: &Principal, credential: Option<CredentialId>) -> Result<(), ApiError> {
    let Some(id) = credential.filter(|id| !caller.visible_secrets().contains(*id)) else { return Ok(()) };
    let load = async || Credential::load(&mut *state.ledger.pool().acquire().await?, caller.shard_id, &[id]).await;
    let found = replanned(load).await?;
    match found.iter().any(|credential| credential.account_id == caller.account_id) {
        true => Err(secret_not_visible()),
        false => Ok(()),
    }
}

fn tested(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Test { delivery_id, event_id } = answer else { return unrenderable() };
    let message = "A test delivery is on its way.".to_owned();
    let body = render(&WebhookTest { message, delivery_id: *delivery_id, event_id: event_id.to_string() })?;
    Ok(StoredResponse { status: 200, body, is_secret: false })
}

/// Returns a page of an account's webhooks, newest first, without deleted ones.
pub async fn list_of(state: &ApiState, (shard, account): (ShardId, AccountId), page: Page) -> Result<Listed<Webhook>, ApiError> {
    let pool = state.read_pool();
    let found = webhooks::list(&pool, shard, account, rows_of(page)).await?;
    let wanted: Vec<_> = found.rows.iter().flat_map(|webhook| texts_of(webhook.id)).collect();
    let texts = texts::load(&pool, &state.keyring, shard, &wanted).await?;
    Ok(listed(found, page, |webhook| Webhook::with_texts(webhook, &texts)))
}

/// Returns the keys of the texts that a webhook shows.
fn texts_of(id: WebhookId) -> [(&'static str, i64); 3] {
    [(NAME, id.0), (URL, id.0), (HEADERS, id.0)]
}

/// Adds a webhook's name, URL and headers.
pub async fn with_texts(state: &ApiState, shard: ShardId, webhook: webhook::Webhook) -> Result<Webhook, ApiError> {
    let wanted = texts_of(webhook.id);
    let texts = texts::load(state.ledger.pool(), &state.keyring, shard, &wanted).await?;
    Ok(Webhook::with_texts(webhook, &texts))
}

/// Returns a webhook of the account, deleted or not.
///
/// # Errors
/// 404 if the account has no such webhook.
pub async fn find(state: &ApiState, caller: &Principal, id: WebhookId) -> Result<webhook::Webhook, ApiError> {
    let load = async || webhook::Webhook::load(&mut *state.ledger.pool().acquire().await?, caller.shard_id, &[id]).await;
    let found = replanned(load).await?.pop();
    found.filter(|webhook| webhook.account_id == caller.account_id).ok_or_else(not_found)
}

pub struct Webhooks;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Webhooks")]
impl Webhooks {
    /// Register a webhook
    ///
    /// Creates a webhook. Its token is shown only in this response, which has no `success` and `data` wrapper. An account
    /// can have at most 20 webhooks. To verify deliveries, see [Receiving webhooks](/docs/guides/webhooks).
    #[oai(path = "/webhooks", method = "post", operation_id = "register_webhook")]
    async fn register(
        &self,
        caller: Caller<WebhookOperator>,
        state: State<'_>,
        /// Unique key that makes retries safe: a repeated request with the same key returns the first response.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<RegisterWebhook>,
    ) -> Result<Revealing<Stored<RegisteredWebhook, 201>>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let credential_id = request.credential_id.map(CredentialId);
        check_link(&state, &caller, credential_id).await?;
        let idempotency = key.of(&caller, "/api/v1/webhooks", &request, registered)?;
        let command = Command::RegisterWebhook(commands::RegisterWebhook {
            account_id: caller.account_id,
            name: Secret::new(request.name),
            url: Secret::new(request.url),
            events: types(request.events),
            credential_id,
            headers: sealed(request.headers)?,
            new_secret: random_secret(),
        });
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, registered).map(Revealing)
    }

    /// List webhooks
    ///
    /// Returns the account's webhooks, newest first.
    #[oai(path = "/webhooks", method = "get", operation_id = "list_webhooks")]
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Webhooks per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<Webhook>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        list_of(&state, (caller.0.shard_id, caller.0.account_id), page).await
    }

    /// Retrieve a webhook
    ///
    /// Returns the webhook without its token.
    #[oai(path = "/webhooks/:id", method = "get", operation_id = "get_webhook")]
    async fn get(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
    ) -> Result<Reply<Webhook>, ApiError> {
        let webhook = find(&state, &caller.0, WebhookId(id.0)).await?;
        if webhook.is_deleted {
            return Err(not_found());
        }
        Ok(Reply(with_texts(&state, caller.0.shard_id, webhook).await?))
    }

    /// Change a webhook
    ///
    /// Changes the given fields. With `credential_id`, the credential's signing secret becomes the token. A linked webhook
    /// cannot be unlinked. Linking a webhook, or changing the `url` of a linked one, requires the role owner or a request
    /// made with that credential. The reason is that the URL receives the secret.
    #[oai(path = "/webhooks/:id", method = "put", operation_id = "change_webhook")]
    async fn change(
        &self,
        caller: Caller<WebhookOperator>,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
        body: StrictJson<ChangeWebhook>,
    ) -> Result<Reply<Webhook>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let credential_id = request.credential_id.map(CredentialId);
        check_link(&state, &caller, credential_id).await?;
        let change = WebhookChange {
            name: request.name.map(Secret::new),
            url: request.url.map(Secret::new),
            events: request.events.map(types),
            is_active: request.is_active,
            link: credential_id.map(|credential_id| CredentialLink { credential_id, new_secret: random_secret() }),
            headers: sealed(request.headers)?,
            visible: caller.visible_secrets(),
        };
        let command = commands::UpdateWebhook { account_id: caller.account_id, webhook_id: WebhookId(id.0), change };
        let answer = state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
        Ok(Reply(Webhook::of_view(answered!(answer, CommandResult::Webhook(view) => view)?)))
    }

    /// Rotate a webhook's token
    ///
    /// Replaces the webhook's token. Deliveries are signed with the new token from now on. The token is shown only in this
    /// response. Fails with 409 if the webhook is linked to a credential: rotate the credential's signing secret instead.
    ///
    /// With `previous_valid_hours`, deliveries carry a second signature for that time, made with the replaced token, in the
    /// header `X-Signature-Previous`. See [Receiving webhooks](/docs/guides/webhooks).
    #[oai(path = "/webhooks/:id/rotate-token", method = "post", operation_id = "rotate_webhook_token")]
    async fn rotate_token(
        &self,
        caller: Caller<WebhookOperator>,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
        /// Unique key that makes retries safe: a repeated request with the same key returns the first response.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: OptionalJson<RotateToken, true>,
    ) -> Result<Revealing<Stored<Data<RotatedToken>>>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let path = format!("/api/v1/webhooks/{}/rotate-token", id.0);
        let previous_valid_hours = request.previous_valid_hours;
        // A request without fields keeps the fingerprint that it had before there were any.
        let idempotency = match previous_valid_hours {
            None => key.of(&caller, &path, &(), rotated)?,
            Some(_) => key.of(&caller, &path, &request, rotated)?,
        };
        let (account_id, new_token) = (caller.account_id, random_secret());
        let command = commands::RotateWebhookToken { account_id, webhook_id: WebhookId(id.0), new_token, previous_valid_hours };
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, rotated).map(Revealing)
    }

    /// Delete a webhook
    ///
    /// Deletes the webhook. Its pending deliveries fail. The history of its deliveries is kept.
    #[oai(path = "/webhooks/:id", method = "delete", operation_id = "delete_webhook")]
    async fn delete(
        &self,
        caller: Caller<WebhookOperator>,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<DeletedWebhook>, ApiError> {
        let caller = caller.0;
        let command = commands::DeleteWebhook { account_id: caller.account_id, webhook_id: WebhookId(id.0) };
        state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
        Ok(Reply(DeletedWebhook { message: "The webhook is deleted.".to_owned(), webhook_id: id.0 }))
    }

    /// Test a webhook
    ///
    /// Creates a real delivery with sample data: of the given `event_type`, or of the first event type that the webhook is
    /// subscribed to. Its `order_id` and `data.id` are 0, and `data.reference_code` is `TEST`. It is signed, retried and
    /// listed like any other delivery.
    #[oai(path = "/webhooks/:id/test", method = "post", operation_id = "test_webhook")]
    async fn test(
        &self,
        caller: Caller<WebhookOperator>,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
        /// Unique key that makes retries safe: a repeated request with the same key returns the first response.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: OptionalJson<TestWebhook, true>,
    ) -> Result<Stored<Data<WebhookTest>>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let path = format!("/api/v1/webhooks/{}/test", id.0);
        // A request without fields keeps the fingerprint that it had before there were any.
        let idempotency = match request.event_type {
            None => key.of(&caller, &path, &(), tested)?,
            Some(_) => key.of(&caller, &path, &request, tested)?,
        };
        let event_type = request.event_type.map(Into::into);
        let command = commands::TestWebhook { account_id: caller.account_id, webhook_id: WebhookId(id.0), event_type };
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, tested)
    }
}
