//! The check of single events: of all in the period, of one account's, or of those of accounts that differ.

use ledger_database::PgPool;
use ledger_events::ShardId;
use ledger_projections::totals::Bounds;

use crate::api::error::ApiError;
use crate::api::progress::Progress;
use crate::reconciliation::{self as figures, Checked, Report};

/// Maximum number of events in a period for which each event is also checked.
const MAX_EVENTS: i64 = 20_000;
/// Maximum number of events in a period with `every_event`. A request may take a minute or so. The command has no limit.
const MAX_EVERY_EVENT: i64 = 1_000_000;
/// Maximum number of events of the requested account for which each event is also checked, regardless of the log's
/// length.
const MAX_OF_ACCOUNT: usize = 100_000;
/// Maximum number of accounts with wallets that differ whose events are checked in a longer period, and maximum number of
/// these events in all. All accounts are checked with a few statements. Only those with too many events for that need some
/// statements each, twice at most.
const MAX_NARROWED: usize = 10;
const MAX_OF_NARROWED: usize = 100_000;
/// Maximum number of events whose check shows no progress. It is done before a page would show a second step.
const MAX_UNTOLD: i64 = 5_000;

/// Checks single events, as many as the period and `is_every` allow, and adds the differences to the report.
///
/// # Errors
/// 400 if every event is wanted and the period has too many.
pub(super) async fn check(
    pool: &PgPool,
    report: &mut Report,
    bounds: &[(ShardId, Bounds)],
    is_every: bool,
    progress: &Progress,
) -> Result<(), ApiError> {
    let length = |(_, bounds): &(ShardId, Bounds)| bounds.upto - bounds.after;
    let events: i64 = bounds.iter().map(length).sum();
    let count = |number: i64| usize::try_from(number).unwrap_or_default();
    let tell = |done: i64, total: i64| {
        if total > MAX_UNTOLD {
            progress.tell(count(done), count(total));
        }
    };
    if events > MAX_EVENTS
        && let (Some(account), Some(bounds)) = (report.account_id, bounds.first())
    {
        // The account's own events are fewer to read than those of the period.
        figures::walk_account(pool, report, bounds, account, MAX_OF_ACCOUNT, |reached| tell(reached.done, reached.total)).await?;
        if report.checked == Checked::Movements {
            return Ok(());
        }
    }
    if events > MAX_EVENTS && !is_every {
        let most = (MAX_NARROWED, MAX_OF_NARROWED);
        figures::narrow(pool, report, bounds, most, |reached| tell(reached.done, reached.total)).await?;
        return Ok(());
    }
    if events > MAX_EVERY_EVENT {
        let problem = format!(
            "the period has {events} events, more than {MAX_EVERY_EVENT}; choose fewer days, or run `rewards-ledger reconcile`"
        );
        return Err(ApiError::invalid("every_event", problem));
    }
    tell(0, events);
    let before = |shard: ShardId| bounds.iter().take_while(|(other, _)| *other != shard).map(length).sum::<i64>();
    figures::walk_all(pool, report, bounds, |reached| tell(before(reached.shard) + reached.done, events)).await?;
    Ok(())
}
