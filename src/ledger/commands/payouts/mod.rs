//! Payouts to beneficiaries.

mod cancel;
mod request;
mod settle;

use ledger_events::PayoutId;
use ledger_events::payout::{self, Payout, PayoutCommand};
use ledger_events::wallet::Wallet;

pub use cancel::CancelPayout;
pub use request::RequestPayout;
pub use settle::{PayoutOutcome, SettlePayout};

use crate::ledger::command_result::PayoutView;
use crate::ledger::commands::prelude::*;
use crate::ledger::texts::FAILURE_REASON;

/// Appends the payout's last event, and its refund right after it.
pub(super) fn end(
    batch: &mut Batch,
    payout: &Payout,
    command: PayoutCommand,
    context: &CommandContext<'_>,
) -> Result<(), Rejection> {
    let requested = &payout.requested;
    let (event, refunded) = payout::decide(payout, batch.streams.wallets.find(requested.wallet_id)?, command)?;
    let context = context.of_account(requested.account_id).caused_by(payout.requested_event_id, payout.last_event_id);
    let ended_id = batch.append::<Payout>(payout.id, event, &context);
    if let Some(refunded) = refunded {
        batch.append::<Wallet>(requested.wallet_id, refunded, &context.after(ended_id));
    }
    Ok(())
}

fn view(batch: &Batch, id: PayoutId, is_new: bool) -> Decided {
    let payout = batch.streams.payouts.find(id)?.clone();
    let failure_reason = batch.text(FAILURE_REASON, id.0)?;
    Ok(CommandResult::Payout(PayoutView { payout, failure_reason, is_new }))
}
