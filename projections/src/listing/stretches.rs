//! An account's orders of one status by stretches from mark to mark: how many there are within dates, and where a page
//! begins, without counting up to it.
//!
//! Everything here is to be asked in one snapshot, as in [`super::pages`].

use std::ops::Range;

use ledger_database::PgConnection;
use ledger_events::{AccountId, ShardId};

use super::pages::{Thresholds, counted};

/// Orders of a status after one position, up to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub after: i64,
    pub upto: i64,
    pub orders: i64,
}

impl Stretch {
    /// How many orders these have together.
    pub fn orders_of(stretches: &[Stretch]) -> i64 {
        stretches.iter().map(|stretch| stretch.orders).sum()
    }
}

/// The stretches with all of an account's orders of a status after the first and up to the second of `within`, the
/// oldest first. Those at the ends are counted by the index, and all are one where the counts are far behind.
pub async fn of_status(
    conn: &mut PgConnection,
    owner: (ShardId, AccountId),
    status: &str,
    within: (i64, i64),
    thresholds: &Thresholds,
) -> Result<Vec<Stretch>, sqlx::Error> {
    let (counted, head) = counted(&mut *conn, owner.0).await?;
    let by_mark: Vec<(i64, i64)> = if head - counted > thresholds.uncounted {
        vec![]
    } else {
        sqlx::query_as(
            "SELECT c.after, sum(c.orders)::bigint FROM (
                SELECT after, orders FROM order_mark_counts WHERE shard_id = $1 AND account_id = $2 AND status = $3
                UNION ALL
                SELECT (SELECT max(k.key) FROM order_marks k WHERE k.shard_id = $1 AND k.account_id = $2 AND k.key < m.placed_position), m.orders
                FROM order_moves($1, $4, $5) AS m WHERE m.account_id = $2 AND m.status = $3) AS c
             WHERE c.after IS NOT NULL GROUP BY 1 HAVING sum(c.orders) > 0 ORDER BY 1",
        )
        .bind(owner.0)
        .bind(owner.1)
        .bind(status)
        .bind(counted)
        .bind(head)
        .fetch_all(&mut *conn)
        .await?
    };
    let mut stretches = vec![];
    for (part, orders) in clipped(&by_mark, within) {
        let orders = match orders {
            Some(orders) => orders,
            None => count(&mut *conn, owner, status, part).await?,
        };
        stretches.push(Stretch { after: part.0, upto: part.1, orders });
    }
    Ok(stretches)
}

/// The parts of `within` from each mark of a status to the next one that has any, the oldest first; how many orders is
/// known of those that are whole, but for what lies before the first.
fn clipped(by_mark: &[(i64, i64)], within: (i64, i64)) -> Vec<((i64, i64), Option<i64>)> {
    let mut parts = vec![];
    let marks = std::iter::once((0, None)).chain(by_mark.iter().map(|(after, orders)| (*after, Some(*orders))));
    let ends = by_mark.iter().map(|(after, _)| *after).chain(std::iter::once(i64::MAX));
    for ((after, orders), upto) in marks.zip(ends) {
        let part = (after.max(within.0), upto.min(within.1));
        if part.0 < part.1 {
            parts.push((part, orders.filter(|_| part == (after, upto))));
        }
    }
    parts
}

/// By the index.
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

/// The keys of some rows of all stretches, newest first.
pub async fn keys(
    conn: &mut PgConnection,
    (shard, account): (ShardId, AccountId),
    status: &str,
    stretches: &[Stretch],
    rows: Range<i64>,
) -> Result<Vec<i64>, sqlx::Error> {
    let Some((upto, newer)) = place(stretches, rows.start) else { return Ok(vec![]) };
    sqlx::query_scalar(
        "SELECT placed_position FROM orders WHERE shard_id = $1 AND account_id = $2 AND status = $3
         AND placed_position > $4 AND placed_position <= $5 ORDER BY placed_position DESC OFFSET $6 LIMIT $7",
    )
    .bind(shard)
    .bind(account)
    .bind(status)
    .bind(stretches.first().map_or(0, |oldest| oldest.after))
    .bind(upto)
    .bind(newer)
    .bind(rows.end - rows.start)
    .persistent(false)
    .fetch_all(conn)
    .await
}

/// The end of the stretch that has a row, of which the newest of all is 0; and how many newer ones lie in it.
fn place(stretches: &[Stretch], row: i64) -> Option<(i64, i64)> {
    let mut newer = 0;
    for stretch in stretches.iter().rev() {
        if row < newer + stretch.orders {
            return Some((stretch.upto, row - newer));
        }
        newer += stretch.orders;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_to_be_counted_and_so_is_what_lies_before_the_first_mark() {
        let by_mark = [(100, 7), (300, 9)];
        let all = vec![((0, 100), None), ((100, 300), Some(7)), ((300, i64::MAX), Some(9))];
        assert_eq!(clipped(&by_mark, (0, i64::MAX)), all);
        assert_eq!(clipped(&by_mark, (100, 300)), vec![((100, 300), Some(7))]);
        assert_eq!(clipped(&by_mark, (99, 301)), vec![((99, 100), None), ((100, 300), Some(7)), ((300, 301), None)]);
        assert_eq!(clipped(&by_mark, (150, 200)), vec![((150, 200), None)]);
        assert_eq!(clipped(&by_mark, (200, 200)), vec![]);
        assert_eq!(clipped(&by_mark, (400, 200)), vec![]);
        assert_eq!(clipped(&[], (5, 10)), vec![((5, 10), None)]);
    }

    #[test]
    fn a_row_is_found_from_the_newest_on() {
        let stretch = |after, upto, orders| Stretch { after, upto, orders };
        let stretches = [stretch(0, 100, 3), stretch(100, 300, 0), stretch(300, i64::MAX, 2)];
        let places = [0, 1, 2, 4, 5].map(|row| place(&stretches, row));
        assert_eq!(places, [Some((i64::MAX, 0)), Some((i64::MAX, 1)), Some((100, 0)), Some((100, 2)), None]);
    }
}
