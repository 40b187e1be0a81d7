//! Webhooks.

mod deactivate;
mod delete;
mod register;
mod retry_delivery;
mod rotate_token;
mod test;
mod update;

use ledger_events::webhook::{self, Webhook, WebhookCommand, WebhookEvent};
use ledger_events::{AccountId, CredentialId, WebhookId};
use uuid::Uuid;

pub use deactivate::DeactivateWebhook;
pub use delete::DeleteWebhook;
pub use register::RegisterWebhook;
pub use retry_delivery::RetryDelivery;
pub use rotate_token::RotateWebhookToken;
pub use test::TestWebhook;
pub use update::{CredentialLink, UpdateWebhook, VisibleSecrets, WebhookChange};

use super::CommandError;
use super::credentials::keep_signing_secret;
use crate::ledger::command_result::WebhookView;
use crate::ledger::commands::prelude::*;
use crate::ledger::texts::{WEBHOOK_HEADERS, WEBHOOK_NAME, WEBHOOK_URL};
use crate::secrets::SIGNING_SECRET;
use crate::secrets::seal::SealError;

/// Asks for a webhook that a command changes and shows, and for its running replays.
fn read_webhook(reads: &mut ReadSet<'_>, account_id: AccountId, id: WebhookId) {
    reads.streams.accounts.id(account_id);
    reads.streams.webhooks.id_of_account(account_id, id);
    reads.streams.replays.query.running_of.insert(account_id);
    reads.texts.extend([(WEBHOOK_NAME, id.0), (WEBHOOK_URL, id.0), (WEBHOOK_HEADERS, id.0)]);
}

/// Returns the credential's signing secret, and the context of the next event. A credential without one gets the new one.
fn signing_secret<'a>(
    batch: &mut Batch,
    id: CredentialId,
    new_secret: &Secret,
    context: CommandContext<'a>,
) -> Result<(Secret, CommandContext<'a>), CommandError> {
    if let Some(sealed) = batch.streams.credentials.index.signing_secrets.get(&id) {
        return Ok((batch.keyring.open_text(SIGNING_SECRET, id.0, sealed)?, context));
    }
    let kept = keep_signing_secret(batch, id, new_secret, None, &context)?;
    Ok((new_secret.clone(), context.after(kept)))
}

/// Decides for the account's own webhook.
fn decide(batch: &Batch, account_id: AccountId, id: WebhookId, command: WebhookCommand) -> Result<WebhookEvent, Rejection> {
    let known = batch.streams.webhooks.get(id).filter(|webhook| webhook.account_id == account_id);
    let decided = webhook::decide(known.ok_or(Rejection::NotFound)?, command);
    // A suspended account does not find a deleted webhook either.
    if decided != Err(Rejection::NotFound) {
        require_active(batch, account_id)?;
    }
    decided
}

/// Decides for the account's own webhook, and appends the event. Returns the event's id.
fn append(
    batch: &mut Batch,
    account_id: AccountId,
    id: WebhookId,
    command: WebhookCommand,
    context: &CommandContext<'_>,
) -> Result<Uuid, Rejection> {
    let event = decide(batch, account_id, id, command)?;
    Ok(batch.append::<Webhook>(id, event, &context.of_account(account_id)))
}

fn view(batch: &Batch, id: WebhookId, token: Option<Secret>) -> Decided {
    let webhook = batch.streams.webhooks.find(id)?.clone();
    let name = batch.text(WEBHOOK_NAME, id.0)?.ok_or(SealError::Unreadable)?;
    let url = batch.text(WEBHOOK_URL, id.0)?.ok_or(SealError::Unreadable)?;
    let headers = batch.text(WEBHOOK_HEADERS, id.0)?;
    Ok(CommandResult::Webhook(WebhookView { webhook, name, url, token, headers, previous_until: None }))
}
