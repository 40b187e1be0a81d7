//! States of streams that are rows of a table: how they are read, folded and written.

use std::collections::{HashMap, HashSet};
use std::future::Future;

use ledger_database::{FromRow, PgConnection};
use ledger_events::{AccountId, Event, Id, Moment, Recorded, ShardId};
use sqlx::postgres::{PgArguments, PgHasArrayType, PgRow};
use sqlx::query::QueryAs;
use sqlx::{AssertSqlSafe, Encode, PgExecutor, Postgres, Row as _, Type};

use crate::ProjectionError;

/// A value that is read from one row.
pub trait Row: Sized + Send + Unpin {
    /// Columns that [`Row::read`] needs, for a SELECT.
    const COLUMNS: &'static str;

    fn read(row: &PgRow) -> Result<Self, sqlx::Error>;

    /// Returns the SELECT of the columns, without FROM.
    fn select() -> String {
        format!("SELECT {}", Self::COLUMNS)
    }
}

/// A row of a table that all shards share, with its shard.
impl<T: Row> Row for (ShardId, T) {
    const COLUMNS: &'static str = T::COLUMNS;

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok((row.try_get("shard_id")?, T::read(row)?))
    }

    fn select() -> String {
        format!("SELECT shard_id, {}", T::COLUMNS)
    }
}

/// Adapter from [`Row`] to sqlx's trait, which cannot be implemented for the types of another package.
#[derive(Debug)]
pub struct Read<T>(pub T);

impl<T: Row> FromRow<'_, PgRow> for Read<T> {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        T::read(row).map(Read)
    }
}

/// A query for rows of a type.
pub type Select<'q, T> = QueryAs<'q, Postgres, Read<T>, PgArguments>;

/// Begins a query: the columns of a row, followed by `from`, which begins with FROM.
pub fn select<'q, T: Row>(from: &'static str) -> Select<'q, T> {
    // Safe: both parts are constants.
    sqlx::query_as(AssertSqlSafe(format!("{} {from}", T::select())))
}

/// Begins a query for the rows of a shard, `$1`, that match what is wanted.
fn select_joined<'q, S: State>(wanted: &'static str, matching: &'static str) -> Select<'q, S> {
    // Safe: every part is a constant.
    sqlx::query_as(AssertSqlSafe(format!("{} {wanted} JOIN {} ON shard_id = $1 AND {matching}", S::select(), S::TABLE)))
}

/// Reads all rows of a query.
pub async fn all<'e, T: Row + 'e>(query: Select<'e, T>, db: impl PgExecutor<'e>) -> Result<Vec<T>, sqlx::Error> {
    Ok(query.fetch_all(db).await?.into_iter().map(|row| row.0).collect())
}

/// Reads the first row of a query, if there is one.
pub async fn first<'e, T: Row + 'e>(query: Select<'e, T>, db: impl PgExecutor<'e>) -> Result<Option<T>, sqlx::Error> {
    Ok(query.fetch_optional(db).await?.map(|row| row.0))
}

/// The state of a stream, with a row of its own.
pub trait State: Row {
    type Id: Id + PgHasArrayType + Type<Postgres> + for<'q> Encode<'q, Postgres>;
    type Event;

    const TABLE: &'static str;

    fn id(&self) -> Self::Id;

    /// Returns the version of the last event.
    fn version(&self) -> i64;

    /// Returns the event, if it is one of this kind of stream.
    fn event(event: &Event) -> Option<&Self::Event>;

    /// Folds an event into the state.
    fn evolve(before: Option<Self>, id: Self::Id, event: &Self::Event, at: &Moment) -> Option<Self>;

    /// Loads rows by id. Skips unknown ids. `ids` has no duplicates.
    fn load(
        conn: &mut PgConnection,
        shard: ShardId,
        ids: &[Self::Id],
    ) -> impl Future<Output = Result<Vec<Self>, sqlx::Error>> + Send {
        let query = select_joined::<Self>("FROM unnest($2::bigint[]) AS wanted (wanted_id)", "id = wanted_id");
        async move { all(query.bind(shard).bind(ids), conn).await }
    }
}

