use ledger_events::replay::{MissedOnly, Replay, ReplayKind, ReplayStatus, WebhookReplayRequested};
use ledger_events::webhook::WebhookEventType;
use ledger_events::{AccountId, Actor, Position, WebhookId};

use super::view;
use crate::ledger::commands::prelude::*;

/// Requests a replay. An operator may request one for a suspended account, too.
#[derive(Clone, Debug)]
pub struct RequestReplay {
    pub account_id: AccountId,
    pub webhook_id: WebhookId,
    pub kind: ReplayKind,
    /// First position to look at.
    pub from: Position,
    /// Upper limit of deliveries per second.
    pub per_second: i32,
    /// Part of the missed events to deliver; `None` for all of them.
    pub only: Option<MissedOnly>,
}

impl Handler for RequestReplay {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.webhooks.id_of_account(self.account_id, self.webhook_id);
        reads.streams.replays.query.running_of.insert(self.account_id);
        reads.streams.replays.new_id();
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, webhook_id, kind, from, per_second, only } = *self;
        if matches!(context.origin.actor, Actor::Credential(_) | Actor::User(_)) {
            require_active(batch, account_id)?;
        }
        let webhook = batch.streams.webhooks.get(webhook_id).filter(|webhook| webhook.account_id == account_id);
        // Nodes of the last release cannot read the further types. The job takes those from the webhook.
        let (events, _) = WebhookEventType::split(webhook.ok_or(Rejection::NotFound)?.listening()?.events.clone());
        // Two replays side by side would each find, and deliver, what the other one is about to.
        let is_running = |replay: &Replay| replay.webhook_id == webhook_id && replay.status == ReplayStatus::Running;
        if batch.streams.replays.values().any(is_running) {
            return Err(Rejection::Conflict("a replay of this webhook is running").into());
        }
        let id = batch.streams.replays.next_id()?;
        let event = WebhookReplayRequested { account_id, webhook_id, kind, events, from, per_second, only };
        let requested = batch.append::<Replay>(id, event, &context.of_account(account_id));
        batch.streams.replays.index.chains.insert(id, (requested, requested));
        view(batch, id)
    }
}
