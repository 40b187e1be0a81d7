//! Approvals by a second operator.

use chrono::{DateTime, Utc};
use ledger_events::approval::Approval;
use ledger_events::{ApprovalId, PayoutId};
use ledger_projections::approvals;

use super::{Loader, Slot, Stream, StreamRead, projected};
use crate::ledger::keys::Owner;
use crate::ledger::lookup::Lookup;
use crate::ledger::texts::{APPROVAL_NOTE, APPROVAL_REASON};

/// Undecided approvals. Expired ones may be among them.
#[derive(Debug, Default)]
pub struct Index {
    /// Fundings by reference.
    pub by_reference: Lookup<String, ApprovalId>,
    /// Settlements by payout.
    pub by_payout: Lookup<PayoutId, ApprovalId>,
}

#[derive(Debug, Default)]
pub struct Query<'a> {
    /// References of fundings.
    pub references: Vec<&'a str>,
    pub payouts: Vec<PayoutId>,
}

impl Stream for Approval {
    type Index = Index;
    type Query<'a> = Query<'a>;

    const NAME: &'static str = "approval";
    const SEQUENCE: Option<&'static str> = Some("approval_ids");

    projected!(written);

    /// A granted approval moves money: it changes a wallet or a payout, and its texts are sealed for the account.
    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        slot.load_missing(read, loader).await?;
        let (references, payouts) = (&read.query.references, &read.query.payouts);
        if !references.is_empty() || !payouts.is_empty() {
            let known = approvals::load_undecided(loader.conn, loader.shard, references, payouts).await?;
            slot.index.by_reference.ask(references.iter().map(|reference| (*reference).to_owned()));
            slot.index.by_payout.ask(payouts.iter().copied());
            for approval in known {
                slot.index.note(&approval);
                loader.follow_ups.texts.push((APPROVAL_NOTE, approval.id.0));
                slot.keep([approval]);
            }
        }
        for approval in read.ids.iter().filter_map(|id| slot.loaded(*id)) {
            let requested = &approval.requested;
            loader.follow_ups.payouts.extend(requested.action.payout_id());
            loader.follow_ups.wallets.push(requested.wallet_id);
            loader.follow_ups.data_keys.push(Owner::Account(requested.account_id));
            loader.follow_ups.texts.extend([(APPROVAL_NOTE, approval.id.0), (APPROVAL_REASON, approval.id.0)]);
        }
        Ok(())
    }
}

impl Slot<Approval> {
    /// Returns the approval that a funding with this reference waits for.
    ///
    /// # Panics
    /// In debug builds, if no command of the batch asked for the reference.
    #[track_caller]
    pub fn awaited_by_reference(&self, reference: &str, now: DateTime<Utc>) -> Option<&Approval> {
        self.pending(*self.index.by_reference.get(reference)?, now)
    }

    /// Returns the approval that the settlement of a payout as paid waits for. Panics like
    /// [`Slot::awaited_by_reference`].
    #[track_caller]
    pub fn awaited_by_payout(&self, id: PayoutId, now: DateTime<Utc>) -> Option<&Approval> {
        self.pending(*self.index.by_payout.get(&id)?, now)
    }

    fn pending(&self, id: ApprovalId, now: DateTime<Utc>) -> Option<&Approval> {
        self.loaded(id).filter(|approval| approval.is_pending_at(now))
    }
}

impl Index {
    /// Adds an approval under its reference and its payout. A newer one replaces an older one, which has expired.
    pub fn note(&mut self, approval: &Approval) {
        let action = &approval.requested.action;
        if let Some(reference) = action.reference() {
            let known = self.by_reference.get(reference).copied();
            self.by_reference.insert(reference.to_owned(), known.map_or(approval.id, |known| known.max(approval.id)));
        }
        if let Some(payout_id) = action.payout_id() {
            let known = self.by_payout.get(&payout_id).copied();
            self.by_payout.insert(payout_id, known.map_or(approval.id, |known| known.max(approval.id)));
        }
    }
}
