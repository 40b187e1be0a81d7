//! Audit of deliveries up to the deliveries projection's checkpoint. Folds audience, envelopes and deliveries again into
//! temporary tables, page by page, and compares them. Also checks the worker's record of each delivery.

use std::collections::{BTreeMap, BTreeSet};

use ledger_database::PgConnection;
use ledger_events::replay::ReplayEvent;
use ledger_events::webhook::MAX_ATTEMPTS;
use ledger_events::{Event, Position, Recorded, ShardId};
use ledger_projections::{ProjectionError, deliveries};
use uuid::Uuid;

use super::tables::{Rows, Table, table};
use super::visitor::{Page, Visitor};
use super::{AuditError, Counts, Difference, Findings, RowDifference};
use crate::ledger::health::{self, Health};
use crate::ledger::reader::{self, ReadError};

const PAGE_EVENTS: i64 = 5_000;

/// Visitor that folds the log up to the checkpoint, and compares audience, envelopes and deliveries. Each page compares the
/// rows of its own events. Rows that replays made of earlier events are kept and compared when the checkpoint is reached
/// and all replayed events are known.
///
/// From there on it counts the deliveries that the projection should have made by now. If the projection stands still,
/// none of its rows differs, but events lack their deliveries.
#[derive(Debug)]
pub struct Deliveries {
    shard: ShardId,
    /// Last position that was folded.
    at: Position,
    replayed: BTreeSet<String>,
    differing_envelopes: BTreeMap<String, RowDifference>,
    health: Health,
    /// Events beyond the checkpoint, once a page has reached it.
    ahead: Option<Ahead>,
}

/// Events beyond the checkpoint, up to the last one whose deliveries must exist.
#[derive(Debug)]
struct Ahead {
    after: Position,
    due: Position,
    overdue: i64,
}

impl Deliveries {
    pub async fn start(conn: &mut PgConnection, shard: ShardId) -> Result<Deliveries, AuditError> {
        sqlx::raw_sql("TRUNCATE webhook_audience, kept_envelopes, kept_deliveries").execute(&mut *conn).await?;
        let (replayed, differing_envelopes) = (BTreeSet::new(), BTreeMap::new());
        Ok(Deliveries { shard, at: 0, replayed, differing_envelopes, health: Health::default(), ahead: None })
    }

    /// Reports overdue deliveries, and checks the worker's records and the rows without an event. Returns the health of
    /// the deliveries.
    pub async fn end(self, conn: &mut PgConnection, counts: &mut Counts, findings: &mut Findings) -> Result<Health, AuditError> {
        if let Some(Ahead { after, due, overdue }) = self.ahead.filter(|ahead| ahead.overdue > 0) {
            findings.add(Difference::Overdue { shard: self.shard, after, upto: due, deliveries: overdue });
        }
        states(conn, self.shard, counts, findings).await?;
        orphans(conn, self.shard, findings).await?;
        Ok(self.health)
    }

    /// Compares the rows of the page's events. Returns whether the page reaches the checkpoint.
    async fn compare(&mut self, conn: &mut PgConnection, page: &Page, findings: &mut Findings) -> Result<bool, AuditError> {
        let (shard, envelopes, made) = (self.shard, find("webhook_envelopes")?, find("deliveries")?);
        let checkpoint = deliveries::checkpoint(&mut *conn, shard).await?;
        let mut events = page.readable(self.at, checkpoint);
        let ids: Vec<String> = page.events().iter().map(|(stored, _)| stored.event_id.to_string()).collect();
        self.at = page.last().map_or(checkpoint, |last| last.min(checkpoint)).max(self.at);
        fold(conn, shard, &mut events).await?;
        self.health += health::of_folded(conn, shard).await?;
        let differing = envelopes.differing(conn, "pg_temp", shard, Rows::Keys(&ids)).await?;
        self.differing_envelopes.extend(differing.into_iter().map(|row| (row.key.clone(), row)));
        let differing = made.differing(conn, "pg_temp", shard, Rows::Made(&ids)).await?;
        findings.extend(differing.into_iter().map(Difference::Row));
        let by_replays: Vec<String> = events.iter().flat_map(replayed_by).map(ToString::to_string).collect();
        if !by_replays.is_empty() {
            keep(conn, &by_replays).await?;
            self.replayed.extend(by_replays);
        }
        Ok(self.at >= checkpoint || page.is_empty())
    }

