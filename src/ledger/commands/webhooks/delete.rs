use ledger_events::webhook::WebhookCommand;
use ledger_events::{AccountId, WebhookId};

use super::{append, read_webhook, view};
use crate::ledger::commands::prelude::*;
use crate::ledger::commands::replays::end_replays;

#[derive(Clone, Debug)]
pub struct DeleteWebhook {
    pub account_id: AccountId,
    pub webhook_id: WebhookId,
}

impl Handler for DeleteWebhook {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        read_webhook(reads, self.account_id, self.webhook_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        append(batch, self.account_id, self.webhook_id, WebhookCommand::Delete, context)?;
        end_replays(batch, self.webhook_id, context);
        view(batch, self.webhook_id, None)
    }
}
