//! Writes of folded deliveries, into the live tables or into those of a rebuild.

use std::collections::BTreeMap;

use ledger_database::{PgConnection, PgPool};
use ledger_events::webhook::MAX_ATTEMPTS;
use ledger_events::{ShardId, id_base};
use sqlx::Postgres;
use uuid::Uuid;

use super::{EnvelopeRow, Made, NAME, Retried};
use crate::listing::maintain;
use crate::{ProjectionError, webhooks};

/// Maximum number of deliveries that one transaction fails, for webhooks that were switched off and replays that
/// were stopped. Each transaction searches all deliveries of a replay for the rest. With a smaller limit, that
/// search would cost more than the updates.
pub const MAX_FAILED_PER_TRANSACTION: usize = 20_000;

/// Fails up to `$3` of the pending deliveries that a query of `$1` and `$2` selects.
macro_rules! fail_pending {
    ($which:literal) => {
        concat!(
            "UPDATE delivery_state SET status = 'failed' WHERE shard_id = $1 AND status = 'pending' AND delivery_id = ANY (ARRAY (",
            $which,
            " LIMIT $3))"
        )
    };
}

/// Fails some pending deliveries of webhooks (`$2`): first attempts, then retries. Each statement repeats the
/// condition of the partial index of due deliveries word for word, because no other index finds them.
pub const FAIL_OF_WEBHOOKS: [&str; 2] = [
    fail_pending!(
        "SELECT delivery_id FROM delivery_state
         WHERE shard_id = $1 AND webhook_id = ANY ($2) AND status = 'pending' AND attempt_count = 0"
    ),
    fail_pending!(
        "SELECT delivery_id FROM delivery_state
         WHERE shard_id = $1 AND webhook_id = ANY ($2) AND status = 'pending' AND attempt_count > 0"
    ),
];

/// Fails some pending deliveries of replays (`$2`). The statement looks up each delivery of the replays and no
/// other, whatever the statistics say.
pub const FAIL_OF_REPLAYS: &str = fail_pending!(
    "SELECT s.delivery_id FROM unnest($2::bigint[]) AS r (id)
     CROSS JOIN LATERAL (SELECT d.id FROM deliveries d WHERE d.shard_id = $1 AND d.replay_id = r.id AND d.replay_id > 0 OFFSET 0) AS d
     CROSS JOIN LATERAL (SELECT delivery_id FROM delivery_state WHERE shard_id = $1 AND delivery_id = d.id AND status = 'pending' LIMIT 1) AS s"
);

/// Fails the pending deliveries of webhooks that a batch switches off and of replays that it stops, up to
/// [`MAX_FAILED_PER_TRANSACTION`].
///
/// Returns whether that was all. If not, the caller commits this part and processes the batch again.
pub async fn fail_pending(conn: &mut PgConnection, shard: ShardId, made: &Made) -> Result<bool, sqlx::Error> {
    let mut left = i64::try_from(MAX_FAILED_PER_TRANSACTION).unwrap_or(i64::MAX);
    let webhooks: Vec<i64> = made.switched_off.iter().map(|webhook| webhook.0).collect();
    let replays: Vec<i64> = made.stopped.iter().map(|replay| replay.0).collect();
    let all = FAIL_OF_WEBHOOKS.map(|statement| (statement, &webhooks)).into_iter().chain([(FAIL_OF_REPLAYS, &replays)]);
    // First attempts come first, because a send meanwhile turns a first attempt into a retry. A send in flight
    // keeps its fencing token, so a 2xx response still counts.
    for (statement, whose) in all.filter(|(_, whose)| !whose.is_empty()) {
        let failed = sqlx::query(statement).bind(shard).bind(whose).bind(left).execute(&mut *conn).await?;
        left -= i64::try_from(failed.rows_affected()).unwrap_or(i64::MAX);
        if left <= 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes the rows of a batch, after [`fail_pending`] has failed the deliveries that the batch ends. Also writes the
/// worker's record, in which each delivery starts as due now.
pub async fn write(conn: &mut PgConnection, shard: ShardId, made: &Made) -> Result<(), ProjectionError> {
    webhooks::write_audience(conn, shard, made.changed.values()).await?;
    write_envelopes(conn, shard, made).await?;
    if !made.deliveries.is_empty() {
        bind_deliveries(
            sqlx::query(
                "WITH new AS MATERIALIZED (
                    SELECT coalesce(u.given_id, $11::bigint + nextval('public.delivery_ids')) AS id, u.*
                    FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::timestamptz[], $8::text[], $9::bigint[], $10::bigint[])
                         AS u (event_id, webhook_id, account_id, order_id, event_type, created_at, status, replay_id, given_id)),
                 made AS (
                    INSERT INTO deliveries (shard_id, id, event_id, webhook_id, replay_id, account_id, order_id, event_type, created_at)
                    SELECT $1, id, event_id, webhook_id, replay_id, account_id, order_id, event_type, created_at FROM new)
                 INSERT INTO delivery_state (shard_id, delivery_id, webhook_id, event_type, status, next_attempt_at)
                 SELECT $1, id, webhook_id, event_type, status, clock_timestamp() FROM new",
            ),
            shard,
            made,
        )
        .execute(&mut *conn)
        .await?;
        count(conn, shard, made).await?;
    }
    retry(conn, shard, &made.retried).await
}

