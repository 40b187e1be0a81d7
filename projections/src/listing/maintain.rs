//! Maintenance of page anchors and counts, step by step and from scratch.

use ledger_database::PgConnection;
use ledger_events::{AccountId, Position, ShardId, WebhookId};

use super::ROWS_PER_ANCHOR;
use super::moves::{Columns, Move};
use super::page_anchors::any_status;

/// Outcome of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountStep {
    /// The step counted the orders of some events. `is_more` tells whether events remain.
    Counted { is_more: bool },
    /// There were no new events.
    Idle,
    /// Another node holds the checkpoint, or the step has just created it.
    Elsewhere,
}

/// Locks the checkpoint of the counts until the transaction ends, and returns its position. Returns none if another node
/// holds it, or if the row did not exist and was just created.
pub async fn hold(conn: &mut PgConnection, shard: ShardId) -> Result<Option<Position>, sqlx::Error> {
    let held = sqlx::query_scalar("SELECT position FROM list_checkpoints WHERE shard_id = $1 FOR UPDATE SKIP LOCKED")
        .bind(shard)
        .fetch_optional(&mut *conn)
        .await?;
    if held.is_none() {
        sqlx::query("INSERT INTO list_checkpoints (shard_id, position) VALUES ($1, 0) ON CONFLICT DO NOTHING")
            .bind(shard)
            .execute(conn)
            .await?;
    }
    Ok(held)
}

/// Adds moves to the counts, adds page anchors where they are due, and moves the checkpoint to the position that the moves
/// reach. The caller holds the checkpoint.
pub async fn count_orders(conn: &mut PgConnection, shard: ShardId, moves: &[Move], to: Position) -> Result<(), sqlx::Error> {
    if !moves.is_empty() {
        add_moves(&mut *conn, shard, moves).await?;
    }
    sqlx::query("UPDATE list_checkpoints SET position = $2, marked_position = $2 WHERE shard_id = $1")
        .bind(shard)
        .bind(to)
        .execute(conn)
        .await?;
    Ok(())
}

async fn add_moves(conn: &mut PgConnection, shard: ShardId, moves: &[Move]) -> Result<(), sqlx::Error> {
    let Columns { accounts, products, statuses, placed_positions, orders } = Columns::new(moves);
    sqlx::query(
        "INSERT INTO order_counts AS c (shard_id, account_id, product_id, status, orders)
         SELECT $1, m.account_id, m.product_id, m.status, sum(m.orders)
         FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[]) AS m (account_id, product_id, status, orders)
         GROUP BY 2, 3, 4 HAVING sum(m.orders) <> 0 ORDER BY 2, 3, 4
         ON CONFLICT (shard_id, account_id, product_id, status) DO UPDATE SET orders = c.orders + excluded.orders",
    )
    .bind(shard)
    .bind(&accounts)
    .bind(&products)
    .bind(&statuses)
    .bind(&orders)
    .execute(&mut *conn)
    .await?;
    let mut anchored = accounts.clone();
    anchored.sort_unstable();
    anchored.dedup();
    anchor_orders(&mut *conn, shard, &anchored).await?;
    // Every anchor up to these orders exists now, so each order is counted under the same anchor forever.
    sqlx::query(
        "INSERT INTO order_mark_counts AS c (shard_id, account_id, status, after, orders)
         SELECT $1, m.account_id, m.status, mark.key, sum(m.orders)
         FROM unnest($2::bigint[], $3::text[], $4::bigint[], $5::bigint[]) AS m (account_id, status, placed_position, orders)
         CROSS JOIN LATERAL
            (SELECT k.key FROM order_marks k WHERE k.shard_id = $1 AND k.account_id = m.account_id AND k.key < m.placed_position
             ORDER BY k.key DESC LIMIT 1) AS mark
         GROUP BY 2, 3, 4 HAVING sum(m.orders) <> 0 ORDER BY 2, 3, 4
         ON CONFLICT (shard_id, account_id, status, after) DO UPDATE SET orders = c.orders + excluded.orders",
    )
    .bind(shard)
    .bind(&accounts)
    .bind(&statuses)
    .bind(&placed_positions)
    .bind(&orders)
    .execute(conn)
    .await?;
    Ok(())
}

