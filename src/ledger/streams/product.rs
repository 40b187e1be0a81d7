//! Products of the catalogue.

use ledger_database::PgConnection;
use ledger_events::catalogue::{Product, ProductEvent, evolve};
use ledger_events::{ProductId, ShardId};
use ledger_projections::{ProjectionError, catalogue};

use super::{Stream, projected};
use crate::ledger::FIRST_SHARD;

impl Stream for Product {
    type Id = ProductId;
    type Event = ProductEvent;
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "product";
    const SEQUENCE: Option<&'static str> = Some("product_ids");

    projected!(evolve);

    async fn load(conn: &mut PgConnection, _: ShardId, ids: &[ProductId]) -> Result<Vec<Self>, sqlx::Error> {
        catalogue::load(conn, ids).await
    }

    async fn write(conn: &mut PgConnection, shard: ShardId, rows: &[&Self]) -> Result<(), ProjectionError> {
        catalogue::write(conn, shard, rows).await
    }

    /// The catalogue's events are in the first shard's log, so only its writer knows when a product changed.
    fn is_cached(shard: ShardId) -> bool {
        shard == FIRST_SHARD
    }
}
