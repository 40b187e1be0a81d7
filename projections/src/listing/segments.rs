//! The orders of one status, split into segments from one page anchor of their account to the next. The segments give the
//! number of orders within dates and the start of a page, without counting up to it.
//!
//! Run all queries of this module in one snapshot, as in [`super::pages`].

use std::ops::Range;

use ledger_database::PgConnection;
use ledger_events::order::OrderStatus;
use ledger_events::{AccountId, Position, ShardId};

use super::moves::{Columns, Move, Uncounted};

/// A segment: the orders of a status at positions after `after` and up to `upto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub after: i64,
    pub upto: i64,
    pub orders: i64,
}

impl Segment {
    /// Sums the orders of these segments.
    pub fn orders_of(segments: &[Segment]) -> i64 {
        segments.iter().map(|segment| segment.orders).sum()
    }
}

/// Loads the segments that cover an account's orders of a status, oldest first. `within` limits them to positions
/// after the first value and up to the second.
///
/// The index counts the cut segments at both ends. If the stored counts are too far behind the log, the result is
/// a single segment that the index counts.
pub async fn of_status(
    conn: &mut PgConnection,
    owner: (ShardId, AccountId),
    status: &str,
    within: (i64, i64),
    uncounted: &Uncounted,
) -> Result<Vec<Segment>, sqlx::Error> {
    let by_anchor: Vec<(i64, i64)> = match uncounted {
        Uncounted::Unknown => vec![],
        Uncounted::Moves(moves) => {
            let of_these = moves.iter().filter(|one| one.account_id == owner.1 && one.status.as_str() == status);
            let Columns { placed_positions, orders, .. } = Columns::new(of_these);
            sqlx::query_as(
            "SELECT c.after, sum(c.orders)::bigint FROM (
                SELECT after, orders FROM order_mark_counts WHERE shard_id = $1 AND account_id = $2 AND status = $3
                UNION ALL
                SELECT (SELECT max(k.key) FROM order_marks k WHERE k.shard_id = $1 AND k.account_id = $2 AND k.key < m.placed_position), m.orders
                FROM unnest($4::bigint[], $5::bigint[]) AS m (placed_position, orders)) AS c
             WHERE c.after IS NOT NULL GROUP BY 1 HAVING sum(c.orders) > 0 ORDER BY 1",
        )
        .bind(owner.0)
        .bind(owner.1)
        .bind(status)
        .bind(placed_positions)
        .bind(orders)
        .fetch_all(&mut *conn)
        .await?
        }
    };
    let mut segments = vec![];
    for (part, orders) in clipped(&by_anchor, within) {
        let orders = match orders {
            Some(orders) => orders,
            None => count(&mut *conn, owner, status, part).await?,
        };
        segments.push(Segment { after: part.0, upto: part.1, orders });
    }
    Ok(segments)
}

/// Splits `within` into segments, oldest first, from each anchor with orders of the status to the next. The number
/// of orders is known for complete segments only, and never for the part before the first anchor.
fn clipped(by_anchor: &[(i64, i64)], within: (i64, i64)) -> Vec<((i64, i64), Option<i64>)> {
    let mut parts = vec![];
    let begins = std::iter::once((0, None)).chain(by_anchor.iter().map(|(after, orders)| (*after, Some(*orders))));
    let ends = by_anchor.iter().map(|(after, _)| *after).chain(std::iter::once(i64::MAX));
    for ((after, orders), upto) in begins.zip(ends) {
        let part = (after.max(within.0), upto.min(within.1));
        if part.0 < part.1 {
            parts.push((part, orders.filter(|_| part == (after, upto))));
        }
    }
    parts
}

/// Counts the orders within these positions by the index.
async fn count(
    conn: &mut PgConnection,
    (shard, account): (ShardId, AccountId),
    status: &str,
    within: (i64, i64),
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT count(*) FROM orders WHERE shard_id = $1 AND account_id = $2 AND status = $3
         AND placed_position > $4 AND placed_position <= $5",
    )
    .bind(shard)
    .bind(account)
    .bind(status)
    .bind(within.0)
    .bind(within.1)
    .persistent(false)
    .fetch_one(conn)
    .await
}

