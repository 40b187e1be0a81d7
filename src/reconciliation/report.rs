//! Totals of a period, exact as of one position of each shard's log.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveTime, Timelike, Utc};
use ledger_database::{PgConnection, PgPool, Transaction, replanned};
use ledger_events::{AccountId, Position, ShardId};
use ledger_projections::stock as stocks;
use ledger_projections::totals::{self, Bounds, Sums, Totals, WalletTotals};
use rust_decimal::Decimal;
use sqlx::AssertSqlSafe;
use tokio::sync::Mutex;
use transparency_log::quorum::Quorum;

use super::stock;
use super::walk::{walk, walk_over};
use super::{
    Amount, AsOf, Checked, CurrencyFigures, DayFigures, Difference, DifferenceKind, Differences, DifferingWallet, LogCheckpoint,
    Period, ReconcileError, Report, WalletFigures,
};
use crate::audit::Progress;
use crate::ledger::{connect, reader};
use crate::transparency::cosignature;
use crate::transparency::store;

type Snapshot = Transaction<'static>;

/// Longest time to begin the two transactions of a snapshot.
const MAX_TAKING: Duration = Duration::from_secs(5);

/// Bounds of all days on which an event can be recorded.
const FIRST_DAY: NaiveDate = year_day(1, 1, 1);
const LAST_DAY: NaiveDate = year_day(9999, 12, 31);

const fn year_day(year: i32, month: u32, day: u32) -> NaiveDate {
    match NaiveDate::from_ymd_opt(year, month, day) {
        Some(day) => day,
        None => NaiveDate::MIN,
    }
}

/// Computes the totals of these shards, each in a snapshot of its own. The report lists at most `max_differences`.
pub async fn report(
    pool: &PgPool,
    shards: &[ShardId],
    period: Period,
    max_differences: usize,
) -> Result<(Report, Vec<(ShardId, Bounds)>), ReconcileError> {
    let mut report = Report::new(period, max_differences);
    let mut currencies: BTreeMap<String, (i64, Decimal, Sums)> = BTreeMap::new();
    let mut days: BTreeMap<(NaiveDate, String), Sums> = BTreeMap::new();
    let mut all_stock = stocks::Period::default();
    let mut all_bounds = vec![];
    for shard in shards {
        let ShardTotals { head, bounds, totals: found, stock, stock_projected, log_checkpoint } =
            replanned(|| totals_of(pool, *shard, period)).await?;
        for (day, sums) in found.days {
            days.entry(day).or_default().merge(&sums);
        }
        for wallet in found.wallets {
            let is_anothers = period.account_id.is_some() && wallet.account_id() != period.account_id;
            let found = report.differences.found;
            check(*shard, &wallet, is_anothers, bounds.upto == head, &mut report.differences);
            if report.differences.found > found {
                let last_day = wallet.last.created_at.map(|at| at.date_naive());
                let (wallet_id, account_id) = (wallet.wallet_id, wallet.account_id());
                report.differing.push(DifferingWallet { shard_id: *shard, wallet_id, account_id, last_day });
            }
            if is_anothers {
                continue;
            }
            if let Some(currency) = wallet.currency() {
                let total = currencies.entry(currency.to_owned()).or_default();
                total.0 += 1;
                total.1 += wallet.opening;
                total.2.merge(&wallet.sums);
            }
            report.wallets.push(figures(*shard, wallet));
        }
        let (shard_id, position, projected) = (*shard, bounds.upto, bounds.checkpoint);
        report.as_of.push(AsOf { shard_id, position, head, projected, stock_projected, log_checkpoint });
        all_stock.merge(stock);
        all_bounds.push((*shard, bounds));
    }
    let currency = |(currency, (wallets, opening, sums)): (String, (i64, Decimal, Sums))| CurrencyFigures {
        currency,
        wallets,
        opening_balance: Amount(opening),
        moved: (&sums).into(),
        closing_balance: Amount(opening + sums.net()),
    };
    report.currencies = currencies.into_iter().map(currency).collect();
    let day = |((day, currency), sums): ((NaiveDate, String), Sums)| DayFigures { day, currency, moved: (&sums).into() };
    report.days = days.into_iter().filter(|(_, sums)| sums.movements > 0).map(day).collect();
    (report.stock, report.stock_days) = stock::figures(all_stock);
    Ok((report, all_bounds))
}

/// Figures of one shard, all of one snapshot.
struct ShardTotals {
    head: Position,
    bounds: Bounds,
    totals: Totals,
    stock: stocks::Period,
    stock_projected: Position,
    log_checkpoint: Option<LogCheckpoint>,
}

async fn totals_of(pool: &PgPool, shard: ShardId, period: Period) -> Result<ShardTotals, ReconcileError> {
    let (mut tx, mut other) = snapshot(pool).await?;
    let head = reader::head(&mut *tx, shard).await?;
    let bounds = bounds(&mut tx, shard, head, period).await?;
    let totals = totals::of_period((&mut tx, &mut other), shard, period.account_id, &bounds).await?;
    let stock_projected = stocks::checkpoint(&mut *tx, shard).await?;
    let stock = match period.account_id {
        None => stocks::of_period(&mut tx, shard, stock::days(&period, (FIRST_DAY, LAST_DAY))).await?,
        Some(_) => stocks::Period::default(),
    };
    let log_checkpoint = log_checkpoint(&mut tx, shard, bounds.upto).await?;
    tx.commit().await?;
    other.commit().await?;
    Ok(ShardTotals { head, bounds, totals, stock, stock_projected, log_checkpoint })
}

