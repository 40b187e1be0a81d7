//! `/api/v1/orders/stats`, `/api/v1/webhooks/stats` and `/api/v1/webhooks/:id/stats`: orders, spend and delivery attempts by
//! day, for plots.

use std::collections::BTreeMap;

use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};
use ledger_database::{PgPool, replanned};
use ledger_events::{AccountId, ShardId, WebhookId, order};
use ledger_projections::listing::page_anchors;
use ledger_projections::page;
use ledger_projections::totals::{self, DaySpend};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;
use sqlx::PgExecutor;

use super::error::ApiError;
use super::orders::OrderStatus;
use super::page::Page;
use super::principal::Caller;
use super::reply::Reply;
use super::scalars::Money;
use super::state::{ApiState, State, Tag, not_found, rows_of};
use super::webhooks;
use crate::delivery;
use crate::delivery::days::DeliveryDay;
use crate::ledger::reader;

/// Largest number of days of statistics.
pub const MAX_STATISTICS_DAYS: i64 = 92;
/// Default number of days.
const DAYS: i64 = 30;
/// Largest number of webhooks whose attempts are counted. An account has fewer.
const MAX_WEBHOOKS: u64 = 100;

/// Amounts that orders moved on a day, in one currency.
#[derive(Object, Serialize)]
struct Spend {
    /// Currency of the amounts, as an ISO 4217 code.
    currency: String,
    /// Amount debited for orders.
    spent: Money,
    /// Amount returned for cancelled orders, whenever they were placed.
    refunded: Money,
}

/// Orders and spend of one day (UTC).
#[derive(Object, Serialize)]
struct OrderDay {
    /// The day, as `YYYY-MM-DD`.
    day: String,
    /// Number of orders placed on the day.
    orders: i64,
    /// Spend of the day, by currency. Empty if nothing was spent or refunded.
    spend: Vec<Spend>,
}

/// Number of orders in a status.
#[derive(Object, Serialize)]
struct OrdersInStatus {
    status: OrderStatus,
    /// Number of the account's orders that are in this status now, whenever they were placed.
    orders: i64,
}

/// Orders and spend by day.
#[derive(Object, Serialize)]
struct OrderStatistics {
    /// All orders of the account by their present status. Each status is listed.
    statuses: Vec<OrdersInStatus>,
    /// The days, oldest first, up to today. Days without orders are included.
    days: Vec<OrderDay>,
}

/// Delivery attempts of a webhook on one day (UTC).
#[derive(Object, Serialize)]
struct WebhookDay {
    /// The day, as `YYYY-MM-DD`.
    day: String,
    /// Number of attempts that ended on the day.
    attempts: i64,
    /// Number of attempts that your endpoint answered with a 2xx status.
    delivered: i64,
    /// Number of attempts that failed.
    failed: i64,
    /// Average duration of an attempt, in milliseconds; null without attempts.
    average_ms: Option<i64>,
    /// Duration of the longest attempt, in milliseconds; null without attempts.
    longest_ms: Option<i32>,
}

/// Delivery attempts of a webhook by day.
#[derive(Object, Serialize)]
pub struct WebhookStatistics {
    /// Unique identifier of the webhook.
    webhook_id: i64,
    /// The days, oldest first, up to today. Days without attempts are included.
    days: Vec<WebhookDay>,
}

/// Delivery attempts of the account's webhooks by day.
#[derive(Object, Serialize)]
struct AttemptsByWebhook {
    /// The account's webhooks, newest first, each with its days.
    webhooks: Vec<WebhookStatistics>,
}

impl WebhookDay {
    fn of(day: NaiveDate, counted: Option<&DeliveryDay>) -> Self {
        let (attempts, delivered) = counted.map_or((0, 0), |counted| (counted.attempts, counted.delivered));
        Self {
            day: day.to_string(),
            attempts,
            delivered,
            failed: attempts - delivered,
            average_ms: counted.and_then(|counted| counted.total_ms.checked_div(counted.attempts)),
            longest_ms: counted.map(|counted| counted.longest_ms),
        }
    }
}

