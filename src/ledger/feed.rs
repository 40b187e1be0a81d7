//! The event feed of an account: the envelopes that its webhooks receive, in the order of the log, for clients that pull.
//!
//! The log decides what is in the feed, so an account without webhooks has one, too. Stored envelopes are sent as they are.
//! All others are folded from the log, which gives the same bytes at any time. So the feed is as long as the log.

mod waiters;

use std::collections::HashMap;

use ledger_database::{PgConnection, PgPool, replanned};
use ledger_events::webhook::WebhookEventType;
use ledger_events::{AccountId, CredentialId, Position, ShardId};
use ledger_projections::deliveries::{self, Past};
use ledger_projections::{ProjectionError, page};
use uuid::Uuid;

use super::reader::{self, Announced, ReadError, SEGMENT};
pub use waiters::{FeedWaiters, TooManyWaiters, Waiter};

/// Number of segments that the first query of a page covers. Each further one covers eight times as many.
const FIRST_SEGMENTS: Position = 4;
/// Largest number of segments that one query covers.
const MAX_SEGMENTS: Position = 512;
/// Largest number of queries for one page. They cover several million positions, which bounds the time for a page.
const MAX_QUERIES: usize = 8;

/// An event of an account's feed.
#[derive(Debug)]
pub struct FeedEvent {
    /// Position in the log, which `X-Event-Sequence` carries in a delivery of the event.
    pub position: Position,
    /// Bytes of the envelope.
    pub envelope: String,
}

/// Part of an account's feed.
#[derive(Debug, Default)]
pub struct FeedPage {
    /// Events, oldest first.
    pub events: Vec<FeedEvent>,
    /// Position up to which the page covers the log.
    pub reached: Position,
    /// Whether the log goes on after that position.
    pub is_more: bool,
}

/// Reads the next events of an account after a position, at most `limit`. A page may be short, or empty, although the log
/// goes on: the account may have no event in a long stretch of it.
pub async fn page_after(
    pool: &PgPool,
    (shard, account): (ShardId, AccountId),
    after: Position,
    types: &[WebhookEventType],
    limit: usize,
) -> Result<FeedPage, ReadError> {
    replanned(|| page_once(pool, (shard, account), after, types, limit)).await
}

async fn page_once(
    pool: &PgPool,
    (shard, account): (ShardId, AccountId),
    after: Position,
    types: &[WebhookEventType],
    limit: usize,
) -> Result<FeedPage, ReadError> {
    let mut tx = page::snapshot(pool).await?;
    let head = reader::head(&mut *tx, shard).await?;
    let (found, reached) = find(&mut tx, (shard, account), (after, head), types, limit).await?;
    let purged: Vec<Uuid> = found.iter().filter(|event| event.payload.is_none()).map(|event| event.event_id).collect();
    let past = reader::past(&mut tx, shard, &purged).await?;
    tx.commit().await?;
    let complete = |event: Announced| Ok(FeedEvent { position: event.position, envelope: envelope(event, &past)? });
    let events = found.into_iter().map(complete).collect::<Result<_, ReadError>>()?;
    Ok(FeedPage { events, reached, is_more: reached < head })
}

/// Finds the account's next events in a range of the log. Returns them with the position up to which it has looked.
async fn find(
    conn: &mut PgConnection,
    owner: (ShardId, AccountId),
    (after, head): (Position, Position),
    types: &[WebhookEventType],
    limit: usize,
) -> Result<(Vec<Announced>, Position), sqlx::Error> {
    let (mut found, mut reached, mut segments) = (vec![], after, FIRST_SEGMENTS);
    for _ in 0..MAX_QUERIES {
        if reached >= head || found.len() >= limit {
            break;
        }
        let upto = head.min(reached + segments * SEGMENT);
        let wanted = limit - found.len();
        let part = reader::announced(conn, owner, (reached, upto), types, i64::try_from(wanted).unwrap_or(i64::MAX)).await?;
        reached = match part.last() {
            Some(last) if part.len() == wanted => last.position,
            _ => upto,
        };
        found.extend(part);
        segments = (segments * 8).min(MAX_SEGMENTS);
    }
    Ok((found, reached))
}

/// Returns the bytes of an event's envelope.
fn envelope(event: Announced, past: &HashMap<Uuid, Past>) -> Result<String, ReadError> {
    if let Some(payload) = event.payload {
        return Ok(payload);
    }
    let folded = past.get(&event.event_id).map(deliveries::payload).transpose()?.flatten();
    folded.ok_or_else(|| {
        let problem = "its envelope cannot be folded from the log".to_owned();
        ReadError::Projection(ProjectionError::Row { table: "events", id: event.position, problem })
    })
}

/// Returns the sealed signing secret of a credential, with which a page of its events is signed. `None` if it has none.
///
/// # Errors
/// If the database fails.
pub async fn sealed_signing_secret(pool: &PgPool, id: CredentialId) -> Result<Option<Vec<u8>>, sqlx::Error> {
    sqlx::query_scalar("SELECT signing_secret FROM vault.credentials WHERE credential_id = $1 AND signing_secret IS NOT NULL")
        .bind(id)
        .fetch_optional(pool)
        .await
}
