//! Opening, funding and adjusting wallets.

use ledger_events::wallet::{self, Direction, WalletCommand, WalletEvent, WalletOpened};
use ledger_events::{AccountId, Currency, Money, Rejection, TransactionId, WalletId};
use ledger_projections::wallets::Transaction;

use super::{Decided, Story, active, new_salt, next};
use crate::ledger::answer::Answer;
use crate::ledger::batch::Batch;
use crate::ledger::keys::Owner;
use crate::ledger::texts::NOTE;
use crate::secrets::seal::{Private, salted_hash};

pub(super) fn open(batch: &mut Batch, account_id: AccountId, currency: Currency, story: Story<'_>) -> Decided {
    batch.accounts.get(&account_id).ok_or(Rejection::NotFound)?;
    if batch.wallet_of.contains_key(&(account_id, currency)) {
        return Err(Rejection::Conflict("the account has a wallet of this currency").into());
    }
    let id = next(batch.ids.wallets.pop_front(), "wallet")?;
    batch.append(id, WalletEvent::from(WalletOpened { account_id, currency }), &Story { account_id: Some(account_id), ..story });
    batch.wallet_of.insert((account_id, currency), id);
    batch.wallets.get(&id).cloned().map(Answer::Wallet).ok_or(Rejection::NotFound.into())
}

/// An account may fund only a wallet of its own, and while it is active; an operator any.
pub(super) fn owned(batch: &Batch, account_id: Option<AccountId>, wallet_id: WalletId) -> Result<(), Rejection> {
    let Some(account_id) = account_id else { return Ok(()) };
    batch.wallets.get(&wallet_id).filter(|wallet| wallet.account_id == account_id).ok_or(Rejection::NotFound)?;
    active(batch, account_id)
}

pub(super) fn fund(
    batch: &mut Batch,
    wallet_id: WalletId,
    amount: Money,
    reference: &str,
    note: Option<&Private>,
    story: Story<'_>,
) -> Decided {
    if let Some(known) = batch.fundings.get(reference) {
        if known.wallet_id == wallet_id && known.amount == amount {
            return Ok(Answer::Funding { transaction: known.clone(), is_new: false });
        }
        return Err(Rejection::Conflict("the reference was used for another funding").into());
    }
    let transaction_id = next(batch.ids.transactions.pop_front(), "transaction")?;
    let note = note.map(|text| (new_salt(), text));
    let note_hash = note.as_ref().map(|(salt, text)| salted_hash(salt, text.expose()));
    let command = WalletCommand::Fund { amount, reference: reference.to_owned(), note_hash };
    let transaction = move_money(batch, wallet_id, transaction_id, command, &story)?;
    if let Some((salt, text)) = note {
        let owner = Owner::Account(transaction.account_id);
        batch.keep_text_of(owner, NOTE, transaction_id, salt, text)?;
    }
    batch.fundings.insert(reference.to_owned(), transaction.clone());
    Ok(Answer::Funding { transaction, is_new: true })
}

fn move_money(
    batch: &mut Batch,
    wallet_id: WalletId,
    id: TransactionId,
    command: WalletCommand,
    story: &Story<'_>,
) -> Result<Transaction, Rejection> {
    let wallet = batch.wallets.get(&wallet_id).ok_or(Rejection::NotFound)?;
    let account_id = wallet.account_id;
    let event = wallet::decide(wallet, id, command)?;
    batch.append(
        wallet_id,
        event,
        &Story {
            account_id: Some(account_id),
            origin: story.origin,
            idempotency: story.idempotency,
            correlation_id: None,
            causation_id: None,
        },
    );
    batch.transactions.last().filter(|t| t.id == id).cloned().ok_or(Rejection::NotFound)
}

pub(super) fn adjust(
    batch: &mut Batch,
    wallet_id: WalletId,
    direction: Direction,
    amount: Money,
    reason: &Private,
    story: Story<'_>,
) -> Decided {
    let transaction_id = next(batch.ids.transactions.pop_front(), "transaction")?;
    let salt = new_salt();
    let reason_hash = salted_hash(&salt, reason.expose());
    let command = WalletCommand::Adjust { direction, amount, reason_hash };
    let transaction = move_money(batch, wallet_id, transaction_id, command, &story)?;
    batch.keep_text_of(Owner::Account(transaction.account_id), NOTE, transaction_id, salt, reason)?;
    Ok(Answer::Transaction(transaction))
}