/// Updates the counts and page anchors for the new deliveries.
async fn count(conn: &mut PgConnection, shard: ShardId, made: &Made) -> Result<(), ProjectionError> {
    let mut groups = BTreeMap::new();
    for delivery in &made.deliveries {
        *groups.entry((delivery.account_id, delivery.webhook_id, delivery.event_type.as_str())).or_insert(0) += 1;
    }
    let groups: Vec<_> =
        groups.into_iter().map(|((account, webhook, event_type), n)| (account, webhook, event_type, n)).collect();
    let given: Vec<_> = made.deliveries.iter().filter_map(|delivery| Some((delivery.account_id, delivery.id?))).collect();
    Ok(maintain::count_deliveries(conn, shard, &groups, &given).await?)
}

/// Sets failed deliveries back to pending, due now. They keep their number of used attempts.
async fn retry(conn: &mut PgConnection, shard: ShardId, retried: &[Retried]) -> Result<(), ProjectionError> {
    if retried.is_empty() {
        return Ok(());
    }
    let envelopes: BTreeMap<Uuid, &EnvelopeRow> = retried.iter().map(|r| (r.envelope.event_id, &r.envelope)).collect();
    restore_envelopes(conn, shard, &envelopes.into_values().collect::<Vec<_>>()).await?;
    sqlx::query(
        "UPDATE delivery_state s SET status = 'pending', next_attempt_at = clock_timestamp()
         FROM unnest($2::uuid[], $3::bigint[], $4::bigint[]) AS r (event_id, webhook_id, replay_id)
         JOIN deliveries d ON d.shard_id = $1 AND d.event_id = r.event_id AND d.webhook_id = r.webhook_id AND d.replay_id = r.replay_id
         WHERE s.shard_id = $1 AND s.delivery_id = d.id AND s.status = 'failed' AND s.attempt_count < $5",
    )
    .bind(shard)
    .bind(retried.iter().map(|r| r.envelope.event_id).collect::<Vec<_>>())
    .bind(retried.iter().map(|r| r.webhook_id).collect::<Vec<_>>())
    .bind(retried.iter().map(|r| r.replay_id).collect::<Vec<_>>())
    .bind(MAX_ATTEMPTS)
    .execute(conn)
    .await?;
    Ok(())
}

/// Writes the rows of a batch into the tables of a rebuild. A delivery with a known natural key keeps its id, and
/// the worker's record stays unchanged.
pub async fn write_shadow(conn: &mut PgConnection, shard: ShardId, made: &Made) -> Result<(), ProjectionError> {
    webhooks::write_audience(conn, shard, made.changed.values()).await?;
    write_envelopes(conn, shard, made).await?;
    if made.deliveries.is_empty() {
        return Ok(());
    }
    bind_deliveries(
        sqlx::query(
            "INSERT INTO deliveries (shard_id, id, event_id, webhook_id, replay_id, account_id, order_id, event_type, created_at)
             SELECT $1, coalesce(u.given_id, kept.id, $11::bigint + nextval('public.delivery_ids')), u.event_id, u.webhook_id, u.replay_id, u.account_id,
                    u.order_id, u.event_type, u.created_at
             FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::timestamptz[], $8::text[], $9::bigint[], $10::bigint[])
                  AS u (event_id, webhook_id, account_id, order_id, event_type, created_at, status, replay_id, given_id)
             LEFT JOIN public.deliveries kept
                  ON kept.shard_id = $1 AND kept.event_id = u.event_id AND kept.webhook_id = u.webhook_id AND kept.replay_id = u.replay_id",
        ),
        shard,
        made,
    )
    .execute(conn)
    .await?;
    Ok(())
}

