//! `/api/v1/webhooks/:id/explanation`: which events of an order a webhook received, and why not the others.

use ledger_events::webhook::Hearing;
use ledger_events::{OrderId, ReplayId, WebhookId};
use ledger_projections::deliveries::{DeliveryHistory, Retry};
use ledger_projections::orders;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use super::{Event, find};
use crate::api::error::ApiError;
use crate::api::principal::Caller;
use crate::api::reply::Reply;
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, not_found};
use crate::ledger::explanation::{self, ExplainedEvent};
use crate::ledger::reader;

/// State of the webhook when the event happened.
///
/// - `subscribed`: the webhook was active and subscribed to the event type.
/// - `not_subscribed`: the webhook was active, but not subscribed to the event type.
/// - `inactive`: the webhook was deactivated.
/// - `created_later`: the webhook did not exist yet.
/// - `deleted`: the webhook was already deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum WebhookState {
    Subscribed,
    NotSubscribed,
    Inactive,
    CreatedLater,
    Deleted,
}

impl From<Hearing> for WebhookState {
    fn from(hearing: Hearing) -> Self {
        match hearing {
            Hearing::Heard => Self::Subscribed,
            Hearing::NotSubscribed => Self::NotSubscribed,
            Hearing::Inactive => Self::Inactive,
            Hearing::NotRegistered => Self::CreatedLater,
            Hearing::Deleted => Self::Deleted,
        }
    }
}

/// Outcome of an event at the webhook.
///
/// - `delivered`: a delivery of the event succeeded.
/// - `pending`: a delivery is due or in flight.
/// - `failed`: every delivery of the event failed or was stopped.
/// - `not_sent`: the event was never sent to the webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum EventOutcome {
    Delivered,
    Pending,
    Failed,
    NotSent,
}

/// A delivery of the event to the webhook.
#[derive(Object, Serialize)]
struct EventDelivery {
    /// Unique identifier of the delivery.
    delivery_id: i64,
    /// Current outcome of the delivery.
    outcome: EventOutcome,
    /// Number of attempts made so far.
    attempt_count: i16,
    /// HTTP status that your endpoint returned to the latest attempt; null if it returned none.
    response_status: Option<i16>,
    /// Whether a replay made the delivery, yours or an operator's, instead of the event itself.
    is_replay: bool,
    /// Time at which the delivery was created.
    created_at: Timestamp,
}

/// An event of the order, with what became of it at the webhook.
#[derive(Object, Serialize)]
struct EventExplanation {
    /// ID of the event. The envelope's `event_id` and the header `X-Event-ID` have the same value.
    event_id: String,
    /// Type of the event.
    event_type: Event,
    /// Time of the event.
    created_at: Timestamp,
    /// State of the webhook at that time. It decided whether the event was sent.
    webhook_state: WebhookState,
    /// Outcome of the event at the webhook.
    outcome: EventOutcome,
    /// Explanation in plain English. Its wording may change.
    explanation: String,
    /// Deliveries of the event to the webhook, oldest first.
    deliveries: Vec<EventDelivery>,
}

/// Explanation of which events of an order a webhook received.
#[derive(Object, Serialize)]
struct WebhookExplanation {
    /// Unique identifier of the webhook.
    webhook_id: i64,
    /// Unique identifier of the order.
    order_id: i64,
    /// Events of the order, oldest first.
    events: Vec<EventExplanation>,
}

impl EventDelivery {
    fn of(delivery: DeliveryHistory, retries: &[Retry]) -> Self {
        let is_retried = retries.iter().any(|retry| {
            (retry.webhook_id, retry.event_id, retry.replay_id) == (delivery.webhook_id, delivery.event_id, delivery.replay_id)
        });
        let outcome = match &*delivery.status {
            "delivered" => EventOutcome::Delivered,
            "failed" if !is_retried => EventOutcome::Failed,
            _ => EventOutcome::Pending,
        };
        Self {
            delivery_id: delivery.id,
            outcome,
            attempt_count: delivery.attempt_count,
            response_status: delivery.attempts.last().and_then(|attempt| attempt.response_status),
            is_replay: delivery.replay_id != ReplayId(0),
            created_at: delivery.created_at.into(),
        }
    }
}

/// Returns the outcome of an event from those of its deliveries.
fn outcome(state: WebhookState, is_projected: bool, deliveries: &[EventDelivery]) -> EventOutcome {
    let any = |outcome| deliveries.iter().any(|delivery| delivery.outcome == outcome);
    match () {
        () if any(EventOutcome::Delivered) => EventOutcome::Delivered,
        () if any(EventOutcome::Pending) => EventOutcome::Pending,
        () if any(EventOutcome::Failed) => EventOutcome::Failed,
        () if state == WebhookState::Subscribed && !is_projected => EventOutcome::Pending,
        () => EventOutcome::NotSent,
    }
}

