//! Reads the log by actor and subject, the newest events first.

use std::collections::BTreeSet;

use ledger_database::PgPool;
use ledger_events::{AccountId, Position, ShardId};

use super::{Stored, select_events};

/// Number of positions that one statement scans.
const WINDOW: i64 = 10_000;
/// Number of positions that one page scans at most. The log has no index of actors, so that appending stays cheap.
const SCANNED: i64 = 200_000;

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
    /// Returns the types of all events that can pass, if the index by type has them.
    fn indexed_types(&self) -> Option<BTreeSet<&str>> {
        let types: BTreeSet<&str> = match self.types.as_slice() {
            [] if self.reveals => REVEALS.into_iter().chain(["WebhookUpdated"]).collect(),
            types => types.iter().map(String::as_str).collect(),
        };
        let is_indexed = |name: &&str| !frequent!().split(',').any(|frequent| frequent == *name);
        (!types.is_empty() && types.iter().all(is_indexed)).then_some(types)
    }
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
pub async fn page(
    pool: &PgPool,
    shard: ShardId,
    (from, to): (Position, Position),
    criteria: &Criteria,
    limit: usize,
) -> Result<Page, sqlx::Error> {
    let wanted = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut events = vec![];
    let mut upto = to;
    // One statement reads a subject or rare types by an index. A filter of actor or account may pass over many rows of rare
    // types, so it keeps the window.
    let passes_over = criteria.actor.is_some() || criteria.account_id.is_some();
    let is_found = criteria.subject.is_some() || criteria.indexed_types().is_some() && !passes_over;
    let window = if is_found { i64::MAX } else { WINDOW };
    while upto >= from && to - upto < SCANNED {
        let after = upto.saturating_sub(window).max(from - 1);
        let left = wanted - i64::try_from(events.len()).unwrap_or(i64::MAX);
        let found = within(pool, shard, (after, upto), criteria, left).await?;
        let is_full = i64::try_from(found.len()).is_ok_and(|count| count >= left);
        events.extend(found);
        if is_full {
            let next_before = events.last().map(|last: &Stored| last.position).filter(|last| *last > from);
            return Ok(Page { events, next_before });
        }
        upto = after;
    }
    Ok(Page { events, next_before: (upto >= from).then_some(upto + 1) })
}

/// Conditions of [`Criteria`] and the positions, on the parameters 2 to 9.
macro_rules! meets_criteria {
    () => {
        "position > $2 AND position <= $3
            AND ($4::text IS NULL OR metadata->'actor'->>$4 = coalesce($5, metadata->'actor'->>$4) OR metadata->>'actor' = $4)
            AND ($6::bigint IS NULL OR (metadata->>'account_id')::bigint = $6)
            AND (cardinality($7::text[]) = 0 OR type = ANY($7))
            AND (NOT $8 OR type = ANY($9) OR type = 'WebhookUpdated' AND data->>'token_hash' IS NOT NULL)"
    };
}

async fn within(
    pool: &PgPool,
    shard: ShardId,
    (after, upto): (Position, Position),
    criteria: &Criteria,
    limit: i64,
) -> Result<Vec<Stored>, sqlx::Error> {
    let (kind, id) = criteria.actor.as_ref().map(|(kind, id)| (kind, id.map(|id| id.to_string()))).unzip();
    let id = id.flatten();
    let indexed_types = criteria.indexed_types();
    let statement = match (&criteria.subject, &indexed_types) {
        (Some(_), _) => concat!(
            select_events!("WHERE shard_id = $1 AND stream_type = $10 AND stream_id = $11 AND "),
            meets_criteria!(),
            " ORDER BY version DESC LIMIT $12"
        ),
        (None, Some(_)) => concat!(
            select_events!("WHERE shard_id = $1 AND position = ANY (ARRAY("),
            "SELECT of_type.position FROM unnest($7::text[]) AS wanted (type) CROSS JOIN LATERAL
                (SELECT position FROM events WHERE shard_id = $1 AND type = wanted.type AND type <> ALL ('{",
            frequent!(),
            "}') AND ",
            meets_criteria!(),
            " AND $10::text IS NULL AND $11::bigint IS NULL ORDER BY position DESC LIMIT $12) AS of_type
             ORDER BY of_type.position DESC LIMIT $12)) ORDER BY position DESC"
        ),
        (None, None) => concat!(
            select_events!("WHERE shard_id = $1 AND "),
            meets_criteria!(),
            " AND $10::text IS NULL AND $11::bigint IS NULL ORDER BY position DESC LIMIT $12"
        ),
    };
    let types = indexed_types.unwrap_or_else(|| criteria.types.iter().map(String::as_str).collect());
    let (stream_type, stream_id) = criteria.subject.as_ref().map(|(of, id)| (of, *id)).unzip();
    sqlx::query_as(statement)
        .bind(shard)
        .bind(after)
        .bind(upto)
        .bind(kind)
        .bind(id)
        .bind(criteria.account_id)
        .bind(types.into_iter().collect::<Vec<_>>())
        .bind(criteria.reveals)
        .bind(&REVEALS[..])
        .bind(stream_type)
        .bind(stream_id)
        .bind(limit)
        .fetch_all(pool)
        .await
}

#[cfg(test)]
mod tests {
    use ledger_events::Event;

    use super::*;

    #[test]
    fn every_reveal_is_a_type_of_the_log() {
        let known: BTreeSet<&str> = Event::types().map(|(_, name, _)| name).collect();
        assert!(REVEALS.iter().all(|name| known.contains(name)));
    }

    #[test]
    fn the_index_by_type_leaves_out_the_frequent_types() {
        let migration = include_str!("../../../migrations/0048_events_by_type.sql");
        assert!(migration.contains(concat!("WHERE type <> ALL ('{", frequent!(), "}')")), "{migration}");
        let known: BTreeSet<&str> = Event::types().map(|(_, name, _)| name).collect();
        assert!(frequent!().split(',').all(|name| known.contains(name)));
    }
}
