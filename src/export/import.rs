//! Imports an export into an empty ledger: the same log byte for byte, with everything that is derived from it. Runs as
//! the role that migrates.
//!
//! Each page is one transaction: events, head, inline rows and deliveries. Until the last page is written, no node starts
//! on the ledger ([`SchemaError::HalfImported`]). An import that was killed continues where it stopped. Imported
//! deliveries are history: none of them is sent.
//!
//! [`SchemaError::HalfImported`]: crate::ledger::SchemaError::HalfImported

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ledger_database::{Connector, PgConnectOptions, PgConnection};
use ledger_events::reconciliation::ReconciliationEvent;
use ledger_events::wallet::Movement;
use ledger_events::webhook::WebhookEvent;
use ledger_events::{Actor, Event, IDS_PER_SHARD, Id, Position, Recorded, ShardId, StreamType, id_base};
use ledger_projections::listing::maintain;
use ledger_projections::{Inline, ProjectionError, deliveries};
use serde::Serialize;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::offline::structure::Structure;
use super::{ExportError, Manifest, line, read};
use crate::audit::{AuditError, Difference, Findings, Progress, lock};
use crate::ledger::head::{self, Head};
use crate::ledger::reader::{self, ReadError, Stored};
use crate::ledger::{IMPORT, half_imported, write};

/// Number of events per transaction.
const PAGE_EVENTS: usize = 5_000;

/// Reason why an import failed.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{} has no events", .0.display())]
    NoEvents(PathBuf),
    #[error("{} does not match its manifest", .0.display())]
    NotWhole(PathBuf),
    #[error("{} contains only a part of a log; an import needs a complete export", .0.display())]
    Part(PathBuf),
    #[error("{} is not a valid log: {difference}", .path.display())]
    Damaged { path: PathBuf, difference: Box<Difference> },
    #[error("the database has no shard {0}: import the log of the first shard before, which adds the others")]
    NoShard(ShardId),
    #[error("the ledger is not empty: the log of shard {shard} has {events} events")]
    NotEmpty { shard: ShardId, events: i64 },
    #[error("the database has an unfinished import of another file: shard {shard} differs from this file at position {position}")]
    Differs { shard: ShardId, position: Position },
    #[error("another process writes to shard {0}: stop every node, and start again with an empty database")]
    Written(ShardId),
}

/// Result of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Imported {
    pub shard_id: ShardId,
    pub events: Position,
    /// Number of events that an earlier run had imported.
    pub before: Position,
}

/// Result of reading the whole file once: the log is valid, and these ids are in use.
#[derive(Debug)]
struct Survey {
    shard: ShardId,
    events: Position,
    /// Greatest number of each sequence.
    ids: BTreeMap<&'static str, i64>,
    /// Sequence numbers of the deliveries whose ids events state.
    given: BTreeSet<i64>,
    /// Epoch of the exported log's head, from the manifest.
    epoch: i64,
}

/// Imports a file into the database of these connection options.
///
/// # Errors
/// Returns an error before it writes anything when the file is not a complete and valid log. The same applies while
/// a verify or a rebuild runs, and when the ledger is neither empty nor an unfinished import of this file. Also
/// returns an error when the database fails; the import can then be run again.
pub async fn import(options: &PgConnectOptions, path: &Path, progress: impl Fn(Progress)) -> Result<Imported, ImportError> {
    import_in_pages(options, path, PAGE_EVENTS, false, progress).await
}

/// Imports a file, like [`import`]. Compares a log that the ledger has already, and leaves it as it is.
///
/// # Errors
/// Same as [`import`], except that the ledger may have the whole log.
pub async fn import_again(options: &PgConnectOptions, path: &Path, progress: impl Fn(Progress)) -> Result<Imported, ImportError> {
    import_in_pages(options, path, PAGE_EVENTS, true, progress).await
}

