//! Replaying events to a webhook: requested, carried out step by step, ended.

use std::collections::HashSet;

use ledger_events::replay::{Replay, ReplayEvent, WebhookReplayRequested};
use ledger_events::{Rejection, ReplayId};

use super::{Decided, Story, next};
use crate::ledger::batch::Batch;
use crate::ledger::command::{AdvanceReplay, Answer, RequestReplay};

pub(super) fn request(batch: &mut Batch, command: &RequestReplay, story: Story<'_>) -> Decided {
    let webhook = batch.webhooks.get(&command.webhook_id).filter(|w| w.account_id == command.account_id);
    let events = webhook.ok_or(Rejection::NotFound)?.listening()?.events.clone();
    let id = next(batch.ids.replays.pop_front(), "replay")?;
    let event = WebhookReplayRequested {
        account_id: command.account_id,
        webhook_id: command.webhook_id,
        kind: command.kind,
        events,
        from: command.from,
        per_second: command.per_second,
    };
    batch.append(id, ReplayEvent::from(event), &Story { account_id: Some(command.account_id), ..story });
    replay(batch, id).map(Answer::Replay).map_err(Into::into)
}

pub(super) fn advance(batch: &mut Batch, step: &AdvanceReplay, story: Story<'_>) -> Decided {
    let known = replay(batch, step.replay_id)?;
    let distinct: HashSet<_> = step.events.iter().collect();
    if distinct.len() != step.events.len() {
        return Err(Rejection::Conflict("the step has an event twice").into());
    }
    let decided = known.advance(batch.webhooks.get(&known.webhook_id), step.at, &step.events, step.next)?;
    let story = Story { account_id: Some(known.account_id), ..story };
    for event in decided {
        batch.append(known.id, event, &story);
    }
    replay(batch, known.id).map(Answer::Replay).map_err(Into::into)
}

pub(super) fn cancel(batch: &mut Batch, id: ReplayId, story: Story<'_>) -> Decided {
    let known = replay(batch, id)?;
    batch.append(id, known.cancel()?, &Story { account_id: Some(known.account_id), ..story });
    replay(batch, id).map(Answer::Replay).map_err(Into::into)
}

fn replay(batch: &Batch, id: ReplayId) -> Result<Replay, Rejection> {
    batch.replays.get(&id).cloned().ok_or(Rejection::NotFound)
}
