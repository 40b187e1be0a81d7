//! A long period, narrowed down: checks the events of the accounts whose wallets differ, and of no others.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use ledger_database::{PgConnection, PgPool};
use ledger_events::{AccountId, Position, ShardId, WalletId};
use ledger_projections::totals::{self, Bounds};
use serde::Serialize;

use super::report::{midnight, next_day};
use super::walk::walk_over;
use super::{Difference, Differences, DifferingWallet, ReconcileError, Report};
use crate::audit::Progress;
use crate::ledger::reader;

/// Largest number of wallets of one account that are searched for their first day that differs.
const MAX_WALLETS: usize = 10;

/// Part of an account's events in the period that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum NarrowedTo {
    /// All of them.
    Period,
    /// Those of the first day that differs.
    Day,
    /// None of them: they are too many.
    NotChecked,
}

impl NarrowedTo {
    /// Returns the name that JSON and CSV use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Period => "PERIOD",
            Self::Day => "DAY",
            Self::NotChecked => "NOT_CHECKED",
        }
    }
}

/// An account with wallets that differ, in a report of totals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NarrowedAccount {
    pub shard_id: ShardId,
    pub account_id: AccountId,
    pub checked: NarrowedTo,
    /// First day (UTC) on which a wallet of the account differs. None if the whole period was checked.
    pub day: Option<NaiveDate>,
    /// Number of events that were checked.
    pub checked_events: i64,
}

/// Days from the first to the second, both included.
type DayRange = (NaiveDate, NaiveDate);
type Differing = BTreeMap<AccountId, Vec<DifferingWallet>>;

/// Checks the events of the first accounts whose wallets differ, at most `events` in all. The differences found come first in the
/// report. If an account has too many events in the period, checks those of the first day that differs.
pub async fn narrow(
    pool: &PgPool,
    report: &mut Report,
    bounds: &[(ShardId, Bounds)],
    (accounts, events): (usize, usize),
    progress: impl Fn(Progress),
) -> Result<(), ReconcileError> {
    let mut differing: BTreeMap<(ShardId, AccountId), Vec<DifferingWallet>> = BTreeMap::new();
    for wallet in std::mem::take(&mut report.differing) {
        // A wallet that only rows of days name has no account to search.
        if let Some(account) = report.account_id.or(wallet.account_id) {
            differing.entry((wallet.shard_id, account)).or_default().push(wallet);
        }
    }
    report.narrowed_left_out = differing.len().saturating_sub(accounts);
    let mut shards: BTreeMap<ShardId, Differing> = BTreeMap::new();
    for ((shard, account), wallets) in differing.into_iter().take(accounts) {
        shards.entry(shard).or_default().insert(account, wallets);
    }
    let mut found = Differences::keeping(report.differences.most);
    let mut left = events;
    for (shard, differing) in shards {
        let Some((_, period)) = bounds.iter().find(|(of, _)| *of == shard) else { continue };
        let head = report.as_of.iter().find(|as_of| as_of.shard_id == shard).map_or(period.upto, |as_of| as_of.head);
        let mut search = Search { pool, shard, head, period, left, narrowed: BTreeMap::new() };
        search.check(&differing, &mut found, &progress).await?;
        left = search.left;
        report.checked_events += search.narrowed.values().map(|account| account.checked_events).sum::<i64>();
        report.narrowed.extend(search.narrowed.into_values());
    }
    found.differences.sort_by_key(Difference::place);
    report.differences.put_first(found);
    Ok(())
}

/// A search for the events behind the differences of a shard's accounts.
struct Search<'a> {
    pool: &'a PgPool,
    shard: ShardId,
    /// Last position of the log.
    head: Position,
    period: &'a Bounds,
    /// Number of events that may still be checked.
    left: usize,
    narrowed: BTreeMap<AccountId, NarrowedAccount>,
}