/// Adds anchors for the orders after each account's last anchor, if there are enough of them.
async fn anchor_orders(conn: &mut PgConnection, shard: ShardId, accounts: &[AccountId]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "WITH due AS MATERIALIZED (
            SELECT a.account_id, coalesce(m.ordinal, 0) AS ordinal, coalesce(m.key, 0) AS key
            FROM unnest($2::bigint[]) AS a (account_id)
            LEFT JOIN LATERAL
                (SELECT ordinal, key FROM order_marks m WHERE m.shard_id = $1 AND m.account_id = a.account_id
                 ORDER BY ordinal DESC LIMIT 1) AS m ON true
            WHERE (SELECT sum(c.orders) FROM order_counts c WHERE c.shard_id = $1 AND c.account_id = a.account_id)
                  >= coalesce(m.ordinal, 0) + $3)
         INSERT INTO order_marks (shard_id, account_id, ordinal, key, created_at)
         SELECT $1, due.account_id, o.ordinal, o.placed_position, o.created_at
         FROM due CROSS JOIN LATERAL
            (SELECT due.ordinal + row_number() OVER (ORDER BY o.placed_position) AS ordinal, o.placed_position, o.created_at
             FROM orders o WHERE o.shard_id = $1 AND o.account_id = due.account_id AND o.status = ANY($4) AND o.placed_position > due.key) AS o
         WHERE o.ordinal % $3 = 0",
    )
    .bind(shard)
    .bind(accounts)
    .bind(ROWS_PER_ANCHOR)
    .bind(any_status())
    .execute(conn)
    .await?;
    Ok(())
}

/// Counts new deliveries, in the transaction that creates them, and adds page anchors where they are due.
///
/// `groups` contains the account, webhook, event type and number of each group of new deliveries. `given` contains
/// the ids that were drawn earlier, with their accounts. Such an id can be smaller than existing anchors, so the
/// anchors beyond it are replaced.
pub async fn count_deliveries(
    conn: &mut PgConnection,
    shard: ShardId,
    groups: &[(AccountId, WebhookId, &str, i64)],
    given: &[(AccountId, i64)],
) -> Result<(), sqlx::Error> {
    if !given.is_empty() {
        let (accounts, ids): (Vec<_>, Vec<_>) = given.iter().copied().unzip();
        sqlx::query(
            "DELETE FROM delivery_marks m USING unnest($2::bigint[], $3::bigint[]) AS given (account_id, id)
             WHERE m.shard_id = $1 AND m.account_id = given.account_id AND m.key > given.id",
        )
        .bind(shard)
        .bind(accounts)
        .bind(ids)
        .execute(&mut *conn)
        .await?;
    }
    sqlx::query(
        "INSERT INTO delivery_counts AS c (shard_id, account_id, webhook_id, event_type, deliveries)
         SELECT $1, g.* FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[]) AS g
         ON CONFLICT (shard_id, account_id, webhook_id, event_type) DO UPDATE SET deliveries = c.deliveries + excluded.deliveries",
    )
    .bind(shard)
    .bind(groups.iter().map(|g| g.0).collect::<Vec<_>>())
    .bind(groups.iter().map(|g| g.1).collect::<Vec<_>>())
    .bind(groups.iter().map(|g| g.2).collect::<Vec<_>>())
    .bind(groups.iter().map(|g| g.3).collect::<Vec<_>>())
    .execute(&mut *conn)
    .await?;
    let mut accounts: Vec<AccountId> = groups.iter().map(|g| g.0).collect();
    accounts.dedup();
    sqlx::query(
        "WITH due AS MATERIALIZED (
            SELECT a.account_id, coalesce(m.ordinal, 0) AS ordinal, coalesce(m.key, 0) AS key
            FROM unnest($2::bigint[]) AS a (account_id)
            LEFT JOIN LATERAL
                (SELECT ordinal, key FROM delivery_marks m WHERE m.shard_id = $1 AND m.account_id = a.account_id
                 ORDER BY ordinal DESC LIMIT 1) AS m ON true
            WHERE (SELECT sum(c.deliveries) FROM delivery_counts c WHERE c.shard_id = $1 AND c.account_id = a.account_id)
                  >= coalesce(m.ordinal, 0) + $3)
         INSERT INTO delivery_marks (shard_id, account_id, ordinal, key)
         SELECT $1, due.account_id, d.ordinal, d.id
         FROM due CROSS JOIN LATERAL
            (SELECT due.ordinal + row_number() OVER (ORDER BY d.id) AS ordinal, d.id
             FROM deliveries d WHERE d.shard_id = $1 AND d.account_id = due.account_id AND d.id > due.key) AS d
         WHERE d.ordinal % $3 = 0",
    )
    .bind(shard)
    .bind(accounts)
    .bind(ROWS_PER_ANCHOR)
    .execute(conn)
    .await?;
    Ok(())
}

