//! Statement of a wallet: its stream in a period, read by version.
//!
//! The versions of a stream are dense and their times never decrease, so a bisection over the log's keys finds the
//! period's beginning and end. The events there contain the balances. Only displayed movements are summed, and no extra
//! index is needed.

use chrono::{DateTime, Utc};
use ledger_database::{PgPool, replanned};
use ledger_events::wallet::{Movement, Wallet};
use ledger_events::{Event, Money, Position, ShardId, WalletId};
use ledger_projections::totals::{self, Sums};
use ledger_projections::wallets::Transaction;

use super::history;
use super::reader::{self, ReadError};

/// Number of movements in a page of a statement.
const PAGE: i64 = 1_000;

/// A period of a wallet's history: the versions after `after`, up to `last`.
#[derive(Clone, Debug)]
pub struct WalletStatement {
    pub shard: ShardId,
    pub wallet: Wallet,
    /// Balance at the beginning of the period.
    pub opening: Money,
    after: i64,
    last: i64,
}

impl WalletStatement {
    /// Loads the statement of the movements at or after `from` and before `to`. Without them, it begins with the wallet's
    /// first movement and ends now. Later movements are never included, however long reading takes. `upto` also excludes
    /// events after that position, which yields the statement as of then.
    pub async fn of(
        pool: &PgPool,
        shard: ShardId,
        wallet: Wallet,
        from: Option<DateTime<Utc>>,
        to: Option<DateTime<Utc>>,
        upto: Option<Position>,
    ) -> Result<WalletStatement, ReadError> {
        let (mut after, mut last) = versions_before(pool, shard, wallet.id, from, to).await?;
        if let Some(upto) = upto {
            let newest = history::version_at(pool, shard, "wallet", wallet.id.0, upto).await?;
            (after, last) = (after.min(newest), last.min(newest));
        }
        let (_, opening) = left_by(pool, shard, wallet.id, after).await?;
        Ok(WalletStatement { shard, wallet, opening, after, last: last.max(after) })
    }

    /// Returns the sums of the period and its closing balance without reading all movements. Uses the daily totals, and
    /// the movements of days that are only partly in the period.
    pub async fn totals(&self, pool: &PgPool) -> Result<(Sums, Money), ReadError> {
        let (after, _) = left_by(pool, self.shard, self.wallet.id, self.after).await?;
        let (upto, closing) = left_by(pool, self.shard, self.wallet.id, self.last).await?;
        let of = (self.wallet.account_id, self.wallet.id);
        let add_up = async || totals::of_wallet(&mut *pool.acquire().await?, self.shard, of, (after, upto)).await;
        Ok((replanned(add_up).await?, closing))
    }

    /// Returns the next page of movements, oldest first; empty at the end.
    pub async fn next_page(&mut self, pool: &PgPool) -> Result<Vec<Transaction>, ReadError> {
        let page = reader::stream_after(pool, self.shard, "wallet", self.wallet.id.0, self.after, self.last, PAGE).await?;
        let mut movements = Vec::with_capacity(page.len());
        for stored in &page {
            let recorded = stored.decode()?;
            self.after = recorded.moment.version;
            if let Event::Wallet(event) = &recorded.event {
                movements.extend(Transaction::of(&self.wallet, event, &recorded.moment));
            }
        }
        Ok(movements)
    }
}

/// Returns the position of a version of a wallet's stream, and the balance after it. Both are 0 if there is none.
async fn left_by(pool: &PgPool, shard: ShardId, wallet: WalletId, version: i64) -> Result<(Position, Money), ReadError> {
    let found = reader::stream_after(pool, shard, "wallet", wallet.0, version - 1, version, 1).await?;
    let Some(stored) = found.first() else { return Ok((0, Money::ZERO)) };
    let balance = match stored.decode()?.event {
        Event::Wallet(event) => Movement::of(&event).map_or(Money::ZERO, |movement| movement.balance_after),
        _ => Money::ZERO,
    };
    Ok((stored.position, balance))
}

/// Returns the wallet's last versions before two times. Without the first time the first is 0; without the second time
/// the second is the newest version.
async fn versions_before(
    pool: &PgPool,
    shard: ShardId,
    wallet: WalletId,
    from: Option<DateTime<Utc>>,
    to: Option<DateTime<Utc>>,
) -> Result<(i64, i64), sqlx::Error> {
    sqlx::query_as(
        "WITH RECURSIVE newest AS (
            SELECT coalesce(max(version), 0) AS version FROM events WHERE shard_id = $1 AND stream_type = 'wallet' AND stream_id = $2
         ), search (bound, time, low, high) AS (
            SELECT bound, time, 0::bigint, newest.version FROM newest, (VALUES ('from', $3::timestamptz), ('to', $4)) AS bounds (bound, time)
            WHERE time IS NOT NULL
            UNION ALL
            SELECT bound, time, CASE WHEN is_before THEN middle ELSE low END, CASE WHEN is_before THEN high ELSE middle - 1 END
            FROM (SELECT bound, time, low, high, (low + high + 1) / 2 AS middle,
                    (SELECT recorded_at < time FROM events
                     WHERE shard_id = $1 AND stream_type = 'wallet' AND stream_id = $2 AND version = (low + high + 1) / 2) AS is_before
                  FROM search WHERE low < high) AS step
         )
         SELECT coalesce((SELECT low FROM search WHERE bound = 'from' AND low = high), 0),
            coalesce((SELECT low FROM search WHERE bound = 'to' AND low = high), newest.version) FROM newest",
    )
    .bind(shard)
    .bind(wallet)
    .bind(from)
    .bind(to)
    .fetch_one(pool)
    .await
}