/// A state whose rows are inserted or replaced by one statement.
pub trait Upsert: State {
    /// Writes states as rows: inserts new ones, and replaces known ones.
    fn write(
        conn: &mut PgConnection,
        shard: ShardId,
        states: &[&Self],
    ) -> impl Future<Output = Result<(), ProjectionError>> + Send;
}

/// Implements the part of [`State`] that follows from the names: the id, the version, the event and its fold.
macro_rules! state {
    ($id:ty, $event:ty, $variant:ident, $evolve:path, $table:literal) => {
        type Id = $id;
        type Event = $event;

        const TABLE: &'static str = $table;

        fn id(&self) -> $id {
            self.id
        }

        fn version(&self) -> i64 {
            self.version
        }

        fn event(event: &::ledger_events::Event) -> Option<&$event> {
            if let ::ledger_events::Event::$variant(event) = event { Some(event) } else { None }
        }

        fn evolve(before: Option<Self>, id: $id, event: &$event, at: &::ledger_events::Moment) -> Option<Self> {
            $evolve(before, id, event, at)
        }
    };
}
pub(crate) use state;

/// Folds one event into a map of states. Ignores events of other kinds of streams.
pub fn fold<S: State>(states: &mut HashMap<S::Id, S>, recorded: &Recorded) {
    let Some(event) = S::event(&recorded.event) else { return };
    let id = S::Id::new(recorded.stream_id);
    if let Some(after) = S::evolve(states.remove(&id), id, event, &recorded.moment) {
        states.insert(id, after);
    }
}

/// Loads the states of these accounts, deleted ones included.
pub async fn load_of_accounts<S: State>(
    conn: &mut PgConnection,
    shard: ShardId,
    accounts: &[AccountId],
) -> Result<Vec<S>, sqlx::Error> {
    let query = select_joined::<S>("FROM unnest($2::bigint[]) AS wanted (wanted_account)", "account_id = wanted_account");
    all(query.bind(shard).bind(accounts), conn).await
}

/// Loads the states with these (account, `client_reference`) pairs.
pub async fn load_by_client_reference<S: State>(
    conn: &mut PgConnection,
    shard: ShardId,
    accounts: &[AccountId],
    references: &[&str],
) -> Result<Vec<S>, sqlx::Error> {
    let query = select_joined::<S>(
        "FROM unnest($2::bigint[], $3::text[]) AS wanted (wanted_account, wanted_reference)",
        "account_id = wanted_account AND client_reference = wanted_reference AND client_reference COLLATE \"C\" = wanted_reference",
    );
    all(query.bind(shard).bind(accounts).bind(references), conn).await
}

/// Loads the states that the events change, as they are before the events. A stream that begins with one of them has none.
pub(crate) async fn load_changed<S: State>(
    conn: &mut PgConnection,
    shard: ShardId,
    events: &[Recorded],
) -> Result<HashMap<S::Id, S>, sqlx::Error> {
    let mut seen = HashSet::new();
    let of_stream = events.iter().filter(|recorded| S::event(&recorded.event).is_some());
    let first = of_stream.filter(|recorded| seen.insert(recorded.stream_id));
    let known: Vec<S::Id> = first.filter(|first| first.moment.version > 1).map(|first| S::Id::new(first.stream_id)).collect();
    if known.is_empty() {
        return Ok(HashMap::new());
    }
    Ok(S::load(conn, shard, &known).await?.into_iter().map(|state| (state.id(), state)).collect())
}

/// Folds the next events of the log into a table.
pub async fn apply<S: Upsert + Sync>(
    conn: &mut PgConnection,
    shard: ShardId,
    events: &[Recorded],
) -> Result<(), ProjectionError> {
    let mut states = load_changed::<S>(conn, shard, events).await?;
    for recorded in events {
        fold(&mut states, recorded);
    }
    S::write(conn, shard, &states.values().collect::<Vec<_>>()).await
}