/// Returns today (UTC), by the database's clock.
async fn today(db: impl PgExecutor<'_>) -> Result<NaiveDate, sqlx::Error> {
    sqlx::query_scalar("SELECT (now() AT TIME ZONE 'UTC')::date").fetch_one(db).await
}

/// Orders and spend of an account by day.
struct OrderCounts {
    /// Beginnings of the days, and of tomorrow.
    midnights: Vec<DateTime<Utc>>,
    /// Number of orders before each of these.
    before: Vec<i64>,
    spend: Vec<DaySpend>,
    statuses: Vec<(order::OrderStatus, i64)>,
}

/// Reads the orders and the spend of the last days in one snapshot.
async fn count_orders(pool: &PgPool, (shard, account): (ShardId, AccountId), days: u64) -> Result<OrderCounts, sqlx::Error> {
    let mut tx = page::snapshot(pool).await?;
    let today = today(&mut *tx).await?;
    let midnights = midnights(today, days);
    let head = reader::head(&mut *tx, shard).await?;
    let begins = reader::first_at_each(&mut tx, shard, &midnights, head).await?;
    let before = page_anchors::orders_before_each(&mut tx, shard, account, &begins).await?;
    let first = midnights.first().map_or(today, DateTime::date_naive);
    let spend = totals::spend(&mut tx, shard, account, first).await?;
    let statuses = reader::orders_by_status(&mut tx, shard, account).await?;
    tx.commit().await?;
    Ok(OrderCounts { midnights, before, spend, statuses })
}

/// Counts the attempts of each of these webhooks on each of the last days.
async fn attempts_by_day(
    state: &ApiState,
    shard: ShardId,
    webhooks: &[WebhookId],
    days: u64,
) -> Result<Vec<WebhookStatistics>, ApiError> {
    let pool = state.ledger.pool();
    let mut midnights = midnights(today(pool).await?, days);
    midnights.pop(); // tomorrow's
    let wanted: Vec<NaiveDate> = midnights.iter().map(DateTime::date_naive).collect();
    let first = wanted.first().copied().unwrap_or(NaiveDate::MAX);
    let counted = delivery::days::of_webhooks(pool, shard, webhooks, first).await?;
    let counted: BTreeMap<(WebhookId, NaiveDate), DeliveryDay> =
        counted.into_iter().map(|(webhook, day)| ((webhook, day.day), day)).collect();
    let of = |webhook: &WebhookId| WebhookStatistics {
        webhook_id: webhook.0,
        days: wanted.iter().map(|day| WebhookDay::of(*day, counted.get(&(*webhook, *day)))).collect(),
    };
    Ok(webhooks.iter().map(of).collect())
}

/// Counts the attempts of a webhook on each of the last days.
///
/// # Errors
/// Any error of the database.
pub async fn attempts_of_one(
    state: &ApiState,
    (shard, webhook): (ShardId, WebhookId),
    days: u64,
) -> Result<WebhookStatistics, ApiError> {
    attempts_by_day(state, shard, &[webhook], days).await?.pop().ok_or_else(not_found)
}

/// Reads a number of days.
///
/// # Errors
/// 400 if it is out of range.
pub fn days(days: Option<i64>) -> Result<u64, ApiError> {
    let days = days.unwrap_or(DAYS);
    let problem = || ApiError::invalid("days", format!("must be between 1 and {MAX_STATISTICS_DAYS}"));
    let count = u64::try_from(days).ok().filter(|_| (1..=MAX_STATISTICS_DAYS).contains(&days));
    count.ok_or_else(problem)
}

/// Lists the beginnings of the last days and of tomorrow (UTC), oldest first.
fn midnights(today: NaiveDate, days: u64) -> Vec<DateTime<Utc>> {
    let begin = |back: u64| {
        let day = today.succ_opt().and_then(|tomorrow| tomorrow.checked_sub_days(Days::new(back)));
        day.unwrap_or(today).and_time(NaiveTime::MIN).and_utc()
    };
    (0..=days).rev().map(begin).collect()
}

pub struct Statistics;

