//! Users of operators, who sign in to the console.

use ledger_events::operator::{OperatorRole, OperatorUserChanged, OperatorUserCreated, OperatorUserRemoved, SignIn};

use super::{Changed, present, row};
use crate::ledger::commands::prelude::*;
use crate::ledger::operator_users::{EndedSessions, TwoFactorChange, UserRow};
use crate::ledger::streams::Operator;
use crate::ledger::texts::OPERATOR_EMAIL;

/// Creates a user who signs in with a password.
#[derive(Clone, Debug)]
pub struct CreateOperatorUser {
    pub email: Secret,
    /// Keyed hash of the email in lower case. An email belongs to one operator's user.
    pub email_lookup: [u8; 32],
    pub role: OperatorRole,
    /// argon2id, as a PHC string.
    pub password_hash: Secret,
}

impl Handler for CreateOperatorUser {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.operators.query.emails.push(self.email_lookup);
        reads.streams.operators.new_id();
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        if batch.streams.operators.index.by_email.get(&self.email_lookup).is_some() {
            return Err(Rejection::Conflict("an operator has this email").into());
        }
        let row = UserRow {
            id: batch.streams.operators.next_id()?,
            role: self.role,
            email_lookup: Some(self.email_lookup),
            password_hash: Some(self.password_hash.clone()),
            subject_lookup: None,
            totp_hash: None,
            created_at: batch.head.recorded_at,
            removed_at: None,
        };
        batch.streams.operators.index.by_email.insert(self.email_lookup, row.id);
        create(batch, context, row, &self.email)
    }
}

/// Admits a subject of the identity provider: creates its user at the first sign-in, and adopts a role that the provider
/// has changed.
#[derive(Clone, Debug)]
pub struct AdmitOperatorUser {
    /// Keyed hash of issuer and subject.
    pub subject_lookup: [u8; 32],
    pub role: OperatorRole,
    /// Email address or other name that the provider states.
    pub name: Secret,
}

impl Handler for AdmitOperatorUser {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.operators.query.subjects.push(self.subject_lookup);
        reads.streams.operators.new_id();
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Some(&id) = batch.streams.operators.index.by_subject.get(&self.subject_lookup) else {
            let row = UserRow {
                id: batch.streams.operators.next_id()?,
                role: self.role,
                email_lookup: None,
                password_hash: None,
                subject_lookup: Some(self.subject_lookup),
                totp_hash: None,
                created_at: batch.head.recorded_at,
                removed_at: None,
            };
            batch.streams.operators.index.by_subject.insert(self.subject_lookup, row.id);
            return create(batch, context, row, &self.name);
        };
        let known = row(batch, id)?;
        if known.removed_at.is_some() {
            return Err(Rejection::UserRemoved.into());
        }
        if known.role == self.role {
            return Ok(CommandResult::OperatorUser(known.public()));
        }
        change(batch, context, UserRow { role: self.role, ..known }, Some(self.role), false, EndedSessions::All)
    }
}

/// Changes the fields that are given. A change ends the user's sessions, except the session that makes it.
#[derive(Clone, Debug)]
pub struct ChangeOperatorUser {
    pub id: i64,
    pub role: Option<OperatorRole>,
    /// argon2id, as a PHC string.
    pub password_hash: Option<Secret>,
    /// Set if the user makes the change, and no admin.
    pub own: Option<OwnChange>,
}

/// Change by the user in a session, which goes on.
#[derive(Clone, Debug)]
pub struct OwnChange {
    pub session_id: i64,
    /// Hash of the password that the user has shown. Somebody else may have replaced it since.
    pub present_hash: Secret,
}

impl Handler for ChangeOperatorUser {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.operators.id(self.id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let mut row = present(batch, self.id)?;
        if row.sign_in() == SignIn::OpenId {
            return Err(Rejection::Conflict("the identity provider assigns the role and the password of this operator").into());
        }
        let shown = self.own.as_ref().map(|own| own.present_hash.expose());
        if shown.is_some_and(|shown| row.password_hash.as_ref().map(Secret::expose) != Some(shown)) {
            return Err(Rejection::Conflict("the password was changed meanwhile").into());
        }
        let role = self.role.filter(|role| *role != row.role);
        if role.is_none() && self.password_hash.is_none() {
            return Ok(CommandResult::OperatorUser(row.public()));
        }
        row.role = role.unwrap_or(row.role);
        row.password_hash = self.password_hash.clone().or(row.password_hash);
        let sessions = self.own.as_ref().map_or(EndedSessions::All, |own| EndedSessions::AllBut(own.session_id));
        change(batch, context, row, role, self.password_hash.is_some(), sessions)
    }
}

/// Removes a user. A removed subject of the identity provider cannot sign in again.
#[derive(Clone, Debug)]
pub struct RemoveOperatorUser {
    pub id: i64,
}

impl Handler for RemoveOperatorUser {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.operators.id(self.id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let known = row(batch, self.id)?;
        if known.removed_at.is_some() {
            return Ok(CommandResult::OperatorUser(known.public()));
        }
        let removed_at = Some(batch.head.recorded_at);
        let row = UserRow { email_lookup: None, password_hash: None, totp_hash: None, removed_at, ..known };
        let changed = Changed::new(batch, row)?;
        batch.append::<Operator>(self.id, OperatorUserRemoved { row_mac: changed.mac() }, context);
        batch.streams.operators.index.by_email.retain(|_, user| *user != self.id);
        let user = changed.keep(batch, EndedSessions::All, TwoFactorChange::Remove);
        Ok(CommandResult::OperatorUser(user))
    }
}

fn create(batch: &mut Batch, context: &CommandContext<'_>, row: UserRow, email: &Secret) -> Decided {
    let (id, role, sign_in) = (row.id, row.role, row.sign_in());
    let email_hash = batch.keep_text(OPERATOR_EMAIL, id, new_salt(), email)?;
    let changed = Changed::new(batch, row)?;
    let event = OperatorUserCreated { role, sign_in, email_hash, row_mac: changed.mac() };
    batch.append::<Operator>(id, event, context);
    Ok(CommandResult::OperatorUser(changed.keep(batch, EndedSessions::None, TwoFactorChange::None)))
}

fn change(
    batch: &mut Batch,
    context: &CommandContext<'_>,
    row: UserRow,
    role: Option<OperatorRole>,
    is_password_changed: bool,
    sessions: EndedSessions,
) -> Decided {
    let id = row.id;
    let changed = Changed::new(batch, row)?;
    let event = OperatorUserChanged { role, is_password_changed, row_mac: changed.mac() };
    batch.append::<Operator>(id, event, context);
    Ok(CommandResult::OperatorUser(changed.keep(batch, sessions, TwoFactorChange::None)))
}
