//! Registering, changing, deleting and testing webhooks, and retrying what failed to reach them.

use ledger_events::webhook::{self, WebhookCommand, WebhookEvent, WebhookRegistered, WebhookUpdated};
use ledger_events::{AccountId, CredentialId, Rejection, WebhookId};
use uuid::Uuid;

use super::credentials::keep_signing_secret;
use super::{Decided, Stop, Story, active, new_salt, next, replays};
use crate::ledger::answer::{Answer, WebhookView};
use crate::ledger::batch::Batch;
use crate::ledger::command::{CredentialLink, RegisterWebhook, WebhookChange};
use crate::ledger::texts::{WEBHOOK_NAME, WEBHOOK_TOKEN, WEBHOOK_URL};
use crate::secrets::SIGNING_SECRET;
use crate::secrets::seal::{Private, SealError, salted_hash};

pub(super) fn register(batch: &mut Batch, command: &RegisterWebhook, story: Story<'_>) -> Decided {
    let account_id = command.account_id;
    let account = batch.accounts.get(&account_id).ok_or(Rejection::NotFound)?;
    let alive = batch.webhooks.values().filter(|w| w.account_id == account_id && !w.is_deleted).count();
    let credential = command.credential_id.and_then(|id| batch.credentials.get(&id));
    let (name, url) = (Hashed::new(WEBHOOK_NAME, &command.name), Hashed::new(WEBHOOK_URL, &command.url));
    let asked = WebhookRegistered {
        account_id,
        credential_id: command.credential_id,
        events: command.events.clone(),
        name_hash: name.hash(),
        url_hash: url.hash(),
    };
    let event = webhook::register(account, alive, credential, asked)?;

    let id = next(batch.ids.webhooks.pop_front(), "webhook")?;
    let story = Story { account_id: Some(account_id), ..story };
    let (token, story) = match command.credential_id {
        Some(credential_id) => signing_secret(batch, credential_id, &command.new_secret, story)?,
        None => {
            batch.keep_text(WEBHOOK_TOKEN, id, new_salt(), &command.new_secret)?;
            (command.new_secret.clone(), story)
        }
    };
    batch.append(id, event, &story);
    name.keep(batch, id)?;
    url.keep(batch, id)?;
    webhook_view(batch, id, Some(token))
}

/// A text that an event commits to, kept once the event is decided.
struct Hashed<'a> {
    kind: &'static str,
    salt: Vec<u8>,
    text: &'a Private,
}

impl<'a> Hashed<'a> {
    fn new(kind: &'static str, text: &'a Private) -> Hashed<'a> {
        Hashed { kind, salt: new_salt(), text }
    }

    fn hash(&self) -> String {
        salted_hash(&self.salt, self.text.expose())
    }

    fn keep(self, batch: &mut Batch, id: WebhookId) -> Result<(), SealError> {
        batch.keep_text(self.kind, id, self.salt, self.text)?;
        Ok(())
    }
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
    let name = change.name.as_ref().map(|text| Hashed::new(WEBHOOK_NAME, text));
    let url = change.url.as_ref().map(|text| Hashed::new(WEBHOOK_URL, text));
    let (link, visible) = (change.link.as_ref(), change.visible);
    let change = WebhookUpdated {
        events: change.events.clone(),
        is_active: change.is_active,
        name_hash: name.as_ref().map(Hashed::hash),
        url_hash: url.as_ref().map(Hashed::hash),
        token_hash: None,
        credential_id: link.map(|link| link.credential_id),
    };
    let event = decided(batch, account_id, id, WebhookCommand::Update(change))?;
    let linked = batch.webhooks.get(&id).and_then(|webhook| webhook.credential_id);
    if let (Some(_), None, Some(credential)) = (&url, link, linked)
        && !visible.contains(credential)
    {
        return Err(Rejection::SecretNotVisible.into());
    }
    let story = match link {
        Some(CredentialLink { credential_id, new_secret }) => {
            webhook::linkable(account_id, batch.credentials.get(credential_id))?;
            let story = Story { account_id: Some(account_id), ..story };
            signing_secret(batch, *credential_id, new_secret, story)?.1
        }
        None => story,
    };
    append_decided(batch, account_id, id, event, &story);
    replays::end(batch, id, &story);
    for text in [name, url].into_iter().flatten() {
        text.keep(batch, id)?;
    }
    webhook_view(batch, id, None)
}

