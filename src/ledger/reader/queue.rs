//! The fulfilment queue, read together with the head of the log.

use ledger_database::PgPool;
use ledger_events::{OrderId, Position, ShardId};
use ledger_projections::orders::Queued;
use uuid::Uuid;

/// Reads the fulfilment queue: orders after a position that fulfilment has not started on, oldest first.
///
/// `seen` is the head that the caller saw last. Returns `None` if the log does not continue from there. In that
/// case it was cut off, or continued with other events, as after a failover that lost commits.
pub async fn unqueued(
    pool: &PgPool,
    shard: ShardId,
    seen: Option<SeenHead>,
    after: Position,
    limit: i64,
) -> Result<Option<(SeenHead, Vec<Queued>)>, sqlx::Error> {
    type Row = (Position, Option<Uuid>, bool, Option<OrderId>, Option<Position>, Option<i32>);
    let rows: Vec<Row> = sqlx::query_as(
        "WITH head AS MATERIALIZED (
            SELECT h.position, (SELECT e.event_id FROM events e WHERE e.shard_id = $1 AND e.position = h.position) AS event_id,
                coalesce($4 <= h.position AND (SELECT e.event_id FROM events e WHERE e.shard_id = $1 AND e.position = $4)
                    IS NOT DISTINCT FROM $5, true) AS goes_on
            FROM log_head h WHERE h.shard_id = $1)
         SELECT head.position, head.event_id, head.goes_on, queue.* FROM head LEFT JOIN
            (SELECT id, placed_position, quantity AS missing FROM orders
             WHERE shard_id = $1 AND NOT is_queued AND status = 'PENDING' AND placed_position > $2
             ORDER BY placed_position LIMIT $3) AS queue ON true
         ORDER BY queue.placed_position",
    )
    .bind(shard)
    .bind(after)
    .bind(limit)
    .bind(seen.map(|seen| seen.position))
    .bind(seen.and_then(|seen| seen.event_id))
    .fetch_all(pool)
    .await?;
    let &(position, event_id, goes_on, ..) = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    if !goes_on {
        return Ok(None);
    }
    let queued = rows.into_iter().filter_map(|(.., id, placed_position, missing)| {
        Some(Queued { id: id?, placed_position: placed_position?, missing: missing? })
    });
    Ok(Some((SeenHead { position, event_id }, queued.collect())))
}

/// Head of a shard's log, as a follower of the log saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenHead {
    pub position: Position,
    /// Event at this position; `None` in an empty log.
    pub event_id: Option<Uuid>,
}