/// Explains the outcome in a sentence or two.
fn text(state: WebhookState, outcome: EventOutcome, deliveries: &[EventDelivery]) -> String {
    let then = match state {
        WebhookState::Subscribed => "The webhook was subscribed to this event type.",
        WebhookState::NotSubscribed => "The webhook was not subscribed to this event type at that time.",
        WebhookState::Inactive => "The webhook was inactive at that time.",
        WebhookState::CreatedLater => "The webhook was registered later.",
        WebhookState::Deleted => "The webhook was already deleted.",
    };
    let is_replay = deliveries.iter().any(|delivery| delivery.is_replay && delivery.outcome == outcome);
    let sent = match outcome {
        EventOutcome::Delivered if is_replay => "A replay delivered the event.".to_owned(),
        EventOutcome::Delivered => "The event was delivered.".to_owned(),
        EventOutcome::Pending if deliveries.is_empty() => "Its delivery is about to be created.".to_owned(),
        EventOutcome::Pending => "A delivery is due or in flight.".to_owned(),
        EventOutcome::Failed => {
            let last = deliveries.iter().rev().find(|delivery| delivery.outcome == EventOutcome::Failed);
            let attempts = last.map_or(0, |delivery| delivery.attempt_count);
            match last.and_then(|delivery| delivery.response_status) {
                _ if attempts == 0 => "Its delivery was stopped before the first attempt.".to_owned(),
                Some(status) => format!("Its delivery failed after {attempts} attempts; your endpoint last returned {status}."),
                None => format!("Its delivery failed after {attempts} attempts; your endpoint last returned no response."),
            }
        }
        EventOutcome::NotSent if state == WebhookState::Subscribed => "No delivery is recorded. Contact support.".to_owned(),
        EventOutcome::NotSent => "The event was not sent.".to_owned(),
    };
    format!("{then} {sent}")
}

impl EventExplanation {
    fn of(explained: ExplainedEvent, retries: &[Retry]) -> Self {
        let deliveries: Vec<_> = explained.deliveries.into_iter().map(|delivery| EventDelivery::of(delivery, retries)).collect();
        let webhook_state = explained.hearing.into();
        let outcome = outcome(webhook_state, explained.is_projected, &deliveries);
        Self {
            event_id: explained.event_id.to_string(),
            event_type: explained.event_type.into(),
            created_at: explained.recorded_at.into(),
            webhook_state,
            outcome,
            explanation: text(webhook_state, outcome, &deliveries),
            deliveries,
        }
    }
}

pub struct Explanations;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Webhooks")]
impl Explanations {
    /// Explain a webhook's deliveries of an order
    ///
    /// Returns each event of an order, whether the webhook received it, and why or why not. The state of the webhook when
    /// the event happened decides that, as recorded in the log. Also works for a webhook that is deleted.
    #[oai(path = "/webhooks/:id/explanation", method = "get", operation_id = "explain_webhook")]
    async fn explain(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
        /// Unique identifier of the order.
        order_id: Query<i64>,
    ) -> Result<Reply<WebhookExplanation>, ApiError> {
        let (caller, pool) = (caller.0, state.ledger.pool());
        find(&state, &caller, WebhookId(id.0)).await?;
        let order =
            orders::find(pool, caller.shard_id, OrderId(order_id.0), Some(caller.account_id)).await?.ok_or_else(not_found)?;
        let retries = reader::retries_ahead(pool, caller.shard_id, caller.account_id).await?;
        let explained = explanation::explain(pool, caller.shard_id, WebhookId(id.0), order.id).await?;
        let events = explained.into_iter().map(|event| EventExplanation::of(event, &retries)).collect();
        Ok(Reply(WebhookExplanation { webhook_id: id.0, order_id: order.id.0, events }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(outcome: EventOutcome, attempt_count: i16, response_status: Option<i16>, is_replay: bool) -> EventDelivery {
        let created_at = chrono::DateTime::UNIX_EPOCH.into();
        EventDelivery { delivery_id: 1, outcome, attempt_count, response_status, is_replay, created_at }
    }

    #[test]
    fn an_explanation_follows_from_the_state_then_and_the_deliveries() {
        use EventOutcome::{Delivered, Failed, NotSent, Pending};
        use WebhookState::{CreatedLater, Inactive, NotSubscribed, Subscribed};
        for (state, is_projected, deliveries, expected, words) in [
            (Subscribed, true, vec![delivery(Delivered, 1, Some(200), false)], Delivered, "was delivered"),
            (Subscribed, false, vec![], Pending, "about to be created"),
            (Subscribed, true, vec![], NotSent, "Contact support"),
            (
                Subscribed,
                true,
                vec![delivery(Failed, 5, Some(500), false)],
                Failed,
                "after 5 attempts; your endpoint last returned 500",
            ),
            (Subscribed, true, vec![delivery(Failed, 0, None, false)], Failed, "stopped before the first attempt"),
            (Inactive, true, vec![], NotSent, "inactive at that time. The event was not sent."),
            (CreatedLater, true, vec![delivery(Delivered, 1, Some(200), true)], Delivered, "A replay delivered"),
            (NotSubscribed, false, vec![], NotSent, "was not subscribed"),
            (
                Subscribed,
                true,
                vec![delivery(Failed, 5, None, false), delivery(Pending, 0, None, true)],
                Pending,
                "due or in flight",
            ),
        ] {
            let found = outcome(state, is_projected, &deliveries);
            assert_eq!(found, expected, "{state:?}");
            let text = text(state, found, &deliveries);
            assert!(text.contains(words), "{text}");
        }
    }
}
