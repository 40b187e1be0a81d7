//! `/admin/v1/orders/:id/history`: the story of an order; and how operators say as of when.

use ledger_database::PgPool;
use ledger_events::{Position, ShardId};
use ledger_projections::deliveries;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::error::ApiError;
use crate::api::principal::Caller;
use crate::api::reply::Reply;
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, not_found};
use crate::api::transactions::Transaction;
use crate::ledger::history::{self, AsOf, AsOfError};
use crate::ledger::story::{self, Chapter, Story, Telling, Who};
use crate::secrets::seal::Private;

/// The position that `as_of` means; none where it was not given.
///
/// # Errors
/// 400 for what is neither a position nor a time, and for a position that the log has not reached.
pub async fn as_of_position(pool: &PgPool, shard: ShardId, as_of: Option<&str>) -> Result<Option<Position>, ApiError> {
    let Some(text) = as_of else { return Ok(None) };
    let as_of: AsOf = text.parse().map_err(|problem: AsOfError| ApiError::invalid("as_of", problem.to_string()))?;
    Ok(Some(history::position(pool, shard, as_of).await?))
}

/// Everything that happened to an order.
#[derive(Object, Serialize)]
pub struct OrderHistory {
    /// The order.
    order_id: i64,
    /// Whose it is.
    account_id: i64,
    /// The order's reference, for people.
    reference_code: String,
    /// Where it stands at the end.
    status: String,
    /// The position of the log that it is as of; null: as it is now.
    as_of_position: Option<i64>,
    /// What happened, oldest first.
    entries: Vec<HistoryEntry>,
    /// How many readings of the codes are not among the entries: after 1,000 entries the last 100 of the readings are.
    entries_left_out: u64,
}

/// One event of an order, and what came of it.
#[derive(Object, Serialize)]
struct HistoryEntry {
    /// The event's position in the log.
    position: i64,
    /// The event's id; webhooks are told of it under the same.
    event_id: String,
    /// The event's type in the log.
    event_type: String,
    /// When it was recorded.
    recorded_at: Timestamp,
    /// Who did it.
    actor: HistoryActor,
    /// The `X-Request-ID` that it came with, or the name of what acted by itself.
    request_id: String,
    /// What happened, for people. Vouchers are named by their references.
    description: String,
    /// What was given as the reason.
    reason: Option<String>,
    /// What it moved in the wallet.
    transaction: Option<Transaction>,
    /// What webhooks were told of it, as it stands now.
    deliveries: Vec<HistoryDelivery>,
}

/// Who acted.
#[derive(Object, Serialize)]
struct HistoryActor {
    /// `credential`, `user`, `operator`, `fulfilment`, `replay` or `sandbox`.
    kind: String,
    /// Which one; null for what there is one of.
    actor_id: Option<i64>,
    /// A credential's or an operator's name, a user's email, where it is known.
    name: Option<String>,
}

/// One delivery to one webhook.
#[derive(Object, Serialize)]
struct HistoryDelivery {
    /// The delivery.
    delivery_id: i64,
    /// The webhook.
    webhook_id: i64,
    /// The webhook's name; null once it was erased.
    webhook_name: Option<String>,
    /// The replay that made it; null for the one that the event made.
    replay_id: Option<i64>,
    /// What the webhook was told.
    event_type: String,
    /// `pending`, `delivered` or `failed`.
    status: String,
    /// Attempts that count; those with an unknown outcome do not.
    attempt_count: i16,
    /// When it was made.
    created_at: Timestamp,
    /// When the next attempt is due; null when there is none.
    next_attempt_at: Option<Timestamp>,
    /// Every attempt that is kept, oldest first.
    attempts: Vec<HistoryAttempt>,
    /// Who asked that it be tried again.
    retries: Vec<HistoryRetry>,
}

/// One attempt to deliver.
#[derive(Object, Serialize)]
struct HistoryAttempt {
    /// Its number, from 1. One whose outcome is unknown is repeated under its number.
    attempt: i16,
    /// The `X-Request-ID` it was sent with.
    request_id: String,
    /// When it began.
    started_at: Timestamp,
    /// `delivered`, `failed`, `in_flight`, or `unknown`: it was cut off before there was an outcome.
    outcome: String,
    /// The HTTP status of the answer.
    response_status: Option<i16>,
    /// How long the answer took, in milliseconds.
    response_time_ms: Option<i32>,
    /// Why there is no good answer.
    error: Option<String>,
}