/// Counts the orders of a status of all accounts that were placed within these positions. Of each account, it sums the segments
/// from the first page anchor within the positions to the last one, and counts the others by the index.
pub async fn orders_of_all(
    conn: &mut PgConnection,
    shard: ShardId,
    status: OrderStatus,
    within: &Range<Position>,
    moves: &[Move],
) -> Result<i64, sqlx::Error> {
    let of_status = moves.iter().filter(|one| one.status == status);
    let Columns { accounts, placed_positions, orders, .. } = Columns::new(of_status);
    sqlx::query_scalar(
        "SELECT coalesce(sum(of_account.orders), 0)::bigint FROM (
            SELECT CASE WHEN anchor.first = anchor.last THEN 0 ELSE
                (SELECT coalesce(sum(c.orders), 0) FROM order_mark_counts c
                 WHERE c.shard_id = $1 AND c.account_id = a.id AND c.status = $2 AND c.after >= anchor.first AND c.after < anchor.last)
                + (SELECT coalesce(sum(m.orders), 0) FROM unnest($5::bigint[], $6::bigint[], $7::bigint[]) AS m (account_id, placed_position, orders)
                   WHERE m.account_id = a.id AND m.placed_position > anchor.first AND m.placed_position <= anchor.last) END
                + CASE WHEN anchor.first <= $3 THEN 0 ELSE
                    (SELECT count(*) FROM orders
                     WHERE shard_id = $1 AND account_id = a.id AND status = $2 AND placed_position > $3 AND placed_position <= anchor.first) END
                + (SELECT count(*) FROM orders
                   WHERE shard_id = $1 AND account_id = a.id AND status = $2 AND placed_position > anchor.last AND placed_position < $4) AS orders
            FROM accounts a CROSS JOIN LATERAL (SELECT
                coalesce((SELECT key FROM order_marks WHERE shard_id = $1 AND account_id = a.id AND key > $3 AND key < $4
                          ORDER BY key LIMIT 1), $3) AS first,
                coalesce((SELECT key FROM order_marks WHERE shard_id = $1 AND account_id = a.id AND key > $3 AND key < $4
                          ORDER BY key DESC LIMIT 1), $3) AS last
                OFFSET 0) AS anchor
            WHERE a.shard_id = $1) AS of_account",
    )
    .bind(shard)
    .bind(status.as_str())
    .bind(within.start - 1)
    .bind(within.end)
    .bind(accounts)
    .bind(placed_positions)
    .bind(orders)
    .persistent(false)
    .fetch_one(conn)
    .await
}

/// Returns the keys of a range of rows across all segments, newest first.
pub async fn keys(
    conn: &mut PgConnection,
    (shard, account): (ShardId, AccountId),
    status: &str,
    segments: &[Segment],
    rows: Range<i64>,
) -> Result<Vec<i64>, sqlx::Error> {
    let Some((upto, newer)) = place(segments, rows.start) else { return Ok(vec![]) };
    sqlx::query_scalar(
        "SELECT placed_position FROM orders WHERE shard_id = $1 AND account_id = $2 AND status = $3
         AND placed_position > $4 AND placed_position <= $5 ORDER BY placed_position DESC OFFSET $6 LIMIT $7",
    )
    .bind(shard)
    .bind(account)
    .bind(status)
    .bind(segments.first().map_or(0, |oldest| oldest.after))
    .bind(upto)
    .bind(newer)
    .bind(rows.end - rows.start)
    .persistent(false)
    .fetch_all(conn)
    .await
}

/// Finds the segment that contains a row, where row 0 is the newest of all. Returns the end of the segment, and
/// the number of newer rows in it.
fn place(segments: &[Segment], row: i64) -> Option<(i64, i64)> {
    let mut newer = 0;
    for segment in segments.iter().rev() {
        if row < newer + segment.orders {
            return Some((segment.upto, row - newer));
        }
        newer += segment.orders;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_segments_and_the_part_before_the_first_anchor_need_counting() {
        let by_anchor = [(100, 7), (300, 9)];
        let all = vec![((0, 100), None), ((100, 300), Some(7)), ((300, i64::MAX), Some(9))];
        assert_eq!(clipped(&by_anchor, (0, i64::MAX)), all);
        assert_eq!(clipped(&by_anchor, (100, 300)), vec![((100, 300), Some(7))]);
        assert_eq!(clipped(&by_anchor, (99, 301)), vec![((99, 100), None), ((100, 300), Some(7)), ((300, 301), None)]);
        assert_eq!(clipped(&by_anchor, (150, 200)), vec![((150, 200), None)]);
        assert_eq!(clipped(&by_anchor, (200, 200)), vec![]);
        assert_eq!(clipped(&by_anchor, (400, 200)), vec![]);
        assert_eq!(clipped(&[], (5, 10)), vec![((5, 10), None)]);
    }

    #[test]
    fn rows_are_located_starting_at_the_newest() {
        let segment = |after, upto, orders| Segment { after, upto, orders };
        let segments = [segment(0, 100, 3), segment(100, 300, 0), segment(300, i64::MAX, 2)];
        let places = [0, 1, 2, 4, 5].map(|row| place(&segments, row));
        assert_eq!(places, [Some((i64::MAX, 0)), Some((i64::MAX, 1)), Some((100, 0)), Some((100, 2)), None]);
    }
}
