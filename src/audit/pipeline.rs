//! Folds the log into shadow tables: one reader, and one worker per projection. Reading, decoding and writing run
//! concurrently.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger_database::{PgConnectOptions, PgConnection};
use ledger_events::{Position, Recorded, ShardId};
use ledger_projections::{Inline, deliveries, stock, totals};
use tokio::sync::mpsc;

use super::{AuditError, Progress, shadow};
use crate::ledger::reader::{self, ReadError, Stored};

/// Number of events per page, which is one transaction of each worker.
const PAGE_EVENTS: i64 = 20_000;
/// Number of pages that are read ahead of the slowest worker.
const PAGES_AHEAD: usize = 2;

/// Tables that are rebuilt together: those of one projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Inline(Inline),
    Deliveries,
    Stock,
    Totals,
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Self::Inline(inline) => inline.name(),
            Self::Deliveries => deliveries::NAME,
            Self::Stock => stock::NAME,
            Self::Totals => totals::NAME,
        }
    }

    pub fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Inline(inline) => inline.tables(),
            Self::Deliveries => deliveries::TABLES,
            Self::Stock => stock::TABLES,
            Self::Totals => totals::TABLES,
        }
    }

    /// Returns whether only a projector writes the tables, so that locking its checkpoint stops the writes.
    pub fn catches_up(self) -> bool {
        !matches!(self, Self::Inline(_))
    }

    /// Folds the next events of the log into the shadow tables.
    pub async fn apply(self, conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), AuditError> {
        match self {
            Self::Inline(inline) => inline.apply(conn, shard, events).await?,
            Self::Deliveries => {
                let mut left = events;
                while !left.is_empty() {
                    let made = reader::fold_deliveries(conn, shard, left).await?;
                    deliveries::write_shadow(conn, shard, &made).await?;
                    left = left.get(made.events..).unwrap_or_default();
                }
            }
            Self::Stock => reader::fold_stock(conn, shard, events).await?,
            Self::Totals => totals::apply(conn, shard, events).await?,
        }
        Ok(())
    }
}

/// Last folded position of each part in each shard's log.
pub type Reached = BTreeMap<(&'static str, ShardId), Position>;

/// A part with its start and end positions.
#[derive(Clone, Copy, Debug)]
struct Leg {
    part: Part,
    from: Position,
    to: Position,
}

/// Folds every part of a shard up to its target.
pub async fn advance(
    options: &PgConnectOptions,
    shard: ShardId,
    parts: &[Part],
    target: impl Fn(Part) -> Position,
    reached: &mut Reached,
    progress: &impl Fn(Progress),
) -> Result<(), AuditError> {
    let legs: Vec<Leg> = parts
        .iter()
        .map(|part| Leg { part: *part, from: reached.get(&(part.name(), shard)).copied().unwrap_or_default(), to: target(*part) })
        .filter(|leg| leg.from < leg.to)
        .collect();
    let (Some(from), Some(to)) = (legs.iter().map(|leg| leg.from).min(), legs.iter().map(|leg| leg.to).max()) else {
        return Ok(());
    };
    let mut queues = Vec::with_capacity(legs.len());
    let mut workers = tokio::task::JoinSet::new();
    for leg in &legs {
        let (sender, receiver) = mpsc::channel(PAGES_AHEAD);
        queues.push(sender);
        workers.spawn(work(options.clone(), shard, *leg, receiver));
    }
    let outcome = feed(options, shard, (from, to), &queues, progress).await;
    drop(queues);
    while let Some(ended) = workers.join_next().await {
        ended.map_err(|_| AuditError::Broken)??;
    }
    outcome?;
    for leg in legs {
        reached.insert((leg.part.name(), shard), leg.to);
    }
    Ok(())
}

type Page = Arc<Vec<Recorded>>;

/// Reads and decodes pages. Reads the next page while the current one is decoded and distributed.
async fn feed(
    options: &PgConnectOptions,
    shard: ShardId,
    (mut at, to): (Position, Position),
    queues: &[mpsc::Sender<Page>],
    progress: &impl Fn(Progress),
) -> Result<(), AuditError> {
    let (stored_pages, mut stored) = mpsc::channel::<Result<Vec<Stored>, sqlx::Error>>(1);
    let options = options.clone();
    let from = at;
    let reading = tokio::spawn(async move {
        let mut conn = match shadow::connect(&options, "rewards-ledger rebuild reader").await {
            Ok(conn) => conn,
            Err(error) => {
                _ = stored_pages.send(Err(error)).await;
                return;
            }
        };
        let mut at = from;
        while at < to {
            let page = reader::stored_after(&mut conn, shard, at, PAGE_EVENTS.min(to - at)).await;
            let last = page.as_ref().ok().and_then(|page| page.last()).map(|stored| stored.position);
            if stored_pages.send(page).await.is_err() {
                return;
            }
            at = last.unwrap_or(to);
        }
    });
    while let Some(page) = stored.recv().await {
        let page = page?;
        gapless(shard, at, &page)?;
        let last = page.last().map_or(to, |stored| stored.position);
        let decoded = tokio::task::spawn_blocking(move || page.iter().map(Stored::decode).collect::<Result<Vec<_>, ReadError>>())
            .await
            .map_err(|_| AuditError::Broken)??;
        let decoded = Arc::new(decoded);
        for queue in queues {
            if queue.send(decoded.clone()).await.is_err() {
                return Ok(()); // a failed worker reports the error itself
            }
        }
        at = last;
        progress(Progress { stage: "fold", shard, done: at, total: to });
    }
    reading.await.map_err(|_| AuditError::Broken)
}

/// Checks that a page has no gap. A log with a gap cannot be folded.
fn gapless(shard: ShardId, after: Position, page: &[Stored]) -> Result<(), AuditError> {
    let mut expected = after;
    for stored in page {
        expected += 1;
        if stored.position != expected {
            return Err(AuditError::Gap { shard, position: expected });
        }
    }
    if page.is_empty() { Err(AuditError::Gap { shard, position: expected + 1 }) } else { Ok(()) }
}

async fn work(options: PgConnectOptions, shard: ShardId, leg: Leg, mut pages: mpsc::Receiver<Page>) -> Result<(), AuditError> {
    let mut conn = shadow::connect(&options, "rewards-ledger rebuild").await?;
    while let Some(page) = pages.recv().await {
        let begin = page.partition_point(|r| r.moment.position <= leg.from);
        let end = page.partition_point(|r| r.moment.position <= leg.to);
        let Some(mine) = page.get(begin..end).filter(|mine| !mine.is_empty()) else { continue };
        let mut tx = conn.begin().await?;
        leg.part.apply(&mut tx, shard, mine).await?;
        tx.commit().await?;
    }
    conn.close().await?;
    Ok(())
}
