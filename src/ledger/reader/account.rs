//! Finds the events of accounts without reading those of other accounts. The number of statements does not depend on the
//! number of accounts or wallets.
//!
//! Derived rows are used only to find streams; the data comes from the log. A wallet, an order or a payout is found if
//! any row refers to it. A missing row therefore does not hide data that other rows refer to.

use std::collections::{HashMap, HashSet};

use ledger_database::PgConnection;
use ledger_events::order::OrderStatus;
use ledger_events::{AccountId, Id, OrderId, PayoutId, Position, ShardId, WalletId};

/// Largest number of orders or payouts that a statement searches for events, so that it ends in time.
const MAX_STREAMS: usize = 100_000;

/// An account, with the range in which its events are wanted: after the first position and up to the second.
pub type Wanted = (AccountId, (Position, Position));

/// Returns the positions of the events of each account's orders, payouts and wallets in its range, in order. Leaves out an
/// account if its events, with those of the accounts before it, are more than `most`. Leaves it out, too, if it has more than
/// `most` orders or payouts of any time to search.
pub async fn money_positions(
    conn: &mut PgConnection,
    shard: ShardId,
    wanted: &[Wanted],
    most: usize,
) -> Result<HashMap<AccountId, Vec<Position>>, sqlx::Error> {
    Search { shard, wanted: wanted.to_vec(), most }.positions(conn, true).await
}

/// Returns the positions of the events of each account's wallets in its range, and of the orders and payouts that they belong to,
/// in order. Leaves out orders and payouts that moved nothing in the range, so their number in all does not matter. Leaves out
/// an account if its events, with those of the accounts before it, are more than `most`.
pub async fn movement_positions(
    conn: &mut PgConnection,
    shard: ShardId,
    wanted: &[Wanted],
    most: usize,
) -> Result<HashMap<AccountId, Vec<Position>>, sqlx::Error> {
    Search { shard, wanted: wanted.to_vec(), most }.positions(conn, false).await
}

/// A search for the events of accounts.
struct Search {
    shard: ShardId,
    /// Accounts that do not have too many events, as far as is known.
    wanted: Vec<Wanted>,
    most: usize,
}

/// Versions of a wallet in the range of an account: from the first and before the second.
struct Stretch {
    account: AccountId,
    wallet: WalletId,
    versions: (i64, i64),
}

/// Event of a wallet, with the order or payout that it belongs to.
struct Movement {
    account: AccountId,
    position: Position,
    order: Option<OrderId>,
    payout: Option<PayoutId>,
}

impl Search {
    /// Returns the positions found, in order. `has_unmoved` includes the orders and payouts without a movement in the range.
    async fn positions(
        mut self,
        conn: &mut PgConnection,
        has_unmoved: bool,
    ) -> Result<HashMap<AccountId, Vec<Position>>, sqlx::Error> {
        let known = self.wallets(conn).await?;
        let mut movements = self.movements(conn, &known).await?;
        // This reads a row of each movement, so it comes after the end of a search for too many.
        let further = self.wallets_of_movements(conn, &known).await?;
        movements.extend(self.movements(conn, &further).await?);
        let order = |movement: &Movement| Some((movement.account, movement.order?));
        let payout = |movement: &Movement| Some((movement.account, movement.payout?));
        let mut orders: Vec<(AccountId, OrderId)> = movements.iter().filter_map(order).collect();
        let mut payouts: Vec<(AccountId, PayoutId)> = movements.iter().filter_map(payout).collect();
        if has_unmoved {
            orders.extend(self.placed_orders(conn).await?);
            payouts.extend(self.requested_payouts(conn).await?);
        }
        let mut found: HashMap<AccountId, Vec<Position>> = HashMap::new();
        for Movement { account, position, .. } in movements {
            found.entry(account).or_default().push(position);
        }
        for (stream_type, streams) in [("order", numbers(orders)), ("payout", numbers(payouts))] {
            for (account, position) in self.events(conn, stream_type, streams).await? {
                found.entry(account).or_default().push(position);
            }
        }
        self.drop_long(&found.iter().map(|(account, positions)| (*account, positions.len())).collect());
        let positions = |(account, _): &Wanted| {
            let mut positions = found.remove(account).unwrap_or_default();
            positions.sort_unstable();
            (*account, positions)
        };
        Ok(self.wanted.iter().map(positions).collect())
    }

