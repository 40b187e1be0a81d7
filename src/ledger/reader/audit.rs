//! Reads the log by actor and subject, the newest events first.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ledger_database::PgPool;
use ledger_events::{AccountId, Position, ShardId};
use sqlx::{Postgres, QueryBuilder};

use super::{Stored, select_events};

/// Number of positions in the first window of a page, which is read row by row. A frequent actor or account fills the page
/// from it.
const FIRST_WINDOW: i64 = 2_500;
/// Largest factor by which a window is longer than the one after it, and the largest length of a window.
const MAX_GROWTH: i64 = 16;
const MAX_WINDOW: i64 = 10_000_000;
/// Time after which a page begins no further window.
const MAX_SCAN: Duration = Duration::from_millis(500);

/// Largest number of events of the wanted types that are read one by one for those of an actor or an account.
const FEW: i64 = 5_000;

/// Types of the events with which a secret was shown: the codes of vouchers, or a key, token or signing secret that is
/// shown once. A `WebhookUpdated` is one of them, too, if it rotates the token.
const REVEALS: [&str; 7] = [
    "CredentialIssued",
    "OperatorTokenIssued",
    "OperatorTwoFactorEnabled",
    "SigningSecretRotated",
    "UserTwoFactorEnabled",
    "VouchersRevealed",
    "WebhookRegistered",
];

/// Kind of an event's actor, as the index `events_by_actor` (migration 0049) has it.
const KIND: &str = "translate(metadata->>'actor', '{\":0123456789}', '')";

/// Frequent types of an order's lifecycle, which the index `events_by_type` (migration 0048) leaves out.
macro_rules! frequent {
    () => {
        "OrderPlaced,WalletDebited,OrderQueued,OrderDelayed,OrderPartiallyDelivered,OrderDelivered"
    };
}

/// Criteria of an audit. The default passes all events.
#[derive(Clone, Debug, Default)]
pub struct Criteria {
    /// Kind of the actor, such as `operator`, and its id.
    pub actor: Option<(String, Option<i64>)>,
    /// Type and id of a stream.
    pub subject: Option<(String, i64)>,
    pub account_id: Option<AccountId>,
    pub types: Vec<String>,
    /// Whether only reveals of secrets pass.
    pub reveals: bool,
}

impl Criteria {
    fn by_actor_or_account(&self) -> bool {
        self.actor.is_some() || self.account_id.is_some()
    }

    /// Returns the types of all events that can pass, if the index by type has them.
    fn indexed_types(&self) -> Option<BTreeSet<&str>> {
        let types: BTreeSet<&str> = match self.types.as_slice() {
            [] if self.reveals => REVEALS.into_iter().chain(["WebhookUpdated"]).collect(),
            types => types.iter().map(String::as_str).collect(),
        };
        let is_indexed = |name: &&str| !frequent!().split(',').any(|frequent| frequent == *name);
        (!types.is_empty() && types.iter().all(is_indexed)).then_some(types)
    }

    /// Finds the index that leads to the events between two positions, however far they are apart.
    async fn index(&self, pool: &PgPool, shard: ShardId, (from, to): (Position, Position)) -> Result<Index, sqlx::Error> {
        let Some(types) = self.indexed_types().filter(|_| self.subject.is_none()) else {
            return Ok(if self.subject.is_some() { Index::Subject } else { Index::None });
        };
        if !self.by_actor_or_account() {
            return Ok(Index::Types);
        }
        let mut query = QueryBuilder::new("SELECT count(*) FROM (SELECT FROM unnest(");
        query.push_bind(owned(types)).push("::text[]) AS wanted (type)").push(OF_TYPE).push_bind(shard);
        query.push(" AND position BETWEEN ").push_bind(from).push(" AND ").push_bind(to);
        query.push(" LIMIT ").push_bind(FEW).push(") AS of_type LIMIT ").push_bind(FEW).push(") AS few");
        let number: i64 = query.build_query_scalar().fetch_one(pool).await?;
        Ok(if number < FEW { Index::Types } else { Index::None })
    }

