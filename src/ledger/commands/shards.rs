//! Shards: their addition, and which of them get new accounts.

use ledger_events::ShardId;
use ledger_events::shard::{self, Shard};

use crate::ledger::FIRST_SHARD;
use crate::ledger::commands::prelude::*;

/// Adds a shard. Its head is added in the same transaction. A head that was made by hand becomes that of the shard.
#[derive(Clone, Debug)]
pub struct AddShard {
    pub shard_id: ShardId,
}

impl Handler for AddShard {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.shards.id(self.shard_id.into());
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        require_first(batch)?;
        let id = self.shard_id.into();
        let event = shard::add(self.shard_id, batch.streams.shards.get(id))?;
        batch.append::<Shard>(id, event, context);
        Ok(CommandResult::ShardSet)
    }
}

/// Sets whether a shard gets no new accounts.
#[derive(Clone, Debug)]
pub struct SetShardDrain {
    pub shard_id: ShardId,
    pub draining: bool,
}

impl Handler for SetShardDrain {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.shards.id(self.shard_id.into());
        reads.streams.shards.query.all = true;
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        require_first(batch)?;
        let (id, shards) = (self.shard_id.into(), &batch.streams.shards);
        let known = shards.get(id);
        // The first shard has no event before it is drained.
        if self.shard_id != FIRST_SHARD && known.is_none_or(|shard| shard.added_at.is_none()) {
            return Err(Rejection::NotFound.into());
        }
        let is_first_open = shards.loaded(FIRST_SHARD.into()).is_none_or(|first| !first.draining);
        let open = shards.values().filter(|shard| shard.added_at.is_some() && !shard.draining).map(|shard| shard.id);
        let is_last_open = open.chain(is_first_open.then_some(FIRST_SHARD)).all(|open| open == self.shard_id);
        if let Some(event) = shard::set_drain(known, self.draining, is_last_open)? {
            batch.append::<Shard>(id, event, context);
        }
        Ok(CommandResult::ShardSet)
    }
}

/// Refuses commands about shards in every log but the first one's.
fn require_first(batch: &Batch) -> Result<(), Rejection> {
    if batch.shard == FIRST_SHARD { Ok(()) } else { Err(Rejection::Conflict("the first shard's log records the others")) }
}
