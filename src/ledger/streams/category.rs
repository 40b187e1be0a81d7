//! Categories of the catalogue.

use ledger_database::PgConnection;
use ledger_events::catalogue::{Category, CategoryEvent, evolve_category};
use ledger_events::{CategoryId, ShardId};
use ledger_projections::{ProjectionError, catalogue};

use super::{Stream, projected};

impl Stream for Category {
    type Id = CategoryId;
    type Event = CategoryEvent;
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "category";
    const SEQUENCE: Option<&'static str> = Some("category_ids");

    projected!(evolve_category);

    async fn load(conn: &mut PgConnection, _: ShardId, ids: &[CategoryId]) -> Result<Vec<Self>, sqlx::Error> {
        catalogue::load_categories(conn, ids).await
    }

    async fn write(conn: &mut PgConnection, shard: ShardId, rows: &[&Self]) -> Result<(), ProjectionError> {
        catalogue::write_categories(conn, shard, rows).await
    }
}
