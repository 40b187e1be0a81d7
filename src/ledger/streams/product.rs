//! Products of the catalogue.
//!
//! The catalogue is in the first shard's log, and its rows are that shard's. Every other shard reads them. There, a product's
//! stream has only what happened to the stock of that shard, in versions of its own, and no row follows from it.

use ledger_database::PgConnection;
use ledger_events::catalogue::Product;
use ledger_events::{ProductId, ShardId};
use ledger_projections::ProjectionError;
use ledger_projections::state::{self, State, Upsert};

use super::{Stream, projected};
use crate::ledger::FIRST_SHARD;

impl Stream for Product {
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "product";
    const SEQUENCE: Option<&'static str> = Some("product_ids");

    projected!(folded);

    async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[ProductId]) -> Result<Vec<Product>, sqlx::Error> {
        if shard == FIRST_SHARD {
            return <Product as State>::load(conn, shard, ids).await;
        }
        let of_shard = state::select(
            "FROM (SELECT p.id, p.details, p.image, p.created_at, p.updated_at,
                (SELECT coalesce(max(e.version), 0) FROM events e
                 WHERE e.shard_id = $1 AND e.stream_type = 'product' AND e.stream_id = p.id) AS version
             FROM products p WHERE p.id = ANY($2)) AS product",
        );
        state::all(of_shard.bind(shard).bind(ids), conn).await
    }

    async fn write(conn: &mut PgConnection, shard: ShardId, products: &[&Product]) -> Result<(), ProjectionError> {
        if shard == FIRST_SHARD { <Product as Upsert>::write(conn, shard, products).await } else { Ok(()) }
    }

    /// Only the first shard's writer knows when a product changed.
    fn is_cached(shard: ShardId) -> bool {
        shard == FIRST_SHARD
    }
}
