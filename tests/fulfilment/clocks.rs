//! Expiring vouchers while the database's clock jumps.

use std::time::Duration;

use chrono::{Days, NaiveDate, Utc};
use ledger_database::{PgConnectOptions, PgPool};
use ledger_events::OrderId;
use ledger_events::order::OrderStatus;
use rewards_ledger::fulfilment::Fulfilment;
use rewards_ledger::ledger::clock;
use sqlx::PgConnection;

use crate::support::clock::{set_ahead, skewed};
use crate::support::ledger::{self, Customer};
use crate::support::postgres::{TestDatabase, database};
use crate::support::shop::{SHARD, Shop};
use crate::support::wait::until;

const DAY: Duration = Duration::from_secs(86_400);

/// A shop whose database clock can be set.
struct Skewed {
    shop: Shop,
    pool: PgPool,
    admin: PgConnection,
    _database: TestDatabase,
}

impl Skewed {
    async fn open() -> Skewed {
        let database = database().await;
        let options: PgConnectOptions = database.url.parse().unwrap();
        let admin = options.connect().await.unwrap();
        let customer = Customer::with(&ledger::open(&options).await, "1000.00").await;
        let shop = Shop::on(&skewed(&options).await, customer).await;
        let pool = shop.pool().clone();
        Skewed { shop, pool, admin, _database: database }
    }

    /// Sets the clock, and gives nodes the time to follow it.
    async fn set(&mut self, ahead: &str) {
        set_ahead(&mut self.admin, ahead).await;
        clock::advance(&self.pool, DAY).await.unwrap();
    }

    /// Lets fulfilment do all that it can now. Returns true if the order got its voucher.
    async fn is_served(&self, order: OrderId) -> bool {
        let mut fulfilment = Fulfilment::new(self.shop.ledger.clone(), self.shop.metrics.clone());
        loop {
            let done = fulfilment.step(SHARD).await.unwrap();
            if done.taken_up + done.restocked == 0 && !done.is_under_way {
                break;
            }
        }
        match self.shop.find(order).await.status {
            OrderStatus::Delivered => true,
            OrderStatus::Delayed => false,
            status => panic!("{status:?}"),
        }
    }

    /// Waits until the order is served. The writer follows a clock that was set back within seconds.
    async fn will_be_served(&self, order: OrderId) {
        until("the order is served", async || self.is_served(order).await).await;
    }

    /// Waits until a metric, which is sampled from the database once a second, has the expected value.
    async fn will_show(&self, name: &str, is_so: impl Fn(f64) -> bool) {
        until(name, async || {
            let told = self.shop.metrics.scrape(rewards_ledger::ledger::backlog::query(&self.pool)).await.unwrap();
            let line =
                told.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} is missing in:\n{told}"));
            is_so(line.rsplit_once(' ').unwrap().1.parse().unwrap())
        })
        .await;
    }
}

fn in_days(days: u64) -> Option<NaiveDate> {
    Utc::now().date_naive().checked_add_days(Days::new(days))
}

#[tokio::test]
async fn no_voucher_expires_by_a_clock_that_jumped_ahead() {
    let mut shop = Skewed::open().await;
    shop.shop.load("a", 1, in_days(30)).await;
    shop.set("1 year").await;
    let order = shop.shop.order(1).await;
    assert!(!shop.is_served(order).await, "the voucher is held back, because it may have expired");
    shop.will_show("ledger_clock_ahead_seconds", |ahead| ahead > 300.0 * DAY.as_secs_f64()).await;
    // The clock is corrected. The log's times do not move back, and newer batches continue from there.
    shop.set("0").await;
    shop.will_show("ledger_log_head_ahead_seconds", |ahead| ahead > 300.0 * DAY.as_secs_f64()).await;
    shop.will_show("ledger_clock_ahead_seconds", |ahead| ahead < DAY.as_secs_f64()).await;
    shop.will_be_served(order).await;
}

#[tokio::test]
async fn a_voucher_that_expires_sooner_is_held_and_another_one_is_given() {
    let mut shop = Skewed::open().await;
    shop.shop.load("a", 1, in_days(30)).await;
    shop.shop.load("b", 1, in_days(3_000)).await;
    shop.set("1 year").await;
    let (first, second) = (shop.shop.order(1).await, shop.shop.order(1).await);
    assert!(shop.is_served(first).await, "vouchers valid by either clock are used");
    assert!(!shop.is_served(second).await);
    shop.set("0").await;
    shop.will_be_served(second).await;
}

#[tokio::test]
async fn vouchers_expire_by_a_steady_clock_and_stay_expired_when_it_is_set_back() {
    let mut shop = Skewed::open().await;
    shop.shop.load("a", 1, in_days(1)).await;
    for hours in 1..=60 {
        shop.set(&format!("{hours} hours")).await;
    }
    let order = shop.shop.order(1).await;
    assert!(!shop.is_served(order).await, "the voucher has expired");
    shop.set("0").await;
    let order = shop.shop.order(1).await;
    assert!(!shop.is_served(order).await, "an expired voucher does not come back with a clock that was set back");
}

#[tokio::test]
async fn an_operator_who_confirms_the_clock_lets_vouchers_expire_by_it() {
    let mut shop = Skewed::open().await;
    shop.shop.load("a", 1, in_days(30)).await;
    shop.set("1 year").await;
    let confirmed = clock::confirm(&shop.pool, "the machines were off for a year").await.unwrap();
    assert_eq!(confirmed.ahead().num_seconds(), 0);
    shop.will_show("ledger_clock_ahead_seconds", |ahead| ahead < DAY.as_secs_f64()).await;
    shop.set("0").await;
    let order = shop.shop.order(1).await;
    assert!(!shop.is_served(order).await, "the voucher expires once an operator confirms the clock");
    // An operator who was wrong corrects the confirmation in the same way.
    clock::confirm(&shop.pool, "the clock was wrong a moment ago").await.unwrap();
    shop.will_be_served(order).await;
    let reasons: Vec<String> =
        sqlx::query_scalar("SELECT reason FROM clock_confirmations ORDER BY id").fetch_all(&shop.pool).await.unwrap();
    assert_eq!(reasons, ["the machines were off for a year", "the clock was wrong a moment ago"]);
    assert!(
        sqlx::query("DELETE FROM clock_confirmations").execute(&mut shop.admin).await.is_err(),
        "a confirmation cannot be deleted"
    );
}