/// Opens two transactions that share one snapshot.
async fn snapshot(pool: &PgPool) -> Result<(Snapshot, Snapshot), sqlx::Error> {
    // A generic plan would look up each row of a month by an index, which takes three times as long as reading all rows.
    // Parallel workers would each hold a part of every wallet's sums. They cost more than they save next to the second
    // connection.
    const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL plan_cache_mode = force_custom_plan;
        SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off; SET LOCAL work_mem = '64MB';
        SET LOCAL idle_in_transaction_session_timeout = 0"; // one connection may idle while the other is read
    // Without this lock, reports that hold one connection each could wait for each other's second connection.
    static TAKING: Mutex<()> = Mutex::const_new(());
    let taking = TAKING.lock().await;
    // A server that falls silent now must not hold up the other reports for the time of two deadlines.
    let both = async { Ok::<_, sqlx::Error>((pool.begin_with(BEGIN).await?, pool.begin_with(BEGIN).await?)) };
    let (mut one, mut other) = connect::within(MAX_TAKING, both).await?;
    drop(taking);
    let snapshot: String = sqlx::query_scalar("SELECT pg_export_snapshot()").fetch_one(&mut *one).await?;
    // Safe: the server generates the name.
    sqlx::raw_sql(AssertSqlSafe(format!("SET TRANSACTION SNAPSHOT '{snapshot}'"))).execute(&mut *other).await?;
    Ok((one, other))
}

/// Checks the events of the report's period one by one, and adds the differences to the report.
pub async fn walk_all(
    pool: &PgPool,
    report: &mut Report,
    bounds: &[(ShardId, Bounds)],
    progress: impl Fn(Progress),
) -> Result<(), ReconcileError> {
    for (shard, bounds) in bounds {
        report.checked_events += walk(pool, *shard, report.account_id, bounds, &mut report.differences, &progress).await?;
    }
    walked(report);
    Ok(())
}

/// Checks an account's own events, if neither they nor the orders and payouts to search for them exceed `most`.
/// `report.checked` tells whether the walk was done.
pub async fn walk_account(
    pool: &PgPool,
    report: &mut Report,
    (shard, bounds): &(ShardId, Bounds),
    account: AccountId,
    most: usize,
    progress: impl Fn(Progress),
) -> Result<(), ReconcileError> {
    let mut conn = pool.acquire().await?;
    let wanted = [(account, (bounds.after, bounds.upto))];
    let positions = reader::money_positions(&mut conn, *shard, &wanted, most).await?.remove(&account);
    drop(conn);
    if let Some(positions) = positions {
        let differences = &mut report.differences;
        report.checked_events += walk_over(pool, *shard, &[account], &positions, bounds, differences, &progress).await?;
        walked(report);
    }
    Ok(())
}

fn walked(report: &mut Report) {
    report.differences.differences.sort_by_key(Difference::place);
    report.checked = Checked::Movements;
}

fn figures(shard_id: ShardId, wallet: WalletTotals) -> WalletFigures {
    WalletFigures {
        shard_id,
        account_id: wallet.account_id(),
        wallet_id: wallet.wallet_id,
        moved: (&wallet.sums).into(),
        currency: wallet.currency().map(str::to_owned),
        opening_balance: Amount(wallet.opening),
        closing_balance: Amount(wallet.closing()),
    }
}

/// Compares a wallet's row with its last movement and its totals. Account and currency must be equal, and the row must
/// not be younger than the movement. The closing balance must equal the balance after the last movement, and at the log's
/// head the row's balance. A wallet of another account than the report's is only compared by account, currency and time.
fn check(shard: ShardId, wallet: &WalletTotals, is_anothers: bool, is_at_head: bool, differences: &mut Differences) {
    let closing = Amount(wallet.closing());
    let positions: Vec<Position> = wallet.last.position.into_iter().collect();
    let mut add = |kind, problem| {
        differences.add(Difference::of_wallet(kind, shard, wallet.wallet_id, positions.clone(), problem));
    };
    let Some(row_balance) = wallet.row.balance else {
        return add(DifferenceKind::WalletMissing, format!("has no row; its movements make {closing}"));
    };
    let differing = differing(wallet);
    if !differing.is_empty() {
        add(DifferenceKind::WalletDiffers, differing.join("; "));
    }
    if is_anothers {
        return;
    }
    if is_at_head && row_balance != closing.0 {
        let problem = format!("its row has the balance {}, its movements make {closing}", Amount(row_balance));
        add(DifferenceKind::WalletBalance, problem);
    }
    let left = wallet.last.balance.unwrap_or_default();
    if left != closing.0 {
        let problem = format!("its last movement left {}, its totals make {closing}", Amount(left));
        add(DifferenceKind::WalletClosing, problem);
    }
}

