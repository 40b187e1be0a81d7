//! `daily_totals`: the sums of movements of each wallet on each day (UTC), catching up with the log.
//!
//! A row depends only on the earlier rows of its wallet. The table therefore derives from the log alone, and stays
//! exact when other tables are damaged.

mod bounds;
mod count;
mod read;
mod spend;
mod wrong_day;

use std::collections::{BTreeMap, HashMap};

use chrono::NaiveDate;
use ledger_database::FromRow;
use ledger_database::PgConnection;
use ledger_events::wallet::{Direction, Movement, WalletEvent};
use ledger_events::{AccountId, Currency, Event, Position, Recorded, ShardId, WalletId};
use rust_decimal::Decimal;
use sqlx::PgExecutor;

use crate::{ProjectionError, known};
pub use bounds::{Bounds, Piece};
pub use count::{AccountPeriod, count, day_after};
pub use read::{LastMovement, Totals, WalletRow, WalletTotals, between, of_period, of_wallet};
pub use spend::{DaySpend, spend};
pub use wrong_day::{WrongDay, first_wrong_days};

pub const NAME: &str = "daily_totals";
pub const TABLES: &[&str] = &["daily_totals"];

/// Sums of moved amounts by purpose, all positive. Sums can exceed the range of [`ledger_events::Money`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromRow)]
pub struct Sums {
    pub funding: Decimal,
    pub order_debits: Decimal,
    pub payout_debits: Decimal,
    pub order_refunds: Decimal,
    pub payout_refunds: Decimal,
    pub adjustment_credits: Decimal,
    pub adjustment_debits: Decimal,
    /// Number of movements in the sums.
    pub movements: i64,
}

impl Sums {
    pub fn add(&mut self, movement: &Movement<'_>) {
        let sum = match (movement.category, movement.direction) {
            ("FUNDING", _) => &mut self.funding,
            ("ORDER", _) => &mut self.order_debits,
            ("PAYOUT", _) => &mut self.payout_debits,
            ("ORDER_REFUND", _) => &mut self.order_refunds,
            ("PAYOUT_REFUND", _) => &mut self.payout_refunds,
            (_, Direction::Credit) => &mut self.adjustment_credits,
            (_, Direction::Debit) => &mut self.adjustment_debits,
        };
        *sum += movement.amount.decimal();
        self.movements += 1;
    }

    pub fn merge(&mut self, more: &Sums) {
        self.merge_times(more, 1);
    }

    /// Adds sums a number of times; a negative number subtracts them.
    pub fn merge_times(&mut self, more: &Sums, times: i8) {
        let factor = Decimal::from(times);
        self.funding += factor * more.funding;
        self.order_debits += factor * more.order_debits;
        self.payout_debits += factor * more.payout_debits;
        self.order_refunds += factor * more.order_refunds;
        self.payout_refunds += factor * more.payout_refunds;
        self.adjustment_credits += factor * more.adjustment_credits;
        self.adjustment_debits += factor * more.adjustment_debits;
        self.movements += i64::from(times) * more.movements;
    }

    pub fn debits(&self) -> Decimal {
        self.order_debits + self.payout_debits
    }

    pub fn refunds(&self) -> Decimal {
        self.order_refunds + self.payout_refunds
    }

    pub fn adjustments(&self) -> Decimal {
        self.adjustment_credits - self.adjustment_debits
    }

    /// Returns the change of the balance.
    pub fn net(&self) -> Decimal {
        self.funding - self.debits() + self.refunds() + self.adjustments()
    }
}

/// A row of `daily_totals`, or the increments that new events add to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Day {
    pub wallet_id: WalletId,
    pub day: NaiveDate,
    pub account_id: AccountId,
    pub currency: Currency,
    pub sums: Sums,
    pub closing_balance: Decimal,
    pub first_position: Position,
    pub last_position: Position,
}

/// Account, currency and balance of a wallet after its last row of `daily_totals`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    pub account_id: AccountId,
    pub currency: Currency,
    pub balance: Decimal,
}

/// The fold: the current state of wallets, and the increments of their days.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    pub standing: HashMap<WalletId, Standing>,
    pub days: BTreeMap<(WalletId, NaiveDate), Day>,
}

impl Folded {
    /// Folds one event. Events before `WalletOpened` have no effect, as for the wallet itself.
    pub fn step(&mut self, recorded: &Recorded) {
        let Event::Wallet(event) = &recorded.event else { return };
        let wallet_id = WalletId(recorded.stream_id);
        if let WalletEvent::WalletOpened(e) = event {
            let opened = Standing { account_id: e.account_id, currency: e.currency, balance: Decimal::ZERO };
            self.standing.entry(wallet_id).or_insert(opened);
        }
        let Some(standing) = self.standing.get_mut(&wallet_id) else { return };
        let position = recorded.moment.position;
        let key = (wallet_id, recorded.moment.recorded_at.date_naive());
        let day = self.days.entry(key).or_insert_with(|| Day {
            wallet_id,
            day: key.1,
            account_id: standing.account_id,
            currency: standing.currency,
            sums: Sums::default(),
            closing_balance: standing.balance,
            first_position: position,
            last_position: position,
        });
        if let Some(movement) = Movement::of(event) {
            standing.balance += match movement.direction {
                Direction::Credit => movement.amount.decimal(),
                Direction::Debit => -movement.amount.decimal(),
            };
            day.sums.add(&movement);
        }
        day.closing_balance = standing.balance;
        day.last_position = position;
    }