/// Imports a file with this number of events per transaction. `is_again`: the ledger may have the whole log.
///
/// # Errors
/// Same as [`import`].
pub async fn import_in_pages(
    options: &PgConnectOptions,
    path: &Path,
    page_events: usize,
    is_again: bool,
    progress: impl Fn(Progress),
) -> Result<Imported, ImportError> {
    let survey = survey(path, &progress).await?;
    let mut conn = connect(options).await?;
    lock::exclusive(&mut conn).await?;
    let (mut head, is_begun) = find_head(&mut conn, survey.shard).await?;
    let before = head.position;
    match is_begun {
        true => compare(&mut conn, &survey, before, path).await?,
        false if is_again && before > 0 && before == survey.events => {
            compare(&mut conn, &survey, before, path).await?;
            lock::release(&mut conn).await?;
            return Ok(Imported { shard_id: survey.shard, events: survey.events, before });
        }
        false if before > 0 => return Err(ImportError::NotEmpty { shard: survey.shard, events: before }),
        false => begin(&mut conn, &survey).await?,
    }
    let mut ids = DeliveryIds::after(&mut conn, &survey).await?;
    let mut pages = pages(path, before, page_events);
    while let Some(page) = pages.recv().await {
        let page = page?;
        write(&mut conn, &mut head, &page, &mut ids).await?;
        progress(Progress { stage: "import", shard: survey.shard, done: head.position, total: survey.events });
    }
    finish(&mut conn, &survey, &ids).await?;
    lock::release(&mut conn).await?;
    conn.close().await?;
    Ok(Imported { shard_id: survey.shard, events: survey.events, before })
}

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let options = options.clone().application_name("rewards-ledger import").options([
        ("timezone", "UTC"),
        ("default_transaction_isolation", "read committed"),
        ("statement_timeout", "0"),
        ("lock_timeout", "5000"),
        ("idle_in_transaction_session_timeout", "60000"),
        // A crash of the database undoes whole pages, the newest first. The last transaction is flushed to disk.
        ("synchronous_commit", "off"),
        ("jit", "off"),
        ("work_mem", "64MB"),
    ]);
    Connector::patient(options).connect().await
}

/// Reads and checks the whole file before anything is written.
async fn survey(path: &Path, progress: &impl Fn(Progress)) -> Result<Survey, ImportError> {
    let manifest = Manifest::of(path)?;
    if manifest.as_ref().is_some_and(|manifest| manifest.selection.has_gaps() || manifest.selection.from > 1) {
        return Err(ImportError::Part(path.to_owned()));
    }
    let total = manifest.as_ref().and_then(|manifest| manifest.last).unwrap_or_default();
    let (done, mut reached) = mpsc::unbounded_channel();
    let file = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || -> Result<Survey, ImportError> {
        let epoch = manifest.as_ref().map_or(0, |manifest| manifest.epoch);
        if let Some(manifest) = manifest
            && !manifest.describes(&file).map_err(|source| ExportError::File { path: file.clone(), source })?
        {
            return Err(ImportError::NotWhole(file));
        }
        let mut survey: Option<(Survey, Structure)> = None;
        let mut findings = Findings::default();
        read::each_page(&file, threads(), parse, |page| {
            for stored in page {
                let (survey, structure) = survey.get_or_insert_with(|| {
                    let shard = stored.shard_id;
                    (Survey { shard, events: 0, ids: BTreeMap::new(), given: BTreeSet::new(), epoch }, Structure::new(shard))
                });
                if let Some(recorded) = structure.step(&stored, &mut findings) {
                    survey.note(&recorded);
                }
                survey.events = structure.last();
                // A broken business rule is part of the history. A log that is inconsistent is not imported.
                if let Some(difference) = findings.differences.drain(..).find(|found| !matches!(found, Difference::Rule { .. })) {
                    return Err(ImportError::Damaged { path: file.clone(), difference: Box::new(difference) });
                }
            }
            if let Some((survey, _)) = &survey {
                _ = done.send((survey.shard, survey.events)); // a closed receiver no longer needs the progress
            }
            Ok(())
        })?;
        survey.map(|(survey, _)| survey).ok_or(ImportError::NoEvents(file))
    });
    while let Some((shard, done)) = reached.recv().await {
        progress(Progress { stage: "check", shard, done, total: total.max(done) });
    }
    reading.await.map_err(|_| ExportError::Broken)?
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn parse(text: &str) -> Result<Stored, String> {
    line::read(text).map_err(|error| error.to_string())
}

impl Survey {
    fn note(&mut self, recorded: &Recorded) {
        let mut taken = |sequence, id: i64| {
            let greatest = self.ids.entry(sequence).or_default();
            *greatest = id.sequence_number().max(*greatest);
        };
        let sequence = match recorded.stream_type {
            StreamType::Order => Some("order_ids"),
            StreamType::Wallet => Some("wallet_ids"),
            StreamType::Webhook => Some("webhook_ids"),
            StreamType::Replay => Some("replay_ids"),
            StreamType::Account => Some("account_ids"),
            StreamType::Credential => Some("credential_ids"),
            StreamType::User => Some("user_ids"),
            StreamType::Product => Some("product_ids"),
            StreamType::Category => Some("category_ids"),
            StreamType::IpBlock => Some("ip_blocks_id_seq"),
            StreamType::Operator => Some("vault.operators_id_seq"),
            StreamType::Purchase => Some("purchase_ids"),
            StreamType::Beneficiary => Some("beneficiary_ids"),
            StreamType::Payout => Some("payout_ids"),
            StreamType::Reconciliation => Some("bank_statement_ids"),
            StreamType::Approval => Some("approval_ids"),
            StreamType::Verification => Some("audit_runs_id_seq"),
            StreamType::ApiVersion => None, // a version is identified by its own number
            StreamType::Log | StreamType::Shard => None, // the stream's id is the shard's
        };
        if let Some(sequence) = sequence {
            taken(sequence, recorded.stream_id);
        }
        // New operators must not get the id of an operator in the log.
        if let Actor::Operator(id) = recorded.metadata.actor {
            taken("vault.operators_id_seq", id);
        }
        match &recorded.event {
            Event::Wallet(event) => {
                if let Some(movement) = Movement::of(event) {
                    taken("transaction_ids", movement.transaction_id.0);
                }
            }
            Event::Reconciliation(ReconciliationEvent::MatchDecided(event)) => taken("match_decision_ids", event.decision_id.0),
            Event::Webhook(WebhookEvent::WebhookTested(event)) => _ = self.given.insert(event.delivery_id.sequence_number()),
            _ => {}
        }
    }
}

