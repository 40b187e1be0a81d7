use std::collections::HashSet;

use ledger_events::{AccountId, Position, ReplayId};
use uuid::Uuid;

use super::{append, view};
use crate::ledger::commands::prelude::*;

/// A step that the replay's job has prepared: it looked at everything from `at` up to `next`, and `events` are to be
/// delivered.
#[derive(Clone, Debug)]
pub struct AdvanceReplay {
    pub account_id: AccountId,
    pub replay_id: ReplayId,
    pub at: Position,
    pub next: Position,
    pub events: Vec<Uuid>,
}

impl Handler for AdvanceReplay {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.webhooks.of_account(self.account_id);
        reads.streams.replays.id(self.replay_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let known = batch.streams.replays.find(self.replay_id)?.clone();
        let distinct: HashSet<_> = self.events.iter().collect();
        if distinct.len() != self.events.len() {
            return Err(Rejection::Conflict("the step has an event twice").into());
        }
        let webhook = batch.streams.webhooks.get(known.webhook_id);
        for event in known.advance(webhook, self.at, &self.events, self.next)? {
            append(batch, &known, event, context);
        }
        view(batch, known.id)
    }
}
