use ledger_events::webhook::WebhookCommand;
use ledger_events::{AccountId, WebhookId};

use super::{append, decide, read_webhook, view};
use crate::ledger::command_result::WebhookView;
use crate::ledger::commands::prelude::*;
use crate::ledger::commands::previous_secret;
use crate::ledger::texts::{WEBHOOK_PREVIOUS_TOKEN, WEBHOOK_TOKEN};

/// Replaces the token of a standalone webhook, from the next delivery on. The result shows the new token.
#[derive(Clone, Debug)]
pub struct RotateWebhookToken {
    pub account_id: AccountId,
    pub webhook_id: WebhookId,
    pub new_token: Secret,
    /// Hours for which deliveries are signed with the replaced token, too.
    pub previous_valid_hours: Option<i64>,
}

impl Handler for RotateWebhookToken {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        read_webhook(reads, self.account_id, self.webhook_id);
        reads.texts.extend([(WEBHOOK_TOKEN, self.webhook_id.0), (WEBHOOK_PREVIOUS_TOKEN, self.webhook_id.0)]);
        // A stored response is sealed for the account.
        reads.data_keys.insert(Owner::Account(self.account_id));
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let id = self.webhook_id;
        let token = Salted::new(&self.new_token);
        let rotate = |previous_until| WebhookCommand::RotateToken { token_hash: token.hash(), previous_until };
        decide(batch, self.account_id, id, rotate(None))?;
        let replaced = batch.text(WEBHOOK_TOKEN, id.0)?;
        let hours = self.previous_valid_hours;
        let previous_until = previous_secret::keep(batch, (WEBHOOK_PREVIOUS_TOKEN, id.0), replaced, hours)?;
        append(batch, self.account_id, id, rotate(previous_until), context)?;
        token.keep(batch, WEBHOOK_TOKEN, id.0)?;
        match view(batch, id, Some(self.new_token.clone()))? {
            CommandResult::Webhook(view) => Ok(CommandResult::Webhook(WebhookView { previous_until, ..view })),
            result => Ok(result),
        }
    }
}