    /// Removes one wallet and returns its part.
    pub fn split_off(&mut self, wallet: WalletId) -> Folded {
        let keys: Vec<_> = self.days.range((wallet, NaiveDate::MIN)..=(wallet, NaiveDate::MAX)).map(|(key, _)| *key).collect();
        Folded {
            standing: self.standing.remove_entry(&wallet).into_iter().collect(),
            days: keys.into_iter().filter_map(|key| self.days.remove_entry(&key)).collect(),
        }
    }
}

/// Returns the position up to which the table has processed the log.
pub async fn checkpoint(db: impl PgExecutor<'_>, shard: ShardId) -> Result<Position, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT coalesce((SELECT position FROM public.projection_checkpoints WHERE shard_id = $1 AND projection = $2), 0)",
    )
    .bind(shard)
    .bind(NAME)
    .fetch_one(db)
    .await
}

/// Folds the next events of the log into the table.
pub async fn apply(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ProjectionError> {
    let mut ids: Vec<WalletId> = events
        .iter()
        .filter(|recorded| matches!(recorded.event, Event::Wallet(_)))
        .map(|recorded| WalletId(recorded.stream_id))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return Ok(());
    }
    let mut folded = Folded { standing: standing(&mut *conn, shard, &ids).await?, ..Folded::default() };
    events.iter().for_each(|recorded| folded.step(recorded));
    write(conn, shard, folded.days.values()).await
}

/// Loads the state of these wallets after their last rows. Skips wallets without a row.
async fn standing(conn: &mut PgConnection, shard: ShardId, ids: &[WalletId]) -> Result<HashMap<WalletId, Standing>, sqlx::Error> {
    let rows: Vec<(WalletId, AccountId, String, Decimal)> = sqlx::query_as(
        "SELECT w.id, d.account_id, d.currency, d.closing_balance FROM unnest($2::bigint[]) AS w (id)
         CROSS JOIN LATERAL (SELECT account_id, currency, closing_balance FROM daily_totals
             WHERE shard_id = $1 AND wallet_id = w.id ORDER BY day DESC LIMIT 1) AS d",
    )
    .bind(shard)
    .bind(ids)
    .fetch_all(conn)
    .await?;
    let standing = |(id, account_id, currency, balance): (WalletId, AccountId, String, Decimal)| {
        let currency = known(currency.parse().ok(), &currency)?;
        Ok((id, Standing { account_id, currency, balance }))
    };
    rows.into_iter().map(standing).collect()
}

/// Adds the increments of days to their rows.
pub async fn write<'a>(
    conn: &mut PgConnection,
    shard: ShardId,
    days: impl Iterator<Item = &'a Day> + Clone,
) -> Result<(), ProjectionError> {
    macro_rules! column {
        ($day:ident => $value:expr) => {
            days.clone().map(|$day| $value).collect::<Vec<_>>()
        };
    }
    sqlx::query(
        "INSERT INTO daily_totals AS t (shard_id, wallet_id, day, account_id, currency, funding, order_debits, payout_debits,
            order_refunds, payout_refunds, adjustment_credits, adjustment_debits, movements, closing_balance, first_position, last_position)
         SELECT $1, d.* FROM unnest($2::bigint[], $3::date[], $4::bigint[], $5::text[], $6::numeric[], $7::numeric[], $8::numeric[],
            $9::numeric[], $10::numeric[], $11::numeric[], $12::numeric[], $13::bigint[], $14::numeric[], $15::bigint[], $16::bigint[]) AS d
         ON CONFLICT (shard_id, wallet_id, day) DO UPDATE SET
            funding = t.funding + excluded.funding,
            order_debits = t.order_debits + excluded.order_debits,
            payout_debits = t.payout_debits + excluded.payout_debits,
            order_refunds = t.order_refunds + excluded.order_refunds,
            payout_refunds = t.payout_refunds + excluded.payout_refunds,
            adjustment_credits = t.adjustment_credits + excluded.adjustment_credits,
            adjustment_debits = t.adjustment_debits + excluded.adjustment_debits,
            movements = t.movements + excluded.movements,
            closing_balance = excluded.closing_balance,
            last_position = excluded.last_position",
    )
    .bind(shard)
    .bind(column!(d => d.wallet_id))
    .bind(column!(d => d.day))
    .bind(column!(d => d.account_id))
    .bind(column!(d => d.currency.as_str()))
    .bind(column!(d => d.sums.funding))
    .bind(column!(d => d.sums.order_debits))
    .bind(column!(d => d.sums.payout_debits))
    .bind(column!(d => d.sums.order_refunds))
    .bind(column!(d => d.sums.payout_refunds))
    .bind(column!(d => d.sums.adjustment_credits))
    .bind(column!(d => d.sums.adjustment_debits))
    .bind(column!(d => d.sums.movements))
    .bind(column!(d => d.closing_balance))
    .bind(column!(d => d.first_position))
    .bind(column!(d => d.last_position))
    .execute(conn)
    .await?;
    Ok(())
}
