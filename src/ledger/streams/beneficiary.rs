//! Beneficiaries of payouts.

use ledger_events::beneficiary::Beneficiary;

use super::{Stream, projected};

impl Stream for Beneficiary {
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "beneficiary";
    const SEQUENCE: Option<&'static str> = Some("beneficiary_ids");

    projected!(written);
}