/// Temporary table of the moves that the counts do not include yet, for [`differing`].
pub const UNCOUNTED: &str = "CREATE TEMP TABLE uncounted_moves
    (account_id bigint, product_id bigint, status text, placed_position bigint, orders bigint)";

/// Adds moves to the table [`UNCOUNTED`].
pub async fn add_uncounted(conn: &mut PgConnection, moves: &[Move]) -> Result<(), sqlx::Error> {
    let Columns { accounts, products, statuses, placed_positions, orders } = Columns::new(moves);
    sqlx::query(
        "INSERT INTO uncounted_moves SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[])",
    )
    .bind(accounts)
    .bind(products)
    .bind(statuses)
    .bind(placed_positions)
    .bind(orders)
    .execute(conn)
    .await?;
    Ok(())
}

/// Lists the rows of the five derived tables that contradict their sources. The caller holds the snapshot, and has put
/// all moves after the checkpoint into the table [`UNCOUNTED`]. Each result names the table and the account, with the
/// stored and the derived value.
pub async fn differing(conn: &mut PgConnection, shard: ShardId) -> Result<Vec<Differing>, sqlx::Error> {
    sqlx::query_as(
        "WITH order_groups AS (
            SELECT account_id, product_id, status, sum(n)::bigint AS n FROM (
                SELECT account_id, product_id, status, count(*) AS n FROM public.orders WHERE shard_id = $1 GROUP BY 1, 2, 3
                UNION ALL
                SELECT m.account_id, m.product_id, m.status, -m.orders FROM pg_temp.uncounted_moves m) AS o
            GROUP BY 1, 2, 3),
         mark_groups AS (
            SELECT account_id, status, after, sum(n)::bigint AS n FROM (
                SELECT o.account_id, o.status, o.placed_position, 1 AS n FROM public.orders o WHERE o.shard_id = $1
                UNION ALL
                SELECT m.account_id, m.status, m.placed_position, -m.orders FROM pg_temp.uncounted_moves m) AS o
            CROSS JOIN LATERAL
                (SELECT k.key AS after FROM public.order_marks k
                 WHERE k.shard_id = $1 AND k.account_id = o.account_id AND k.key < o.placed_position ORDER BY k.key DESC LIMIT 1) AS mark
            GROUP BY 1, 2, 3),
         delivery_groups AS (
            SELECT account_id, webhook_id, event_type, count(*) AS n FROM public.deliveries WHERE shard_id = $1 GROUP BY 1, 2, 3)
         SELECT 'order_counts' AS table_name, coalesce(s.account_id, g.account_id) AS account_id,
                format('orders of product %s, %s', coalesce(s.product_id, g.product_id), coalesce(s.status, g.status)) AS field,
                s.orders AS stored, g.n AS derived
         FROM (SELECT * FROM public.order_counts WHERE shard_id = $1) AS s FULL JOIN order_groups g USING (account_id, product_id, status)
         WHERE coalesce(s.orders, 0) <> coalesce(g.n, 0)
         UNION ALL
         SELECT 'order_mark_counts', coalesce(s.account_id, g.account_id),
                format('orders after position %s, %s', coalesce(s.after, g.after), coalesce(s.status, g.status)), s.orders, g.n
         FROM (SELECT * FROM public.order_mark_counts WHERE shard_id = $1) AS s FULL JOIN mark_groups g USING (account_id, status, after)
         WHERE coalesce(s.orders, 0) <> coalesce(g.n, 0)
         UNION ALL
         SELECT 'delivery_counts', coalesce(s.account_id, g.account_id),
                format('deliveries to webhook %s, %s', coalesce(s.webhook_id, g.webhook_id), coalesce(s.event_type, g.event_type)),
                s.deliveries, g.n
         FROM (SELECT * FROM public.delivery_counts WHERE shard_id = $1) AS s FULL JOIN delivery_groups g USING (account_id, webhook_id, event_type)
         WHERE coalesce(s.deliveries, 0) <> coalesce(g.n, 0)
         UNION ALL
         SELECT 'order_marks', m.account_id, format('position of order %s', m.ordinal), m.key, o.placed_position
         FROM public.order_marks m LEFT JOIN
            (SELECT account_id, placed_position, created_at, row_number() OVER (PARTITION BY account_id ORDER BY placed_position) AS ordinal
             FROM public.orders WHERE shard_id = $1) AS o USING (account_id, ordinal)
         WHERE m.shard_id = $1 AND (m.key, m.created_at) IS DISTINCT FROM (o.placed_position, o.created_at)
         UNION ALL
         SELECT 'delivery_marks', m.account_id, format('id of delivery %s', m.ordinal), m.key, d.id
         FROM public.delivery_marks m LEFT JOIN
            (SELECT account_id, id, row_number() OVER (PARTITION BY account_id ORDER BY id) AS ordinal
             FROM public.deliveries WHERE shard_id = $1) AS d USING (account_id, ordinal)
         WHERE m.shard_id = $1 AND m.key IS DISTINCT FROM d.id",
    )
    .bind(shard)
    .fetch_all(conn)
    .await
}

