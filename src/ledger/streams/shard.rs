//! Shards, as the first shard's log records them.

use ledger_events::shard::Shard;
use ledger_projections::shards;

use super::{Loader, Slot, Stream, StreamRead, projected};

#[derive(Debug, Default)]
pub struct Query {
    /// Whether a command compares its shard with all others.
    pub all: bool,
}

impl Stream for Shard {
    type Index = ();
    type Query<'a> = Query;

    const NAME: &'static str = "shard";

    projected!(written);

    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        if read.query.all {
            slot.keep(shards::all(&mut *loader.conn, loader.shard).await?);
        }
        slot.load_missing(read, loader).await
    }
}
