//! Wallets and the movements of money that clients do not cause.

mod adjust;
mod fund;
mod open;

use ledger_events::wallet::{self, Wallet, WalletCommand};
use ledger_events::{TransactionId, WalletId};
use ledger_projections::wallets::Transaction;

use crate::ledger::commands::prelude::*;
pub use adjust::AdjustWallet;
pub use fund::FundWallet;
pub use open::OpenWallet;

/// Decides and appends a movement of money.
pub(super) fn move_money(
    batch: &mut Batch,
    wallet_id: WalletId,
    id: TransactionId,
    command: WalletCommand,
    context: &CommandContext<'_>,
) -> Result<Transaction, Rejection> {
    let wallet = batch.streams.wallets.find(wallet_id)?;
    let account_id = wallet.account_id;
    let event = wallet::decide(wallet, id, command)?;
    batch.append::<Wallet>(wallet_id, event, &context.of_account(account_id));
    batch.pending.transactions.last().filter(|movement| movement.id == id).cloned().ok_or(Rejection::NotFound)
}