/// Returns the head of the shard's log, and whether an import was begun.
async fn find_head(conn: &mut PgConnection, shard: ShardId) -> Result<(Head, bool), ImportError> {
    let found: Option<(Position, Option<Uuid>, i64)> = sqlx::query_as(
        "SELECT position, (SELECT event_id FROM events e WHERE e.shard_id = h.shard_id AND e.position = h.position), epoch
         FROM log_head h WHERE shard_id = $1",
    )
    .bind(shard)
    .fetch_optional(&mut *conn)
    .await?;
    let (position, event_id, epoch) = found.ok_or(ImportError::NoShard(shard))?;
    let is_begun = half_imported(conn).await?.iter().any(|(begun, ..)| *begun == shard);
    Ok((Head { shard, position, event_id, epoch }, is_begun))
}

/// Marks the import as begun. From here on no node starts until the import is complete.
async fn begin(conn: &mut PgConnection, survey: &Survey) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO projection_checkpoints (shard_id, projection, position) VALUES ($1, $2, $3)")
        .bind(survey.shard)
        .bind(IMPORT)
        .bind(survey.events)
        .execute(conn)
        .await?;
    Ok(())
}

/// Checks that the log in the database is the beginning of the file.
async fn compare(conn: &mut PgConnection, survey: &Survey, head: Position, path: &Path) -> Result<(), ImportError> {
    let shard = survey.shard;
    let mut pages = pages(path, 0, PAGE_EVENTS);
    let mut at = 0;
    while at < head {
        let page = pages.recv().await.transpose()?.ok_or(ImportError::Differs { shard, position: at + 1 })?;
        let stored = reader::stored_after(&mut *conn, shard, at, i64::try_from(page.events.len()).unwrap_or(i64::MAX)).await?;
        let differs = page.events.iter().zip(&stored).find(|(ours, theirs)| ours != theirs);
        if let Some((ours, _)) = differs {
            return Err(ImportError::Differs { shard, position: ours.position });
        }
        at = stored.last().map_or(head, |last| last.position);
    }
    Ok(())
}

/// A page of events that one transaction writes.
#[derive(Debug)]
struct Page {
    events: Vec<Stored>,
    decoded: Vec<Recorded>,
}

/// Returns the file's events after a position, in pages. A thread reads ahead while a page is written.
fn pages(path: &Path, after: Position, size: usize) -> mpsc::Receiver<Result<Page, ImportError>> {
    let (sender, receiver) = mpsc::channel(2);
    let path: Arc<Path> = path.into();
    tokio::task::spawn_blocking(move || {
        let mut page = Page { events: vec![], decoded: vec![] };
        let parse = |text: &str| {
            let stored = parse(text)?;
            let recorded = stored.decode().map_err(|error| error.to_string())?;
            Ok((stored, recorded))
        };
        let read = read::each_page(&path, threads(), parse, |parsed| {
            for (stored, recorded) in parsed.into_iter().filter(|(stored, _)| stored.position > after) {
                page.events.push(stored);
                page.decoded.push(recorded);
                if page.events.len() == size {
                    let full = std::mem::replace(&mut page, Page { events: vec![], decoded: vec![] });
                    // The receiver is gone because writing failed. The writer reports the reason.
                    sender.blocking_send(Ok(full)).map_err(|_| ExportError::Broken)?;
                }
            }
            Ok::<_, ExportError>(())
        });
        _ = match read {
            Ok(()) if page.events.is_empty() => Ok(()),
            Ok(()) => sender.blocking_send(Ok(page)),
            Err(error) => sender.blocking_send(Err(error.into())),
        };
    });
    receiver
}

/// Assigns ids to deliveries in the order in which the log makes them, like the projector. Skips the numbers of ids that
/// events state.
#[derive(Debug)]
struct DeliveryIds {
    shard: ShardId,
    /// Last number of the sequence.
    last: i64,
    given: BTreeSet<i64>,
}

