//! `/admin/v1/erasures` and `/admin/v1/retention`: data that was destroyed, and data that is kept for a time.

use std::time::Duration;

use chrono::{NaiveTime, TimeDelta};
use ledger_events::erasure::PersonalDataErased;
use poem_openapi::param::Query;
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use super::audit::{AuditEntry, position_before};
use crate::access::Operator;
use crate::api::error::ApiError;
use crate::api::page::Page;
use crate::api::principal::Caller;
use crate::api::reply::Reply;
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag};
use crate::delivery::days::KEPT_DAYS;
use crate::delivery::oldest::{Oldest, oldest};
use crate::delivery::retention::RetentionSettings;
use crate::ledger::erasure::wipe;
use crate::ledger::expiry::KEY_LIFETIME;
use crate::ledger::reader::{Stored, erasures};

/// An erasure of personal data, or one step of a large one, with its entry in the audit.
#[derive(Object, Serialize)]
struct Erasure {
    #[oai(flatten)]
    #[serde(flatten)]
    entry: AuditEntry,
    /// Number of the only line that was erased; null for all lines of a bank statement, and for other subjects.
    line: Option<i32>,
    /// Number of deleted texts.
    texts: i64,
    /// Number of vouchers that lost their codes.
    vouchers: i64,
    /// Number of stored responses that lost their personal content.
    responses: i64,
    /// Number of destroyed data keys.
    data_keys: i64,
    /// Whether nothing of the subject is left.
    is_complete: bool,
}

impl Erasure {
    fn of(entry: AuditEntry, erased: &PersonalDataErased) -> Self {
        let &PersonalDataErased { texts, vouchers, answers, data_keys, is_complete, line, .. } = erased;
        Self { entry, line, texts, vouchers, responses: answers, data_keys, is_complete }
    }
}

/// A page of erasures, newest first.
#[derive(Object, Serialize)]
struct ErasurePage {
    /// Erasures of this page.
    erasures: Vec<Erasure>,
    /// Value of `before` for the next page. Null at the end.
    next_before: Option<i64>,
    /// Tables whose files still hold deleted data, sealed under destroyed keys. `rewards-ledger erase finish` rewrites them.
    unwiped_tables: Vec<String>,
}

/// A kind of data that is deleted after a time, or above a quota.
///
/// - `attempts`: attempts of final deliveries, with their response bodies.
/// - `payloads`: payloads of events without pending deliveries. They are derived again when needed.
/// - `response_bodies`: response bodies of a webhook's receiver.
/// - `stored_responses`: responses under an `Idempotency-Key`.
/// - `delivery_days`: counts of delivery attempts by day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum RetainedData {
    Attempts,
    Payloads,
    ResponseBodies,
    StoredResponses,
    DeliveryDays,
}

/// Retention of one kind of data.
#[derive(Object, Serialize)]
struct RetentionRule {
    /// Kind of the data.
    data: RetainedData,
    /// Setting of the node that answers; null if the rule is fixed.
    setting: Option<String>,
    /// Seconds for which the data is kept at least; null if only a quota limits it.
    kept_seconds: Option<i64>,
    /// Largest number of bytes that are kept per webhook; null without a quota.
    quota_bytes: Option<i64>,
    /// Time of the oldest data of this kind; null if there is none, or if it is not looked up.
    oldest_at: Option<Timestamp>,
}

/// Retention of all kinds of data that are not kept for ever.
#[derive(Object, Serialize)]
struct RetentionState {
    /// Rules, one for each kind of data.
    rules: Vec<RetentionRule>,
}

/// Returns the rules by the settings of this node, and what is there.
fn rules(settings: RetentionSettings, oldest: Oldest) -> Vec<RetentionRule> {
    let seconds = |kept: Duration| Some(i64::try_from(kept.as_secs()).unwrap_or(i64::MAX));
    let rule = |data, setting: Option<&str>, kept_seconds, oldest_at: Option<Timestamp>| RetentionRule {
        data,
        setting: setting.map(ToOwned::to_owned),
        kept_seconds,
        quota_bytes: None,
        oldest_at,
    };
    let day = oldest.day.map(|day| day.and_time(NaiveTime::MIN).and_utc().into());
    let quota = Some(i64::try_from(settings.response_bodies).unwrap_or(i64::MAX));
    vec![
        rule(RetainedData::Attempts, Some("--attempt-retention"), seconds(settings.attempts), oldest.attempt.map(Into::into)),
        rule(RetainedData::Payloads, Some("--payload-retention"), seconds(settings.payloads), oldest.payload.map(Into::into)),
        RetentionRule { quota_bytes: quota, ..rule(RetainedData::ResponseBodies, Some("--response-body-quota"), None, None) },
        rule(RetainedData::StoredResponses, None, Some(KEY_LIFETIME.num_seconds()), None),
        rule(RetainedData::DeliveryDays, None, Some(TimeDelta::days(KEPT_DAYS.into()).num_seconds()), day),
    ]
}

pub struct Erasures;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Operations")]
impl Erasures {
    /// List erasures
    ///
    /// Returns the erasures of personal data, newest first, with counts of what was destroyed. The command
    /// `rewards-ledger erase` makes them. A large account is erased in several steps, each with an entry of its own.
    #[oai(path = "/erasures", method = "get", operation_id = "list_erasures")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Only erasures before this position: `next_before` of the previous page.
        before: Query<Option<i64>>,
        /// Erasures per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
        /// Shard whose log to read. Default: the first shard.
        shard_id: Query<Option<i16>>,
    ) -> Result<Reply<ErasurePage>, ApiError> {
        let limit = usize::try_from(Page::of(None, limit.0, 20, 100)?.limit).unwrap_or(20);
        let shard = state.shard_named(shard_id.0)?;
        let pool = state.ledger.pool();
        let page = erasures::page(pool, shard, position_before(before.0)?, limit).await?;
        let events: Vec<&Stored> = page.erasures.iter().map(|(stored, _)| stored).collect();
        let entries = AuditEntry::of_events(pool, &state.keyring, shard, &events).await?;
        let shown = entries.into_iter().zip(&page.erasures).map(|(entry, (_, erased))| Erasure::of(entry, erased));
        Ok(Reply(ErasurePage {
            erasures: shown.collect(),
            next_before: page.next_before,
            unwiped_tables: wipe::outstanding(pool).await?,
        }))
    }

    /// Retrieve the retention of data
    ///
    /// Returns how long each kind of data is kept by the settings of the node that answers, and since when the oldest is
    /// there. The log, and what is derived from it, is kept for ever.
    #[oai(path = "/retention", method = "get", operation_id = "get_retention")]
    async fn retention(&self, _caller: Caller<Operator>, state: State<'_>) -> Result<Reply<RetentionState>, ApiError> {
        let shards = state.ledger.shards();
        let oldest = oldest(state.ledger.pool(), &shards).await?;
        Ok(Reply(RetentionState { rules: rules(state.retention, oldest) }))
    }
}
