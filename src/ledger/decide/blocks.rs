//! Lifting blocks of IPs.

use std::net::IpAddr;

use ledger_events::Rejection;
use ledger_events::ip_block::{IpBlockEvent, IpBlockLifted};

use super::{Decided, Story, new_salt};
use crate::ledger::answer::Answer;
use crate::ledger::batch::Batch;
use crate::secrets::seal::Private;

pub(super) fn lift(batch: &mut Batch, ip: IpAddr, story: Story<'_>) -> Decided {
    let id = batch.ip_blocks.remove(&ip).ok_or(Rejection::NotFound)?;
    let ip_hash = batch.keep_text("ip_block.ip", id, new_salt(), &Private::new(ip.to_string()))?;
    batch.append(id, IpBlockEvent::from(IpBlockLifted { ip_hash }), &story);
    batch.vault.lifted.push(ip);
    Ok(Answer::IpBlockLifted)
}
