use ledger_events::AccountId;
use ledger_events::user::{User, UserCreated, UserRole};

use super::own;
use crate::ledger::batch::UserChange;
use crate::ledger::commands::prelude::*;
use crate::ledger::texts::EMAIL;
use crate::secrets::rows::Row;

#[derive(Clone, Debug)]
pub struct CreateUser {
    pub account_id: AccountId,
    pub role: UserRole,
    pub email: Secret,
    /// Keyed hash of the email in lower case. An email belongs to one user.
    pub email_lookup: [u8; 32],
    /// argon2id, as a PHC string.
    pub password_hash: Secret,
}

impl Handler for CreateUser {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.users.query.emails.push(self.email_lookup);
        reads.streams.users.new_id();
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, role, email_lookup, .. } = *self;
        batch.streams.accounts.find(account_id)?;
        if batch.streams.users.index.by_email.get(&email_lookup).is_some() {
            return Err(Rejection::Conflict("a user has this email").into());
        }
        let id = batch.streams.users.next_id()?;
        batch.data_keys.insert(Owner::User(id), None); // A new user has no data key.
        let email_hash = batch.keep_text_of(Owner::User(id), EMAIL, id.0, new_salt(), &self.email)?;
        let mac = batch.keyring.row_mac(Row::User { id, account_id, password_hash: self.password_hash.expose() })?;
        let event = UserCreated { account_id, role, email_hash, row_mac: Some(hex::encode(mac)) };
        batch.append::<User>(id, event, &context.of_account(account_id));
        batch.streams.users.index.by_email.insert(email_lookup, id);
        let admit = UserChange::Admit { id, email_lookup, password_hash: self.password_hash.clone(), mac };
        batch.pending.users.push(admit);
        Ok(CommandResult::User(own(batch, account_id, id)?))
    }
}