/// Somebody asked that a failed delivery be tried again.
#[derive(Object, Serialize)]
struct HistoryRetry {
    /// When.
    requested_at: Timestamp,
    /// Who.
    actor: HistoryActor,
}

fn shown(text: Private) -> String {
    text.expose().to_owned()
}

impl From<Who> for HistoryActor {
    fn from(who: Who) -> Self {
        let (kind, actor_id) = who.actor.kind();
        Self { kind: kind.to_owned(), actor_id, name: who.name.map(shown) }
    }
}

impl From<deliveries::Attempt> for HistoryAttempt {
    fn from(attempt: deliveries::Attempt) -> Self {
        Self {
            attempt: attempt.attempt,
            request_id: attempt.request_id.to_string(),
            started_at: attempt.started_at.into(),
            outcome: story::outcome(&attempt).to_owned(),
            response_status: attempt.response_status,
            response_time_ms: attempt.response_time_ms,
            error: attempt.error,
        }
    }
}

impl From<Telling> for HistoryDelivery {
    fn from(telling: Telling) -> Self {
        let Telling { told, webhook_name, retries } = telling;
        Self {
            delivery_id: told.id,
            webhook_id: told.webhook_id,
            webhook_name: webhook_name.map(shown),
            replay_id: Some(told.replay_id).filter(|id| *id > 0),
            event_type: told.event_type,
            status: told.status,
            attempt_count: told.attempt_count,
            created_at: told.created_at.into(),
            next_attempt_at: told.next_attempt_at.map(Into::into),
            attempts: told.attempts.into_iter().map(Into::into).collect(),
            retries: retries.into_iter().map(|(at, who)| HistoryRetry { requested_at: at.into(), actor: who.into() }).collect(),
        }
    }
}

impl From<Chapter> for HistoryEntry {
    fn from(chapter: Chapter) -> Self {
        let moment = chapter.recorded.moment;
        Self {
            position: moment.position,
            event_id: moment.event_id.to_string(),
            event_type: chapter.recorded.event.type_and_version().0.to_owned(),
            recorded_at: moment.recorded_at.into(),
            actor: chapter.actor.into(),
            request_id: chapter.recorded.metadata.request_id,
            description: chapter.description,
            reason: chapter.reason.map(shown),
            transaction: chapter.movement.map(Into::into),
            deliveries: chapter.deliveries.into_iter().map(Into::into).collect(),
        }
    }
}

impl OrderHistory {
    pub fn of(story: Story, as_of_position: Option<Position>) -> Self {
        let order = story.order;
        Self {
            order_id: order.id,
            account_id: order.placed.account_id,
            reference_code: order.placed.reference_code,
            status: order.status.as_str().to_owned(),
            as_of_position,
            entries: story.chapters.into_iter().map(Into::into).collect(),
            entries_left_out: story.left_out,
        }
    }
}

pub struct Histories;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Orders")]
impl Histories {
    /// Get the story of an order
    ///
    /// Who did what and when, what it moved in the wallet, and which webhooks were told with what outcome: every
    /// attempt, replays and retries too. With `as_of` up to then; deliveries are shown as they stand now. Of codes that were
    /// read a thousand times and more not every reading is told: `entries_left_out` says how many are not.
    #[oai(path = "/orders/:id/history", method = "get", operation_id = "get_order_history")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// The order's id.
        id: Path<i64>,
        /// Up to this position of the log, or this time (RFC 3339, or a date: its midnight, UTC); by default up to now.
        as_of: Query<Option<String>>,
    ) -> Result<Reply<OrderHistory>, ApiError> {
        let pool = state.ledger.pool();
        let shard = state.ledger.shard_of_order(id.0).await?.ok_or_else(not_found)?;
        let upto = as_of_position(pool, shard, as_of.0.as_deref()).await?;
        let story = story::of_order(pool, Some(&state.keyring), shard, id.0, upto).await?.ok_or_else(not_found)?;
        Ok(Reply(OrderHistory::of(story, upto)))
    }
}