/// Replaces a standalone token: the next delivery is signed with the new one, which the answer shows.
pub(super) fn rotate_token(
    batch: &mut Batch,
    account_id: AccountId,
    id: WebhookId,
    new_token: &Private,
    story: Story<'_>,
) -> Decided {
    let token = Hashed::new(WEBHOOK_TOKEN, new_token);
    append(batch, account_id, id, WebhookCommand::RotateToken { token_hash: token.hash() }, &story)?;
    token.keep(batch, id)?;
    webhook_view(batch, id, Some(new_token.clone()))
}

/// Decides for the account's own webhook, and appends. Answers the event's id.
fn append(
    batch: &mut Batch,
    account_id: AccountId,
    id: WebhookId,
    command: WebhookCommand,
    story: &Story<'_>,
) -> Result<Uuid, Rejection> {
    let event = decided(batch, account_id, id, command)?;
    Ok(append_decided(batch, account_id, id, event, story))
}

fn append_decided(batch: &mut Batch, account_id: AccountId, id: WebhookId, event: WebhookEvent, story: &Story<'_>) -> Uuid {
    batch.append(id, event, &Story { account_id: Some(account_id), ..*story })
}

/// What happens to the account's own webhook on a command.
fn decided(batch: &Batch, account_id: AccountId, id: WebhookId, command: WebhookCommand) -> Result<WebhookEvent, Rejection> {
    let webhook = batch.webhooks.get(&id).filter(|w| w.account_id == account_id).ok_or(Rejection::NotFound)?;
    let decided = webhook::decide(webhook, command);
    // A webhook that cannot be found is not found by a suspended account either.
    if decided != Err(Rejection::NotFound) {
        active(batch, account_id)?;
    }
    decided
}

fn webhook_view(batch: &Batch, id: WebhookId, token: Option<Private>) -> Decided {
    let webhook = batch.webhooks.get(&id).cloned().ok_or(Rejection::NotFound)?;
    let name = batch.text(WEBHOOK_NAME, id)?.ok_or(SealError::Unreadable)?;
    let url = batch.text(WEBHOOK_URL, id)?.ok_or(SealError::Unreadable)?;
    Ok(Answer::Webhook(WebhookView { webhook, name, url, token }))
}

pub(super) fn delete(batch: &mut Batch, account_id: AccountId, id: WebhookId, story: Story<'_>) -> Decided {
    append(batch, account_id, id, WebhookCommand::Delete, &story)?;
    replays::end(batch, id, &story);
    webhook_view(batch, id, None)
}

pub(super) fn test(batch: &mut Batch, account_id: AccountId, id: WebhookId, story: Story<'_>) -> Decided {
    let delivery_id = next(batch.ids.deliveries.pop_front(), "delivery")?;
    let event_id = append(batch, account_id, id, WebhookCommand::Test { delivery_id }, &story)?;
    Ok(Answer::Test { delivery_id, event_id })
}

pub(super) fn retry(batch: &mut Batch, account_id: AccountId, delivery_id: i64, story: Story<'_>) -> Decided {
    let known = batch.retryable.get(&delivery_id).filter(|(owner, ..)| *owner == account_id);
    let (_, webhook_id, delivery) = known.cloned().ok_or(Rejection::NotFound)?;
    append(batch, account_id, webhook_id, WebhookCommand::Retry(delivery), &story)?;
    // Another retry in the same batch comes too late.
    if let Some((.., delivery)) = batch.retryable.get_mut(&delivery_id) {
        delivery.has_failed = false;
    }
    Ok(Answer::Retry { delivery_id })
}
