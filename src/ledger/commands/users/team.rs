//! Users whom an account's owners invite, change and remove.

use chrono::{DateTime, Utc};
use ledger_events::account::{Account, InvitationRevoked, UserInvited};
use ledger_events::user::{User, UserRemoved, UserRole, UserRoleChanged};
use ledger_events::{AccountId, UserId};
use sha2::{Digest, Sha256};

use super::{CreateUser, own, present};
use crate::ledger::batch::UserChange;
use crate::ledger::commands::prelude::*;
use crate::ledger::outbox::{Mail, Recipient};
use crate::ledger::user_security::{Change, NewInvitation, OpenInvitation};
use crate::secrets::INVITATION_EMAIL;
use crate::secrets::rows::Row;

/// Maximum number of open invitations of an account.
const MAX_INVITATIONS: usize = 100;

/// Invites a person by email. An open invitation of the account to the same address ends.
#[derive(Clone, Debug)]
pub struct InviteUser {
    pub account_id: AccountId,
    pub id: i64,
    pub role: UserRole,
    pub email: Secret,
    /// Token that accepts the invitation.
    pub token: Secret,
    pub invited_by: UserId,
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

impl Handler for InviteUser {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.accounts.query.inviting.push(self.account_id);
        reads.streams.users.id(self.invited_by);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, id, role, invited_by, created_at, expires_at, .. } = *self;
        require_active(batch, account_id)?;
        present(batch, account_id, invited_by)?;
        let replaced = self.replaced(batch)?;
        let account_name = batch.streams.accounts.find(account_id)?.name.clone();
        let (email, role_text, token) = (self.email.expose(), role.as_str(), self.token.expose().to_owned());
        let token_hash: [u8; 32] = Sha256::digest(&token).into();
        let row = Row::Invitation { id, account_id, role: role_text, email, token_hash: &token_hash, invited_by, expires_at };
        let mac = batch.keyring.row_mac(row)?;
        let sealed = batch.keyring.seal(INVITATION_EMAIL, id, email.as_bytes())?;
        let context = context.of_account(account_id);
        for id in replaced {
            batch.append::<Account>(account_id, InvitationRevoked { invitation_id: id }, &context);
            end_invitation(batch, id);
        }
        batch.append::<Account>(account_id, UserInvited { invitation_id: id, role }, &context);
        if let Some(open) = batch.streams.accounts.index.invitations.get_mut(&account_id) {
            open.push(OpenInvitation { id, sealed: sealed.clone() });
        }
        let new = NewInvitation { id, account_id, role, sealed, token_hash, invited_by, created_at, expires_at, mac };
        batch.pending.user_security.push(Change::Invite(new));
        batch.queue_mail(&Mail::Invitation { token, account_name }, Recipient::Invitation(id))?;
        Ok(CommandResult::Invitation { id })
    }
}

impl InviteUser {
    /// Returns the open invitations to the same address, ignoring case.
    ///
    /// # Errors
    /// Rejects an invitation that would be one too many.
    fn replaced(&self, batch: &Batch) -> Result<Vec<i64>, Rejection> {
        let open = batch.streams.accounts.index.invitations.get(&self.account_id).map_or(&[][..], Vec::as_slice);
        let address = self.email.expose().to_lowercase();
        // An address that cannot be opened is another one. `verify` finds it.
        let is_same = |invitation: &&OpenInvitation| {
            let email = batch.keyring.open_text(INVITATION_EMAIL, invitation.id, &invitation.sealed);
            email.is_ok_and(|email| email.expose().to_lowercase() == address)
        };
        let replaced: Vec<i64> = open.iter().filter(is_same).map(|invitation| invitation.id).collect();
        match open.len() - replaced.len() {
            MAX_INVITATIONS.. => Err(Rejection::Conflict("the account has 100 open invitations: revoke one first")),
            _ => Ok(replaced),
        }
    }
}

fn end_invitation(batch: &mut Batch, id: i64) {
    batch.streams.accounts.index.end_invitation(id);
    batch.pending.user_security.push(Change::EndInvitation(id));
}

/// Ends an invitation. Whether it exists is checked before.
#[derive(Clone, Debug)]
pub struct RevokeInvitation {
    pub account_id: AccountId,
    pub id: i64,
    pub user_id: UserId,
}

impl Handler for RevokeInvitation {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.users.id(self.user_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, id, user_id } = *self;
        require_active(batch, account_id)?;
        let user = present(batch, account_id, user_id)?;
        batch.append::<Account>(account_id, InvitationRevoked { invitation_id: id }, &context.of_account(account_id));
        end_invitation(batch, id);
        Ok(CommandResult::User(user))
    }
}

/// Creates the user who accepts an invitation. The owner who invited is the actor and must still be an owner.
#[derive(Clone, Debug)]
pub struct AcceptInvitation {
    pub invitation_id: i64,
    pub invited_by: UserId,
    pub new: CreateUser,
}

impl Handler for AcceptInvitation {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.users.id(self.invited_by);
        self.new.reads(reads);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        require_active(batch, self.new.account_id)?;
        if present(batch, self.new.account_id, self.invited_by)?.role != UserRole::Owner {
            return Err(Rejection::Conflict("the user who sent the invitation is no longer an owner").into());
        }
        let created = self.new.decide(batch, context)?;
        end_invitation(batch, self.invitation_id);
        Ok(created)
    }
}

/// Changes the role of a user of the own account. Ends the user's sessions.
#[derive(Clone, Debug)]
pub struct ChangeMemberRole {
    pub account_id: AccountId,
    pub user_id: UserId,
    pub role: UserRole,
}

impl Handler for ChangeMemberRole {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.users.id(self.user_id);
        reads.streams.users.query.owners_of.insert(self.account_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, user_id: id, role } = *self;
        require_active(batch, account_id)?;
        let known = present(batch, account_id, id)?;
        if known.role != role {
            require_another_owner(batch, &known)?;
            batch.append::<User>(id, UserRoleChanged { role }, &context.of_account(account_id));
            batch.pending.users.push(UserChange::EndSessions(id));
        }
        Ok(CommandResult::User(own(batch, account_id, id)?))
    }
}

/// Removes a user of the own account.
#[derive(Clone, Debug)]
pub struct RemoveMember {
    pub account_id: AccountId,
    pub user_id: UserId,
}

impl Handler for RemoveMember {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.users.id(self.user_id);
        reads.streams.users.query.owners_of.insert(self.account_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, user_id: id } = *self;
        require_active(batch, account_id)?;
        let known = own(batch, account_id, id)?;
        if !known.is_removed {
            require_another_owner(batch, &known)?;
            batch.append::<User>(id, UserRemoved {}, &context.of_account(account_id));
            batch.streams.users.index.by_email.retain(|_, user| *user != id);
            batch.pending.users.push(UserChange::Remove(id));
        }
        Ok(CommandResult::User(own(batch, account_id, id)?))
    }
}

/// Refuses a change that would leave the account without an owner.
fn require_another_owner(batch: &Batch, user: &User) -> Result<(), Rejection> {
    let is_owner = |other: &User| other.account_id == user.account_id && other.role == UserRole::Owner && !other.is_removed;
    if is_owner(user) && !batch.streams.users.values().any(|other| other.id != user.id && is_owner(other)) {
        return Err(Rejection::Conflict("the account needs an owner: make another user an owner first"));
    }
    Ok(())
}
