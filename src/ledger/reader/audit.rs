//! Reads the log by actor and subject, the newest events first.

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
    // A stream's events have an index, so one statement finds them all.
    let window = if criteria.subject.is_some() { i64::MAX } else { WINDOW };
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

async fn within(
    pool: &PgPool,
    shard: ShardId,
    (after, upto): (Position, Position),
    criteria: &Criteria,
    limit: i64,
) -> Result<Vec<Stored>, sqlx::Error> {
    let (kind, id) = criteria.actor.as_ref().map(|(kind, id)| (kind, id.map(|id| id.to_string()))).unzip();
    let id = id.flatten();
    let statement = match &criteria.subject {
        Some(_) => {
            select_events!(
                "WHERE shard_id = $1 AND stream_type = $8 AND stream_id = $9 AND position > $2 AND position <= $3
                    AND ($4::text IS NULL OR metadata->'actor'->>$4 = coalesce($5, metadata->'actor'->>$4) OR metadata->>'actor' = $4)
                    AND ($6::bigint IS NULL OR (metadata->>'account_id')::bigint = $6)
                    AND (cardinality($7::text[]) = 0 OR type = ANY($7))
                    AND (NOT $11 OR type = ANY($12) OR type = 'WebhookUpdated' AND data->>'token_hash' IS NOT NULL)
                 ORDER BY version DESC LIMIT $10"
            )
        }
        None => {
            select_events!(
                "WHERE shard_id = $1 AND position > $2 AND position <= $3
                    AND ($4::text IS NULL OR metadata->'actor'->>$4 = coalesce($5, metadata->'actor'->>$4) OR metadata->>'actor' = $4)
                    AND ($6::bigint IS NULL OR (metadata->>'account_id')::bigint = $6)
                    AND (cardinality($7::text[]) = 0 OR type = ANY($7))
                    AND (NOT $11 OR type = ANY($12) OR type = 'WebhookUpdated' AND data->>'token_hash' IS NOT NULL)
                    AND $8::text IS NULL AND $9::bigint IS NULL
                 ORDER BY position DESC LIMIT $10"
            )
        }
    };
    let (stream_type, stream_id) = criteria.subject.as_ref().map(|(of, id)| (of, *id)).unzip();
    sqlx::query_as(statement)
        .bind(shard)
        .bind(after)
        .bind(upto)
        .bind(kind)
        .bind(id)
        .bind(criteria.account_id)
        .bind(&criteria.types)
        .bind(stream_type)
        .bind(stream_id)
        .bind(limit)
        .bind(criteria.reveals)
        .bind(&REVEALS[..])
        .fetch_all(pool)
        .await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ledger_events::Event;

    use super::*;

    #[test]
    fn every_reveal_is_a_type_of_the_log() {
        let known: BTreeSet<&str> = Event::types().map(|(_, name, _)| name).collect();
        assert!(REVEALS.iter().all(|name| known.contains(name)));
    }
}
