//! Lifting of IP blocks.

use std::net::IpAddr;

use ledger_events::ip_block::IpBlockLifted;

use crate::ledger::commands::prelude::*;
use crate::ledger::streams::IpBlock;

/// Ends the block of an IP that logged in too often.
#[derive(Clone, Debug)]
pub struct LiftIpBlock {
    pub ip: IpAddr,
}

impl Handler for LiftIpBlock {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.ip_blocks.query.ips.push(self.ip);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let id = batch.streams.ip_blocks.index.by_ip.remove(&self.ip).ok_or(Rejection::NotFound)?;
        let ip_hash = batch.keep_text("ip_block.ip", id, new_salt(), &Secret::new(self.ip.to_string()))?;
        batch.append::<IpBlock>(id, IpBlockLifted { ip_hash }, context);
        batch.pending.lifted_ips.push(self.ip);
        Ok(CommandResult::IpBlockLifted)
    }
}
