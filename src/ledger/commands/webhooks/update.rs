use ledger_events::webhook::{self, Webhook, WebhookCommand, WebhookEventType, WebhookUpdated};
use ledger_events::{AccountId, CredentialId, WebhookId};

use super::{decide, read_webhook, signing_secret, view};
use crate::ledger::commands::prelude::*;
use crate::ledger::commands::replays::end_replays;
use crate::ledger::texts::{WEBHOOK_HEADERS, WEBHOOK_NAME, WEBHOOK_URL};
use crate::ledger::webhook_headers;
use crate::secrets::seal::SealError;

#[derive(Clone, Debug)]
pub struct UpdateWebhook {
    pub account_id: AccountId,
    pub webhook_id: WebhookId,
    pub change: WebhookChange,
}

/// Changes to a webhook. An absent field stays as it is.
#[derive(Clone, Debug, Default)]
pub struct WebhookChange {
    pub name: Option<Secret>,
    pub url: Option<Secret>,
    pub events: Option<Vec<WebhookEventType>>,
    pub is_active: Option<bool>,
    pub link: Option<CredentialLink>,
    /// Custom headers, as JSON. They replace all that the webhook has.
    pub headers: Option<Secret>,
    /// Signing secrets that the caller may see. A linked webhook shows its credential's secret to its URL, so only a caller
    /// who may see that secret changes the URL.
    pub visible: VisibleSecrets,
}

/// Signing secrets of an account's credentials that a caller may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VisibleSecrets {
    #[default]
    None,
    Only(CredentialId),
    All,
}

impl VisibleSecrets {
    pub fn contains(self, credential: CredentialId) -> bool {
        match self {
            VisibleSecrets::All => true,
            VisibleSecrets::Only(own) => own == credential,
            VisibleSecrets::None => false,
        }
    }
}

/// The credential whose signing secret becomes a webhook's token.
#[derive(Clone, Debug)]
pub struct CredentialLink {
    pub credential_id: CredentialId,
    /// Signing secret of a credential that has none.
    pub new_secret: Secret,
}

/// A caller who has never seen the headers' values could otherwise have them sent to any URL.
const HEADERS_GO_ELSEWHERE: &str =
    "must be sent again with a new url, because their values would go to it; an empty list removes them";

impl UpdateWebhook {
    /// Returns whether the change gives the webhook another URL.
    fn leads_elsewhere(&self, batch: &Batch) -> Result<bool, SealError> {
        let Some(new) = &self.change.url else { return Ok(false) };
        Ok(batch.text(WEBHOOK_URL, self.webhook_id.0)?.is_none_or(|url| url.expose() != new.expose()))
    }
}

fn has_headers(batch: &Batch, id: WebhookId) -> Result<bool, SealError> {
    let headers = batch.text(WEBHOOK_HEADERS, id.0)?;
    Ok(headers.and_then(|headers| webhook_headers::open(&headers)).is_some_and(|headers| !headers.is_empty()))
}

impl Handler for UpdateWebhook {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        read_webhook(reads, self.account_id, self.webhook_id);
        let credential = self.change.link.as_ref().map(|link| link.credential_id);
        reads.streams.credentials.ids.extend(credential);
        reads.streams.credentials.query.signing_secrets.extend(credential);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let (account_id, id, link) = (self.account_id, self.webhook_id, self.change.link.as_ref());
        let (name, url) = (self.change.name.as_ref().map(Salted::new), self.change.url.as_ref().map(Salted::new));
        let headers = self.change.headers.as_ref().map(Salted::new);
        let (events, further_events) = self.change.events.clone().map(WebhookEventType::split).unzip();
        let update = WebhookUpdated {
            events,
            is_active: self.change.is_active,
            name_hash: name.as_ref().map(Salted::hash),
            url_hash: url.as_ref().map(Salted::hash),
            token_hash: None,
            credential_id: link.map(|link| link.credential_id),
            further_events,
            headers_hash: headers.as_ref().map(Salted::hash),
            previous_token_until: None,
            deactivation: None,
        };
        let event = decide(batch, account_id, id, WebhookCommand::Update(update))?;
        let linked = batch.streams.webhooks.get(id).and_then(|webhook| webhook.credential_id);
        if let (Some(_), None, Some(credential)) = (&url, link, linked)
            && !self.change.visible.contains(credential)
        {
            return Err(Rejection::SecretNotVisible.into());
        }
        if self.change.headers.is_none() && self.leads_elsewhere(batch)? && has_headers(batch, id)? {
            return Err(Rejection::InvalidField { field: "headers", problem: HEADERS_GO_ELSEWHERE }.into());
        }
        let mut context = *context;
        if let Some(CredentialLink { credential_id, new_secret }) = link {
            webhook::linkable(account_id, batch.streams.credentials.get(*credential_id))?;
            context = signing_secret(batch, *credential_id, new_secret, context.of_account(account_id))?.1;
        }
        batch.append::<Webhook>(id, event, &context.of_account(account_id));
        end_replays(batch, id, &context);
        for (kind, text) in [(WEBHOOK_NAME, name), (WEBHOOK_URL, url), (WEBHOOK_HEADERS, headers)] {
            if let Some(text) = text {
                text.keep(batch, kind, id.0)?;
            }
        }
        view(batch, id, None)
    }
}
