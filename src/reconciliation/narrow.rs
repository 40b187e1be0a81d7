//! A long period, narrowed down: checks the events of the accounts whose wallets differ, and of no others.

use std::collections::BTreeMap;

use chrono::{Days, NaiveDate};
use ledger_database::PgPool;
use ledger_events::{AccountId, Position, ShardId};
use ledger_projections::totals::{self, Bounds};
use serde::Serialize;

use super::report::{before, midnight, next_day, walk_events};
use super::walk::walk_over;
use super::{Difference, Differences, DifferingWallet, ReconcileError, Report};
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

/// Checks the events of the first accounts whose wallets differ, at most `events` in all. The differences found come first in the
/// report. If an account has too many events in the period, checks those of the first day that differs.
pub async fn narrow(
    pool: &PgPool,
    report: &mut Report,
    bounds: &[(ShardId, Bounds)],
    accounts: usize,
    events: usize,
) -> Result<(), ReconcileError> {
    let mut differing: BTreeMap<(ShardId, AccountId), Vec<DifferingWallet>> = BTreeMap::new();
    for wallet in std::mem::take(&mut report.differing) {
        // A wallet that only rows of days name has no account to search.
        if let Some(account) = report.account_id.or(wallet.account_id) {
            differing.entry((wallet.shard_id, account)).or_default().push(wallet);
        }
    }
    report.narrowed_left_out = differing.len().saturating_sub(accounts);
    let mut found = Differences::keeping(report.differences.most);
    let mut left = events;
    for ((shard, account), wallets) in differing.into_iter().take(accounts) {
        let Some((_, bounds)) = bounds.iter().find(|(of, _)| *of == shard) else { continue };
        let head = report.as_of.iter().find(|as_of| as_of.shard_id == shard).map_or(bounds.upto, |as_of| as_of.head);
        let search = Search { pool, shard, account, head, most: left };
        let narrowed = search.check(bounds, &wallets, &mut found).await?;
        left = left.saturating_sub(usize::try_from(narrowed.checked_events).unwrap_or(usize::MAX));
        report.checked_events += narrowed.checked_events;
        report.narrowed.push(narrowed);
    }
    found.differences.sort_by_key(Difference::place);
    report.differences.put_first(found);
    Ok(())
}

/// A search for the events behind the differences of an account.
struct Search<'a> {
    pool: &'a PgPool,
    shard: ShardId,
    account: AccountId,
    /// Last position of the log.
    head: Position,
    /// Maximum number of events to check.
    most: usize,
}

impl Search<'_> {
    async fn check(
        &self,
        period: &Bounds,
        wallets: &[DifferingWallet],
        found: &mut Differences,
    ) -> Result<NarrowedAccount, ReconcileError> {
        let (shard_id, account_id) = (self.shard, self.account);
        let narrowed = |checked, day, checked_events| NarrowedAccount { shard_id, account_id, checked, day, checked_events };
        if let Some(checked) = walk_events(self.pool, self.shard, account_id, period, self.most, found).await? {
            return Ok(narrowed(NarrowedTo::Period, None, checked));
        }
        let Some((first, day)) = self.first_day(period, wallets).await? else {
            return Ok(narrowed(NarrowedTo::NotChecked, None, 0));
        };
        // A day without a row has its movements among the days since the row before. Other wallets may have moved often then.
        let mut ranges = vec![(first, day), (day, day)];
        ranges.dedup();
        for days in ranges {
            if let Some(checked) = self.walk_days(period, days, found).await? {
                return Ok(narrowed(NarrowedTo::Day, Some(day), checked));
            }
        }
        Ok(narrowed(NarrowedTo::NotChecked, Some(day), 0))
    }

    /// Returns the first day on which one of the wallets differs, with the days since the row before. If all rows of a wallet add
    /// up, it is the day of the last movement.
    async fn first_day(&self, period: &Bounds, wallets: &[DifferingWallet]) -> Result<Option<DayRange>, ReconcileError> {
        // The days whose rows are added up begin and end at the midnights nearest to the ends of the period.
        let from = period.first_day.checked_sub_days(Days::new(1)).unwrap_or(period.first_day);
        let mut conn = self.pool.acquire().await?;
        let mut earliest: Option<DayRange> = None;
        for wallet in wallets.iter().take(MAX_WALLETS) {
            let wrong =
                totals::first_wrong_day(&mut conn, self.shard, wallet.wallet_id, (from, next_day(period.end_day))).await?;
            let days = match wrong {
                Some((previous, day)) => Some((previous.map_or(day, next_day), day)),
                None => wallet.last_day.map(|day| (day, day)),
            };
            earliest = earliest.into_iter().chain(days).min_by_key(|(_, day)| *day);
        }
        Ok(earliest)
    }

    /// Checks what the account moved on these days. Returns the number of events, or none if there are too many.
    async fn walk_days(
        &self,
        period: &Bounds,
        (first, last): DayRange,
        found: &mut Differences,
    ) -> Result<Option<i64>, ReconcileError> {
        let (shard, whole) = (self.shard, (first, next_day(last)));
        let mut conn = self.pool.acquire().await?;
        let after = before(&mut conn, shard, self.head, midnight(whole.0)).await?;
        let upto = before(&mut conn, shard, self.head, midnight(whole.1)).await?.max(after);
        let positions = reader::movement_positions(&mut conn, shard, self.account, (after, upto), self.most).await?;
        drop(conn);
        let Some(positions) = positions else { return Ok(None) };
        let bounds = Bounds { after, upto, whole, ..*period };
        Ok(Some(walk_over(self.pool, shard, self.account, &positions, &bounds, found).await?))
    }
}
