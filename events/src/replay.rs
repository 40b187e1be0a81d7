//! The replay stream: an operator has events delivered to a webhook again, or for the first time.
//!
//! A replay walks the log in steps, from one position up to its own request. Each step is an event that names the
//! events to deliver. The deliveries of a replay therefore derive from the log like all others. After a crash, the
//! next run continues where the last step ended.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::webhook::{Webhook, WebhookEventType};
use crate::{AccountId, Moment, Position, Rejection, ReplayId, WebhookId};

/// Selection of the events that a replay delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayKind {
    /// Events that already have a delivery to the webhook, successful or not.
    Deliveries,
    /// Events of the subscribed types that never reached the webhook and have no pending delivery. Includes events
    /// from before the webhook existed.
    Missed,
}

/// Part of the missed events, if a replay is to deliver only that part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissedOnly {
    /// Events that have a delivery to the webhook, none of which succeeded or is pending.
    Failed,
    /// Events that have no delivery to the webhook.
    NeverSent,
}

/// Stands for the replay of a delivery that the event itself made.
pub const NO_REPLAY: ReplayId = ReplayId(0);

impl ReplayKind {
    pub const ALL: [ReplayKind; 2] = [Self::Deliveries, Self::Missed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deliveries => "deliveries",
            Self::Missed => "missed",
        }
    }

    pub fn parse(text: &str) -> Option<ReplayKind> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookReplayRequested {
    pub account_id: AccountId,
    pub webhook_id: WebhookId,
    pub kind: ReplayKind,
    /// Event types that the webhook was subscribed to.
    pub events: Vec<WebhookEventType>,
    /// First position to examine. The last one is right before this event.
    pub from: Position,
    /// Maximum number of deliveries made per second.
    pub per_second: i32,
    /// Part of the missed events to deliver; absent for all of them. The job reads it here: no other state depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<MissedOnly>,
}

/// One step: it delivers these events and has examined every position before `next`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookReplayAdvanced {
    pub webhook_id: WebhookId,
    /// Event ids, ordered by position.
    pub events: Vec<Uuid>,
    pub next: Position,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookReplayCompleted {}

/// A stop by an operator. The pending deliveries of the replay fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookReplayCancelled {}

/// An early end, because the webhook was switched off or deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookReplayFailed {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayStatus {
    Running,
    Completed,
    Cancelled,
    Failed,
}

impl ReplayStatus {
    pub const ALL: [ReplayStatus; 4] = [Self::Running, Self::Completed, Self::Cancelled, Self::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Completed => "COMPLETED",
            Self::Cancelled => "CANCELLED",
            Self::Failed => "FAILED",
        }
    }

    pub fn parse(text: &str) -> Option<ReplayStatus> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }
}

/// State of a replay: the fold of its stream, and the row of the table `webhook_replays`.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    pub id: ReplayId,
    pub version: i64,
    pub account_id: AccountId,
    pub webhook_id: WebhookId,
    pub kind: ReplayKind,
    pub events: Vec<WebhookEventType>,
    pub per_second: i32,
    pub status: ReplayStatus,
    pub from: Position,
    /// Position at which the next step begins.
    pub next: Position,
    /// Position of the request, where the replay ends. Later events are delivered without a replay.
    pub until: Position,
    /// Number of deliveries made so far.
    pub deliveries: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Replay {
    /// Maximum number of deliveries in a step.
    pub const MAX_PER_STEP: usize = 500;

    /// Returns the share of its part of the log that the replay has examined, in percent, rounded down.
    pub fn progress_percent(&self) -> i64 {
        progress_percent(self.from, self.next, self.until)
    }

    /// Decides a prepared step that starts at position `at`. If the webhook no longer receives deliveries, the
    /// step ends the replay as failed.
    ///
    /// # Errors
    /// Rejects a step of an ended replay. Also rejects a step that does not start where the last one ended, goes
    /// past the request, or has more than [`Replay::MAX_PER_STEP`] deliveries.
    pub fn advance(
        &self,
        webhook: Option<&Webhook>,
        at: Position,
        events: &[Uuid],
        next: Position,
    ) -> Result<Vec<ReplayEvent>, Rejection> {
        if self.status != ReplayStatus::Running {
            return Err(Rejection::Conflict("the replay has ended"));
        }
        let is_step = at == self.next && at <= next && next <= self.until && events.len() <= Self::MAX_PER_STEP;
        if !is_step {
            return Err(Rejection::Conflict("the step does not continue the replay: another step was recorded meanwhile"));
        }
        if webhook.is_none_or(|webhook| webhook.listening().is_err()) {
            return Ok(vec![WebhookReplayFailed {}.into()]);
        }
        let mut decided = vec![];
        if at < next {
            let step = WebhookReplayAdvanced { webhook_id: self.webhook_id, events: events.to_vec(), next };
            decided.push(step.into());
        }
        if next == self.until {
            decided.push(WebhookReplayCompleted {}.into());
        }
        Ok(decided)
    }

    pub fn cancel(&self) -> Result<ReplayEvent, Rejection> {
        match self.status {
            ReplayStatus::Running => Ok(WebhookReplayCancelled {}.into()),
            _ => Err(Rejection::Conflict("the replay has ended")),
        }
    }
}

