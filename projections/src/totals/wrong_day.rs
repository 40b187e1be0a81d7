//! The first day on which the rows of a wallet do not add up.

use chrono::NaiveDate;
use ledger_database::PgConnection;
use ledger_events::{ShardId, WalletId};

/// Finds the first row of a wallet, from one day on and before another, that does not follow from the row before it, or whose
/// last movement left another balance. Returns its day with the day of the row before it. The last row before the first day is
/// compared with its movement, too, because the balances continue from it.
pub async fn first_wrong_day(
    conn: &mut PgConnection,
    shard: ShardId,
    wallet: WalletId,
    (from, end): (NaiveDate, NaiveDate),
) -> Result<Option<(Option<NaiveDate>, NaiveDate)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT previous, day FROM (
            SELECT day, account_id, movements, closing_balance, last_position, lag(day) OVER earlier AS previous,
                coalesce(lag(closing_balance) OVER earlier, 0) + funding - order_debits - payout_debits + order_refunds
                    + payout_refunds + adjustment_credits - adjustment_debits AS expected
            FROM daily_totals
            WHERE shard_id = $1 AND wallet_id = $2 AND day < $4 AND day >= coalesce(
                (SELECT max(day) FROM daily_totals WHERE shard_id = $1 AND wallet_id = $2 AND day < $3), $3)
            WINDOW earlier AS (ORDER BY day)) AS d
         WHERE (day >= $3 AND closing_balance <> expected)
            OR (movements > 0 AND NOT EXISTS (SELECT FROM wallet_transactions t WHERE t.shard_id = $1 AND t.wallet_id = $2
                AND t.account_id = d.account_id AND t.position = d.last_position AND t.balance_after = d.closing_balance))
         ORDER BY day LIMIT 1",
    )
    .bind(shard)
    .bind(wallet)
    .bind(from)
    .bind(end)
    .fetch_optional(conn)
    .await
}
