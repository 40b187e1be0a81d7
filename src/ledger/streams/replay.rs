//! Replays of events to webhooks.

use std::collections::{HashMap, HashSet};

use ledger_events::replay::Replay;
use ledger_events::{AccountId, ReplayId};
use ledger_projections::replays;
use uuid::Uuid;

use super::{Loader, Slot, Stream, StreamRead, projected};
use crate::ledger::reader;

#[derive(Debug, Default)]
pub struct Index {
    /// The first and the last event of each replay: the correlation and the cause of its next one.
    pub chains: HashMap<ReplayId, (Uuid, Uuid)>,
}

#[derive(Debug, Default)]
pub struct Query {
    /// Accounts whose running replays are read.
    pub running_of: HashSet<AccountId>,
}

impl Stream for Replay {
    type Index = Index;
    type Query<'a> = Query;

    const NAME: &'static str = "replay";
    const SEQUENCE: Option<&'static str> = Some("replay_ids");

    projected!(written);

    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        slot.load_missing(read, loader).await?;
        if !read.ids.is_empty() {
            let ids: Vec<_> = read.ids.iter().copied().collect();
            loader.follow_ups.webhooks.extend(slot.values().map(|replay| replay.webhook_id));
            slot.index.chains = reader::replay_stories(loader.conn, loader.shard, &ids).await?;
        }
        if !read.query.running_of.is_empty() {
            let accounts: Vec<_> = read.query.running_of.iter().copied().collect();
            let running = replays::load_running(loader.conn, loader.shard, &accounts).await?;
            let ids: Vec<_> = running.iter().map(|replay| replay.id).collect();
            slot.keep(running);
            slot.index.chains.extend(reader::replay_stories(loader.conn, loader.shard, &ids).await?);
        }
        Ok(())
    }
}