/// A wrong count or page anchor.
#[derive(Clone, Debug, PartialEq, ledger_database::FromRow)]
pub struct Differing {
    pub table_name: String,
    pub account_id: AccountId,
    pub field: String,
    pub stored: Option<i64>,
    pub derived: Option<i64>,
}

/// Derives all page anchors and counts of a shard from scratch, in one transaction. Only the projections wait
/// during that time.
pub async fn rebuild_lists(conn: &mut PgConnection, shard: ShardId, projection: &str) -> Result<(), sqlx::Error> {
    let mut tx = conn.begin().await?;
    // Every writer of deliveries or counts holds these locks.
    sqlx::query(
        "INSERT INTO projection_checkpoints AS c (shard_id, projection) VALUES ($1, $2)
         ON CONFLICT (shard_id, projection) DO UPDATE SET position = c.position",
    )
    .bind(shard)
    .bind(projection)
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "INSERT INTO list_checkpoints (shard_id, position) VALUES ($1, 0) ON CONFLICT (shard_id) DO UPDATE SET position = 0, marked_position = 0",
    )
    .bind(shard)
    .execute(&mut *tx)
    .await?;
    for clear in [
        "DELETE FROM order_counts WHERE shard_id = $1",
        "DELETE FROM order_marks WHERE shard_id = $1",
        "DELETE FROM order_mark_counts WHERE shard_id = $1",
        "DELETE FROM delivery_counts WHERE shard_id = $1",
        "DELETE FROM delivery_marks WHERE shard_id = $1",
    ] {
        sqlx::query(clear).bind(shard).execute(&mut *tx).await?;
    }
    // One statement, and so one snapshot of the orders and the head of the log.
    sqlx::query(
        "WITH counted AS (
            INSERT INTO order_counts (shard_id, account_id, product_id, status, orders)
            SELECT shard_id, account_id, product_id, status, count(*) FROM orders WHERE shard_id = $1 GROUP BY 1, 2, 3, 4),
         ordered AS MATERIALIZED (
            SELECT account_id, status, placed_position, created_at,
                   row_number() OVER (PARTITION BY account_id ORDER BY placed_position) AS ordinal FROM orders WHERE shard_id = $1),
         marked AS (
            INSERT INTO order_marks (shard_id, account_id, ordinal, key, created_at)
            SELECT $1, account_id, ordinal, placed_position, created_at FROM ordered WHERE ordinal % $2 = 0),
         by_mark AS (
            INSERT INTO order_mark_counts (shard_id, account_id, status, after, orders)
            SELECT $1, o.account_id, o.status, m.placed_position, count(*)
            FROM ordered o JOIN ordered m ON m.account_id = o.account_id AND m.ordinal = (o.ordinal - 1) / $2 * $2
            GROUP BY 2, 3, 4)
         UPDATE list_checkpoints c SET (position, marked_position) = (SELECT h.position, h.position FROM log_head h WHERE h.shard_id = $1)
         WHERE c.shard_id = $1",
    )
    .bind(shard)
    .bind(ROWS_PER_ANCHOR)
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "INSERT INTO delivery_counts (shard_id, account_id, webhook_id, event_type, deliveries)
         SELECT shard_id, account_id, webhook_id, event_type, count(*) FROM deliveries WHERE shard_id = $1 GROUP BY 1, 2, 3, 4",
    )
    .bind(shard)
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "INSERT INTO delivery_marks (shard_id, account_id, ordinal, key)
         SELECT $1, account_id, ordinal, id
         FROM (SELECT account_id, id, row_number() OVER (PARTITION BY account_id ORDER BY id) AS ordinal FROM deliveries WHERE shard_id = $1) AS d
         WHERE ordinal % $2 = 0",
    )
    .bind(shard)
    .bind(ROWS_PER_ANCHOR)
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}
