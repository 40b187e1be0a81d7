//! Users of accounts.

use std::collections::HashSet;

use ledger_events::user::User;
use ledger_events::{AccountId, ShardId, UserId};
use ledger_projections::users;

use super::{Loader, Slot, Stream, StreamRead, projected};
use crate::ledger::lookup::Lookup;
use crate::ledger::user_security;
use crate::secrets::seal::Secret;

#[derive(Debug, Default)]
pub struct Index {
    /// Users by the keyed hash of their email.
    pub by_email: Lookup<[u8; 32], UserId>,
    /// Hashes of passwords, as they were loaded. Changes of the same batch are in its pending writes.
    pub passwords: Lookup<UserId, Secret>,
    /// Users with two-factor authentication.
    pub two_factor: Lookup<UserId, ()>,
    /// Accounts whose owners need two-factor authentication.
    pub policies: Lookup<AccountId, ()>,
}

#[derive(Debug, Default)]
pub struct Query {
    /// Keyed hashes of emails that commands give to users.
    pub emails: Vec<[u8; 32]>,
    /// Users who change their own password.
    pub passwords: Vec<UserId>,
    /// Users whose second factor a command changes.
    pub two_factor: Vec<UserId>,
    /// Accounts whose rules for logins a command changes.
    pub policies: Vec<AccountId>,
    /// Accounts whose owners are counted.
    pub owners_of: HashSet<AccountId>,
}

impl Stream for User {
    type Index = Index;
    type Query<'a> = Query;

    const NAME: &'static str = "user";
    const SEQUENCE: Option<&'static str> = Some("user_ids");

    projected!(written);

    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        if !read.query.owners_of.is_empty() {
            let accounts: Vec<_> = read.query.owners_of.iter().copied().collect();
            slot.keep(users::load_owners(loader.conn, loader.shard, &accounts).await?);
        }
        slot.load_missing(read, loader).await?;
        let Query { two_factor, policies, passwords, .. } = &read.query;
        if !passwords.is_empty() {
            let hashes = user_security::password_hashes(&mut *loader.conn, passwords).await?;
            slot.index.passwords.ask(passwords.iter().copied());
            slot.index.passwords.extend(hashes);
        }
        if !two_factor.is_empty() {
            let enabled = user_security::with_two_factor(&mut *loader.conn, two_factor).await?;
            slot.index.two_factor.ask(two_factor.iter().copied());
            slot.index.two_factor.extend(enabled.into_iter().map(|id| (id, ())));
        }
        if !policies.is_empty() {
            let strict = user_security::with_policy(&mut *loader.conn, policies).await?;
            slot.index.policies.ask(policies.iter().copied());
            slot.index.policies.extend(strict.into_iter().map(|id| (id, ())));
        }
        let emails = &read.query.emails;
        if !emails.is_empty() {
            let known: Vec<(Vec<u8>, UserId)> =
                sqlx::query_as("SELECT email_lookup, user_id FROM vault.users WHERE email_lookup = ANY($1)")
                    .bind(emails.iter().map(|email| &email[..]).collect::<Vec<_>>())
                    .fetch_all(&mut *loader.conn)
                    .await?;
            slot.index.by_email.ask(emails.iter().copied());
            slot.index.by_email.extend(known.into_iter().filter_map(|(email, id)| Some((email.try_into().ok()?, id))));
        }
        Ok(())
    }

    fn is_cached(_: ShardId) -> bool {
        true
    }
}
