//! Reads the events that move money, of all accounts or of one, and those that move vouchers.

use std::collections::HashSet;

use ledger_events::{AccountId, OrderId, PayoutId, Position, Recorded, ShardId, TransactionId, WalletId};
use sqlx::{PgExecutor, Postgres, QueryBuilder};

use super::{ReadError, Stored, select_events};

/// Returns the events of wallets between two positions, in order.
pub async fn wallet_events(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    after: Position,
    upto: Position,
) -> Result<Vec<Recorded>, ReadError> {
    const WALLETS: &str =
        select_events!("WHERE shard_id = $1 AND position > $2 AND position <= $3 AND stream_type = 'wallet' ORDER BY position");
    between(db, shard, (after, upto), WALLETS).await
}

/// Returns the events of wallets, and those of accounts about notices of low balances, between two positions, in order.
pub async fn balance_events(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    after: Position,
    upto: Position,
) -> Result<Vec<Recorded>, ReadError> {
    const BALANCES: &str = select_events!(
        "WHERE shard_id = $1 AND position > $2 AND position <= $3
         AND (stream_type = 'wallet' OR stream_type = 'account' AND type IN ('LowBalanceNoticeSet', 'LowBalanceReached'))
         ORDER BY position"
    );
    between(db, shard, (after, upto), BALANCES).await
}

/// Returns the events that the tables of the voucher stock follow, between two positions, in order.
pub async fn stock_events(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    after: Position,
    upto: Position,
) -> Result<Vec<Recorded>, ReadError> {
    const STOCK: &str = select_events!(
        "WHERE shard_id = $1 AND position > $2 AND position <= $3 AND (stream_type = 'order' AND type IN ('OrderDelivered',
            'OrderPartiallyDelivered') OR stream_type = 'product' AND type IN ('VoucherStockLoaded', 'VouchersVoided', 'VouchersExpired',
            'VouchersTransferredOut', 'VouchersTransferredIn', 'VouchersMovedIn'))
         ORDER BY position"
    );
    between(db, shard, (after, upto), STOCK).await
}

/// Returns the events after a position that bring vouchers to the shard, in order.
pub async fn arrivals_after(db: impl PgExecutor<'_>, shard: ShardId, after: Position) -> Result<Vec<Recorded>, ReadError> {
    const ARRIVALS: &str = select_events!(
        "WHERE shard_id = $1 AND position > $2 AND position <= $3 AND type IN ('VoucherStockLoaded', 'VouchersMovedIn')
         ORDER BY position"
    );
    between(db, shard, (after, Position::MAX), ARRIVALS).await
}

/// Returns the events after a position that move vouchers between shards, in order, as stored.
pub async fn moves_after(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    after: Position,
    limit: i64,
) -> Result<Vec<Stored>, sqlx::Error> {
    sqlx::query_as(select_events!(
        "WHERE shard_id = $1 AND position > $2 AND type IN ('VouchersMovedOut', 'VouchersMovedIn') ORDER BY position LIMIT $3"
    ))
    .bind(shard)
    .bind(after)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Runs a statement for the events between two positions.
async fn between(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    (after, upto): (Position, Position),
    statement: &'static str,
) -> Result<Vec<Recorded>, ReadError> {
    let found: Vec<Stored> = sqlx::query_as(statement).bind(shard).bind(after).bind(upto).fetch_all(db).await?;
    found.iter().map(Stored::decode).collect()
}

/// Returns the wallets with events between two positions.
pub async fn wallets_between(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    (after, upto): (Position, Position),
) -> Result<HashSet<WalletId>, sqlx::Error> {
    let ids: Vec<WalletId> = sqlx::query_scalar(
        "SELECT DISTINCT stream_id FROM events WHERE shard_id = $1 AND position > $2 AND position <= $3 AND stream_type = 'wallet'",
    )
    .bind(shard)
    .bind(after)
    .bind(upto)
    .fetch_all(db)
    .await?;
    Ok(ids.into_iter().collect())
}

/// Returns the events of orders, payouts and wallets between two positions, of one account or of all, in order. With an
/// account it still reads the whole range, so the caller keeps the range short.
pub async fn money_events(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    account: Option<AccountId>,
    after: Position,
    upto: Position,
    limit: i64,
) -> Result<Vec<Stored>, sqlx::Error> {
    let mut query: QueryBuilder<Postgres> = QueryBuilder::new(select_events!("WHERE shard_id = "));
    query.push_bind(shard).push(" AND position > ").push_bind(after).push(" AND position <= ").push_bind(upto);
    query.push(" AND stream_type IN ('order', 'payout', 'wallet')");
    if let Some(account) = account {
        query.push(" AND metadata->>'account_id' = ").push_bind(account.to_string());
    }
    query.push(" ORDER BY position LIMIT ").push_bind(limit);
    query.build_query_as().fetch_all(db).await
}

/// Returns the first event of each of these wallets' streams, and the last event before a version.
pub async fn wallets_before(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    wallets: &[(WalletId, i64)],
) -> Result<Vec<Stored>, sqlx::Error> {
    let (ids, versions): (Vec<WalletId>, Vec<i64>) = wallets.iter().copied().unzip();
    sqlx::query_as(concat!(
        "SELECT e.* FROM unnest($2::bigint[], $3::bigint[]) AS w (id, version) CROSS JOIN LATERAL ((",
        select_events!(
            "WHERE shard_id = $1 AND stream_type = 'wallet' AND stream_id = w.id AND version < w.version AND version = 1"
        ),
        ") UNION ALL (",
        select_events!(
            "WHERE shard_id = $1 AND stream_type = 'wallet' AND stream_id = w.id AND version < w.version AND version > 1
             ORDER BY version DESC LIMIT 1"
        ),
        ")) AS e ORDER BY e.stream_id, e.version"
    ))
    .bind(shard)
    .bind(ids)
    .bind(versions)
    .fetch_all(db)
    .await
}

/// Returns the events of these orders and payouts that move money, in no order. The movement of each one follows it.
pub async fn requiring_movements(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    orders: Vec<OrderId>,
    payouts: Vec<PayoutId>,
) -> Result<Vec<Stored>, sqlx::Error> {
    sqlx::query_as(concat!(
        select_events!(
            "WHERE shard_id = $1 AND stream_type = 'order' AND stream_id = ANY ($2) AND type IN ('OrderPlaced', 'OrderCancelled')"
        ),
        " UNION ALL ",
        select_events!(
            "WHERE shard_id = $1 AND stream_type = 'payout' AND stream_id = ANY ($3)
             AND type IN ('PayoutRequested', 'PayoutFailed', 'PayoutCancelled')"
        )
    ))
    .bind(shard)
    .bind(orders)
    .bind(payouts)
    .fetch_all(db)
    .await
}

/// Returns the events of these wallet movements, in the log's order.
pub async fn movements(db: impl PgExecutor<'_>, shard: ShardId, ids: &[TransactionId]) -> Result<Vec<Stored>, sqlx::Error> {
    sqlx::query_as(select_events!(
        "WHERE shard_id = $1 AND position = ANY(ARRAY(SELECT position FROM wallet_transactions WHERE shard_id = $1 AND id = ANY($2)))
         ORDER BY position"
    ))
    .bind(shard)
    .bind(ids)
    .fetch_all(db)
    .await
}
