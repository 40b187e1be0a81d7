//! The leaders of shards, as this node knows them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger_events::ShardId;
use reqwest::Url;
use tokio::sync::watch;
use uuid::Uuid;

/// Another node that leads a shard.
#[derive(Clone, Debug)]
pub struct Leader {
    /// Id that the node drew at its start.
    pub node_id: Uuid,
    pub url: Url,
    /// Client for requests to nodes.
    pub http: reqwest::Client,
}

/// The shards that other nodes lead, as this node last learned. Cheap to clone. It is empty on a node that takes no part.
#[derive(Clone, Debug, Default)]
pub struct Leaders(Arc<watch::Sender<BTreeMap<ShardId, Leader>>>);

impl Leaders {
    /// Returns the leader of a shard, if it is another node.
    pub fn elsewhere(&self, shard: ShardId) -> Option<Leader> {
        self.0.borrow().get(&shard).cloned()
    }

    pub(super) fn set(&self, leaders: BTreeMap<ShardId, Leader>) {
        self.0.send_replace(leaders);
    }
}
