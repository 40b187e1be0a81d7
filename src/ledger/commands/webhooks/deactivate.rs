use chrono::{DateTime, Utc};
use ledger_events::user::{User, UserRole};
use ledger_events::webhook::{self, Deactivation, Webhook, WebhookCommand};
use ledger_events::{AccountId, UserId, WebhookId};

use super::read_webhook;
use crate::ledger::commands::prelude::*;
use crate::ledger::commands::replays::end_replays;
use crate::ledger::outbox::{Mail, Recipient};
use crate::ledger::texts::WEBHOOK_NAME;

/// Switches off a webhook whose attempts have only failed for too long, and tells the account's owners by mail. It is refused
/// if the webhook was changed since it was judged.
#[derive(Clone, Debug)]
pub struct DeactivateWebhook {
    pub account_id: AccountId,
    pub webhook_id: WebhookId,
    /// Version of the webhook that was judged.
    pub version: i64,
    pub failing_since: DateTime<Utc>,
}

impl Handler for DeactivateWebhook {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        read_webhook(reads, self.account_id, self.webhook_id);
        reads.streams.users.query.owners_of.insert(self.account_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, webhook_id, version, failing_since } = *self;
        let account = batch.streams.accounts.find(account_id)?.clone();
        // A suspended account's endpoint fails as any other does, so its status does not matter.
        let reason = Deactivation::Failing { failing_since };
        let event = webhook::decide(batch.streams.webhooks.find(webhook_id)?, WebhookCommand::Deactivate { version, reason })?;
        let name = batch.text(WEBHOOK_NAME, webhook_id.0)?.map_or_else(String::new, |name| name.expose().to_owned());
        batch.append::<Webhook>(webhook_id, event, &context.of_account(account_id));
        end_replays(batch, webhook_id, context);
        let is_owner = |user: &&User| user.account_id == account_id && user.role == UserRole::Owner && !user.is_removed;
        let owners: Vec<UserId> = batch.streams.users.values().filter(is_owner).map(|owner| owner.id).collect();
        let mail = Mail::WebhookDeactivated { webhook_id, name, failing_since };
        for owner in owners {
            batch.queue_mail(&mail, Recipient::User(owner))?;
        }
        Ok(CommandResult::Account(account))
    }
}
