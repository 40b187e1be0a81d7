//! Adding and deleting beneficiaries.

use ledger_events::beneficiary::{self, BeneficiaryAdded, BeneficiaryEvent};
use ledger_events::{AccountId, BeneficiaryId, Rejection};

use super::{Decided, Story, active, new_salt, next};
use crate::ledger::answer::{Answer, BeneficiaryView};
use crate::ledger::batch::Batch;
use crate::ledger::command::AddBeneficiary;
use crate::ledger::keys::Owner;
use crate::ledger::texts::{ACCOUNT_NUMBER, PROFILE};

pub(super) fn add(batch: &mut Batch, command: &AddBeneficiary, story: Story<'_>) -> Decided {
    let account_id = command.account_id;
    active(batch, account_id)?;
    let id = next(batch.ids.beneficiaries.pop_front(), "beneficiary")?;
    let owner = Owner::Beneficiary(id);
    batch.data_keys.insert(owner, None); // who is new has none
    let event = BeneficiaryAdded {
        account_id,
        kind: command.kind,
        country: command.country.clone(),
        currency: command.currency,
        profile_hash: batch.keep_text_of(owner, PROFILE, id, new_salt(), &command.profile)?,
        account_number_hash: batch.keep_text_of(owner, ACCOUNT_NUMBER, id, new_salt(), &command.account_number)?,
    };
    batch.append(id, BeneficiaryEvent::from(event), &Story { account_id: Some(account_id), ..story });
    view(batch, id)
}

pub(super) fn delete(batch: &mut Batch, account_id: AccountId, id: BeneficiaryId, story: Story<'_>) -> Decided {
    let known = batch.beneficiaries.get(&id).filter(|b| b.account_id == account_id).ok_or(Rejection::NotFound)?;
    let event = beneficiary::delete(known)?;
    active(batch, account_id)?;
    batch.append(id, event, &Story { account_id: Some(account_id), ..story });
    view(batch, id)
}

fn view(batch: &Batch, id: BeneficiaryId) -> Decided {
    let beneficiary = batch.beneficiaries.get(&id).cloned().ok_or(Rejection::NotFound)?;
    Ok(Answer::Beneficiary(BeneficiaryView { profile: batch.text(PROFILE, id)?, beneficiary }))
}
