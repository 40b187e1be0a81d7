use ledger_events::webhook::{self, Webhook, WebhookEventType, WebhookRegistered};
use ledger_events::{AccountId, CredentialId};

use super::{signing_secret, view};
use crate::ledger::commands::prelude::*;
use crate::ledger::texts::{WEBHOOK_HEADERS, WEBHOOK_NAME, WEBHOOK_TOKEN, WEBHOOK_URL};

#[derive(Clone, Debug)]
pub struct RegisterWebhook {
    pub account_id: AccountId,
    pub name: Secret,
    pub url: Secret,
    pub events: Vec<WebhookEventType>,
    pub credential_id: Option<CredentialId>,
    /// Custom headers, as JSON.
    pub headers: Option<Secret>,
    /// Token of a standalone webhook, or the signing secret of a credential that has none.
    pub new_secret: Secret,
}

impl Handler for RegisterWebhook {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.webhooks.of_account(self.account_id);
        reads.streams.webhooks.new_id();
        reads.data_keys.insert(Owner::Account(self.account_id));
        reads.streams.credentials.ids.extend(self.credential_id);
        reads.streams.credentials.query.signing_secrets.extend(self.credential_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, credential_id, .. } = *self;
        let account = batch.streams.accounts.find(account_id)?;
        let alive = batch.streams.webhooks.values().filter(|w| w.account_id == account_id && !w.is_deleted).count();
        let credential = credential_id.and_then(|id| batch.streams.credentials.get(id));
        let (name, url) = (Salted::new(&self.name), Salted::new(&self.url));
        let (events, further_events) = WebhookEventType::split(self.events.clone());
        let headers = self.headers.as_ref().map(Salted::new);
        let asked = WebhookRegistered {
            account_id,
            credential_id,
            events,
            name_hash: name.hash(),
            url_hash: url.hash(),
            further_events,
            headers_hash: headers.as_ref().map(Salted::hash),
        };
        let event = webhook::register(account, alive, credential, asked)?;

        let id = batch.streams.webhooks.next_id()?;
        let context = context.of_account(account_id);
        let (token, context) = match credential_id {
            Some(credential_id) => signing_secret(batch, credential_id, &self.new_secret, context)?,
            None => {
                batch.keep_text(WEBHOOK_TOKEN, id.0, new_salt(), &self.new_secret)?;
                (self.new_secret.clone(), context)
            }
        };
        batch.append::<Webhook>(id, event, &context);
        name.keep(batch, WEBHOOK_NAME, id.0)?;
        url.keep(batch, WEBHOOK_URL, id.0)?;
        headers.map_or(Ok(()), |headers| headers.keep(batch, WEBHOOK_HEADERS, id.0))?;
        view(batch, id, Some(token))
    }
}
