use ledger_events::payout::{self, Payout};
use ledger_events::wallet::Wallet;
use ledger_events::{AccountId, BeneficiaryId, Money, PayoutId, WalletId};

use super::view;
use crate::ledger::commands::prelude::*;

#[derive(Clone, Debug)]
pub struct RequestPayout {
    pub account_id: AccountId,
    pub beneficiary_id: BeneficiaryId,
    pub wallet_id: WalletId,
    pub amount: Money,
    pub client_reference: Option<String>,
}

impl Handler for RequestPayout {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.beneficiaries.id(self.beneficiary_id);
        reads.streams.wallets.id(self.wallet_id);
        let reference = self.client_reference.as_deref().map(|reference| (self.account_id, reference));
        reads.streams.payouts.query.references.extend(reference);
        reads.streams.payouts.new_id();
        reads.new_ids.transactions += 1;
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let key = self.client_reference.clone().map(|reference| (self.account_id, reference));
        if let Some(existing) = key.as_ref().and_then(|key| batch.streams.payouts.index.by_reference.get(key)) {
            return self.existing(batch, *existing);
        }
        let account = batch.streams.accounts.find(self.account_id)?;
        let payout_id = batch.streams.payouts.next_id()?;
        let transaction_id = batch.ids.transactions.next()?;
        let asked = payout::RequestPayout { amount: self.amount, client_reference: self.client_reference.clone() };
        let beneficiary = batch.streams.beneficiaries.get(self.beneficiary_id);
        let wallet = batch.streams.wallets.get(self.wallet_id);
        let (requested, debited) = payout::request(account, beneficiary, wallet, payout_id, transaction_id, asked)?;

        let context = context.of_account(self.account_id);
        let requested_id = batch.append::<Payout>(payout_id, requested, &context);
        batch.append::<Wallet>(self.wallet_id, debited, &context.caused_by(requested_id, requested_id));
        if let Some(key) = key {
            batch.streams.payouts.index.by_reference.insert(key, payout_id);
        }
        view(batch, payout_id, true)
    }
}

impl RequestPayout {
    /// Returns the payout that used the `client_reference` before, if it has the same payload.
    fn existing(&self, batch: &Batch, id: PayoutId) -> Decided {
        let known = &batch.streams.payouts.loaded(id).ok_or(Rejection::DuplicateReference)?.requested;
        let is_same = (known.beneficiary_id, known.wallet_id, known.amount) == (self.beneficiary_id, self.wallet_id, self.amount);
        if is_same { view(batch, id, false) } else { Err(Rejection::DuplicateReference.into()) }
    }
}