    /// Drops the accounts whose number, with those of the accounts before it, is too large.
    fn drop_long(&mut self, numbers: &HashMap<AccountId, usize>) {
        let mut left = self.most;
        self.wanted.retain(|(account, _)| {
            let rest = left.checked_sub(numbers.get(account).copied().unwrap_or_default());
            left = rest.unwrap_or(left);
            rest.is_some()
        });
    }

    /// Returns the wanted accounts with their ranges.
    fn ranges(&self) -> HashMap<AccountId, (Position, Position)> {
        self.wanted.iter().copied().collect()
    }

    /// Returns the maximum number of rows that a query reads for an account: one more than fits.
    fn limit(&self) -> i64 {
        i64::try_from(self.most).unwrap_or(i64::MAX).saturating_add(1)
    }

    /// Returns the accounts' wallets by their own rows and by the totals of days.
    async fn wallets(&self, conn: &mut PgConnection) -> Result<Vec<(AccountId, WalletId)>, sqlx::Error> {
        let accounts: Vec<AccountId> = self.wanted.iter().map(|(account, _)| *account).collect();
        sqlx::query_as(
            "SELECT account_id, id FROM wallets WHERE shard_id = $1 AND account_id = ANY ($2)
             UNION SELECT account_id, wallet_id FROM daily_totals WHERE shard_id = $1 AND account_id = ANY ($2)",
        )
        .bind(self.shard)
        .bind(accounts)
        .fetch_all(conn)
        .await
    }

    /// Returns the wallets that only rows of movements connect to the accounts.
    async fn wallets_of_movements(
        &self,
        conn: &mut PgConnection,
        known: &[(AccountId, WalletId)],
    ) -> Result<Vec<(AccountId, WalletId)>, sqlx::Error> {
        let (accounts, (after, upto)): (Vec<AccountId>, (Vec<Position>, Vec<Position>)) = self.wanted.iter().copied().unzip();
        let mut wallets: Vec<(AccountId, WalletId)> = sqlx::query_as(
            "SELECT DISTINCT its.account_id, moved.wallet_id
             FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS its (account_id, low, high)
             CROSS JOIN LATERAL (SELECT t.wallet_id FROM wallet_transactions t WHERE t.shard_id = $1 AND t.account_id = its.account_id
                AND t.position > its.low AND t.position <= its.high LIMIT $5) AS moved",
        )
        .bind(self.shard)
        .bind(accounts)
        .bind(after)
        .bind(upto)
        .bind(self.limit())
        .fetch_all(conn)
        .await?;
        let known: HashSet<&(AccountId, WalletId)> = known.iter().collect();
        wallets.retain(|wallet| !known.contains(wallet));
        Ok(wallets)
    }

    /// Returns the accounts' events of these wallets. Drops the accounts with too many to read.
    async fn movements(
        &mut self,
        conn: &mut PgConnection,
        wallets: &[(AccountId, WalletId)],
    ) -> Result<Vec<Movement>, sqlx::Error> {
        if wallets.is_empty() {
            return Ok(vec![]);
        }
        let mut stretches = self.stretches(conn, wallets).await?;
        // Do not read too many events only to count them.
        let mut numbers: HashMap<AccountId, usize> = HashMap::new();
        for Stretch { account, versions: (first, end), .. } in &stretches {
            *numbers.entry(*account).or_default() += usize::try_from(end - first).unwrap_or_default();
        }
        self.drop_long(&numbers);
        let ranges = self.ranges();
        stretches.retain(|stretch| ranges.contains_key(&stretch.account));
        let rows: Vec<(AccountId, Position, Option<String>, Option<String>)> = sqlx::query_as(
            "SELECT its.account_id, e.position, e.data->>'order_id', e.data->>'payout_id'
             FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS its (account_id, wallet_id, low, high)
             JOIN events e ON e.shard_id = $1 AND e.stream_type = 'wallet' AND e.stream_id = its.wallet_id
                AND e.version >= its.low AND e.version < its.high
             WHERE e.metadata->>'account_id' = its.account_id::text",
        )
        .bind(self.shard)
        .bind(stretches.iter().map(|stretch| stretch.account).collect::<Vec<_>>())
        .bind(stretches.iter().map(|stretch| stretch.wallet).collect::<Vec<_>>())
        .bind(stretches.iter().map(|stretch| stretch.versions.0).collect::<Vec<_>>())
        .bind(stretches.iter().map(|stretch| stretch.versions.1).collect::<Vec<_>>())
        .fetch_all(conn)
        .await?;
        let movement = |(account, position, order, payout)| Movement { account, position, order: id(order), payout: id(payout) };
        Ok(rows.into_iter().map(movement).collect())
    }

