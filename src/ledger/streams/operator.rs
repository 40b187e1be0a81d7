//! Operators: their tokens and users.

use ledger_database::PgConnection;
use ledger_events::operator::OperatorEvent;
use ledger_events::{Moment, ShardId};

use super::{Loader, Slot, Stream, StreamRead};
use crate::ledger::lookup::Lookup;
use crate::ledger::operator_users::{self, UserRow};
use crate::ledger::operators;

/// An operator's token or user, as the writer knows it.
#[derive(Debug)]
pub struct Operator {
    id: i64,
    /// Number of its events; 0 for a token that is older than these events.
    version: i64,
    /// Whether it is a token that is revoked.
    pub is_revoked: bool,
    /// Row of a user, as it was loaded. Changes of the same batch are in its pending writes.
    pub user: Option<UserRow>,
}

/// Users by keyed hashes.
#[derive(Debug, Default)]
pub struct Index {
    pub by_email: Lookup<[u8; 32], i64>,
    pub by_subject: Lookup<[u8; 32], i64>,
}

#[derive(Debug, Default)]
pub struct Query {
    /// Keyed hashes of emails that commands give to users.
    pub emails: Vec<[u8; 32]>,
    /// Keyed hashes of subjects that sign in. Their users are loaded.
    pub subjects: Vec<[u8; 32]>,
}

impl Stream for Operator {
    type Id = i64;
    type Event = OperatorEvent;
    type Index = Index;
    type Query<'a> = Query;

    const NAME: &'static str = "operator";
    const SEQUENCE: Option<&'static str> = Some("vault.operators_id_seq");

    fn id(&self) -> i64 {
        self.id
    }

    fn version(&self) -> i64 {
        self.version
    }

    fn evolve(state: Option<Self>, id: i64, event: &OperatorEvent, at: &Moment) -> Option<Self> {
        let (was_revoked, user) = state.map_or((false, None), |state| (state.is_revoked, state.user));
        let is_revoked = was_revoked || matches!(event, OperatorEvent::OperatorTokenRevoked(_));
        Some(Operator { id, version: at.version, is_revoked, user })
    }

    /// Locks the rows until the transaction ends.
    async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[i64]) -> Result<Vec<Self>, sqlx::Error> {
        let tokens = operators::lock(conn, shard, ids).await?;
        let token = |(id, known): (i64, operators::LockedToken)| Operator {
            id,
            version: known.version,
            is_revoked: known.is_revoked,
            user: None,
        };
        let users = operator_users::lock(conn, shard, ids).await?;
        let user = |(version, row): (i64, UserRow)| Operator { id: row.id, version, is_revoked: false, user: Some(row) };
        Ok(tokens.into_iter().map(token).chain(users.into_iter().map(user)).collect())
    }

    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        let Query { emails, subjects } = &read.query;
        if !emails.is_empty() || !subjects.is_empty() {
            let found = operator_users::find(loader.conn, emails, subjects).await?;
            slot.index.by_email.ask(emails.iter().copied());
            slot.index.by_subject.ask(subjects.iter().copied());
            for (id, email, subject) in found {
                let hash = |bytes: Option<Vec<u8>>| bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
                slot.index.by_email.extend(hash(email).map(|email| (email, id)));
                if let Some(subject) = hash(subject) {
                    slot.index.by_subject.insert(subject, id);
                    read.ids.insert(id);
                }
            }
        }
        slot.load_missing(read, loader).await
    }
}
