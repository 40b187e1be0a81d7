use ledger_events::ReplayId;

use super::{append, view};
use crate::ledger::batch::Batch;
use crate::ledger::commands::{Decided, Handler};
use crate::ledger::context::CommandContext;
use crate::ledger::read_set::ReadSet;

#[derive(Clone, Debug)]
pub struct CancelReplay {
    pub replay_id: ReplayId,
}

impl Handler for CancelReplay {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.replays.id(self.replay_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let known = batch.streams.replays.find(self.replay_id)?.clone();
        append(batch, &known, known.cancel()?, context);
        view(batch, self.replay_id)
    }
}