    /// Returns the versions of the wallets in the ranges of their accounts.
    async fn stretches(&self, conn: &mut PgConnection, wallets: &[(AccountId, WalletId)]) -> Result<Vec<Stretch>, sqlx::Error> {
        let ranges = self.ranges();
        let ends = |(account, wallet): &(AccountId, WalletId)| {
            let (after, upto) = ranges.get(account).copied().unwrap_or_default();
            [(*wallet, after), (*wallet, upto)]
        };
        let ends: Vec<(WalletId, Position)> = wallets.iter().flat_map(ends).collect();
        let versions = first_versions_after(conn, self.shard, ends).await?;
        let stretch = |(&(account, wallet), versions): (&(AccountId, WalletId), &[i64])| Stretch {
            account,
            wallet,
            versions: (versions[0], versions[1]),
        };
        Ok(wallets.iter().zip(versions.chunks_exact(2)).map(stretch).collect())
    }

    /// Returns the accounts' orders that were placed by the end of the range.
    async fn placed_orders(&self, conn: &mut PgConnection) -> Result<Vec<(AccountId, OrderId)>, sqlx::Error> {
        let (accounts, (_, upto)): (Vec<AccountId>, (Vec<Position>, Vec<Position>)) = self.wanted.iter().copied().unzip();
        sqlx::query_as(
            "SELECT its.account_id, placed.id FROM unnest($2::bigint[], $3::bigint[]) AS its (account_id, high)
             CROSS JOIN LATERAL (SELECT o.id FROM orders o WHERE o.shard_id = $1 AND o.account_id = its.account_id
                AND o.placed_position <= its.high AND o.status = ANY ($4) LIMIT $5) AS placed",
        )
        .bind(self.shard)
        .bind(accounts)
        .bind(upto)
        .bind(OrderStatus::ALL.map(OrderStatus::as_str))
        .bind(self.limit())
        .fetch_all(conn)
        .await
    }

    async fn requested_payouts(&self, conn: &mut PgConnection) -> Result<Vec<(AccountId, PayoutId)>, sqlx::Error> {
        let accounts: Vec<AccountId> = self.wanted.iter().map(|(account, _)| *account).collect();
        sqlx::query_as(
            "SELECT its.account_id, requested.id FROM unnest($2::bigint[]) AS its (account_id)
             CROSS JOIN LATERAL (SELECT p.id FROM payouts p WHERE p.shard_id = $1 AND p.account_id = its.account_id LIMIT $3)
                AS requested",
        )
        .bind(self.shard)
        .bind(accounts)
        .bind(self.limit())
        .fetch_all(conn)
        .await
    }