    /// Compares the audience, and the rows that replays made.
    async fn compare_kept(&mut self, conn: &mut PgConnection, findings: &mut Findings) -> Result<(), AuditError> {
        let (shard, audience, envelopes) = (self.shard, find("webhook_audience")?, find("webhook_envelopes")?);
        let differing = audience.differing(conn, "pg_temp", shard, Rows::Between(&audience.before_all(), None)).await?;
        findings.extend(differing.into_iter().map(Difference::Row));
        sqlx::raw_sql(
            "TRUNCATE webhook_envelopes, deliveries; INSERT INTO webhook_envelopes SELECT * FROM kept_envelopes;
             INSERT INTO deliveries SELECT * FROM kept_deliveries",
        )
        .execute(&mut *conn)
        .await?;
        let differing = find("deliveries")?.differing(conn, "pg_temp", shard, Rows::Replayed).await?;
        findings.extend(differing.into_iter().map(Difference::Row));
        // For replayed events, this comparison replaces that of their own page.
        let replayed = std::mem::take(&mut self.replayed);
        let mut differing_envelopes = std::mem::take(&mut self.differing_envelopes);
        differing_envelopes.retain(|key, _| !replayed.contains(key));
        let keys: Vec<String> = replayed.into_iter().collect();
        let differing = envelopes.differing(conn, "pg_temp", shard, Rows::Keys(&keys)).await?;
        differing_envelopes.extend(differing.into_iter().map(|row| (row.key.clone(), row)));
        findings.extend(differing_envelopes.into_values().map(Difference::Row));
        Ok(())
    }
}

impl Visitor for Deliveries {
    async fn visit(&mut self, conn: &mut PgConnection, page: &Page, findings: &mut Findings) -> Result<(), AuditError> {
        if self.is_done() {
            return Ok(());
        }
        sqlx::raw_sql("TRUNCATE webhook_envelopes, deliveries").execute(&mut *conn).await?;
        if self.ahead.is_none() {
            if !self.compare(conn, page, findings).await? {
                return Ok(());
            }
            self.compare_kept(conn, findings).await?;
            sqlx::raw_sql("TRUNCATE webhook_envelopes, deliveries").execute(&mut *conn).await?;
            self.ahead = Some(Ahead { after: self.at, due: health::due(conn, self.shard).await?, overdue: 0 });
        }
        if let Some(ahead) = self.ahead.as_mut().filter(|ahead| self.at < ahead.due) {
            let mut events = page.readable(self.at, ahead.due);
            self.at = page.last().unwrap_or(ahead.due);
            fold(conn, self.shard, &mut events).await?;
            let of_page = health::of_folded(conn, self.shard).await?;
            self.health += of_page;
            ahead.overdue += of_page.missing();
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| self.at >= ahead.due)
    }
}

fn find(name: &str) -> Result<&'static Table, AuditError> {
    table(name).ok_or(AuditError::Broken)
}

/// Returns the events that an event of a replay delivers again.
fn replayed_by(recorded: &Recorded) -> &[Uuid] {
    match &recorded.event {
        Event::Replay(ReplayEvent::WebhookReplayAdvanced(step)) => &step.events,
        _ => &[],
    }
}

/// Keeps the rows that the page's replays have made.
async fn keep(conn: &mut PgConnection, events: &[String]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO kept_envelopes SELECT * FROM webhook_envelopes WHERE event_id = ANY ($1::text[]::uuid[]) ON CONFLICT DO NOTHING",
    )
    .bind(events)
    .execute(&mut *conn)
    .await?;
    sqlx::raw_sql("INSERT INTO kept_deliveries SELECT * FROM deliveries WHERE replay_id > 0").execute(conn).await?;
    Ok(())
}

