//! Finds an account's events without reading those of other accounts.
//!
//! Derived rows are used only to find streams; the data comes from the log. A wallet, an order or a payout is found if
//! any row refers to it. A missing row therefore does not hide data that other rows refer to.

use ledger_database::PgConnection;
use ledger_events::order::OrderStatus;
use ledger_events::{AccountId, Id, OrderId, PayoutId, Position, ShardId, WalletId};

/// Returns the positions of the events of an account's orders, payouts and wallets in a range, in order. Returns none if
/// there are more than `most`, or if the account has more than `most` orders or payouts of any time to search.
pub async fn money_positions(
    conn: &mut PgConnection,
    shard: ShardId,
    account: AccountId,
    range: (Position, Position),
    most: usize,
) -> Result<Option<Vec<Position>>, sqlx::Error> {
    Search::new(shard, account, range, most).positions(conn, most, true).await
}

/// Returns the positions of the events of an account's wallets in a range, and of the orders and payouts that they belong to, in
/// order. Leaves out orders and payouts that moved nothing in the range, so their number in all does not matter. Returns none
/// if there are more than `most`.
pub async fn movement_positions(
    conn: &mut PgConnection,
    shard: ShardId,
    account: AccountId,
    range: (Position, Position),
    most: usize,
) -> Result<Option<Vec<Position>>, sqlx::Error> {
    Search::new(shard, account, range, most).positions(conn, most, false).await
}

/// A search for an account's events after the range's first position and up to its second.
struct Search {
    shard: ShardId,
    account: AccountId,
    range: (Position, Position),
    /// Maximum number of rows that a query reads: one more than the caller accepts.
    limit: i64,
}

/// Event of a wallet, with the order or payout that it belongs to.
struct Movement {
    position: Position,
    order: Option<OrderId>,
    payout: Option<PayoutId>,
}

