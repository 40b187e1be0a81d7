//! Payouts.

use ledger_events::payout::Payout;
use ledger_events::{AccountId, PayoutId};
use ledger_projections::state;

use super::{Loader, Slot, Stream, StreamRead, projected};
use crate::ledger::keys::Owner;
use crate::ledger::lookup::Lookup;
use crate::ledger::texts::FAILURE_REASON;

/// Payouts by account and `client_reference`.
#[derive(Debug, Default)]
pub struct Index {
    pub by_reference: Lookup<(AccountId, String), PayoutId>,
}

#[derive(Debug, Default)]
pub struct Query<'a> {
    pub references: Vec<(AccountId, &'a str)>,
}

impl Stream for Payout {
    type Index = Index;
    type Query<'a> = Query<'a>;

    const NAME: &'static str = "payout";
    const SEQUENCE: Option<&'static str> = Some("payout_ids");

    projected!(written);

    /// A payout that ends may refund its wallet. Its texts are sealed for the beneficiary.
    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        slot.load_missing(read, loader).await?;
        for payout in read.ids.iter().filter_map(|id| slot.loaded(*id)) {
            loader.follow_ups.wallets.push(payout.requested.wallet_id);
            loader.follow_ups.data_keys.push(Owner::Beneficiary(payout.requested.beneficiary_id));
        }
        let references = &read.query.references;
        if !references.is_empty() {
            let (of, texts): (Vec<AccountId>, Vec<&str>) = references.iter().copied().unzip();
            let known: Vec<Payout> = state::load_by_client_reference(loader.conn, loader.shard, &of, &texts).await?;
            slot.index.by_reference.ask(references.iter().map(|(account, text)| (*account, (*text).to_owned())));
            for payout in &known {
                loader.follow_ups.texts.push((FAILURE_REASON, payout.id.0));
                loader.follow_ups.data_keys.push(Owner::Beneficiary(payout.requested.beneficiary_id));
                if let Some(reference) = &payout.requested.client_reference {
                    slot.index.by_reference.insert((payout.requested.account_id, reference.clone()), payout.id);
                }
            }
            slot.keep(known);
        }
        Ok(())
    }
}
