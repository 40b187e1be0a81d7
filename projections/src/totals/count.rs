//! Number of movements of an account in a period, from the rows of its days.

use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};
use ledger_database::PgConnection;
use ledger_events::{AccountId, Position, ShardId, WalletId};
use sqlx::{Postgres, QueryBuilder};

use super::checkpoint;
use crate::page;

/// Movements of an account, or of one of its wallets, at or after `from` and before `to`.
#[derive(Clone, Copy, Debug)]
pub struct AccountPeriod {
    pub account: AccountId,
    pub wallet: Option<WalletId>,
    pub from: Option<DateTime<Utc>>,
    pub to: Option<DateTime<Utc>>,
}

impl AccountPeriod {
    /// Returns the days whose movements are all in the period: from the first on, and before the second.
    fn whole(&self) -> (Option<NaiveDate>, Option<NaiveDate>) {
        let first = self.from.map(|from| match from.time() {
            NaiveTime::MIN => from.date_naive(),
            _ => from.date_naive().checked_add_days(Days::new(1)).unwrap_or(NaiveDate::MAX),
        });
        (first, self.to.map(|to| to.date_naive()))
    }

    /// Returns the days of which the period contains only a part.
    fn partial(&self) -> Vec<NaiveDate> {
        let inside = |time: &DateTime<Utc>| time.time() != NaiveTime::MIN;
        let mut days: Vec<_> = [self.from, self.to].into_iter().flatten().filter(inside).map(|time| time.date_naive()).collect();
        days.dedup();
        days
    }

    /// Appends the conditions on the account and the wallet.
    fn push_owner(&self, query: &mut QueryBuilder<Postgres>, shard: ShardId) {
        query.push(" WHERE shard_id = ").push_bind(shard);
        page::equals(query, "account_id", Some(self.account));
        page::equals(query, "wallet_id", self.wallet);
    }

    /// Appends the count of the movements in the period that meet another condition, too.
    fn push_movements(&self, query: &mut QueryBuilder<Postgres>, shard: ShardId, also: impl FnOnce(&mut QueryBuilder<Postgres>)) {
        query.push(" + (SELECT count(*) FROM wallet_transactions");
        self.push_owner(query, shard);
        page::between(query, "created_at", self.from, self.to);
        also(query);
        query.push(")");
    }

    /// Appends one position of the rows of a day.
    fn push_position(&self, query: &mut QueryBuilder<Postgres>, shard: ShardId, position: &'static str, day: NaiveDate) {
        query.push("(SELECT ").push(position).push(" FROM daily_totals");
        self.push_owner(query, shard);
        page::equals(query, "day", Some(day));
        query.push(")");
    }
}

/// Counts the movements of a period, exactly as of the connection's snapshot. Reads the rows of the whole days, and
/// single movements only of the days at its ends and after the checkpoint of the days.
pub async fn count(conn: &mut PgConnection, shard: ShardId, mut period: AccountPeriod) -> Result<i64, sqlx::Error> {
    if let Some(to) = period.to {
        let newest: Option<DateTime<Utc>> = sqlx::query_scalar(
            "SELECT created_at FROM wallet_transactions WHERE shard_id = $1 AND account_id = $2 ORDER BY position DESC LIMIT 1",
        )
        .bind(shard)
        .bind(period.account)
        .fetch_optional(&mut *conn)
        .await?;
        // Without an end, a period that ends after the last movement has the same movements, and its last day is whole.
        if newest.is_none_or(|newest| to > newest) {
            period.to = None;
        }
    }
    let mut query = QueryBuilder::new("SELECT coalesce((SELECT sum(movements) FROM daily_totals");
    period.push_owner(&mut query, shard);
    let (first, end) = period.whole();
    if let Some(first) = first {
        query.push(" AND day >= ").push_bind(first);
    }
    if let Some(end) = end {
        query.push(" AND day < ").push_bind(end);
    }
    query.push("), 0)::bigint");
    let checkpoint = checkpoint(&mut *conn, shard).await?;
    period.push_movements(&mut query, shard, |query| {
        query.push(" AND position > ").push_bind(checkpoint);
    });
    for day in period.partial() {
        period.push_movements(&mut query, shard, |query| {
            query.push(" AND position BETWEEN ");
            period.push_position(query, shard, "min(first_position)", day);
            query.push(" AND ");
            period.push_position(query, shard, "max(last_position)", day);
        });
    }
    query.build_query_scalar().fetch_one(conn).await
}

/// Finds the first day before which at least `movements` movements of a period are on whole days, with the position of its first
/// movement. `None` if all days together have fewer.
pub async fn day_after(
    conn: &mut PgConnection,
    shard: ShardId,
    period: AccountPeriod,
    movements: i64,
) -> Result<Option<(NaiveDate, Position)>, sqlx::Error> {
    let mut query = QueryBuilder::new(
        "SELECT day, position FROM (SELECT day, min(first_position) AS position,
            sum(sum(movements)) OVER (ORDER BY day) - sum(movements) AS earlier FROM daily_totals",
    );
    period.push_owner(&mut query, shard);
    if let (Some(first), _) = period.whole() {
        query.push(" AND day >= ").push_bind(first);
    }
    query.push(" GROUP BY day) AS days WHERE earlier >= ").push_bind(movements).push(" ORDER BY day LIMIT 1");
    query.build_query_as().fetch_optional(conn).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Every moment of a period is on a day that is whole or partial, and no moment of a whole day is outside.
    #[test]
    fn whole_and_partial_days_cover_a_period() {
        let at = |hour: i64| DateTime::UNIX_EPOCH + chrono::TimeDelta::hours(hour);
        for (from, to) in (0..72).step_by(6).flat_map(|from| (from..78).step_by(6).map(move |to| (from, to))) {
            for (from, to) in [(Some(at(from)), Some(at(to))), (Some(at(from)), None), (None, Some(at(to)))] {
                let period = AccountPeriod { account: AccountId(1), wallet: None, from, to };
                let (first, end) = period.whole();
                for moment in (0..96).map(at) {
                    let day = moment.date_naive();
                    let is_whole = first.is_none_or(|first| day >= first) && end.is_none_or(|end| day < end);
                    let is_inside = from.is_none_or(|from| moment >= from) && to.is_none_or(|to| moment < to);
                    assert!(!is_whole || is_inside, "{moment}: {period:?}");
                    assert!(!is_inside || is_whole != period.partial().contains(&day), "{moment}: {period:?}");
                }
            }
        }
    }
}
