//! `low_balance_watches` and `low_balance_notices`: falls of a wallet's balance below the amount that its account has set,
//! catching up with the log.
//!
//! A wallet that falls below its amount makes one notice. It makes the next one only after it has been above again.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection, PgPool};
use ledger_events::account::AccountEvent;
use ledger_events::wallet::Movement;
use ledger_events::{AccountId, Event, Money, Position, Recorded, ShardId, WalletId};
use rust_decimal::Decimal;
use sqlx::PgExecutor;

use crate::{ProjectionError, money};

pub const NAME: &str = "low_balance";

/// The amount that a wallet is watched for, and whether its balance is below it.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    pub account_id: AccountId,
    pub currency: String,
    /// `None` if the account wants no notices any more.
    pub below: Option<Money>,
    pub is_below: bool,
}

/// A fall of a balance below its amount.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Position of the movement.
    pub position: Position,
    pub wallet_id: WalletId,
    pub account_id: AccountId,
    pub currency: String,
    pub below: Money,
    /// Balance after the movement.
    pub balance: Money,
    pub fell_at: DateTime<Utc>,
}

/// Folds one event into the watches. Returns the notice that it makes, if any.
pub fn fold(watches: &mut HashMap<WalletId, Watch>, recorded: &Recorded) -> Option<Notice> {
    match &recorded.event {
        Event::Account(AccountEvent::LowBalanceNoticeSet(set)) => {
            let watch = Watch {
                account_id: AccountId(recorded.stream_id),
                currency: set.currency.as_str().to_owned(),
                below: set.below,
                is_below: set.below.is_some_and(|below| set.balance < below),
            };
            watches.insert(set.wallet_id, watch);
            None
        }
        Event::Wallet(event) => {
            let movement = Movement::of(event)?;
            let watch = watches.get_mut(&WalletId(recorded.stream_id))?;
            let (below, was_below) = (watch.below?, watch.is_below);
            watch.is_below = movement.balance_after < below;
            (watch.is_below && !was_below).then(|| Notice {
                position: recorded.moment.position,
                wallet_id: WalletId(recorded.stream_id),
                account_id: watch.account_id,
                currency: watch.currency.clone(),
                below,
                balance: movement.balance_after,
                fell_at: recorded.moment.recorded_at,
            })
        }
        _ => None,
    }
}

/// Folds the next events of the log into the tables. A new notice is due, unless it is older than a day: nobody wants to hear
/// of the past of a log that was imported. A notice that the log announces is not announced again.
pub async fn apply(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ProjectionError> {
    let of_wallets = events.iter().filter(|recorded| matches!(recorded.event, Event::Wallet(_)));
    let ids: HashSet<WalletId> = of_wallets.map(|recorded| WalletId(recorded.stream_id)).collect();
    let mut watches = load(&mut *conn, shard, &ids.into_iter().collect::<Vec<_>>()).await?;
    let before = watches.clone();
    let notices: Vec<Notice> = events.iter().filter_map(|recorded| fold(&mut watches, recorded)).collect();
    let changed: Vec<_> = watches.iter().filter(|(id, watch)| before.get(id) != Some(watch)).collect();
    sqlx::query(
        "INSERT INTO low_balance_watches (shard_id, wallet_id, account_id, currency, below, is_below)
         SELECT $1, new.* FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::numeric[], $6::boolean[]) AS new
         ON CONFLICT (shard_id, wallet_id) DO UPDATE SET below = excluded.below, is_below = excluded.is_below",
    )
    .bind(shard)
    .bind(changed.iter().map(|(id, _)| **id).collect::<Vec<_>>())
    .bind(changed.iter().map(|(_, watch)| watch.account_id).collect::<Vec<_>>())
    .bind(changed.iter().map(|(_, watch)| &*watch.currency).collect::<Vec<_>>())
    .bind(changed.iter().map(|(_, watch)| watch.below.map(Money::decimal)).collect::<Vec<_>>())
    .bind(changed.iter().map(|(_, watch)| watch.is_below).collect::<Vec<_>>())
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "INSERT INTO low_balance_notices (shard_id, position, wallet_id, account_id, currency, below, balance, fell_at, due,
            is_unannounced)
         SELECT $1, new.*, CASE WHEN new.fell_at > clock_timestamp() - interval '1 day' THEN new.fell_at END,
            new.fell_at > clock_timestamp() - interval '1 day'
         FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::numeric[], $7::numeric[], $8::timestamptz[])
            AS new (position, wallet_id, account_id, currency, below, balance, fell_at)
         ON CONFLICT (shard_id, position) DO NOTHING",
    )
    .bind(shard)
    .bind(notices.iter().map(|notice| notice.position).collect::<Vec<_>>())
    .bind(notices.iter().map(|notice| notice.wallet_id).collect::<Vec<_>>())
    .bind(notices.iter().map(|notice| notice.account_id).collect::<Vec<_>>())
    .bind(notices.iter().map(|notice| &*notice.currency).collect::<Vec<_>>())
    .bind(notices.iter().map(|notice| notice.below.decimal()).collect::<Vec<_>>())
    .bind(notices.iter().map(|notice| notice.balance.decimal()).collect::<Vec<_>>())
    .bind(notices.iter().map(|notice| notice.fell_at).collect::<Vec<_>>())
    .execute(&mut *conn)
    .await?;
    let in_log = |recorded: &Recorded| match &recorded.event {
        Event::Account(AccountEvent::LowBalanceReached(reached)) => Some(reached.position),
        _ => None,
    };
    let in_log: Vec<Position> = events.iter().filter_map(in_log).collect();
    if !in_log.is_empty() {
        announced(conn, shard, &in_log).await?;
    }
    Ok(())
}

