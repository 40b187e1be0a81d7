//! Webhooks whose deliveries wait, are repeated, or have failed for good.

use poem_openapi::Object;
use serde::Serialize;

use crate::api::scalars::Timestamp;
use crate::delivery::overview::{DueWebhook, FailedWebhook, FailingWebhook};

/// A webhook with due deliveries.
#[derive(Object, Serialize)]
pub struct DueEndpoint {
    /// Unique identifier of the webhook.
    webhook_id: i64,
    /// Account that the webhook belongs to.
    account_id: i64,
    /// Number of due deliveries that are not in flight: at most 1,000 first attempts and 1,000 retries.
    due: i64,
}

impl From<DueWebhook> for DueEndpoint {
    fn from(webhook: DueWebhook) -> Self {
        Self { webhook_id: webhook.webhook_id.0, account_id: webhook.account_id.0, due: webhook.due }
    }
}

/// A webhook whose deliveries fail and are retried.
#[derive(Object, Serialize)]
pub struct FailingEndpoint {
    /// Unique identifier of the webhook.
    webhook_id: i64,
    /// Account that the webhook belongs to.
    account_id: i64,
    /// Number of deliveries that wait for another attempt, at most 1,000.
    waiting: i64,
    /// Largest number of failed attempts of such a delivery.
    attempts: i16,
    /// Time of the next attempt.
    next_attempt_at: Timestamp,
    /// Time of the latest attempt of the delivery that is attempted next; null if the attempt is no longer kept.
    attempted_at: Option<Timestamp>,
    /// HTTP status of the response to that attempt; null without a response.
    response_status: Option<i16>,
    /// Duration of that attempt, in milliseconds.
    response_time_ms: Option<i32>,
    /// Reason why that attempt got no response; null if it got one.
    error: Option<String>,
}

/// A webhook with deliveries that have failed for good.
#[derive(Object, Serialize)]
pub struct FailedEndpoint {
    /// Unique identifier of the webhook.
    webhook_id: i64,
    /// Account that the webhook belongs to.
    account_id: i64,
    /// Number of deliveries that failed for good in the last 24 hours, among the latest 1,001 of all webhooks.
    failed: i64,
    /// Number of all deliveries that failed for good, at most 1,000.
    failed_in_all: i64,
    /// Time at which the last attempt of the latest one was due, or the time of the response if that is earlier.
    failed_at: Timestamp,
}

impl From<FailedWebhook> for FailedEndpoint {
    fn from(webhook: FailedWebhook) -> Self {
        Self {
            webhook_id: webhook.webhook_id.0,
            account_id: webhook.account_id.0,
            failed: webhook.failed,
            failed_in_all: webhook.failed_in_all,
            failed_at: webhook.failed_at.into(),
        }
    }
}

impl From<FailingWebhook> for FailingEndpoint {
    fn from(webhook: FailingWebhook) -> Self {
        Self {
            webhook_id: webhook.webhook_id.0,
            account_id: webhook.account_id.0,
            waiting: webhook.waiting,
            attempts: webhook.attempts,
            next_attempt_at: webhook.next_attempt_at.into(),
            attempted_at: webhook.started_at.map(Into::into),
            response_status: webhook.response_status,
            response_time_ms: webhook.response_time_ms,
            error: webhook.error,
        }
    }
}