/// Returns the statements of a wallet's row that its last movement contradicts.
fn differing(WalletTotals { row, last, .. }: &WalletTotals) -> Vec<String> {
    let mut differing = vec![];
    if let Some((row, last)) = row.account_id.zip(last.account_id).filter(|(row, last)| row != last) {
        differing.push(format!("its row says account {row}, its last movement account {last}"));
    }
    if let Some((row, last)) = row.currency.as_ref().zip(last.currency.as_ref()).filter(|(row, last)| row != last) {
        differing.push(format!("its row says {row}, its last movement {last}"));
    }
    if let Some((row, last)) = row.created_at.zip(last.created_at).filter(|(row, last)| row > last) {
        let (row, last) = (row.to_rfc3339(), last.to_rfc3339());
        differing.push(format!("its row says that it was opened at {row}, and it moved at {last}"));
    }
    differing
}

/// Returns the positions and days at which a period begins and ends in a shard's log, as of the connection's snapshot.
async fn bounds(conn: &mut PgConnection, shard: ShardId, head: Position, period: Period) -> Result<Bounds, ReconcileError> {
    let checkpoint = totals::checkpoint(&mut *conn, shard).await?;
    let (mut first_day, mut end_day) = (FIRST_DAY, LAST_DAY);
    let mut whole = (first_day, end_day);
    let (mut after, mut upto) = (0, head);
    let (mut days_after, mut days_upto) = (0, head);
    if let Some(from) = period.from {
        after = before(conn, shard, head, from).await?;
        first_day = nearest_midnight(from);
        whole.0 = if from.time() == NaiveTime::MIN { from.date_naive() } else { next_day(from.date_naive()) };
        days_after = before(conn, shard, head, midnight(first_day)).await?;
    }
    if let Some(to) = period.to {
        upto = before(conn, shard, head, to).await?.max(after);
        end_day = nearest_midnight(to).max(first_day);
        whole.1 = to.date_naive();
        days_upto = before(conn, shard, head, midnight(end_day)).await?;
    }
    Ok(Bounds { after, upto, whole, first_day, end_day, days_after, days_upto, checkpoint, end: period.to })
}

/// Returns the day whose beginning is nearest to a time.
fn nearest_midnight(time: DateTime<Utc>) -> NaiveDate {
    let day = time.date_naive();
    if time.hour() < 12 { day } else { next_day(day) }
}

pub(super) fn next_day(day: NaiveDate) -> NaiveDate {
    day.succ_opt().unwrap_or(day)
}

/// Returns the last position before a time.
async fn before(conn: &mut PgConnection, shard: ShardId, head: Position, time: DateTime<Utc>) -> Result<Position, sqlx::Error> {
    Ok((reader::first_at(conn, shard, time, head).await? - 1).min(head))
}

pub(super) fn midnight(day: NaiveDate) -> DateTime<Utc> {
    day.and_time(NaiveTime::MIN).and_utc()
}

/// Returns the first signed checkpoint of a shard's log that covers a position, or the newest one if none covers it yet.
async fn log_checkpoint(
    conn: &mut PgConnection,
    shard: ShardId,
    position: Position,
) -> Result<Option<LogCheckpoint>, sqlx::Error> {
    sqlx::query_as(
        "(SELECT size, encode(root, 'hex') AS root, note FROM log_checkpoints WHERE shard_id = $1 AND size >= $2 ORDER BY size LIMIT 1)
         UNION ALL
         (SELECT size, encode(root, 'hex'), note FROM log_checkpoints WHERE shard_id = $1 AND size < $2 ORDER BY size DESC LIMIT 1)
         LIMIT 1",
    )
    .bind(shard)
    .bind(position)
    .fetch_optional(conn)
    .await
}

/// Replaces the report's checkpoints with ones that cover it and that the quorum has cosigned. Waits some seconds for
/// them if the log is signed. If none comes in time, uses the newest checkpoint that the quorum has cosigned.
///
/// # Errors
/// Returns [`ReconcileError::Uncosigned`] when no checkpoint of the log has the quorum.
pub async fn await_checkpoints(pool: &PgPool, report: &mut Report, quorum: &Quorum) -> Result<(), ReconcileError> {
    for as_of in &mut report.as_of {
        let (shard, position) = (as_of.shard_id, as_of.position);
        let is_settled = as_of.log_checkpoint.as_ref().is_none_or(|checkpoint| checkpoint.size >= position);
        // A log without events has nothing that a checkpoint covers.
        if position == 0 || quorum.count == 0 && is_settled {
            continue;
        }
        let found = match cosignature::covering(pool, shard, position, quorum).await? {
            Some(covering) => Some(covering),
            None => store::newest_cosigned(pool, shard, quorum).await?,
        };
        let found = found.ok_or(ReconcileError::Uncosigned(shard, quorum.count))?;
        as_of.log_checkpoint = Some(LogCheckpoint {
            size: i64::try_from(found.size).unwrap_or(i64::MAX),
            root: hex::encode(found.root),
            note: cosignature::with_cosignatures(pool, shard, &found).await?,
        });
    }
    Ok(())
}