impl DeliveryIds {
    /// Starts after the numbers of existing ids: those of another shard, or of an earlier run.
    async fn after(conn: &mut PgConnection, survey: &Survey) -> Result<DeliveryIds, sqlx::Error> {
        let given: Vec<i64> = survey.given.iter().copied().collect();
        let numbers = "SELECT coalesce(max(id % $3), 0) FROM deliveries WHERE shard_id <> $1 OR id % $3 <> ALL ($2)";
        let last = sqlx::query_scalar(numbers).bind(survey.shard).bind(given).bind(IDS_PER_SHARD).fetch_one(conn).await?;
        Ok(DeliveryIds { shard: survey.shard, last, given: survey.given.clone() })
    }

    fn draw(&mut self) -> i64 {
        self.last += 1;
        while self.given.contains(&self.last) {
            self.last += 1;
        }
        id_base(self.shard) + self.last
    }
}

/// Writes a page and everything derived from it in one transaction.
async fn write(conn: &mut PgConnection, head: &mut Head, page: &Page, ids: &mut DeliveryIds) -> Result<(), ImportError> {
    let shard = head.shard;
    let Some(last) = page.events.last() else { return Ok(()) };
    let mut tx = conn.begin().await?;
    let mut write = head.advance(last.position, last.recorded_at);
    write::push_stored(&mut write, &page.events);
    if write.execute(&mut tx).await?.is_none() {
        return Err(ImportError::Written(shard));
    }
    for inline in Inline::ALL {
        inline.apply(&mut tx, shard, &page.decoded).await?;
    }
    let added: Vec<i64> = page.decoded.iter().filter_map(|new| head::added(new.stream_id, &new.event)).collect();
    head::add(&mut tx, added).await?;
    let mut left = &page.decoded[..];
    while !left.is_empty() {
        let mut made = reader::fold_deliveries(&mut tx, shard, left).await?;
        made.settle(|| ids.draw());
        deliveries::write(&mut tx, shard, &made).await?;
        left = left.get(made.events..).unwrap_or_default();
    }
    sqlx::query("SELECT set_config('ledger.webhook_events', 'further', true)").execute(&mut *tx).await?;
    sqlx::query(
        "INSERT INTO projection_checkpoints (shard_id, projection, position) VALUES ($1, $2, $3)
         ON CONFLICT (shard_id, projection) DO UPDATE SET position = excluded.position, updated_at = clock_timestamp()",
    )
    .bind(shard)
    .bind(deliveries::NAME)
    .bind(last.position)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    head.position = last.position;
    head.event_id = Some(last.event_id);
    Ok(())
}

/// Advances every sequence past the ids in use, computes the page anchors of lists, and releases the ledger for use.
async fn finish(conn: &mut PgConnection, survey: &Survey, ids: &DeliveryIds) -> Result<(), ImportError> {
    maintain::rebuild_lists(conn, survey.shard, deliveries::NAME).await?;
    let deliveries = survey.given.last().copied().unwrap_or_default().max(ids.last);
    let taken = survey.ids.iter().map(|(name, id)| (*name, *id)).chain([("delivery_ids", deliveries)]);
    let (names, greatest): (Vec<&str>, Vec<i64>) = taken.filter(|(_, id)| *id > 0).unzip();
    // The contents of the vault may have been restored before the log.
    sqlx::query(
        "SELECT setval(s.name::regclass, s.id)
         FROM (SELECT * FROM unnest($1::text[], $2::bigint[]) AS taken (name, id)
               UNION ALL SELECT 'voucher_ids', max(id) FROM vault.vouchers HAVING max(id) > 0
               UNION ALL SELECT 'vault.data_key_ids', max(id) FROM vault.data_keys HAVING max(id) > 0) AS s
         WHERE s.id > coalesce(pg_sequence_last_value(s.name::regclass), 0)",
    )
    .bind(names)
    .bind(greatest)
    .execute(&mut *conn)
    .await?;
    let mut tx = conn.begin().await?;
    // This commit is synchronous, so it also flushes all earlier ones.
    sqlx::raw_sql("SET LOCAL synchronous_commit = on").execute(&mut *tx).await?;
    // Raising the epoch makes writers drop their caches of an empty ledger. A signer sees that the database is not an
    // older copy.
    sqlx::query("UPDATE log_head SET epoch = greatest(epoch, $2) + 1 WHERE shard_id = $1")
        .bind(survey.shard)
        .bind(survey.epoch)
        .execute(&mut *tx)
        .await?;
    sqlx::query("DELETE FROM projection_checkpoints WHERE shard_id = $1 AND projection = $2")
        .bind(survey.shard)
        .bind(IMPORT)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}