impl Search {
    fn new(shard: ShardId, account: AccountId, range: (Position, Position), most: usize) -> Search {
        Search { shard, account, range, limit: i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1) }
    }

    /// Returns the positions found, in order, or none if there are more than `most`. `has_unmoved` includes the orders and payouts
    /// without a movement in the range.
    async fn positions(
        &self,
        conn: &mut PgConnection,
        most: usize,
        has_unmoved: bool,
    ) -> Result<Option<Vec<Position>>, sqlx::Error> {
        let known = self.wallets(conn).await?;
        let Some(mut movements) = self.movements(conn, &known).await? else { return Ok(None) };
        // This reads a row of each movement, so it comes after the end of a search for too many.
        let further = self.wallets_of_movements(conn, &known).await?;
        let Some(of_further) = self.movements(conn, &further).await? else { return Ok(None) };
        movements.extend(of_further);
        if movements.len() > most {
            return Ok(None);
        }
        let mut positions: Vec<Position> = movements.iter().map(|movement| movement.position).collect();
        let mut orders: Vec<OrderId> = movements.iter().filter_map(|movement| movement.order).collect();
        let mut payouts: Vec<PayoutId> = movements.iter().filter_map(|movement| movement.payout).collect();
        if has_unmoved {
            orders.extend(self.placed_orders(conn).await?);
            payouts.extend(self.requested_payouts(conn).await?);
        }
        for (stream_type, mut ids) in [("order", numbers(orders)), ("payout", numbers(payouts))] {
            ids.sort_unstable();
            ids.dedup();
            if ids.len() > most {
                return Ok(None);
            }
            positions.extend(self.events(conn, stream_type, ids).await?);
            if positions.len() > most {
                return Ok(None);
            }
        }
        positions.sort_unstable();
        Ok(Some(positions))
    }

    /// Returns the account's wallets by their own rows and by the totals of days.
    async fn wallets(&self, conn: &mut PgConnection) -> Result<Vec<WalletId>, sqlx::Error> {
        sqlx::query_scalar(
            "SELECT id FROM wallets WHERE shard_id = $1 AND account_id = $2
             UNION SELECT wallet_id FROM daily_totals WHERE shard_id = $1 AND account_id = $2",
        )
        .bind(self.shard)
        .bind(self.account)
        .fetch_all(conn)
        .await
    }

    /// Returns the wallets that only rows of movements connect to the account.
    async fn wallets_of_movements(&self, conn: &mut PgConnection, known: &[WalletId]) -> Result<Vec<WalletId>, sqlx::Error> {
        let (after, upto) = self.range;
        sqlx::query_scalar(
            "SELECT DISTINCT wallet_id FROM
                (SELECT wallet_id FROM wallet_transactions
                 WHERE shard_id = $1 AND account_id = $2 AND position > $3 AND position <= $4 LIMIT $5) AS moved
             WHERE wallet_id <> ALL ($6)",
        )
        .bind(self.shard)
        .bind(self.account)
        .bind(after)
        .bind(upto)
        .bind(self.limit)
        .bind(known)
        .fetch_all(conn)
        .await
    }

    /// Returns the account's events of these wallets, or none if there are too many to read.
    async fn movements(&self, conn: &mut PgConnection, wallets: &[WalletId]) -> Result<Option<Vec<Movement>>, sqlx::Error> {
        let (after, upto) = self.range;
        let mut movements = vec![];
        for &wallet in wallets {
            let first = first_version_after(conn, self.shard, wallet, after).await?;
            let end = first_version_after(conn, self.shard, wallet, upto).await?;
            // Do not read too many events only to count them.
            if end - first >= self.limit {
                return Ok(None);
            }
            let rows: Vec<(Position, Option<String>, Option<String>)> = sqlx::query_as(
                "SELECT position, data->>'order_id', data->>'payout_id' FROM events
                 WHERE shard_id = $1 AND stream_type = 'wallet' AND stream_id = $2 AND version >= $3 AND version < $4
                    AND metadata->>'account_id' = $5 ORDER BY version LIMIT $6",
            )
            .bind(self.shard)
            .bind(wallet)
            .bind(first)
            .bind(end)
            .bind(self.account.to_string())
            .bind(self.limit)
            .fetch_all(&mut *conn)
            .await?;
            let movement = |(position, order, payout)| Movement { position, order: id(order), payout: id(payout) };
            movements.extend(rows.into_iter().map(movement));
            if i64::try_from(movements.len()).is_ok_and(|found| found >= self.limit) {
                return Ok(None);
            }
        }
        Ok(Some(movements))
    }

    /// Returns the account's orders that were placed by the end of the range.
    async fn placed_orders(&self, conn: &mut PgConnection) -> Result<Vec<OrderId>, sqlx::Error> {
        sqlx::query_scalar(
            "SELECT id FROM orders WHERE shard_id = $1 AND account_id = $2 AND placed_position <= $4 AND status = ANY($5) LIMIT $3",
        )
        .bind(self.shard)
        .bind(self.account)
        .bind(self.limit)
        .bind(self.range.1)
        .bind(OrderStatus::ALL.map(OrderStatus::as_str))
        .fetch_all(conn)
        .await
    }

    async fn requested_payouts(&self, conn: &mut PgConnection) -> Result<Vec<PayoutId>, sqlx::Error> {
        sqlx::query_scalar("SELECT id FROM payouts WHERE shard_id = $1 AND account_id = $2 LIMIT $3")
            .bind(self.shard)
            .bind(self.account)
            .bind(self.limit)
            .fetch_all(conn)
            .await
    }

    /// Returns the positions of the account's events in these streams.
    async fn events(&self, conn: &mut PgConnection, stream_type: &str, ids: Vec<i64>) -> Result<Vec<Position>, sqlx::Error> {
        let (after, upto) = self.range;
        sqlx::query_scalar(
            "SELECT e.position FROM unnest($3::bigint[]) AS its (id)
             JOIN events e ON e.shard_id = $1 AND e.stream_type = $2 AND e.stream_id = its.id
             WHERE e.position > $4 AND e.position <= $5 AND e.metadata->>'account_id' = $6 LIMIT $7",
        )
        .bind(self.shard)
        .bind(stream_type)
        .bind(ids)
        .bind(after)
        .bind(upto)
        .bind(self.account.to_string())
        .bind(self.limit)
        .fetch_all(conn)
        .await
    }
}

fn numbers(ids: Vec<impl Id>) -> Vec<i64> {
    ids.into_iter().map(Id::number).collect()
}

/// Reads an id from a field of a payload.
fn id<T: Id>(text: Option<String>) -> Option<T> {
    text.and_then(|text| text.parse().ok()).map(T::new)
}

/// Returns the version of a wallet's first event after a position, or the version after its last event if there is none.
/// Versions are in the order of positions, so a bisection needs few queries, however long the wallet's history is.
async fn first_version_after(
    conn: &mut PgConnection,
    shard: ShardId,
    wallet: WalletId,
    after: Position,
) -> Result<i64, sqlx::Error> {
    let last: i64 = sqlx::query_scalar(
        "SELECT coalesce(max(version), 0) FROM events WHERE shard_id = $1 AND stream_type = 'wallet' AND stream_id = $2",
    )
    .bind(shard)
    .bind(wallet)
    .fetch_one(&mut *conn)
    .await?;
    let (mut low, mut high) = (1, last + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let next: Option<(i64, Position)> = sqlx::query_as(
            "SELECT version, position FROM events WHERE shard_id = $1 AND stream_type = 'wallet' AND stream_id = $2 AND version >= $3
             ORDER BY version LIMIT 1",
        )
        .bind(shard)
        .bind(wallet)
        .bind(middle)
        .fetch_optional(&mut *conn)
        .await?;
        match next {
            Some((version, position)) if position <= after && version < high => low = version + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}
