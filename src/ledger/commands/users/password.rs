use ledger_events::user::{User, UserPasswordReset};
use ledger_events::{AccountId, UserId};

use super::present;
use crate::ledger::batch::UserChange;
use crate::ledger::commands::OwnChange;
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
    /// Set if the user is signed in, and has not come from a mail.
    pub own: Option<OwnChange>,
}

impl Handler for SetOwnPassword {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.users.id(self.user_id);
        if self.own.is_some() {
            reads.streams.users.query.passwords.push(self.user_id);
        }
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, user_id: id, ref password_hash, ref own } = *self;
        present(batch, account_id, id)?;
        let shown = own.as_ref().map(|own| own.present_hash.expose());
        if shown.is_some_and(|shown| present_hash(batch, id).map(Secret::expose) != Some(shown)) {
            return Err(Rejection::Conflict("the password was changed meanwhile").into());
        }
        let mac = batch.keyring.row_mac(Row::User { id, account_id, password_hash: password_hash.expose() })?;
        let event = UserPasswordReset { row_mac: Some(hex::encode(mac)) };
        batch.append::<User>(id, event, &context.of_account(account_id));
        batch.pending.users.push(UserChange::Password { id, password_hash: password_hash.clone(), mac });
        batch.pending.users.push(match own {
            Some(own) => UserChange::EndOtherSessions { id, kept: own.session_id },
            None => UserChange::EndSessions(id),
        });
        batch.queue_mail(&Mail::PasswordChanged, Recipient::User(id))?;
        Ok(CommandResult::User(present(batch, account_id, id)?))
    }
}

/// Returns the hash of a user's password, with the changes of earlier commands of the batch.
fn present_hash(batch: &Batch, id: UserId) -> Option<&Secret> {
    let changed = batch.pending.users.iter().rev().find_map(|change| match change {
        UserChange::Password { id: of, password_hash, .. } if *of == id => Some(password_hash),
        _ => None,
    });
    changed.or_else(|| batch.streams.users.index.passwords.get(&id))
}
