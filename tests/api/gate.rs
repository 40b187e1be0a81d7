//! The gate in isolation: its rate limit windows, and its batching of waiting requests into one statement.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_database::PgConnectOptions;
use ledger_events::{AccountId, UserId};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rewards_ledger::access::Gate;
use rewards_ledger::access::gate::{self, GateRequest, PresentedCredentials, Verdict};
use rewards_ledger::access::limits::{Quota, Rule};
use rewards_ledger::access::rate_limits::{RateLimit, RateLimits};
use rewards_ledger::ledger::connect::{self, DedicatedConnection};
use tokio_util::task::TaskTracker;

use crate::support::ledger::keyring;
use crate::support::postgres::database;
use crate::support::wait::until_locked_out;

/// A thousand requests that arrive while a slow statement runs are covered by a single further statement.
#[tokio::test]
async fn all_waiting_requests_are_checked_in_one_statement() {
    let database = database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let pool = connect::pool(&options);
    let gate = Gate::start(connect::gate(&options), pool.clone(), keyring(), RateLimits::default(), &TaskTracker::new());
    let ask = |user: i64| {
        let user_id = UserId(user);
        Box::pin(gate.ask(
            [192, 0, 2, 1].into(),
            PresentedCredentials::User { user_id, account_id: AccountId(1) },
            Some(Rule::General),
        ))
    };
    ask(0).await.unwrap();
    let mut holder = options.connect().await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT FROM rate_windows FOR UPDATE").execute(&mut holder).await.unwrap();
    let mut first = ask(0);
    assert!(futures::poll!(&mut first).is_pending());
    until_locked_out(&options, "rewards-ledger gate").await;
    let mut others: Vec<_> = (1..=1_000).map(ask).collect();
    for other in &mut others {
        assert!(futures::poll!(other).is_pending());
    }
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    first.await.unwrap();
    for verdict in futures::future::join_all(others).await {
        let Ok(Verdict::Seen { quota: Some(quota), .. }) = verdict else { panic!("{verdict:?}") };
        assert_eq!(quota.remaining, 999, "each user has its own budget");
    }
    let (windows, transactions): (i64, i64) =
        sqlx::query_as("SELECT count(*), count(DISTINCT xmin::text) FROM rate_windows WHERE key <> 'general user 0'")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert_eq!((windows, transactions), (1_000, 1));
}

/// Model of a fixed window, as the contract describes it.
#[derive(Debug, Default)]
struct Model {
    closes_at: Option<DateTime<Utc>>,
    used: usize,
}

impl Model {
    /// Returns how many of the requests pass.
    fn charge(&mut self, now: DateTime<Utc>, limit: RateLimit, requests: usize) -> usize {
        let closes = now + limit.window;
        match self.closes_at {
            // After the clock was set back, nobody waits longer than one window.
            Some(open) if open > now => self.closes_at = Some(open.min(closes)),
            _ => *self = Model { closes_at: Some(closes), used: 0 },
        }
        let granted = requests.min(limit.requests as usize - self.used);
        self.used += granted;
        granted
    }
}

async fn ask(dedicated: &DedicatedConnection, user_id: i64, limit: RateLimit, requests: usize, now: DateTime<Utc>) -> Vec<Quota> {
    let credentials = PresentedCredentials::User { user_id: UserId(user_id), account_id: AccountId(1) };
    let request = GateRequest::new([192, 0, 2, 1].into(), credentials, Some((Rule::General, limit)));
    let verdicts = gate::answer(dedicated, &keyring(), &vec![request; requests], Some(now)).await.unwrap();
    let quota = |verdict| match verdict {
        Verdict::Seen { quota: Some(quota), .. } => quota,
        other => panic!("{other:?}"),
    };
    verdicts.into_iter().map(quota).collect()
}

#[test]
fn windows_stay_fixed_for_any_pattern_of_requests() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (database, dedicated) = runtime.block_on(async {
        let database = database().await;
        let dedicated = connect::gate(&database.url.parse().unwrap());
        (database, dedicated)
    });
    let users = AtomicI64::new(0);
    // Milliseconds between requests, now and then negative, and the number of simultaneous requests.
    let gap = prop_oneof![8 => 0..20_000_i64, 2 => 20_000..90_000_i64, 1 => -90_000..0_i64];
    let histories = (1..8_u32, 1..60_u64, prop::collection::vec((gap, 1..6_usize), 1..25));
    let mut runner = TestRunner::new(Config { cases: 48, ..Config::with_source_file(file!()) });
    let outcome = runner.run(&histories, |(requests, seconds, history)| {
        let limit = RateLimit { requests, window: Duration::from_secs(seconds) };
        let user = users.fetch_add(1, Ordering::Relaxed);
        let mut now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let mut model = Model::default();
        let mut passed: Vec<DateTime<Utc>> = vec![];
        let is_forward = history.iter().all(|(gap, _)| *gap >= 0);
        for (gap, asked) in history {
            now += TimeDelta::milliseconds(gap);
            let quotas = runtime.block_on(ask(&dedicated, user, limit, asked, now));
            let granted = model.charge(now, limit, asked);
            prop_assert_eq!(quotas.iter().filter(|quota| !quota.is_exceeded).count(), granted);
            let closes = model.closes_at.unwrap();
            for (nth, quota) in quotas.iter().enumerate() {
                let left = (requests as usize - model.used) + granted.saturating_sub(nth + 1);
                prop_assert_eq!(quota.remaining as usize, if nth < granted { left } else { 0 });
                prop_assert_eq!(quota.is_exceeded, nth >= granted);
                prop_assert_eq!(quota.resets_at, closes.timestamp() + i64::from(closes.timestamp_subsec_nanos() > 0));
                prop_assert!(u64::from(quota.retry_after) <= seconds, "nobody waits for longer than a window");
            }
            if is_forward {
                // The client's view: when a request is refused, as many requests as the limit allows passed within
                // one window.
                let within = passed.iter().filter(|at| now - **at < TimeDelta::seconds(seconds as i64)).count();
                prop_assert!(
                    granted == asked || within + granted >= requests as usize,
                    "a request was refused although the limit was not reached"
                );
            }
            passed.extend(std::iter::repeat_n(now, granted));
        }
        Ok(())
    });
    outcome.unwrap();
    drop(database);
}
