//! Beneficiaries of payouts.

use ledger_events::BeneficiaryId;
use ledger_events::beneficiary::{Beneficiary, BeneficiaryEvent, evolve};
use ledger_projections::beneficiaries;

use super::{Stream, projected};

impl Stream for Beneficiary {
    type Id = BeneficiaryId;
    type Event = BeneficiaryEvent;
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "beneficiary";
    const SEQUENCE: Option<&'static str> = Some("beneficiary_ids");

    projected!(evolve, beneficiaries::load, beneficiaries::write);
}
