//! Replaying events to a webhook: requested, carried out step by step, ended.

use std::collections::HashSet;

use ledger_events::replay::{Replay, ReplayEvent, ReplayStatus, WebhookReplayFailed, WebhookReplayRequested};
use ledger_events::{Rejection, ReplayId, WebhookId};

use super::{Decided, Story, next};
use crate::ledger::answer::Answer;
use crate::ledger::batch::Batch;
use crate::ledger::command::{AdvanceReplay, RequestReplay};

pub(super) fn request(batch: &mut Batch, command: &RequestReplay, story: Story<'_>) -> Decided {
    let webhook = batch.webhooks.get(&command.webhook_id).filter(|w| w.account_id == command.account_id);
    let events = webhook.ok_or(Rejection::NotFound)?.listening()?.events.clone();
    // Two beside each other would each find, and deliver, what the other one is about to.
    if batch.replays.values().any(|r| r.webhook_id == command.webhook_id && r.status == ReplayStatus::Running) {
        return Err(Rejection::Conflict("a replay of this webhook is running").into());
    }
    let id = next(batch.ids.replays.pop_front(), "replay")?;
    let event = WebhookReplayRequested {
        account_id: command.account_id,
        webhook_id: command.webhook_id,
        kind: command.kind,
        events,
        from: command.from,
        per_second: command.per_second,
    };
    let requested = batch.append(id, ReplayEvent::from(event), &Story { account_id: Some(command.account_id), ..story });
    batch.replay_stories.insert(id, (requested, requested));
    replay(batch, id).map(Answer::Replay).map_err(Into::into)
}

pub(super) fn advance(batch: &mut Batch, step: &AdvanceReplay, story: Story<'_>) -> Decided {
    let known = replay(batch, step.replay_id)?;
    let distinct: HashSet<_> = step.events.iter().collect();
    if distinct.len() != step.events.len() {
        return Err(Rejection::Conflict("the step has an event twice").into());
    }
    let decided = known.advance(batch.webhooks.get(&known.webhook_id), step.at, &step.events, step.next)?;
    for event in decided {
        append(batch, &known, event, &story);
    }
    replay(batch, known.id).map(Answer::Replay).map_err(Into::into)
}

/// Ends what replays to a webhook that listens no longer: nothing is replayed to one that was switched off, however
/// soon it listens again.
pub(super) fn end(batch: &mut Batch, webhook_id: WebhookId, story: &Story<'_>) {
    if batch.webhooks.get(&webhook_id).is_some_and(|webhook| webhook.listening().is_ok()) {
        return;
    }
    let running = batch.replays.values().filter(|r| r.webhook_id == webhook_id && r.status == ReplayStatus::Running);
    for replay in running.cloned().collect::<Vec<_>>() {
        append(batch, &replay, WebhookReplayFailed {}.into(), story);
    }
}

pub(super) fn cancel(batch: &mut Batch, id: ReplayId, story: Story<'_>) -> Decided {
    let known = replay(batch, id)?;
    append(batch, &known, known.cancel()?, &story);
    replay(batch, id).map(Answer::Replay).map_err(Into::into)
}

/// Each event follows from the one before it, and all belong to the story that the request began.
fn append(batch: &mut Batch, replay: &Replay, event: ReplayEvent, story: &Story<'_>) {
    let known = batch.replay_stories.get(&replay.id).copied();
    let story = Story {
        account_id: Some(replay.account_id),
        correlation_id: known.map(|(requested, _)| requested),
        causation_id: known.map(|(_, last)| last),
        origin: story.origin,
        idempotency: story.idempotency,
    };
    let event_id = batch.append(replay.id, event, &story);
    batch.replay_stories.insert(replay.id, (known.map_or(event_id, |(requested, _)| requested), event_id));
}

fn replay(batch: &Batch, id: ReplayId) -> Result<Replay, Rejection> {
    batch.replays.get(&id).cloned().ok_or(Rejection::NotFound)
}
