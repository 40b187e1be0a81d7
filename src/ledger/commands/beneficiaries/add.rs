use ledger_events::beneficiary::{Beneficiary, BeneficiaryAdded, BeneficiaryKind};
use ledger_events::{AccountId, Currency};

use super::view;
use crate::ledger::commands::prelude::*;
use crate::ledger::texts::{ACCOUNT_NUMBER, PROFILE};

#[derive(Clone, Debug)]
pub struct AddBeneficiary {
    pub account_id: AccountId,
    pub kind: BeneficiaryKind,
    /// ISO 3166-1 alpha-2.
    pub country: String,
    pub currency: Currency,
    /// Public details of the person, as JSON that the API makes.
    pub profile: Secret,
    pub account_number: Secret,
}

impl Handler for AddBeneficiary {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.beneficiaries.new_id();
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        require_active(batch, self.account_id)?;
        let id = batch.streams.beneficiaries.next_id()?;
        let owner = Owner::Beneficiary(id);
        batch.data_keys.insert(owner, None); // A new beneficiary has no data key.
        let event = BeneficiaryAdded {
            account_id: self.account_id,
            kind: self.kind,
            country: self.country.clone(),
            currency: self.currency,
            profile_hash: batch.keep_text_of(owner, PROFILE, id.0, new_salt(), &self.profile)?,
            account_number_hash: batch.keep_text_of(owner, ACCOUNT_NUMBER, id.0, new_salt(), &self.account_number)?,
        };
        batch.append::<Beneficiary>(id, event, &context.of_account(self.account_id));
        view(batch, id)
    }
}
