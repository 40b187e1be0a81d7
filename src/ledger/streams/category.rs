//! Categories of the catalogue.

use ledger_database::PgConnection;
use ledger_events::catalogue::{Category, CategoryEvent, evolve_category};
use ledger_events::{CategoryId, Moment, ShardId};
use ledger_projections::{ProjectionError, catalogue};

use super::{Stream, identified};

impl Stream for Category {
    type Id = CategoryId;
    type Event = CategoryEvent;
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "category";
    const SEQUENCE: Option<&'static str> = Some("category_ids");

    identified!();

    fn evolve(state: Option<Self>, id: CategoryId, event: &CategoryEvent, at: &Moment) -> Option<Self> {
        evolve_category(state, id, event, at)
    }

    async fn load(conn: &mut PgConnection, _: ShardId, ids: &[CategoryId]) -> Result<Vec<Self>, sqlx::Error> {
        catalogue::load_categories(conn, ids).await
    }

    async fn write(conn: &mut PgConnection, shard: ShardId, rows: &[&Self]) -> Result<(), ProjectionError> {
        catalogue::write_categories(conn, shard, rows).await
    }
}
