//! Spend of an account by day: the rows of `daily_totals`, and the movements after their checkpoint.

use chrono::NaiveDate;
use ledger_database::{FromRow, PgConnection};
use ledger_events::{AccountId, ShardId};
use rust_decimal::Decimal;

use super::NAME;

/// Amounts that an account's orders moved on a day (UTC) in one currency.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct DaySpend {
    pub day: NaiveDate,
    pub currency: String,
    /// Amount debited for orders.
    pub spent: Decimal,
    /// Amount returned for cancelled orders.
    pub refunded: Decimal,
}

/// Returns the spend of each day from a day on, in the order of days and currencies. Leaves out days without any.
pub async fn spend(
    conn: &mut PgConnection,
    shard: ShardId,
    account: AccountId,
    from: NaiveDate,
) -> Result<Vec<DaySpend>, sqlx::Error> {
    sqlx::query_as(
        "SELECT day, currency, sum(spent) AS spent, sum(refunded) AS refunded
         FROM (SELECT day, currency, order_debits AS spent, order_refunds AS refunded FROM daily_totals
               WHERE shard_id = $1 AND account_id = $2 AND day >= $3
               UNION ALL
               SELECT (created_at AT TIME ZONE 'UTC')::date, currency, CASE category WHEN 'ORDER' THEN amount ELSE 0 END,
                    CASE category WHEN 'ORDER_REFUND' THEN amount ELSE 0 END
               FROM wallet_transactions
               WHERE shard_id = $1 AND account_id = $2 AND (created_at AT TIME ZONE 'UTC')::date >= $3
                    AND position > coalesce((SELECT position FROM projection_checkpoints WHERE shard_id = $1 AND projection = $4), 0)) AS moved
         GROUP BY day, currency HAVING sum(spent) <> 0 OR sum(refunded) <> 0 ORDER BY day, currency",
    )
    .bind(shard)
    .bind(account)
    .bind(from)
    .bind(NAME)
    .fetch_all(conn)
    .await
}
