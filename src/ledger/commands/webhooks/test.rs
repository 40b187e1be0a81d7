use ledger_events::webhook::{WebhookCommand, WebhookEventType};
use ledger_events::{AccountId, WebhookId};

use super::append;
use crate::ledger::commands::prelude::*;

/// Sends a delivery of sample data to a webhook.
#[derive(Clone, Debug)]
pub struct TestWebhook {
    pub account_id: AccountId,
    pub webhook_id: WebhookId,
    /// Type of the sample data. `None` means the first type that the webhook is subscribed to.
    pub event_type: Option<WebhookEventType>,
}

impl Handler for TestWebhook {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.webhooks.id_of_account(self.account_id, self.webhook_id);
        reads.new_ids.deliveries += 1;
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let delivery_id = batch.ids.deliveries.next()?;
        let test = WebhookCommand::Test { delivery_id, event_type: self.event_type };
        let event_id = append(batch, self.account_id, self.webhook_id, test, context)?;
        Ok(CommandResult::Test { delivery_id, event_id })
    }
}