    /// Returns the statement that reads the newest events after one position, up to another one, given the SQL of the shard.
    fn select(
        &self,
        index: Index,
        shard_sql: &'static str,
        shard: ShardId,
        (after, upto): (Position, Position),
        limit: usize,
    ) -> QueryBuilder<Postgres> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut query = QueryBuilder::new(select_events!("WHERE "));
        query.push(shard_sql).push(" = ").push_bind(shard);
        if let (Index::Types, Some(types)) = (index, self.indexed_types()) {
            query.push(" AND position = ANY (ARRAY(SELECT of_type.position FROM unnest(").push_bind(owned(types));
            query.push("::text[]) AS wanted (type)").push(OF_TYPE).push_bind(shard);
            self.push_conditions(&mut query, (after, upto));
            query.push(" ORDER BY position DESC LIMIT ").push_bind(limit);
            query.push(") AS of_type ORDER BY of_type.position DESC LIMIT ").push_bind(limit).push("))");
        } else {
            self.push_conditions(&mut query, (after, upto));
        }
        // Versions have the order of the positions, and the index of streams.
        query.push(if self.subject.is_some() { " ORDER BY version DESC LIMIT " } else { " ORDER BY position DESC LIMIT " });
        query.push_bind(limit);
        query
    }

    /// Adds the conditions of the criteria and the positions.
    fn push_conditions(&self, query: &mut QueryBuilder<Postgres>, (after, upto): (Position, Position)) {
        query.push(" AND position > ").push_bind(after).push(" AND position <= ").push_bind(upto);
        match &self.actor {
            Some((kind, Some(id))) => {
                query.push(" AND metadata->>'actor' = ").push_bind(stored_actor(kind, *id));
            }
            Some((kind, None)) => {
                query.push(" AND ").push(KIND).push(" = ").push_bind(kind.clone());
            }
            None => {}
        }
        if let Some(account) = self.account_id {
            query.push(" AND metadata->>'account_id' = ").push_bind(account.to_string());
        }
        if let Some((stream_type, stream_id)) = &self.subject {
            query.push(" AND stream_type = ").push_bind(stream_type.clone());
            query.push(" AND stream_id = ").push_bind(*stream_id);
        }
        if !self.types.is_empty() {
            query.push(" AND type = ANY (").push_bind(self.types.clone()).push(")");
        }
        if self.reveals {
            query.push(" AND (type = ANY (").push_bind(REVEALS.map(ToOwned::to_owned).to_vec());
            query.push(") OR type = 'WebhookUpdated' AND data->>'token_hash' IS NOT NULL)");
        }
    }
}

/// Index that leads to the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Index {
    Subject,
    Types,
    /// The log is read in windows.
    None,
}

/// Begins the part of a statement that reads the events of each wanted type from the index by type. The shard follows.
const OF_TYPE: &str = concat!(
    " CROSS JOIN LATERAL (SELECT position FROM events WHERE type = wanted.type AND type <> ALL ('{",
    frequent!(),
    "}') AND shard_id = "
);

fn owned(types: BTreeSet<&str>) -> Vec<String> {
    types.into_iter().map(ToOwned::to_owned).collect()
}

/// Returns an actor with an id as the log stores it.
fn stored_actor(kind: &str, id: i64) -> String {
    format!("{{\"{kind}\":{id}}}")
}

/// A page of events, the newest first.
#[derive(Debug)]
pub struct Page {
    pub events: Vec<Stored>,
    /// Position before which the next page begins; none at the end.
    pub next_before: Option<Position>,
}

