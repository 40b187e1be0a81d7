//! Users of accounts.

use ledger_events::user::{User, UserCreated, UserEvent, UserPasswordReset, UserRemoved, UserRoleChanged, UserSessionsEnded};
use ledger_events::{AccountId, Rejection, UserId};

use super::{Decided, Story, new_salt, next};
use crate::ledger::answer::Answer;
use crate::ledger::batch::{Batch, UserChange};
use crate::ledger::command::{ChangeUser, CreateUser};
use crate::ledger::keys::Owner;
use crate::ledger::texts::EMAIL;
use crate::secrets::rows::Row;

pub(super) fn create(batch: &mut Batch, user: &CreateUser, story: Story<'_>) -> Decided {
    let CreateUser { account_id, role, email, email_lookup, password_hash } = user;
    batch.accounts.get(account_id).ok_or(Rejection::NotFound)?;
    if batch.user_of.contains_key(email_lookup) {
        return Err(Rejection::Conflict("a user has this email").into());
    }
    let id = next(batch.ids.users.pop_front(), "user")?;
    batch.data_keys.insert(Owner::User(id), None); // who is new has none
    let email_hash = batch.keep_text_of(Owner::User(id), EMAIL, id, new_salt(), email)?;
    let mac = batch.keyring.row_mac(Row::User { id, account_id: *account_id, password_hash: password_hash.expose() })?;
    let row_mac = Some(hex::encode(mac));
    let event = UserEvent::from(UserCreated { account_id: *account_id, role: *role, email_hash, row_mac });
    batch.append(id, event, &Story { account_id: Some(*account_id), ..story });
    batch.user_of.insert(*email_lookup, id);
    let admit = UserChange::Admit { id, email_lookup: *email_lookup, password_hash: password_hash.clone(), mac };
    batch.vault.users.push(admit);
    Ok(Answer::User(own(batch, *account_id, id)?))
}

pub(super) fn change(batch: &mut Batch, change: &ChangeUser, story: Story<'_>) -> Decided {
    let ChangeUser { account_id, user_id: id, role, password_hash } = change;
    let known = present(batch, *account_id, *id)?;
    let mut story = Story { account_id: Some(*account_id), ..story };
    let role = role.filter(|role| *role != known.role);
    if let Some(role) = role {
        let changed = batch.append(*id, UserEvent::from(UserRoleChanged { role }), &story);
        story = story.after(changed);
    }
    if let Some(password_hash) = password_hash {
        let mac = batch.keyring.row_mac(Row::User { id: *id, account_id: *account_id, password_hash: password_hash.expose() })?;
        batch.append(*id, UserEvent::from(UserPasswordReset { row_mac: Some(hex::encode(mac)) }), &story);
        batch.vault.users.push(UserChange::Password { id: *id, password_hash: password_hash.clone(), mac });
    }
    if role.is_some() || password_hash.is_some() {
        batch.vault.users.push(UserChange::EndSessions(*id));
    }
    Ok(Answer::User(own(batch, *account_id, *id)?))
}

pub(super) fn end_sessions(batch: &mut Batch, account_id: AccountId, id: UserId, story: Story<'_>) -> Decided {
    let user = present(batch, account_id, id)?;
    batch.append(id, UserEvent::from(UserSessionsEnded {}), &Story { account_id: Some(account_id), ..story });
    batch.vault.users.push(UserChange::EndSessions(id));
    Ok(Answer::User(user))
}

pub(super) fn remove(batch: &mut Batch, account_id: AccountId, id: UserId, story: Story<'_>) -> Decided {
    if !own(batch, account_id, id)?.is_removed {
        batch.append(id, UserEvent::from(UserRemoved {}), &Story { account_id: Some(account_id), ..story });
        batch.user_of.retain(|_, user| *user != id);
        batch.vault.users.push(UserChange::Remove(id));
    }
    Ok(Answer::User(own(batch, account_id, id)?))
}

fn present(batch: &Batch, account_id: AccountId, id: UserId) -> Result<User, Rejection> {
    match own(batch, account_id, id)? {
        user if user.is_removed => Err(Rejection::Conflict("the user was removed")),
        user => Ok(user),
    }
}

fn own(batch: &Batch, account_id: AccountId, id: UserId) -> Result<User, Rejection> {
    batch.users.get(&id).filter(|user| user.account_id == account_id).cloned().ok_or(Rejection::NotFound)
}
