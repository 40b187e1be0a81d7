//! The first days on which the rows of wallets do not add up.

use std::collections::HashMap;

use chrono::NaiveDate;
use ledger_database::PgConnection;
use ledger_events::{ShardId, WalletId};

/// Days of a row and of the one before it, if there is one.
pub type WrongDay = (Option<NaiveDate>, NaiveDate);

/// Finds the first row of each wallet, from one day on and before another, that does not follow from the row before it, or whose
/// last movement left another balance. Returns its day with the day of the row before it. The last row before the first day is
/// compared with its movement, too, because the balances continue from it.
pub async fn first_wrong_days(
    conn: &mut PgConnection,
    shard: ShardId,
    wallets: &[WalletId],
    (from, end): (NaiveDate, NaiveDate),
) -> Result<HashMap<WalletId, WrongDay>, sqlx::Error> {
    let rows: Vec<(WalletId, Option<NaiveDate>, NaiveDate)> = sqlx::query_as(
        "SELECT its.wallet_id, wrong.previous, wrong.day FROM unnest($2::bigint[]) AS its (wallet_id) CROSS JOIN LATERAL (
         SELECT previous, day FROM (
            SELECT day, account_id, movements, closing_balance, last_position, lag(day) OVER earlier AS previous,
                coalesce(lag(closing_balance) OVER earlier, 0) + funding - order_debits - payout_debits + order_refunds
                    + payout_refunds + adjustment_credits - adjustment_debits AS expected
            FROM daily_totals
            WHERE shard_id = $1 AND wallet_id = its.wallet_id AND day < $4 AND day >= coalesce(
                (SELECT max(day) FROM daily_totals WHERE shard_id = $1 AND wallet_id = its.wallet_id AND day < $3), $3)
            WINDOW earlier AS (ORDER BY day)) AS d
         WHERE (day >= $3 AND closing_balance <> expected)
            OR (movements > 0 AND NOT EXISTS (SELECT FROM wallet_transactions t WHERE t.shard_id = $1 AND t.wallet_id = its.wallet_id
                AND t.account_id = d.account_id AND t.position = d.last_position AND t.balance_after = d.closing_balance))
         ORDER BY day LIMIT 1) AS wrong",
    )
    .bind(shard)
    .bind(wallets)
    .bind(from)
    .bind(end)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|(wallet, previous, day)| (wallet, (previous, day))).collect())
}