impl Search<'_> {
    async fn check(
        &mut self,
        differing: &Differing,
        found: &mut Differences,
        progress: &impl Fn(Progress),
    ) -> Result<(), ReconcileError> {
        self.walk_period(differing, found, progress).await?;
        let days = self.first_days(differing).await?;
        // A day without a row has its movements among the days since the row before. Other wallets may have moved often then.
        self.walk_days(days.clone(), found, progress).await?;
        let longer = days.iter().filter(|(_, (first, day))| first != day);
        let single: BTreeMap<AccountId, DayRange> = longer.map(|(account, (_, day))| (*account, (*day, *day))).collect();
        self.walk_days(single, found, progress).await?;
        for account in differing.keys().copied().filter(|account| !self.narrowed.contains_key(account)).collect::<Vec<_>>() {
            self.note(account, NarrowedTo::NotChecked, days.get(&account).map(|(_, day)| *day), 0);
        }
        Ok(())
    }

    /// Notes the part of an account's events that was checked, and their number.
    fn note(&mut self, account_id: AccountId, checked: NarrowedTo, day: Option<NaiveDate>, events: usize) {
        self.left = self.left.saturating_sub(events);
        let checked_events = i64::try_from(events).unwrap_or(i64::MAX);
        let narrowed = NarrowedAccount { shard_id: self.shard, account_id, checked, day, checked_events };
        self.narrowed.insert(account_id, narrowed);
    }

    /// Checks all events of the accounts that do not have too many, in one walk.
    async fn walk_period(
        &mut self,
        differing: &Differing,
        found: &mut Differences,
        progress: &impl Fn(Progress),
    ) -> Result<(), ReconcileError> {
        let range = (self.period.after, self.period.upto);
        let wanted: Vec<(AccountId, (Position, Position))> = differing.keys().map(|account| (*account, range)).collect();
        let mut conn = self.pool.acquire().await?;
        let positions = reader::money_positions(&mut conn, self.shard, &wanted, self.left).await?;
        drop(conn);
        if positions.is_empty() {
            return Ok(());
        }
        let accounts: Vec<AccountId> = positions.keys().copied().collect();
        let mut all: Vec<Position> = positions.values().flatten().copied().collect();
        all.sort_unstable();
        walk_over(self.pool, self.shard, &accounts, &all, self.period, found, progress).await?;
        for (account, positions) in positions {
            self.note(account, NarrowedTo::Period, None, positions.len());
        }
        Ok(())
    }

    /// Returns the first day on which one of an account's wallets differs, with the days since the row before. If all rows of a
    /// wallet add up, it is the day of the last movement. Leaves out the accounts that are checked.
    async fn first_days(&self, differing: &Differing) -> Result<BTreeMap<AccountId, DayRange>, ReconcileError> {
        let unchecked: Vec<(&AccountId, &Vec<DifferingWallet>)> =
            differing.iter().filter(|(account, _)| !self.narrowed.contains_key(*account)).collect();
        let wallets = unchecked.iter().flat_map(|(_, wallets)| wallets.iter().take(MAX_WALLETS));
        let wallets: Vec<WalletId> = wallets.map(|wallet| wallet.wallet_id).collect();
        if wallets.is_empty() {
            return Ok(BTreeMap::new());
        }
        // The days whose rows are added up begin and end at the midnights nearest to the ends of the period.
        let from = self.period.first_day.pred_opt().unwrap_or(self.period.first_day);
        let mut conn = self.pool.acquire().await?;
        let wrong = totals::first_wrong_days(&mut conn, self.shard, &wallets, (from, next_day(self.period.end_day))).await?;
        let days = |wallet: &DifferingWallet| match wrong.get(&wallet.wallet_id) {
            Some((previous, day)) => Some((previous.map_or(from, next_day), *day)),
            None => wallet.last_day.map(|day| (day, day)),
        };
        let earliest = |(account, wallets): (&AccountId, &Vec<DifferingWallet>)| {
            let earliest = wallets.iter().take(MAX_WALLETS).filter_map(days).min_by_key(|(_, day)| *day);
            earliest.map(|days| (*account, days))
        };
        Ok(unchecked.into_iter().filter_map(earliest).collect())
    }

    /// Checks what each account moved on its days, unless it is checked or has too many events. The days of each account are its
    /// own, so each is a walk with some ten statements. The accounts that [`narrow`] takes are their bound.
    async fn walk_days(
        &mut self,
        mut days: BTreeMap<AccountId, DayRange>,
        found: &mut Differences,
        progress: &impl Fn(Progress),
    ) -> Result<(), ReconcileError> {
        days.retain(|account, _| !self.narrowed.contains_key(account));
        if days.is_empty() {
            return Ok(());
        }
        let mut conn = self.pool.acquire().await?;
        let bounds = self.bounds(&mut conn, &days).await?;
        let wanted: Vec<_> = bounds.iter().map(|(account, bounds)| (*account, (bounds.after, bounds.upto))).collect();
        let positions = reader::movement_positions(&mut conn, self.shard, &wanted, self.left).await?;
        drop(conn);
        for (account, bounds) in bounds {
            let Some(positions) = positions.get(&account) else { continue };
            walk_over(self.pool, self.shard, &[account], positions, &bounds, found, progress).await?;
            self.note(account, NarrowedTo::Day, days.get(&account).map(|(_, day)| *day), positions.len());
        }
        Ok(())
    }

    /// Returns the bounds of each account's days.
    async fn bounds(
        &self,
        conn: &mut PgConnection,
        days: &BTreeMap<AccountId, DayRange>,
    ) -> Result<Vec<(AccountId, Bounds)>, sqlx::Error> {
        let times: Vec<DateTime<Utc>> =
            days.values().flat_map(|(first, last)| [midnight(*first), midnight(next_day(*last))]).collect();
        let firsts = reader::first_at_each(conn, self.shard, &times, self.head).await?;
        let before = |first: Position| (first - 1).min(self.head);
        let bounds = days.iter().zip(firsts.chunks_exact(2)).map(|((account, (first, last)), firsts)| {
            let after = before(firsts[0]);
            let upto = before(firsts[1]).max(after);
            (*account, Bounds { after, upto, whole: (*first, next_day(*last)), ..*self.period })
        });
        Ok(bounds.collect())
    }
}
