//! Beneficiaries of payouts.

mod add;
mod delete;

use ledger_events::BeneficiaryId;

pub use add::AddBeneficiary;
pub use delete::DeleteBeneficiary;

use crate::ledger::command_result::BeneficiaryView;
use crate::ledger::commands::prelude::*;
use crate::ledger::texts::PROFILE;

fn view(batch: &Batch, id: BeneficiaryId) -> Decided {
    let beneficiary = batch.streams.beneficiaries.find(id)?.clone();
    Ok(CommandResult::Beneficiary(BeneficiaryView { profile: batch.text(PROFILE, id.0)?, beneficiary }))
}
