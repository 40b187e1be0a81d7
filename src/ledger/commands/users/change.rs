use ledger_events::user::{User, UserPasswordReset, UserRole, UserRoleChanged};
use ledger_events::{AccountId, UserId};

use super::{own, present};
use crate::ledger::batch::UserChange;
use crate::ledger::commands::prelude::*;
use crate::secrets::rows::Row;

/// Changes the fields that are given. A change ends the user's sessions.
#[derive(Clone, Debug)]
pub struct ChangeUser {
    pub account_id: AccountId,
    pub user_id: UserId,
    pub role: Option<UserRole>,
    /// argon2id, as a PHC string.
    pub password_hash: Option<Secret>,
}

impl Handler for ChangeUser {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.users.id(self.user_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let (account_id, id) = (self.account_id, self.user_id);
        let known = present(batch, account_id, id)?;
        let mut context = context.of_account(account_id);
        let role = self.role.filter(|role| *role != known.role);
        if let Some(role) = role {
            context = context.after(batch.append::<User>(id, UserRoleChanged { role }, &context));
        }
        if let Some(password_hash) = &self.password_hash {
            let mac = batch.keyring.row_mac(Row::User { id, account_id, password_hash: password_hash.expose() })?;
            batch.append::<User>(id, UserPasswordReset { row_mac: Some(hex::encode(mac)) }, &context);
            batch.pending.users.push(UserChange::Password { id, password_hash: password_hash.clone(), mac });
        }
        if role.is_some() || self.password_hash.is_some() {
            batch.pending.users.push(UserChange::EndSessions(id));
        }
        Ok(CommandResult::User(own(batch, account_id, id)?))
    }
}
