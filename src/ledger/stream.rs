//! Streams, and slots: the part of a batch that belongs to one stream.
//!
//! A slot panics in debug builds where a command reads an id that no command of the batch asked for, see
//! [`Lookup`](super::lookup::Lookup).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Debug;
use std::future::Future;

use ledger_database::PgConnection;
use ledger_events::{AccountId, Event, Id, Moment, PayoutId, Rejection, ShardId, WalletId, WebhookId};
use ledger_projections::ProjectionError;
use ledger_projections::wallets::Transaction;

use super::ids::{IdPool, NoIdLeft};
use super::keys::Owner;
use super::lookup::Asked;

/// The state of a stream, as the writer handles it.
pub trait Stream: Debug + Send + Sized + Sync + 'static {
    type Id: Id;
    type Event: Into<Event> + Send;
    /// Lookups beside the states.
    type Index: Debug + Default + Send + Sync;
    /// Reads that name no id.
    type Query<'a>: Debug + Default + Send + Sync;

    /// Name in error messages.
    const NAME: &'static str;
    /// Sequence of the ids; none if another part of the system assigns them.
    const SEQUENCE: Option<&'static str> = None;
    /// Smallest number of ids to draw at once.
    const BLOCK: i64 = 0;

    fn id(&self) -> Self::Id;

    /// Returns the version of the last event.
    fn version(&self) -> i64;

    /// Folds an event into the state.
    fn evolve(state: Option<Self>, id: Self::Id, event: &Self::Event, at: &Moment) -> Option<Self>;

    /// Returns the movement of money that an event brings along.
    fn movement(&self, _event: &Self::Event, _at: &Moment) -> Option<Transaction> {
        None
    }

    /// Loads the rows of some ids with one statement.
    fn load(
        conn: &mut PgConnection,
        shard: ShardId,
        ids: &[Self::Id],
    ) -> impl Future<Output = Result<Vec<Self>, sqlx::Error>> + Send;

    /// Loads what the commands ask for and the slot lacks. It may ask for rows that follow from loaded ones.
    fn fetch(
        slot: &mut Slot<Self>,
        read: &mut StreamRead<'_, Self>,
        loader: &mut Loader<'_>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send {
        slot.load_missing(read, loader)
    }

    /// Writes rows with a statement of their own. The one statement of a batch writes orders and wallets.
    fn write(
        _conn: &mut PgConnection,
        _shard: ShardId,
        _rows: &[&Self],
    ) -> impl Future<Output = Result<(), ProjectionError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Returns whether the writer of a shard caches states between batches.
    fn is_cached(_shard: ShardId) -> bool {
        false
    }

    /// Drops the lookups that may change without an event, or that a later batch loads anyway.
    fn drop_uncached(index: &mut Self::Index) {
        *index = Self::Index::default();
    }
}

/// The connection that a batch loads rows with, and the rows that follow from those it has loaded.
#[derive(Debug)]
pub struct Loader<'c> {
    pub conn: &'c mut PgConnection,
    pub shard: ShardId,
    pub follow_ups: FollowUps,
}

/// Rows that follow from loaded rows, such as the wallet of a cancelled order.
#[derive(Debug, Default)]
pub struct FollowUps {
    pub accounts: Vec<AccountId>,
    pub payouts: Vec<PayoutId>,
    pub wallets: Vec<WalletId>,
    /// Webhooks of accounts whose webhooks are loaded.
    pub webhooks: Vec<WebhookId>,
    pub data_keys: Vec<Owner>,
    /// Texts in the vault, by kind and id.
    pub texts: Vec<(&'static str, i64)>,
}

/// The rows of one stream that the commands of a batch ask for.
#[derive(Debug)]
pub struct StreamRead<'a, S: Stream> {
    pub ids: HashSet<S::Id>,
    /// Ids whose rows a query loads.
    #[cfg(debug_assertions)]
    pub expected: HashSet<S::Id>,
    /// Number of ids for new streams.
    pub new: i64,
    pub query: S::Query<'a>,
}

impl<S: Stream> Default for StreamRead<'_, S> {
    fn default() -> Self {
        StreamRead {
            ids: HashSet::new(),
            #[cfg(debug_assertions)]
            expected: HashSet::new(),
            new: 0,
            query: Default::default(),
        }
    }
}

impl<S: Stream> StreamRead<'_, S> {
    /// Asks for a row by its id.
    pub fn id(&mut self, id: S::Id) {
        self.ids.insert(id);
    }

    /// Declares that a query loads the row with this id, if it exists.
    pub fn expect(&mut self, _id: S::Id) {
        #[cfg(debug_assertions)]
        self.expected.insert(_id);
    }

    /// Asks for an id for a new stream.
    pub fn new_id(&mut self) {
        self.new += 1;
    }
}

/// The states of one stream in a batch, with the lookups beside them and the ids for new ones.
#[derive(Debug)]
pub struct Slot<S: Stream> {
    states: HashMap<S::Id, S>,
    asked: Asked<S::Id>,
    /// Streams with events in this batch.
    touched: BTreeSet<S::Id>,
    pub ids: IdPool<S::Id>,
    pub index: S::Index,
}

