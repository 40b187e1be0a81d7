use ledger_events::ReplayId;

use super::{append, view};
use crate::ledger::commands::prelude::*;

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