/// Folds events into the temporary tables. Skips an order whose history is missing from the log, so that it does not stop
/// the others; the walk over the streams reports it.
async fn fold(conn: &mut PgConnection, shard: ShardId, events: &mut Vec<Recorded>) -> Result<(), AuditError> {
    let mut folded = 0;
    loop {
        let left = events.get(folded..).unwrap_or_default();
        if left.is_empty() {
            return Ok(());
        }
        match reader::fold_deliveries(conn, shard, left).await {
            Ok(made) => {
                deliveries::write_shadow(conn, shard, &made).await?;
                folded += made.events;
            }
            Err(ReadError::Projection(ProjectionError::Row { id: position, .. }))
                if left.iter().any(|r| r.moment.position == position) =>
            {
                events.retain(|recorded| recorded.moment.position != position);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[derive(ledger_database::FromRow)]
struct State {
    id: i64,
    status: Option<String>,
    attempt_count: Option<i16>,
    is_scheduled: bool,
    is_claimed: bool,
    is_beyond: bool,
    is_in_log: bool,
    has_payload: bool,
    is_of_its_type: Option<bool>,
}

/// Checks that every delivery has a state that is final or scheduled, and an event in the log.
async fn states(conn: &mut PgConnection, shard: ShardId, counts: &mut Counts, findings: &mut Findings) -> Result<(), AuditError> {
    let mut after = i64::MIN;
    loop {
        let page: Vec<State> = sqlx::query_as(
            "SELECT d.id, s.status, s.attempt_count, s.next_attempt_at IS NOT NULL AS is_scheduled, s.leased_until IS NOT NULL AS is_claimed,
                coalesce(greatest(s.next_attempt_at, s.leased_until) >= clock_timestamp() + make_interval(secs => $4), false) AS is_beyond,
                EXISTS (SELECT FROM events e WHERE e.shard_id = d.shard_id AND e.event_id = d.event_id) AS is_in_log,
                EXISTS (SELECT FROM public.webhook_envelopes w WHERE w.shard_id = d.shard_id AND w.event_id = d.event_id AND w.payload IS NOT NULL) AS has_payload,
                s.event_type = d.event_type AS is_of_its_type
             FROM (SELECT shard_id, id, event_id, event_type FROM public.deliveries
                   WHERE shard_id = $1 AND id > $2 ORDER BY id LIMIT $3) AS d
             LEFT JOIN delivery_state s ON s.shard_id = d.shard_id AND s.delivery_id = d.id ORDER BY d.id",
        )
        .bind(shard)
        .bind(after)
        .bind(PAGE_EVENTS)
        .bind(health::MAX_SCHEDULE)
        .fetch_all(&mut *conn)
        .await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.id;
        counts.deliveries += u64::try_from(page.len()).unwrap_or_default();
        for state in page {
            let problem = match (state.status.as_deref(), state.attempt_count.unwrap_or_default()) {
                _ if !state.is_in_log => "its event is not in the log",
                (None, _) => "has no state, so it will never be sent",
                _ if state.is_of_its_type == Some(false) => "has a state of another event type",
                (_, attempts) if attempts > MAX_ATTEMPTS => "has more than five attempts",
                (Some("pending"), _) if !state.is_scheduled => "is pending without a next attempt",
                (Some("pending"), _) if state.is_beyond => "is pending, but due or leased much later than any retry waits",
                (Some("pending"), _) if !state.has_payload => "is pending without a payload",
                (Some("pending"), MAX_ATTEMPTS) if !state.is_claimed => "is pending with every attempt used",
                (Some("pending" | "delivered" | "failed"), _) => continue,
                (Some(_), _) => "has an unknown status",
            };
            findings.add(Difference::Delivery { shard, delivery_id: state.id, problem: problem.to_owned() });
        }
    }
}

/// Finds envelopes without an event, and states without a delivery.
async fn orphans(conn: &mut PgConnection, shard: ShardId, findings: &mut Findings) -> Result<(), AuditError> {
    let mut after = i64::MIN;
    loop {
        let page: Vec<(i64, bool)> = sqlx::query_as(
            "SELECT s.delivery_id, EXISTS (SELECT FROM public.deliveries d WHERE d.shard_id = s.shard_id AND d.id = s.delivery_id)
             FROM delivery_state s WHERE s.shard_id = $1 AND s.delivery_id > $2 ORDER BY s.delivery_id LIMIT $3",
        )
        .bind(shard)
        .bind(after)
        .bind(PAGE_EVENTS)
        .fetch_all(&mut *conn)
        .await?;
        let Some((last, _)) = page.last() else { break };
        after = *last;
        for (delivery_id, _) in page.into_iter().filter(|(_, is_known)| !is_known) {
            findings.add(Difference::Delivery {
                shard,
                delivery_id,
                problem: "has a state, but the delivery does not exist".to_owned(),
            });
        }
    }
    let mut after = uuid::Uuid::nil();
    loop {
        let page: Vec<(uuid::Uuid, bool)> = sqlx::query_as(
            "SELECT w.event_id, EXISTS (SELECT FROM events e WHERE e.shard_id = w.shard_id AND e.event_id = w.event_id)
             FROM public.webhook_envelopes w WHERE w.shard_id = $1 AND w.event_id > $2 ORDER BY w.event_id LIMIT $3",
        )
        .bind(shard)
        .bind(after)
        .bind(PAGE_EVENTS)
        .fetch_all(&mut *conn)
        .await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = *last;
        for (event_id, _) in page.into_iter().filter(|(_, is_known)| !is_known) {
            let (key, problem) = (event_id.to_string(), super::RowProblem::Extra);
            findings.add(Difference::Row(super::RowDifference {
                table: "webhook_envelopes",
                shard,
                key,
                part: String::new(),
                problem,
            }));
        }
    }
}