/// Folds an event into the state. This is the only fold of the replay stream. Returns `None` only before
/// `WebhookReplayRequested`.
pub fn evolve(state: Option<Replay>, id: ReplayId, event: &ReplayEvent, at: &Moment) -> Option<Replay> {
    let mut replay = match (state, event) {
        (None, ReplayEvent::WebhookReplayRequested(e)) => Replay {
            id,
            version: at.version,
            account_id: e.account_id,
            webhook_id: e.webhook_id,
            kind: e.kind,
            events: e.events.clone(),
            per_second: e.per_second,
            status: ReplayStatus::Running,
            from: e.from,
            next: e.from.min(at.position),
            until: at.position,
            deliveries: 0,
            created_at: at.recorded_at,
            updated_at: at.recorded_at,
        },
        (None, _) => return None,
        (Some(replay), _) => replay,
    };
    match event {
        ReplayEvent::WebhookReplayRequested(_) => {}
        ReplayEvent::WebhookReplayAdvanced(e) => {
            replay.next = e.next;
            replay.deliveries += i64::try_from(e.events.len()).unwrap_or(i64::MAX);
        }
        ReplayEvent::WebhookReplayCompleted(_) => replay.status = ReplayStatus::Completed,
        ReplayEvent::WebhookReplayCancelled(_) => replay.status = ReplayStatus::Cancelled,
        ReplayEvent::WebhookReplayFailed(_) => replay.status = ReplayStatus::Failed,
    }
    replay.version = at.version;
    replay.updated_at = at.recorded_at;
    Some(replay)
}

crate::codec::stream_events! {
    /// Events of a replay.
    ReplayEvent {
        WebhookReplayRequested = 1,
        WebhookReplayAdvanced = 1,
        WebhookReplayCompleted = 1,
        WebhookReplayCancelled = 1,
        WebhookReplayFailed = 1,
    }
}

/// Returns the share of the positions in `from..until` that lie before `next`, in percent, rounded down.
pub fn progress_percent(from: Position, next: Position, until: Position) -> i64 {
    let (examined, whole) = (next - from, until - from);
    if whole > 0 { (examined.saturating_mul(100) / whole).clamp(0, 100) } else { 100 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn at(position: Position, version: i64) -> Moment {
        let recorded_at = DateTime::from_timestamp(1_800_000_000 + position, 0).unwrap();
        Moment { position, event_id: Uuid::nil(), version, recorded_at }
    }

    fn requested() -> Replay {
        let event = WebhookReplayRequested {
            account_id: AccountId(7),
            webhook_id: WebhookId(3),
            kind: ReplayKind::Missed,
            events: vec![WebhookEventType::OrderCreated],
            from: 1,
            per_second: 50,
            only: None,
        };
        evolve(None, ReplayId(9), &event.into(), &at(100, 1)).unwrap()
    }

    fn webhook(is_active: bool) -> Webhook {
        Webhook {
            id: WebhookId(3),
            version: 1,
            account_id: AccountId(7),
            credential_id: None,
            events: vec![WebhookEventType::OrderCreated],
            is_active,
            is_deleted: false,
            deactivated: None,
            created_at: DateTime::UNIX_EPOCH,
            updated_at: DateTime::UNIX_EPOCH,
        }
    }

    fn after(replay: Replay, events: &[ReplayEvent]) -> Replay {
        events.iter().fold(replay, |replay, event| {
            let moment = at(101 + replay.version, replay.version + 1);
            evolve(Some(replay), ReplayId(9), event, &moment).unwrap()
        })
    }

    #[test]
    fn steps_run_from_the_first_position_to_the_request_and_no_step_counts_twice() {
        let (listening, events) = (webhook(true), [Uuid::from_u128(1), Uuid::from_u128(2)]);
        let replay = requested();
        assert_eq!((replay.next, replay.until, replay.deliveries), (1, 100, 0));
        let step = replay.advance(Some(&listening), 1, &events, 60).unwrap();
        let replay = after(replay, &step);
        assert_eq!((replay.next, replay.deliveries, replay.status), (60, 2, ReplayStatus::Running));
        // Another node prepared this step too.
        assert!(replay.advance(Some(&listening), 1, &events, 60).is_err());
        let last = replay.advance(Some(&listening), 60, &events[..1], 100).unwrap();
        assert_eq!(last.len(), 2);
        let replay = after(replay, &last);
        assert_eq!((replay.next, replay.deliveries, replay.status), (100, 3, ReplayStatus::Completed));
        assert!(replay.advance(Some(&listening), 100, &[], 100).is_err());
        assert!(replay.cancel().is_err());
    }

    #[test]
    fn progress_is_the_share_of_the_log_that_is_examined() {
        let progress = |from, next| Replay { from, next, ..requested() }.progress_percent();
        assert_eq!([progress(1, 1), progress(1, 60), progress(1, 99), progress(1, 100)], [0, 59, 98, 100]);
        // A replay from a position after its request has nothing to examine.
        assert_eq!([progress(100, 100), progress(i64::MAX, 100)], [100, 100]);
    }

    #[test]
    fn an_empty_replay_completes_at_once() {
        let mut replay = requested();
        replay.next = replay.until;
        let ended = replay.advance(Some(&webhook(true)), 100, &[], 100).unwrap();
        assert_eq!(ended, [WebhookReplayCompleted {}.into()]);
    }

    #[test]
    fn an_inactive_webhook_or_an_operator_ends_a_replay() {
        for webhook in [None, Some(&webhook(false))] {
            let failed = requested().advance(webhook, 1, &[Uuid::nil()], 60).unwrap();
            let replay = after(requested(), &failed);
            assert_eq!((replay.next, replay.deliveries, replay.status), (1, 0, ReplayStatus::Failed));
        }
        let cancelled = requested().cancel().unwrap();
        assert_eq!(after(requested(), &[cancelled]).status, ReplayStatus::Cancelled);
    }
}
