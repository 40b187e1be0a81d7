//! Users of accounts.

use ledger_events::user::{User, UserEvent, evolve};
use ledger_events::{ShardId, UserId};
use ledger_projections::users;

use super::{Loader, Slot, Stream, StreamRead, projected};
use crate::ledger::lookup::Lookup;

/// Users by the keyed hash of their email.
#[derive(Debug, Default)]
pub struct Index {
    pub by_email: Lookup<[u8; 32], UserId>,
}

#[derive(Debug, Default)]
pub struct Query {
    /// Keyed hashes of emails that commands give to users.
    pub emails: Vec<[u8; 32]>,
}

impl Stream for User {
    type Id = UserId;
    type Event = UserEvent;
    type Index = Index;
    type Query<'a> = Query;

    const NAME: &'static str = "user";
    const SEQUENCE: Option<&'static str> = Some("user_ids");

    projected!(evolve, users::load, users::write);

    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        slot.load_missing(read, loader).await?;
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
