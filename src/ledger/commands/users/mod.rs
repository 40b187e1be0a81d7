//! Users of accounts.

mod change;
mod create;
mod password;
mod team;
mod two_factor;

use ledger_events::user::{User, UserRemoved, UserSessionsEnded};
use ledger_events::{AccountId, UserId};

pub use change::ChangeUser;
pub use create::CreateUser;
pub use password::SetOwnPassword;
pub use team::{AcceptInvitation, ChangeMemberRole, InviteUser, RemoveMember, RevokeInvitation};
pub use two_factor::{DisableTwoFactor, EnableTwoFactor, SetSecurityPolicy};

use crate::ledger::batch::UserChange;
use crate::ledger::commands::prelude::*;

#[derive(Clone, Debug)]
pub struct EndSessions {
    pub account_id: AccountId,
    pub user_id: UserId,
}

impl Handler for EndSessions {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.users.id(self.user_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let user = present(batch, self.account_id, self.user_id)?;
        batch.append::<User>(self.user_id, UserSessionsEnded {}, &context.of_account(self.account_id));
        batch.pending.users.push(UserChange::EndSessions(self.user_id));
        Ok(CommandResult::User(user))
    }
}

#[derive(Clone, Debug)]
pub struct RemoveUser {
    pub account_id: AccountId,
    pub user_id: UserId,
}

impl Handler for RemoveUser {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.users.id(self.user_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let (account_id, id) = (self.account_id, self.user_id);
        if !own(batch, account_id, id)?.is_removed {
            batch.append::<User>(id, UserRemoved {}, &context.of_account(account_id));
            batch.streams.users.index.by_email.retain(|_, user| *user != id);
            batch.pending.users.push(UserChange::Remove(id));
        }
        Ok(CommandResult::User(own(batch, account_id, id)?))
    }
}

/// Returns the account's own user who was not removed.
fn present(batch: &Batch, account_id: AccountId, id: UserId) -> Result<User, Rejection> {
    match own(batch, account_id, id)? {
        user if user.is_removed => Err(Rejection::Conflict("the user was removed")),
        user => Ok(user),
    }
}

/// Returns the account's own user.
fn own(batch: &Batch, account_id: AccountId, id: UserId) -> Result<User, Rejection> {
    batch.streams.users.get(id).filter(|user| user.account_id == account_id).cloned().ok_or(Rejection::NotFound)
}