fn bind_deliveries<'q>(
    query: sqlx::query::Query<'q, Postgres, sqlx::postgres::PgArguments>,
    shard: ShardId,
    made: &'q Made,
) -> sqlx::query::Query<'q, Postgres, sqlx::postgres::PgArguments> {
    let deliveries = &made.deliveries;
    query
        .bind(shard)
        .bind(deliveries.iter().map(|d| d.event_id).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.webhook_id).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.account_id).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.order_id).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.event_type.as_str()).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.created_at).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.status).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.replay_id).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.id).collect::<Vec<_>>())
        .bind(id_base(shard))
}

async fn write_envelopes(conn: &mut PgConnection, shard: ShardId, made: &Made) -> Result<(), ProjectionError> {
    let envelopes: Vec<&EnvelopeRow> = made.envelopes.iter().collect();
    if !envelopes.is_empty() {
        bind_envelopes(
            sqlx::query(
                "INSERT INTO webhook_envelopes (shard_id, event_id, position, account_id, order_id, event_type, payload, created_at)
                 SELECT $1, new.* FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::timestamptz[]) AS new",
            ),
            shard,
            &envelopes,
        )
        .execute(&mut *conn)
        .await?;
    }
    restore_envelopes(conn, shard, &made.replayed.values().collect::<Vec<_>>()).await
}

/// Writes envelopes of past events: those that never existed, and the payloads that retention removed.
async fn restore_envelopes(conn: &mut PgConnection, shard: ShardId, envelopes: &[&EnvelopeRow]) -> Result<(), ProjectionError> {
    if envelopes.is_empty() {
        return Ok(());
    }
    bind_envelopes(
        sqlx::query(
            "INSERT INTO webhook_envelopes AS kept (shard_id, event_id, position, account_id, order_id, event_type, payload, created_at)
             SELECT $1, new.* FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::timestamptz[]) AS new
             ON CONFLICT (shard_id, event_id) DO UPDATE SET payload = excluded.payload WHERE kept.payload IS NULL",
        ),
        shard,
        envelopes,
    )
    .execute(conn)
    .await?;
    Ok(())
}

fn bind_envelopes<'q>(
    query: sqlx::query::Query<'q, Postgres, sqlx::postgres::PgArguments>,
    shard: ShardId,
    envelopes: &[&'q EnvelopeRow],
) -> sqlx::query::Query<'q, Postgres, sqlx::postgres::PgArguments> {
    query
        .bind(shard)
        .bind(envelopes.iter().map(|e| e.event_id).collect::<Vec<_>>())
        .bind(envelopes.iter().map(|e| e.position).collect::<Vec<_>>())
        .bind(envelopes.iter().map(|e| e.account_id).collect::<Vec<_>>())
        .bind(envelopes.iter().map(|e| e.order_id).collect::<Vec<_>>())
        .bind(envelopes.iter().map(|e| e.event_type.as_str()).collect::<Vec<_>>())
        .bind(envelopes.iter().map(|e| &*e.payload).collect::<Vec<_>>())
        .bind(envelopes.iter().map(|e| e.created_at).collect::<Vec<_>>())
}

/// Removes the payloads of these events' envelopes, except those that a pending delivery still needs. Returns the
/// number of removed payloads.
pub async fn forget_payloads(pool: &PgPool, shard: ShardId, events: &[Uuid]) -> Result<u64, sqlx::Error> {
    // If this node freezes here, it blocks the projector for no longer than this.
    let mut tx = pool.begin_with("BEGIN; SET LOCAL idle_in_transaction_session_timeout = '2s'").await?;
    // Only the projector makes deliveries pending, and this lock stops it. So no delivery becomes pending between
    // the check and the end of this transaction.
    sqlx::query("SELECT FROM projection_checkpoints WHERE shard_id = $1 AND projection = $2 FOR UPDATE")
        .bind(shard)
        .bind(NAME)
        .execute(&mut *tx)
        .await?;
    let forgotten = sqlx::query(
        "UPDATE webhook_envelopes e SET payload = NULL
         WHERE e.shard_id = $1 AND e.event_id = ANY($2) AND e.payload IS NOT NULL
           AND NOT EXISTS (SELECT FROM deliveries d JOIN delivery_state s ON s.shard_id = $1 AND s.delivery_id = d.id
                WHERE d.shard_id = $1 AND d.event_id = e.event_id AND s.status = 'pending')",
    )
    .bind(shard)
    .bind(events)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(forgotten.rows_affected())
}
