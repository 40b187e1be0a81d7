//! Audit of deliveries up to the deliveries projection's checkpoint. Folds audience, envelopes and deliveries again into
//! temporary tables, page by page, and compares them. Also checks the worker's record of each delivery.

use std::collections::{BTreeMap, BTreeSet};

use ledger_database::PgConnection;
use ledger_events::replay::ReplayEvent;
use ledger_events::webhook::MAX_ATTEMPTS;
use ledger_events::{Event, Position, Recorded, ShardId};
use ledger_projections::{ProjectionError, deliveries};
use uuid::Uuid;

use super::tables::{Rows, table};
use super::{AuditError, Counts, Difference, Findings, Progress, RowDifference};
use crate::ledger::health::{self, Health};
use crate::ledger::reader::{self, ReadError};

const PAGE_EVENTS: i64 = 5_000;

/// Folds the log up to the checkpoint, and compares audience, envelopes and deliveries. Each page compares the rows of
/// its own events. Rows that replays made of earlier events are kept and compared at the end, when all replayed events
/// are known.
pub async fn check(
    conn: &mut PgConnection,
    shard: ShardId,
    counts: &mut Counts,
    health: &mut Health,
    findings: &mut Findings,
    progress: &impl Fn(Progress),
) -> Result<(), AuditError> {
    let tables = |name| table(name).ok_or(AuditError::Broken);
    let (audience, envelopes, made) = (tables("webhook_audience")?, tables("webhook_envelopes")?, tables("deliveries")?);
    sqlx::raw_sql("TRUNCATE webhook_audience, kept_envelopes, kept_deliveries").execute(&mut *conn).await?;
    let mut replayed: BTreeSet<String> = BTreeSet::new();
    let mut differing_envelopes: BTreeMap<String, RowDifference> = BTreeMap::new();
    let mut at = 0;
    loop {
        sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; TRUNCATE webhook_envelopes, deliveries")
            .execute(&mut *conn)
            .await?;
        let checkpoint = deliveries::checkpoint(&mut *conn, shard).await?;
        let page = reader::stored_after(&mut *conn, shard, at, PAGE_EVENTS).await?;
        let mut events: Vec<Recorded> =
            page.iter().filter(|stored| stored.position <= checkpoint).filter_map(|stored| stored.decode().ok()).collect();
        let ids: Vec<String> = page.iter().map(|stored| stored.event_id.to_string()).collect();
        at = page.last().map_or(checkpoint, |last| last.position.min(checkpoint)).max(at);
        fold(conn, shard, &mut events).await?;
        *health += health::of_folded(conn, shard).await?;
        let differing = envelopes.differing(conn, "pg_temp", shard, Rows::Keys(&ids)).await?;
        differing_envelopes.extend(differing.into_iter().map(|row| (row.key.clone(), row)));
        let differing = made.differing(conn, "pg_temp", shard, Rows::Made(&ids)).await?;
        findings.extend(differing.into_iter().map(Difference::Row));
        let by_replays: Vec<String> = events.iter().flat_map(replayed_by).map(ToString::to_string).collect();
        if !by_replays.is_empty() {
            keep(conn, &by_replays).await?;
            replayed.extend(by_replays);
        }
        let is_end = at >= checkpoint || page.is_empty();
        if is_end {
            let differing = audience.differing(conn, "pg_temp", shard, Rows::Between(&audience.before_all(), None)).await?;
            findings.extend(differing.into_iter().map(Difference::Row));
            sqlx::raw_sql(
                "TRUNCATE webhook_envelopes, deliveries; INSERT INTO webhook_envelopes SELECT * FROM kept_envelopes;
                 INSERT INTO deliveries SELECT * FROM kept_deliveries",
            )
            .execute(&mut *conn)
            .await?;
            let differing = made.differing(conn, "pg_temp", shard, Rows::Replayed).await?;
            findings.extend(differing.into_iter().map(Difference::Row));
            // For replayed events, the comparison at the end replaces that of their own page.
            differing_envelopes.retain(|key, _| !replayed.contains(key));
            let keys: Vec<String> = std::mem::take(&mut replayed).into_iter().collect();
            let differing = envelopes.differing(conn, "pg_temp", shard, Rows::Keys(&keys)).await?;
            differing_envelopes.extend(differing.into_iter().map(|row| (row.key.clone(), row)));
            findings.extend(std::mem::take(&mut differing_envelopes).into_values().map(Difference::Row));
        }
        sqlx::raw_sql("COMMIT").execute(&mut *conn).await?;
        progress(Progress { stage: "deliveries", shard, done: at, total: checkpoint });
        if is_end {
            break;
        }
    }
    overdue(conn, shard, at, health, findings).await?;
    states(conn, shard, counts, findings).await?;
    orphans(conn, shard, findings).await
}

/// Finds deliveries that the projection should have made by now for the events after a position. If the projection stands
/// still, none of its rows differs, but events lack their deliveries.
async fn overdue(
    conn: &mut PgConnection,
    shard: ShardId,
    after: Position,
    health: &mut Health,
    findings: &mut Findings,
) -> Result<(), AuditError> {
    let due = health::due(conn, shard).await?;
    let (mut at, mut overdue) = (after, 0);
    while at < due {
        // One snapshot, so that concurrent work of the projection is visible completely or not at all within a page.
        sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; TRUNCATE webhook_envelopes, deliveries")
            .execute(&mut *conn)
            .await?;
        let page = reader::stored_after(&mut *conn, shard, at, PAGE_EVENTS).await?;
        at = page.last().map_or(due, |last| last.position);
        let mut events: Vec<Recorded> =
            page.iter().filter(|stored| stored.position <= due).filter_map(|stored| stored.decode().ok()).collect();
        fold(conn, shard, &mut events).await?;
        let of_page = health::of_folded(conn, shard).await?;
        *health += of_page;
        overdue += of_page.missing();
        sqlx::raw_sql("COMMIT").execute(&mut *conn).await?;
    }
    if overdue > 0 {
        findings.add(Difference::Overdue { shard, after, upto: due, deliveries: overdue });
    }
    Ok(())
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
        .bind(health::BEYOND)
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
