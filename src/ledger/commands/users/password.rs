use ledger_events::user::{User, UserPasswordReset};
use ledger_events::{AccountId, UserId};

use super::present;
use crate::ledger::batch::UserChange;
use crate::ledger::commands::prelude::*;
use crate::ledger::outbox::{Mail, Recipient};
use crate::secrets::rows::Row;

/// Sets a password that the user has chosen, and tells the user by mail. Ends the user's sessions, except the one that asks
/// for it.
#[derive(Clone, Debug)]
pub struct SetOwnPassword {
    pub account_id: AccountId,
    pub user_id: UserId,
    /// argon2id, as a PHC string.
    pub password_hash: Secret,
    /// Session that goes on, if any.
    pub kept_session: Option<i64>,
}

impl Handler for SetOwnPassword {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.users.id(self.user_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, user_id: id, ref password_hash, kept_session } = *self;
        present(batch, account_id, id)?;
        let mac = batch.keyring.row_mac(Row::User { id, account_id, password_hash: password_hash.expose() })?;
        let event = UserPasswordReset { row_mac: Some(hex::encode(mac)) };
        batch.append::<User>(id, event, &context.of_account(account_id));
        batch.pending.users.push(UserChange::Password { id, password_hash: password_hash.clone(), mac });
        batch.pending.users.push(match kept_session {
            Some(kept) => UserChange::EndOtherSessions { id, kept },
            None => UserChange::EndSessions(id),
        });
        batch.queue_mail(&Mail::PasswordChanged, Recipient::User(id))?;
        Ok(CommandResult::User(present(batch, account_id, id)?))
    }
}