#[derive(FromRow)]
struct WatchRow {
    wallet_id: WalletId,
    account_id: AccountId,
    currency: String,
    below: Option<Decimal>,
    is_below: bool,
}

async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[WalletId]) -> Result<HashMap<WalletId, Watch>, sqlx::Error> {
    let rows: Vec<WatchRow> = sqlx::query_as(
        "SELECT wallet_id, account_id, currency, below, is_below FROM low_balance_watches WHERE shard_id = $1 AND wallet_id = ANY($2)",
    )
    .bind(shard)
    .bind(ids)
    .fetch_all(conn)
    .await?;
    let watch = |row: WatchRow| {
        let WatchRow { wallet_id, account_id, currency, below, is_below } = row;
        Ok((wallet_id, Watch { account_id, currency, below: below.map(money).transpose()?, is_below }))
    };
    rows.into_iter().map(watch).collect()
}

/// Returns the amount that one of an account's wallets is watched for, up to the projection's checkpoint.
pub async fn below(pool: &PgPool, shard: ShardId, account: AccountId, wallet: WalletId) -> Result<Option<Money>, sqlx::Error> {
    let found: Option<Option<Decimal>> =
        sqlx::query_scalar("SELECT below FROM low_balance_watches WHERE shard_id = $1 AND wallet_id = $2 AND account_id = $3")
            .bind(shard)
            .bind(wallet)
            .bind(account)
            .fetch_optional(pool)
            .await?;
    found.flatten().map(money).transpose()
}

/// Returns the wallets of an account that are watched, each with its amount, up to the projection's checkpoint.
pub async fn of_account(pool: &PgPool, shard: ShardId, account: AccountId) -> Result<Vec<(WalletId, Money)>, sqlx::Error> {
    let found: Vec<(WalletId, Decimal)> = sqlx::query_as(
        "SELECT w.wallet_id, w.below FROM wallets a JOIN low_balance_watches w ON w.shard_id = a.shard_id AND w.wallet_id = a.id
         WHERE a.shard_id = $1 AND a.account_id = $2 AND w.below IS NOT NULL ORDER BY w.wallet_id",
    )
    .bind(shard)
    .bind(account)
    .fetch_all(pool)
    .await?;
    found.into_iter().map(|(wallet, below)| Ok((wallet, money(below)?))).collect()
}

#[derive(FromRow)]
struct NoticeRow {
    position: Position,
    wallet_id: WalletId,
    account_id: AccountId,
    currency: String,
    below: Decimal,
    balance: Decimal,
    fell_at: DateTime<Utc>,
}

/// Takes due notices, oldest first. They are due no longer once the transaction commits. Other transactions skip them
/// meanwhile.
pub async fn take_due(conn: &mut PgConnection, shard: ShardId, most: i64) -> Result<Vec<Notice>, sqlx::Error> {
    let rows: Vec<NoticeRow> = sqlx::query_as(
        "WITH taken AS (SELECT shard_id, position FROM low_balance_notices WHERE shard_id = $1 AND due IS NOT NULL
            ORDER BY position LIMIT $2 FOR UPDATE SKIP LOCKED)
         UPDATE low_balance_notices n SET due = NULL FROM taken t WHERE n.shard_id = t.shard_id AND n.position = t.position
         RETURNING n.position, n.wallet_id, n.account_id, n.currency, n.below, n.balance, n.fell_at",
    )
    .bind(shard)
    .bind(most)
    .fetch_all(conn)
    .await?;
    let mut notices = rows.into_iter().map(Notice::try_from).collect::<Result<Vec<_>, sqlx::Error>>()?;
    notices.sort_unstable_by_key(|notice| notice.position);
    Ok(notices)
}

impl TryFrom<NoticeRow> for Notice {
    type Error = sqlx::Error;

    fn try_from(row: NoticeRow) -> Result<Notice, sqlx::Error> {
        let NoticeRow { position, wallet_id, account_id, currency, below, balance, fell_at } = row;
        Ok(Notice { position, wallet_id, account_id, currency, below: money(below)?, balance: money(balance)?, fell_at })
    }
}

/// Returns notices that the log does not announce yet, oldest first.
pub async fn unannounced(pool: &PgPool, shard: ShardId, most: i64) -> Result<Vec<Notice>, sqlx::Error> {
    let rows: Vec<NoticeRow> = sqlx::query_as(
        "SELECT position, wallet_id, account_id, currency, below, balance, fell_at FROM low_balance_notices
         WHERE shard_id = $1 AND is_unannounced ORDER BY position LIMIT $2",
    )
    .bind(shard)
    .bind(most)
    .fetch_all(pool)
    .await?;
    rows.into_iter().map(Notice::try_from).collect()
}

/// Records that the log announces the notices of these movements.
pub async fn announced(db: impl PgExecutor<'_>, shard: ShardId, movements: &[Position]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE low_balance_notices SET is_unannounced = false WHERE shard_id = $1 AND position = ANY($2) AND is_unannounced",
    )
    .bind(shard)
    .bind(movements)
    .execute(db)
    .await?;
    Ok(())
}
