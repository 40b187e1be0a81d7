//! Who should have heard what, as of the deliveries projection's checkpoint: folded again into
//! temporary tables, page by page, and compared; and the worker's record of each delivery.

use ledger_events::{Position, Recorded, ShardId};
use ledger_projections::{ProjectionError, deliveries};
use sqlx::PgConnection;

use super::tables::{Rows, table};
use super::{AuditError, Counts, Difference, Findings, Progress, Reach};
use crate::ledger::reader;

const PAGE_EVENTS: i64 = 5_000;

/// Where the projection stands.
pub async fn checkpoint(conn: &mut PgConnection, shard: ShardId) -> Result<Position, sqlx::Error> {
    let position = sqlx::query_scalar("SELECT position FROM projection_checkpoints WHERE shard_id = $1 AND projection = $2")
        .bind(shard)
        .bind(deliveries::NAME)
        .fetch_optional(conn)
        .await?;
    Ok(position.unwrap_or_default())
}

/// How far the projection has come; never further than the log.
pub async fn reach(conn: &mut PgConnection, shard: ShardId, findings: &mut Findings) -> Result<Reach, sqlx::Error> {
    // In this order: the head only grows.
    let checkpoint = checkpoint(conn, shard).await?;
    let head = reader::head(conn, shard).await?;
    if checkpoint > head {
        findings.add(Difference::Checkpoint { shard, projection: deliveries::NAME, checkpoint, head });
    }
    Ok(Reach { shard, projection: deliveries::NAME, checkpoint, head })
}

/// Folds the log up to the checkpoint and compares audience, envelopes and deliveries.
pub async fn check(
    conn: &mut PgConnection,
    shard: ShardId,
    counts: &mut Counts,
    findings: &mut Findings,
    progress: &impl Fn(Progress),
) -> Result<(), AuditError> {
    let tables = |name| table(name).ok_or(AuditError::Broken);
    let (audience, envelopes, made) = (tables("webhook_audience")?, tables("webhook_envelopes")?, tables("deliveries")?);
    sqlx::raw_sql("TRUNCATE webhook_audience").execute(&mut *conn).await?;
    let mut at = 0;
    loop {
        sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; TRUNCATE webhook_envelopes, deliveries")
            .execute(&mut *conn)
            .await?;
        let checkpoint = checkpoint(conn, shard).await?;
        let page = reader::stored_after(&mut *conn, shard, at, PAGE_EVENTS).await?;
        let mut events: Vec<Recorded> =
            page.iter().filter(|stored| stored.position <= checkpoint).filter_map(|stored| stored.decode().ok()).collect();
        let ids: Vec<String> = page.iter().map(|stored| stored.event_id.to_string()).collect();
        at = page.last().map_or(checkpoint, |last| last.position.min(checkpoint)).max(at);
        fold(conn, shard, &mut events).await?;
        for table in [envelopes, made] {
            let differing = table.differing(conn, "pg_temp", shard, Rows::Keys(&ids)).await?;
            findings.extend(differing.into_iter().map(Difference::Row));
        }
        let is_end = at >= checkpoint || page.is_empty();
        if is_end {
            let differing = audience.differing(conn, "pg_temp", shard, Rows::Between(&audience.before_all(), None)).await?;
            findings.extend(differing.into_iter().map(Difference::Row));
        }
        sqlx::raw_sql("COMMIT").execute(&mut *conn).await?;
        progress(Progress { stage: "deliveries", shard, done: at, total: checkpoint });
        if is_end {
            break;
        }
    }
    states(conn, shard, counts, findings).await?;
    orphans(conn, shard, findings).await
}

/// An order whose history the log does not hold stops no other: it is left out, and named by the
/// walk over the streams.
async fn fold(conn: &mut PgConnection, shard: ShardId, events: &mut Vec<Recorded>) -> Result<(), AuditError> {
    loop {
        let Some(first) = events.first() else { return Ok(()) };
        let plan = deliveries::plan(conn, shard, events).await?;
        let before = reader::orders_before(conn, shard, &plan.orders, first.moment.position).await?;
        match deliveries::fold(plan, before, events) {
            Ok(made) => return Ok(deliveries::write_shadow(conn, shard, &made).await?),
            Err(ProjectionError::Row { id: position, .. }) if events.iter().any(|r| r.moment.position == position) => {
                events.retain(|recorded| recorded.moment.position != position);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[derive(sqlx::FromRow)]
struct State {
    id: i64,
    status: Option<String>,
    attempt_count: Option<i16>,
    is_scheduled: bool,
    is_claimed: bool,
    is_in_log: bool,
}

/// Every delivery has a state that is final or scheduled, and an event in the log.
async fn states(conn: &mut PgConnection, shard: ShardId, counts: &mut Counts, findings: &mut Findings) -> Result<(), AuditError> {
    let mut after = i64::MIN;
    loop {
        let page: Vec<State> = sqlx::query_as(
            "SELECT d.id, s.status, s.attempt_count, s.next_attempt_at IS NOT NULL AS is_scheduled, s.leased_until IS NOT NULL AS is_claimed,
                EXISTS (SELECT FROM events e WHERE e.shard_id = d.shard_id AND e.event_id = d.event_id) AS is_in_log
             FROM (SELECT * FROM public.deliveries WHERE shard_id = $1 AND id > $2 ORDER BY id LIMIT $3) AS d
             LEFT JOIN delivery_state s ON s.shard_id = d.shard_id AND s.delivery_id = d.id ORDER BY d.id",
        )
        .bind(shard)
        .bind(after)
        .bind(PAGE_EVENTS)
        .fetch_all(&mut *conn)
        .await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.id;
        counts.deliveries += u64::try_from(page.len()).unwrap_or_default();
        for state in page {
            let problem = match (state.status.as_deref(), state.attempt_count.unwrap_or_default()) {
                _ if !state.is_in_log => "its event is not in the log",
                (None, _) => "has no state: it will never be sent",
                (_, 6..) => "has more than five attempts",
                (Some("pending"), _) if !state.is_scheduled => "is pending without a next attempt",
                (Some("pending"), 5) if !state.is_claimed => "is pending with every attempt used",
                (Some("pending" | "delivered" | "failed"), _) => continue,
                (Some(_), _) => "has an unknown status",
            };
            findings.add(Difference::Delivery { shard, delivery_id: state.id, problem: problem.to_owned() });
        }
    }
}

/// Envelopes of no event, and states of no delivery.
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
            findings.add(Difference::Delivery { shard, delivery_id, problem: "has a state and is not there".to_owned() });
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
            findings.add(Difference::Row(super::RowDifference { table: "webhook_envelopes", shard, key, problem }));
        }
    }
}
