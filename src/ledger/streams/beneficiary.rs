//! Beneficiaries of payouts.

use ledger_database::PgConnection;
use ledger_events::beneficiary::{Beneficiary, BeneficiaryEvent, evolve};
use ledger_events::{BeneficiaryId, Moment, ShardId};
use ledger_projections::{ProjectionError, beneficiaries};

use super::{Stream, identified};

impl Stream for Beneficiary {
    type Id = BeneficiaryId;
    type Event = BeneficiaryEvent;
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "beneficiary";
    const SEQUENCE: Option<&'static str> = Some("beneficiary_ids");

    identified!();

    fn evolve(state: Option<Self>, id: BeneficiaryId, event: &BeneficiaryEvent, at: &Moment) -> Option<Self> {
        evolve(state, id, event, at)
    }

    async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[BeneficiaryId]) -> Result<Vec<Self>, sqlx::Error> {
        beneficiaries::load(conn, shard, ids).await
    }

    async fn write(conn: &mut PgConnection, shard: ShardId, rows: &[&Self]) -> Result<(), ProjectionError> {
        beneficiaries::write(conn, shard, rows).await
    }
}
