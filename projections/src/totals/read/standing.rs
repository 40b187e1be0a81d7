//! State of wallets at the beginning and the end of a period, without the movements between.

use ledger_database::PgConnection;
use ledger_events::{AccountId, ShardId, WalletId};

use super::{Query, WalletTotals, push_account};
use crate::totals::bounds::Bounds;

/// Start of a query for the state of wallets, without the movements of the period. The opening balance is the one
/// that the rows of the days before contain. The caller appends ` w` with its columns: the row of a wallet, and
/// the account for finding its movements.
const STANDING: &str =
    "SELECT w.wallet_id, w.account_id AS row_account_id, w.currency AS row_currency, w.balance AS row_balance,
    w.created_at AS row_created_at, coalesce(base.closing_balance, 0) AS opening, coalesce(base.movements > 0, false) AS has_moved,
    last.position AS last_position, last.balance_after AS last_balance, last.account_id AS last_account_id,
    last.currency AS last_currency, last.created_at AS last_created_at FROM ";

/// Completes and runs a query that starts with [`STANDING`].
async fn standing(
    mut query: Query,
    conn: &mut PgConnection,
    shard: ShardId,
    bounds: &Bounds,
) -> Result<Vec<WalletTotals>, sqlx::Error> {
    query.push(" AS w LEFT JOIN LATERAL (SELECT d.closing_balance, d.movements FROM daily_totals d WHERE d.shard_id = ");
    query.push_bind(shard).push(" AND d.wallet_id = w.wallet_id AND d.day < ").push_bind(bounds.first_day);
    query.push(
        " ORDER BY d.day DESC LIMIT 1) AS base ON true
         LEFT JOIN LATERAL (SELECT t.position, t.balance_after, t.account_id, t.currency, t.created_at
            FROM wallet_transactions t WHERE t.shard_id = ",
    );
    query.push_bind(shard).push(" AND t.account_id = w.found_by AND t.wallet_id = w.wallet_id AND t.position <= ");
    query.push_bind(bounds.upto).push(" ORDER BY t.position DESC LIMIT 1) AS last ON true ORDER BY 1");
    query.build_query_as().fetch_all(conn).await
}

pub async fn opened_before(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    bounds: &Bounds,
) -> Result<Vec<WalletTotals>, sqlx::Error> {
    let mut query = Query::new(STANDING);
    query.push("(SELECT id AS wallet_id, account_id, currency, balance, created_at, account_id AS found_by FROM wallets WHERE shard_id = ");
    query.push_bind(shard);
    push_account(&mut query, account);
    if let Some(end) = bounds.end {
        query.push(" AND created_at < ").push_bind(end);
    }
    query.push(")");
    standing(query, conn, shard, bounds).await
}

/// Loads the wallets with these ids, with or without a row. `accounts` are the accounts for finding their
/// movements. Where one is `None`, that of the wallet's days applies, or else that of its row.
pub async fn of_ids(
    conn: &mut PgConnection,
    shard: ShardId,
    bounds: &Bounds,
    ids: &[WalletId],
    accounts: &[Option<AccountId>],
) -> Result<Vec<WalletTotals>, sqlx::Error> {
    let mut query = Query::new(STANDING);
    query.push(
        "(SELECT named.id AS wallet_id, w.account_id, w.currency, w.balance, w.created_at,
            coalesce(named.account_id, d.account_id, w.account_id) AS found_by FROM unnest(",
    );
    query.push_bind(ids).push("::bigint[], ").push_bind(accounts);
    query.push("::bigint[]) AS named (id, account_id) LEFT JOIN wallets w ON w.id = named.id AND w.shard_id = ").push_bind(shard);
    query.push(" LEFT JOIN LATERAL (SELECT d.account_id FROM daily_totals d WHERE d.shard_id = ").push_bind(shard);
    query.push(" AND d.wallet_id = named.id ORDER BY d.day DESC LIMIT 1) AS d ON true)");
    standing(query, conn, shard, bounds).await
}

/// Lists the wallets that exist at the end of the period by their days, but not by their rows. These wallets have
/// no row, or their row says that they were opened later. For one account, lists every wallet that its days name.
///
/// Ids are assigned in sequence, so next to nothing lies between those with a row. The query looks into each gap,
/// and from each find to the next. That takes a few primary key lookups, however many day rows exist.
pub async fn with_days(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    bounds: &Bounds,
) -> Result<Vec<WalletId>, sqlx::Error> {
    if let Some(account) = account {
        return sqlx::query_scalar(
            "SELECT DISTINCT wallet_id FROM daily_totals WHERE shard_id = $1 AND account_id = $2 AND first_position <= $3",
        )
        .bind(shard)
        .bind(account)
        .bind(bounds.upto)
        .fetch_all(conn)
        .await;
    }
    sqlx::query_scalar(
        "WITH RECURSIVE known (id, next) AS (
            SELECT id, lead(id, 1, 9223372036854775807) OVER (ORDER BY id)
            FROM (SELECT 0::bigint AS id UNION ALL SELECT id FROM wallets WHERE shard_id = $1) AS ids
         ), found (wallet_id, first_position, next) AS (
            SELECT id, NULL::bigint, next FROM known WHERE next > id + 1
            UNION ALL
            SELECT d.wallet_id, d.first_position, found.next FROM found CROSS JOIN LATERAL (
                SELECT wallet_id, first_position FROM daily_totals
                WHERE shard_id = $1 AND wallet_id > found.wallet_id AND wallet_id < found.next ORDER BY wallet_id, day LIMIT 1) AS d
         )
         SELECT wallet_id FROM found WHERE first_position <= $2
         UNION ALL
         SELECT w.id FROM wallets w CROSS JOIN LATERAL (
            SELECT first_position FROM daily_totals WHERE shard_id = $1 AND wallet_id = w.id ORDER BY day LIMIT 1) AS d
         WHERE w.shard_id = $1 AND w.created_at >= $3 AND d.first_position <= $2",
    )
    .bind(shard)
    .bind(bounds.upto)
    .bind(bounds.end)
    .fetch_all(conn)
    .await
}
