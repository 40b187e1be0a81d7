use ledger_events::webhook::WebhookCommand;
use ledger_events::{AccountId, WebhookId};

use super::{append, read_webhook, view};
use crate::ledger::commands::prelude::*;
use crate::ledger::texts::WEBHOOK_TOKEN;

/// Replaces the token of a standalone webhook, from the next delivery on. The result shows the new token.
#[derive(Clone, Debug)]
pub struct RotateWebhookToken {
    pub account_id: AccountId,
    pub webhook_id: WebhookId,
    pub new_token: Secret,
}

impl Handler for RotateWebhookToken {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        read_webhook(reads, self.account_id, self.webhook_id);
        // A stored response is sealed for the account.
        reads.data_keys.insert(Owner::Account(self.account_id));
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let token = Salted::new(&self.new_token);
        let rotate = WebhookCommand::RotateToken { token_hash: token.hash() };
        append(batch, self.account_id, self.webhook_id, rotate, context)?;
        token.keep(batch, WEBHOOK_TOKEN, self.webhook_id.0)?;
        view(batch, self.webhook_id, Some(self.new_token.clone()))
    }
}
