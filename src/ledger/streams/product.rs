//! Products of the catalogue.

use ledger_events::ShardId;
use ledger_events::catalogue::Product;

use super::{Stream, projected};
use crate::ledger::FIRST_SHARD;

impl Stream for Product {
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "product";
    const SEQUENCE: Option<&'static str> = Some("product_ids");

    projected!(written);

    /// The catalogue's events are in the first shard's log, so only its writer knows when a product changed.
    fn is_cached(shard: ShardId) -> bool {
        shard == FIRST_SHARD
    }
}