impl<S: Stream> Default for Slot<S> {
    fn default() -> Self {
        Slot {
            states: HashMap::new(),
            asked: Asked::default(),
            touched: BTreeSet::new(),
            ids: IdPool::new(S::NAME, S::SEQUENCE, S::BLOCK),
            index: S::Index::default(),
        }
    }
}

impl<S: Stream> Slot<S> {
    /// Returns a stream's state.
    ///
    /// # Panics
    /// In debug builds, if no command of the batch asked for the id.
    #[track_caller]
    pub fn get(&self, id: S::Id) -> Option<&S> {
        self.asked.check(S::NAME, &id);
        self.states.get(&id)
    }

    /// Returns a stream's state, or the refusal of a command that names an unknown one. Panics like [`Slot::get`].
    #[track_caller]
    pub fn find(&self, id: S::Id) -> Result<&S, Rejection> {
        self.get(id).ok_or(Rejection::NotFound)
    }

    /// Returns a state if it is loaded. For the code that loads; commands use [`Slot::get`].
    pub fn loaded(&self, id: S::Id) -> Option<&S> {
        self.states.get(&id)
    }

    /// Returns every state that is loaded.
    pub fn values(&self) -> impl Iterator<Item = &S> {
        self.states.values()
    }

    /// Assigns an id to a new stream.
    pub fn next_id(&mut self) -> Result<S::Id, NoIdLeft> {
        let id = self.ids.next()?;
        self.asked.add(&id);
        Ok(id)
    }

    /// Notes ids whose rows are loaded, found or not.
    pub fn ask(&mut self, ids: impl IntoIterator<Item = S::Id>) {
        if cfg!(debug_assertions) {
            ids.into_iter().for_each(|id| self.asked.add(&id));
        }
    }

    /// Loads the states that commands ask for by id and the slot lacks.
    pub async fn load_missing(&mut self, read: &StreamRead<'_, S>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        self.ask(read.ids.iter().copied());
        #[cfg(debug_assertions)]
        self.ask(read.expected.iter().copied());
        let missing: Vec<_> = read.ids.iter().copied().filter(|id| !self.states.contains_key(id)).collect();
        if !missing.is_empty() {
            self.keep(S::load(loader.conn, loader.shard, &missing).await?);
        }
        Ok(())
    }

    /// Adds rows. A state that is already here stays: the batch may have changed it.
    pub fn keep(&mut self, rows: impl IntoIterator<Item = S>) {
        for row in rows {
            self.asked.add(&row.id());
            self.states.entry(row.id()).or_insert(row);
        }
    }

    /// Evolves a stream's state by an event, and marks its row to be written.
    pub fn apply(&mut self, id: S::Id, event: &S::Event, at: &Moment) {
        if let Some(after) = S::evolve(self.states.remove(&id), id, event, at) {
            self.states.insert(id, after);
        }
        self.touched.insert(id);
    }

    /// Returns the states with events in this batch, in id order.
    pub fn touched(&self) -> Vec<&S> {
        self.touched.iter().filter_map(|id| self.states.get(id)).collect()
    }

    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Drops states without events in this batch. The others may not be in the tables yet.
    pub fn evict_untouched(&mut self) {
        self.states.retain(|id, _| self.touched.contains(id));
    }

    /// Takes every state out.
    pub fn take_states(&mut self) -> Vec<S> {
        self.states.drain().map(|(_, state)| state).collect()
    }

    /// Drops every state and lookup, with their memory: a burst of rows must not keep its capacity for ever. Ids that were
    /// drawn stay.
    pub fn forget(&mut self) {
        self.states = HashMap::default();
        self.index = S::Index::default();
    }

    /// Drops what the writer's cache must not keep after a batch.
    pub fn drop_uncached(&mut self, shard: ShardId) {
        S::drop_uncached(&mut self.index);
        if !S::is_cached(shard) {
            self.states.clear();
        }
    }

    /// Ends the batch: its events no longer count as new.
    pub fn end_batch(&mut self) {
        self.touched.clear();
        self.asked.clear();
    }
}

#[cfg(test)]
mod tests {
    use ledger_events::account::Account;

    use super::*;

    #[test]
    fn an_id_that_was_asked_for_may_be_missing() {
        let mut slot = Slot::<Account>::default();
        slot.ask([AccountId(7)]);
        assert_eq!(slot.find(AccountId(7)), Err(Rejection::NotFound));
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "account 7 is read, but no command of the batch asked for it"))]
    fn an_id_that_nobody_asked_for_panics_in_debug_builds() {
        assert_eq!(Slot::<Account>::default().get(AccountId(7)), None);
    }

    #[test]
    fn a_row_that_is_loaded_again_does_not_replace_a_state_that_changed() {
        let mut slot = Slot::<Account>::default();
        let account = |name: &str| {
            let at = Moment { position: 1, event_id: uuid::Uuid::nil(), version: 1, recorded_at: chrono::DateTime::UNIX_EPOCH };
            Account::evolve(None, AccountId(7), &ledger_events::account::AccountCreated { name: name.to_owned() }.into(), &at)
        };
        slot.keep(account("changed"));
        slot.keep(account("stored"));
        assert_eq!(slot.find(AccountId(7)).map(|account| account.name.as_str()), Ok("changed"));
    }
}
