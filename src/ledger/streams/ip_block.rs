//! Blocks of IP addresses. The gate writes their rows; the log records who lifts one.

use std::net::IpAddr;

use ledger_database::PgConnection;
use ledger_events::ip_block::IpBlockEvent;
use ledger_events::{Moment, ShardId};

use super::{Loader, Slot, Stream, StreamRead};
use crate::ledger::ip_blocks;
use crate::ledger::lookup::Lookup;

/// A block that was lifted.
#[derive(Debug)]
pub struct IpBlock {
    id: i64,
    version: i64,
}

#[derive(Debug, Default)]
pub struct Index {
    /// Ids of current blocks.
    pub by_ip: Lookup<IpAddr, i64>,
}

#[derive(Debug, Default)]
pub struct Query {
    pub ips: Vec<IpAddr>,
}

impl Stream for IpBlock {
    type Id = i64;
    type Event = IpBlockEvent;
    type Index = Index;
    type Query<'a> = Query;

    const NAME: &'static str = "IP block";

    fn id(&self) -> i64 {
        self.id
    }

    fn version(&self) -> i64 {
        self.version
    }

    fn evolve(_: Option<Self>, id: i64, _: &IpBlockEvent, at: &Moment) -> Option<Self> {
        Some(IpBlock { id, version: at.version })
    }

    /// A block has no event before it is lifted.
    async fn load(_: &mut PgConnection, _: ShardId, _: &[i64]) -> Result<Vec<Self>, sqlx::Error> {
        Ok(vec![])
    }

    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        let ips = &read.query.ips;
        if !ips.is_empty() {
            let found = ip_blocks::lock(loader.conn, ips).await?;
            slot.ask(found.values().copied());
            slot.index.by_ip.ask(ips.iter().copied());
            slot.index.by_ip.extend(found);
        }
        Ok(())
    }
}
