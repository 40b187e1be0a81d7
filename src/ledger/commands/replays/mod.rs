//! Replays of events to webhooks.

mod advance;
mod cancel;
mod request;

use ledger_events::replay::{Replay, ReplayEvent, ReplayStatus, WebhookReplayFailed};
use ledger_events::{ReplayId, WebhookId};

use crate::ledger::commands::prelude::*;
pub use advance::AdvanceReplay;
pub use cancel::CancelReplay;
pub use request::RequestReplay;

/// Ends the running replays of a webhook that no longer listens. Nothing is replayed to a webhook that was switched off,
/// however soon it listens again.
pub(super) fn end_replays(batch: &mut Batch, webhook_id: WebhookId, context: &CommandContext<'_>) {
    if batch.streams.webhooks.get(webhook_id).is_some_and(|webhook| webhook.listening().is_ok()) {
        return;
    }
    let is_running = |replay: &&Replay| replay.webhook_id == webhook_id && replay.status == ReplayStatus::Running;
    let running: Vec<Replay> = batch.streams.replays.values().filter(is_running).cloned().collect();
    for replay in running {
        append(batch, &replay, WebhookReplayFailed {}, context);
    }
}

/// Appends an event of a replay. It is caused by the one before it, and correlates with the request.
fn append(batch: &mut Batch, replay: &Replay, event: impl Into<ReplayEvent>, context: &CommandContext<'_>) {
    let chain = batch.streams.replays.index.chains.get(&replay.id).copied();
    let context = CommandContext {
        account_id: Some(replay.account_id),
        correlation_id: chain.map(|(first, _)| first),
        causation_id: chain.map(|(_, last)| last),
        ..*context
    };
    let event_id = batch.append::<Replay>(replay.id, event, &context);
    batch.streams.replays.index.chains.insert(replay.id, (chain.map_or(event_id, |(first, _)| first), event_id));
}

fn view(batch: &Batch, id: ReplayId) -> Decided {
    Ok(CommandResult::Replay(batch.streams.replays.find(id)?.clone()))
}