#[OpenApi(prefix_path = "/api/v1")]
impl Statistics {
    /// Count orders by day
    ///
    /// Returns the number of orders and the spend of each day (UTC), up to today, and the number of all orders in each status.
    #[oai(path = "/orders/stats", method = "get", operation_id = "count_orders", tag = "Tag::Orders")]
    async fn orders(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Number of days up to today, 1 to 92. Default: 30.
        days: Query<Option<i64>>,
    ) -> Result<Reply<OrderStatistics>, ApiError> {
        let (shard, account) = (caller.0.shard_id, caller.0.account_id);
        let days = self::days(days.0)?;
        let pool = state.read_pool();
        let counts = replanned(|| count_orders(&pool, (shard, account), days)).await?;
        let OrderCounts { midnights, before, spend: moved, statuses } = counts;
        let statuses = statuses.into_iter().map(|(status, orders)| OrdersInStatus { status: status.into(), orders }).collect();
        let mut spend: BTreeMap<NaiveDate, Vec<Spend>> = BTreeMap::new();
        for moved in moved {
            let (spent, refunded) = (Money(moved.spent), Money(moved.refunded));
            spend.entry(moved.day).or_default().push(Spend { currency: moved.currency, spent, refunded });
        }
        let day = |(midnight, orders): (&DateTime<Utc>, &[i64])| OrderDay {
            day: midnight.date_naive().to_string(),
            orders: orders.last().zip(orders.first()).map_or(0, |(end, begin)| end - begin),
            spend: spend.remove(&midnight.date_naive()).unwrap_or_default(),
        };
        let days = midnights.iter().zip(before.windows(2)).map(day).collect();
        Ok(Reply(OrderStatistics { statuses, days }))
    }

    /// Count the attempts of all webhooks by day
    ///
    /// Returns the number of delivery attempts of each day (UTC) up to today, and how long they took, for each webhook of the
    /// account. Deleted webhooks are left out.
    #[oai(path = "/webhooks/stats", method = "get", operation_id = "count_attempts_by_webhook", tag = "Tag::Webhooks")]
    async fn all_attempts(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Number of days up to today, 1 to 92. Default: 30.
        days: Query<Option<i64>>,
    ) -> Result<Reply<AttemptsByWebhook>, ApiError> {
        let days = self::days(days.0)?;
        let (caller, all) = (caller.0, rows_of(Page { page: 1, limit: MAX_WEBHOOKS }));
        let own = ledger_projections::webhooks::list(state.ledger.pool(), caller.shard_id, caller.account_id, all).await?;
        let ids: Vec<WebhookId> = own.rows.iter().map(|webhook| webhook.id).collect();
        Ok(Reply(AttemptsByWebhook { webhooks: attempts_by_day(&state, caller.shard_id, &ids, days).await? }))
    }

    /// Count a webhook's attempts by day
    ///
    /// Returns the number of delivery attempts of each day (UTC) up to today, and how long they took. Attempts are counted
    /// since the release that added this operation.
    #[oai(path = "/webhooks/:id/stats", method = "get", operation_id = "count_attempts", tag = "Tag::Webhooks")]
    async fn attempts(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
        /// Number of days up to today, 1 to 92. Default: 30.
        days: Query<Option<i64>>,
    ) -> Result<Reply<WebhookStatistics>, ApiError> {
        let days = self::days(days.0)?;
        let webhook = webhooks::find(&state, &caller.0, WebhookId(id.0)).await?;
        Ok(Reply(attempts_of_one(&state, (caller.0.shard_id, webhook.id), days).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_days_end_with_today() {
        let today = NaiveDate::from_ymd_opt(2026, 3, 1).unwrap();
        let days: Vec<String> = midnights(today, 2).iter().map(|midnight| midnight.date_naive().to_string()).collect();
        assert_eq!(days, ["2026-02-28", "2026-03-01", "2026-03-02"]);
    }

    #[test]
    fn the_number_of_days_is_bounded() {
        assert_eq!(days(None), Ok(30));
        assert_eq!((days(Some(1)), days(Some(92))), (Ok(1), Ok(92)));
        assert!(days(Some(0)).is_err() && days(Some(93)).is_err() && days(Some(i64::MIN)).is_err());
    }
}
