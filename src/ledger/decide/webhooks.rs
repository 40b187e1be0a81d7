//! Registering, changing, deleting and testing webhooks, and retrying what failed to reach them.

use ledger_events::webhook::{Webhook, WebhookDeleted, WebhookEvent, WebhookRegistered, WebhookUpdated};
use ledger_events::{AccountId, CredentialId, Rejection, WebhookId};

use super::credentials::keep_signing_secret;
use super::{Decided, Stop, Story, active, new_salt, next, unknown};
use crate::access::SIGNING_SECRET;
use crate::access::seal::{Private, SealError};
use crate::ledger::batch::Batch;
use crate::ledger::command::{Answer, RegisterWebhook, WebhookChange, WebhookView};
use crate::ledger::texts::{WEBHOOK_NAME, WEBHOOK_TOKEN, WEBHOOK_URL};

pub(super) fn register(batch: &mut Batch, command: &RegisterWebhook, story: Story<'_>) -> Decided {
    let account_id = command.account_id;
    active(batch, account_id)?;
    let alive = batch.webhooks.values().filter(|w| w.account_id == account_id && !w.is_deleted).count();
    if alive >= Webhook::MOST_PER_ACCOUNT {
        return Err(Rejection::WebhookLimitReached.into());
    }
    if let Some(id) = command.credential_id {
        batch.credentials.get(&id).filter(|c| c.account_id == account_id && !c.is_revoked).ok_or(unknown("credential_id"))?;
    }
    let id = next(batch.ids.webhooks.pop_front(), "webhook")?;
    let story = Story { account_id: Some(account_id), ..story };
    let (token, story) = match command.credential_id {
        Some(credential_id) => signing_secret(batch, credential_id, &command.new_secret, story)?,
        None => {
            batch.keep_text(WEBHOOK_TOKEN, id, new_salt(), &command.new_secret)?;
            (command.new_secret.clone(), story)
        }
    };
    let name_hash = batch.keep_text(WEBHOOK_NAME, id, new_salt(), &command.name)?;
    let url_hash = batch.keep_text(WEBHOOK_URL, id, new_salt(), &command.url)?;
    let event = WebhookRegistered {
        account_id,
        credential_id: command.credential_id,
        events: command.events.clone(),
        name_hash,
        url_hash,
    };
    batch.append(id, WebhookEvent::from(event), &story);
    webhook_view(batch, id, Some(token))
}

/// The credential's signing secret, and how the story goes on; the new one becomes it where there is none.
fn signing_secret<'a>(
    batch: &mut Batch,
    id: CredentialId,
    new_secret: &Private,
    story: Story<'a>,
) -> Result<(Private, Story<'a>), Stop> {
    if let Some(sealed) = batch.signing_secrets.get(&id) {
        return Ok((batch.keyring.open_text(SIGNING_SECRET, id, sealed)?, story));
    }
    let kept = keep_signing_secret(batch, id, new_secret, &story)?;
    Ok((new_secret.clone(), story.after(kept)))
}

pub(super) fn update(
    batch: &mut Batch,
    account_id: AccountId,
    id: WebhookId,
    change: &WebhookChange,
    story: Story<'_>,
) -> Decided {
    own_webhook(batch, account_id, id)?;
    let name_hash = change.name.as_ref().map(|text| batch.keep_text(WEBHOOK_NAME, id, new_salt(), text)).transpose()?;
    let url_hash = change.url.as_ref().map(|text| batch.keep_text(WEBHOOK_URL, id, new_salt(), text)).transpose()?;
    let event = WebhookUpdated { events: change.events.clone(), is_active: change.is_active, name_hash, url_hash };
    batch.append(id, WebhookEvent::from(event), &Story { account_id: Some(account_id), ..story });
    webhook_view(batch, id, None)
}

fn own_webhook(batch: &Batch, account_id: AccountId, id: WebhookId) -> Result<(), Rejection> {
    batch.webhooks.get(&id).filter(|w| w.account_id == account_id && !w.is_deleted).ok_or(Rejection::NotFound)?;
    active(batch, account_id)
}

fn webhook_view(batch: &Batch, id: WebhookId, token: Option<Private>) -> Decided {
    let webhook = batch.webhooks.get(&id).cloned().ok_or(Rejection::NotFound)?;
    let name = batch.text(WEBHOOK_NAME, id)?.ok_or(SealError::Unreadable)?;
    let url = batch.text(WEBHOOK_URL, id)?.ok_or(SealError::Unreadable)?;
    Ok(Answer::Webhook(WebhookView { webhook, name, url, token }))
}

pub(super) fn delete(batch: &mut Batch, account_id: AccountId, id: WebhookId, story: Story<'_>) -> Decided {
    own_webhook(batch, account_id, id)?;
    batch.append(id, WebhookEvent::from(WebhookDeleted {}), &Story { account_id: Some(account_id), ..story });
    webhook_view(batch, id, None)
}

pub(super) fn test(batch: &mut Batch, account_id: AccountId, id: WebhookId, story: Story<'_>) -> Decided {
    let webhook = batch.webhooks.get(&id).filter(|w| w.account_id == account_id).cloned().ok_or(Rejection::NotFound)?;
    active(batch, account_id)?;
    webhook.listening()?;
    let delivery_id = next(batch.ids.deliveries.pop_front(), "delivery")?;
    let event = WebhookEvent::from(webhook.test(delivery_id)?);
    let event_id = batch.append(id, event, &Story { account_id: Some(account_id), ..story });
    Ok(Answer::Test { delivery_id, event_id })
}

pub(super) fn retry(batch: &mut Batch, account_id: AccountId, delivery_id: i64, story: Story<'_>) -> Decided {
    let known = batch.retryable.get(&delivery_id).filter(|(owner, ..)| *owner == account_id);
    let (_, webhook_id, delivery) = known.cloned().ok_or(Rejection::NotFound)?;
    active(batch, account_id)?;
    let event = delivery.retry(batch.webhooks.get(&webhook_id).ok_or(Rejection::NotFound)?)?;
    batch.append(webhook_id, WebhookEvent::from(event), &Story { account_id: Some(account_id), ..story });
    // Another retry in the same batch comes too late.
    if let Some((.., delivery)) = batch.retryable.get_mut(&delivery_id) {
        delivery.has_failed = false;
    }
    Ok(Answer::Retry { delivery_id })
}