    /// Returns the positions of the accounts' events in these streams. Drops the accounts with too many streams to search.
    async fn events(
        &mut self,
        conn: &mut PgConnection,
        stream_type: &str,
        mut streams: Vec<(AccountId, i64)>,
    ) -> Result<Vec<(AccountId, Position)>, sqlx::Error> {
        let mut numbers: HashMap<AccountId, usize> = HashMap::new();
        for (account, _) in &streams {
            *numbers.entry(*account).or_default() += 1;
        }
        let most = self.most;
        self.wanted.retain(|(account, _)| numbers.get(account).is_none_or(|number| *number <= most));
        let ranges = self.ranges();
        streams.retain(|(account, _)| ranges.contains_key(account));
        let mut found = vec![];
        for streams in streams.chunks(MAX_STREAMS) {
            let (of, ids): (Vec<AccountId>, Vec<i64>) = streams.iter().copied().unzip();
            let (accounts, (after, upto)): (Vec<_>, (Vec<_>, Vec<_>)) = self.wanted.iter().copied().unzip();
            // `+ 0` keeps the planner from reading all events of the range by their position.
            let events: Vec<(AccountId, Position)> = sqlx::query_as(
                "SELECT its.account_id, own.position FROM unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS its (account_id, low, high)
                 CROSS JOIN LATERAL (SELECT e.position FROM unnest($6::bigint[], $7::bigint[]) AS stream (account_id, id)
                    JOIN events e ON e.shard_id = $1 AND e.stream_type = $2 AND e.stream_id = stream.id
                    WHERE stream.account_id = its.account_id AND e.position + 0 > its.low AND e.position + 0 <= its.high
                        AND e.metadata->>'account_id' = its.account_id::text LIMIT $8) AS own",
            )
            .bind(self.shard)
            .bind(stream_type)
            .bind(accounts)
            .bind(after)
            .bind(upto)
            .bind(of)
            .bind(ids)
            .bind(self.limit())
            .fetch_all(&mut *conn)
            .await?;
            found.extend(events);
        }
        Ok(found)
    }
}

/// Returns the streams by their numbers, in order and without duplicates.
fn numbers(streams: Vec<(AccountId, impl Id)>) -> Vec<(AccountId, i64)> {
    let mut numbers: Vec<(AccountId, i64)> = streams.into_iter().map(|(account, id)| (account, id.number())).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Reads an id from a field of a payload.
fn id<T: Id>(text: Option<String>) -> Option<T> {
    text.and_then(|text| text.parse().ok()).map(T::new)
}

/// Returns the version of each wallet's first event after a position, or the version after its last event if there is none.
/// Versions are in the order of positions, so a bisection reads few events, however long the wallet's history is.
async fn first_versions_after(
    conn: &mut PgConnection,
    shard: ShardId,
    wanted: Vec<(WalletId, Position)>,
) -> Result<Vec<i64>, sqlx::Error> {
    let (wallets, positions): (Vec<WalletId>, Vec<Position>) = wanted.into_iter().unzip();
    sqlx::query_scalar(
        "WITH RECURSIVE search (nr, wallet_id, position, low, high) AS (
            SELECT nr, wallet_id, position, 1::bigint, 1 + coalesce((SELECT max(e.version) FROM events e
                WHERE e.shard_id = $1 AND e.stream_type = 'wallet' AND e.stream_id = wanted.wallet_id), 0)
            FROM unnest($2::bigint[], $3::bigint[]) WITH ORDINALITY AS wanted (wallet_id, position, nr)
            UNION ALL
            SELECT nr, wallet_id, position, CASE WHEN is_before THEN found + 1 ELSE low END, CASE WHEN is_before THEN high ELSE middle END
            FROM (SELECT half.*, next.version AS found, coalesce(next.position <= half.position AND next.version < high, false) AS is_before
                  FROM (SELECT nr, wallet_id, position, low, high, low + (high - low) / 2 AS middle FROM search WHERE low < high) AS half
                  LEFT JOIN LATERAL (SELECT e.version, e.position FROM events e WHERE e.shard_id = $1 AND e.stream_type = 'wallet'
                    AND e.stream_id = half.wallet_id AND e.version >= half.middle ORDER BY e.version LIMIT 1) AS next ON true) AS step
         )
         SELECT low FROM search WHERE low >= high ORDER BY nr",
    )
    .bind(shard)
    .bind(wallets)
    .bind(positions)
    .fetch_all(conn)
    .await
}
