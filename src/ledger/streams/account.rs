//! Accounts.

use ledger_database::PgConnection;
use ledger_events::account::{Account, AccountEvent, evolve};
use ledger_events::{AccountId, Moment, ShardId};
use ledger_projections::{ProjectionError, accounts};

use super::{Stream, identified};

impl Stream for Account {
    type Id = AccountId;
    type Event = AccountEvent;
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "account";
    const SEQUENCE: Option<&'static str> = Some("account_ids");

    identified!();

    fn evolve(state: Option<Self>, id: AccountId, event: &AccountEvent, at: &Moment) -> Option<Self> {
        evolve(state, id, event, at)
    }

    async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[AccountId]) -> Result<Vec<Self>, sqlx::Error> {
        accounts::load(conn, shard, ids).await
    }

    async fn write(conn: &mut PgConnection, shard: ShardId, rows: &[&Self]) -> Result<(), ProjectionError> {
        accounts::write(conn, shard, rows).await
    }

    fn is_cached(_: ShardId) -> bool {
        true
    }
}
