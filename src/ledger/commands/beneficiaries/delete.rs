use ledger_events::beneficiary::{self, Beneficiary};
use ledger_events::{AccountId, BeneficiaryId};

use super::view;
use crate::ledger::commands::prelude::*;

#[derive(Clone, Debug)]
pub struct DeleteBeneficiary {
    pub account_id: AccountId,
    pub beneficiary_id: BeneficiaryId,
}

impl Handler for DeleteBeneficiary {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.beneficiaries.id(self.beneficiary_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let known = batch.streams.beneficiaries.find(self.beneficiary_id)?;
        if known.account_id != self.account_id {
            return Err(Rejection::NotFound.into());
        }
        let event = beneficiary::delete(known)?;
        require_active(batch, self.account_id)?;
        batch.append::<Beneficiary>(self.beneficiary_id, event, &context.of_account(self.account_id));
        view(batch, self.beneficiary_id)
    }
}
