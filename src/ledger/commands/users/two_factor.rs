//! Two-factor authentication of users, and the rule that an account's owners need it.

use ledger_events::account::{Account, SecurityPolicyChanged};
use ledger_events::user::{User, UserTwoFactorDisabled, UserTwoFactorEnabled};
use ledger_events::{AccountId, UserId};

use super::{UserChange, own, present};
use crate::ledger::commands::prelude::*;
use crate::ledger::outbox::{Mail, Recipient};
use crate::ledger::user_security::{Change, NewTwoFactor};
use crate::secrets::TWO_FACTOR_SECRET;
use crate::secrets::rows::Row;

/// Enables the second factor that the user has confirmed with a code, ends the user's other sessions, and tells the user by
/// mail.
#[derive(Clone, Debug)]
pub struct EnableTwoFactor {
    pub account_id: AccountId,
    pub user_id: UserId,
    pub secret: Secret,
    /// Step of the code that confirmed it.
    pub step: i64,
    /// Keyed hashes of the recovery codes.
    pub recovery_codes: Vec<[u8; 32]>,
    /// The session that goes on.
    pub kept_session: i64,
}

impl Handler for EnableTwoFactor {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.users.id(self.user_id);
        reads.streams.users.query.two_factor.push(self.user_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, user_id: id, ref secret, step, ref recovery_codes, kept_session } = *self;
        present(batch, account_id, id)?;
        if batch.streams.users.index.two_factor.get(&id).is_some() {
            return Err(Rejection::Conflict("two-factor authentication is enabled already").into());
        }
        let mac = batch.keyring.row_mac(Row::TwoFactor { user_id: id, secret: secret.expose() })?;
        let sealed = batch.keyring.seal(TWO_FACTOR_SECRET, id.0, secret.expose().as_bytes())?;
        let event = UserTwoFactorEnabled { row_mac: hex::encode(mac) };
        batch.append::<User>(id, event, &context.of_account(account_id));
        batch.streams.users.index.two_factor.insert(id, ());
        let new = NewTwoFactor { user_id: id, sealed, step, mac, recovery_codes: recovery_codes.clone() };
        batch.pending.user_security.push(Change::EnableTwoFactor(new));
        batch.pending.users.push(UserChange::EndOtherSessions { id, kept: kept_session });
        batch.queue_mail(&Mail::TwoFactorEnabled, Recipient::User(id))?;
        Ok(CommandResult::User(own(batch, account_id, id)?))
    }
}

/// Disables the second factor of a user, deletes its recovery codes, and tells the user by mail.
#[derive(Clone, Debug)]
pub struct DisableTwoFactor {
    pub account_id: AccountId,
    pub user_id: UserId,
}

impl Handler for DisableTwoFactor {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.users.id(self.user_id);
        reads.streams.users.query.two_factor.push(self.user_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let (account_id, id) = (self.account_id, self.user_id);
        present(batch, account_id, id)?;
        if batch.streams.users.index.two_factor.remove(&id).is_none() {
            return Err(Rejection::Conflict("two-factor authentication is not enabled").into());
        }
        batch.append::<User>(id, UserTwoFactorDisabled {}, &context.of_account(account_id));
        batch.pending.user_security.push(Change::DisableTwoFactor(id));
        batch.queue_mail(&Mail::TwoFactorDisabled, Recipient::User(id))?;
        Ok(CommandResult::User(own(batch, account_id, id)?))
    }
}

/// Sets whether owners need two-factor authentication. The owner who requires it must have it, and so is not locked out.
#[derive(Clone, Debug)]
pub struct SetSecurityPolicy {
    pub account_id: AccountId,
    pub user_id: UserId,
    pub owners_need_two_factor: bool,
}

impl Handler for SetSecurityPolicy {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.users.id(self.user_id);
        reads.streams.users.query.two_factor.push(self.user_id);
        reads.streams.users.query.policies.push(self.account_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, user_id, owners_need_two_factor } = *self;
        require_active(batch, account_id)?;
        let user = present(batch, account_id, user_id)?;
        let index = &batch.streams.users.index;
        if owners_need_two_factor && index.two_factor.get(&user_id).is_none() {
            return Err(Rejection::Conflict("set up two-factor authentication for yourself first").into());
        }
        if index.policies.get(&account_id).is_some() != owners_need_two_factor {
            let event = SecurityPolicyChanged { owners_need_two_factor };
            batch.append::<Account>(account_id, event, &context.of_account(account_id));
            let policies = &mut batch.streams.users.index.policies;
            match owners_need_two_factor {
                true => policies.insert(account_id, ()),
                false => _ = policies.remove(&account_id),
            }
            batch.pending.user_security.push(Change::SetPolicy { account_id, owners_need_two_factor });
        }
        Ok(CommandResult::User(user))
    }
}