/// Returns at most `limit` events between two positions, both inclusive, that meet the criteria. A page may hold fewer
/// events, or none, although more follow: it ends after a bounded scan.
///
/// One statement finds the events of a subject, and those of rare types. With an actor or an account, only a few events of
/// rare types are read so. Otherwise the log is read backwards in windows that grow.
pub async fn page(
    pool: &PgPool,
    shard: ShardId,
    (from, to): (Position, Position),
    criteria: &Criteria,
    limit: usize,
) -> Result<Page, sqlx::Error> {
    let begun = Instant::now();
    let mut events = vec![];
    let mut upto = to;
    let index = criteria.index(pool, shard, (from, to)).await?;
    let mut window = if index == Index::None { FIRST_WINDOW } else { i64::MAX };
    while upto >= from && (upto == to || begun.elapsed() < MAX_SCAN) {
        let after = upto.saturating_sub(window).max(from - 1);
        let left = limit - events.len();
        let found = match criteria.by_actor_or_account() && upto < to {
            true => within_ranges(pool, shard, (after, upto), criteria, left).await?,
            false => criteria.select(index, "shard_id", shard, (after, upto), left).build_query_as().fetch_all(pool).await?,
        };
        let (is_full, growth) = (found.len() >= left, growth(found.len(), left));
        events.extend(found);
        if is_full {
            let next_before = events.last().map(|last: &Stored| last.position).filter(|last| *last > from);
            return Ok(Page { events, next_before });
        }
        upto = after;
        window = window.saturating_mul(growth).min(MAX_WINDOW);
    }
    Ok(Page { events, next_before: (upto >= from).then_some(upto + 1) })
}

/// Returns the factor by which the next window is longer, after one with this many of the wanted events. At the same density,
/// the next window has about twice the events that are left. Each window reads the whole index, so few windows are best. A
/// window with too many events reads their ranges in vain.
fn growth(found: usize, wanted: usize) -> i64 {
    let left = wanted.saturating_sub(found);
    let factor = (2 * left).checked_div(found).and_then(|factor| i64::try_from(factor).ok());
    factor.unwrap_or(MAX_GROWTH).clamp(2, MAX_GROWTH)
}

/// Reads a window by the filters of the index `events_by_actor`. Only a bitmap scan reads the index, and the server cannot
/// know that the filters exclude nearly all of the table. So the other ways to read a table are off, and a bitmap of the
/// primary key is ruled out by a shard that no index has.
async fn within_ranges(
    pool: &PgPool,
    shard: ShardId,
    window: (Position, Position),
    criteria: &Criteria,
    limit: usize,
) -> Result<Vec<Stored>, sqlx::Error> {
    let mut tx = pool.begin().await?;
    sqlx::query(
        "SELECT set_config('enable_bitmapscan', 'on', true), set_config('enable_indexscan', 'off', true),
            set_config('enable_seqscan', 'off', true)",
    )
    .execute(&mut *tx)
    .await?;
    let found = criteria
        .select(Index::None, "(shard_id + 0)", shard, window, limit)
        .build_query_as()
        .persistent(false)
        .fetch_all(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ledger_events::{Actor, CredentialId, Event, UserId};

    use super::*;

    #[test]
    fn every_reveal_is_a_type_of_the_log() {
        let known: BTreeSet<&str> = Event::types().map(|(_, name, _)| name).collect();
        assert!(REVEALS.iter().all(|name| known.contains(name)));
    }

    #[test]
    fn a_window_grows_by_what_is_missing() {
        let growth = |found| growth(found, 50);
        assert_eq!([0, 1, 6, 10, 25, 49].map(growth), [MAX_GROWTH, MAX_GROWTH, 14, 8, 2, 2]);
    }

    #[test]
    fn an_actor_has_the_text_that_the_log_stores() {
        for actor in [Actor::Credential(CredentialId(1)), Actor::User(UserId(20)), Actor::Operator(0)] {
            let (kind, id) = actor.kind();
            assert_eq!(stored_actor(kind, id.unwrap()), serde_json::to_string(&actor).unwrap());
        }
        // The index finds a kind by the text without these characters.
        let migration = include_str!("../../../migrations/0049_events_by_actor.sql");
        assert!(migration.contains(KIND), "{migration}");
    }

    #[test]
    fn the_index_by_type_leaves_out_the_frequent_types() {
        let migration = include_str!("../../../migrations/0048_events_by_type.sql");
        assert!(migration.contains(concat!("WHERE type <> ALL ('{", frequent!(), "}')")), "{migration}");
        let known: BTreeSet<&str> = Event::types().map(|(_, name, _)| name).collect();
        assert!(frequent!().split(',').all(|name| known.contains(name)));
    }
}
