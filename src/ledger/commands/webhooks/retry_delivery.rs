use ledger_events::AccountId;
use ledger_events::webhook::WebhookCommand;

use super::append;
use crate::ledger::commands::prelude::*;

#[derive(Clone, Debug)]
pub struct RetryDelivery {
    pub account_id: AccountId,
    pub delivery_id: i64,
}

impl Handler for RetryDelivery {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.webhooks.of_account(self.account_id);
        reads.streams.webhooks.query.retried.push(self.delivery_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let (account_id, delivery_id) = (self.account_id, self.delivery_id);
        let known = batch.streams.webhooks.index.retryable.get(&delivery_id).filter(|(owner, ..)| *owner == account_id);
        let (_, webhook_id, delivery) = known.cloned().ok_or(Rejection::NotFound)?;
        append(batch, account_id, webhook_id, WebhookCommand::Retry(delivery), context)?;
        // Another retry in the same batch comes too late.
        if let Some((.., delivery)) = batch.streams.webhooks.index.retryable.get_mut(&delivery_id) {
            delivery.has_failed = false;
        }
        Ok(CommandResult::Retry { delivery_id })
    }
}
