//! Accounts and their discounts.

use ledger_events::account::{AccountCreated, AccountEvent, AccountStatus, AccountStatusChanged, DiscountRule, DiscountSet};
use ledger_events::{AccountId, Rejection};

use super::{Decided, Story, next, unknown};
use crate::ledger::answer::Answer;
use crate::ledger::batch::Batch;

pub(super) fn create(batch: &mut Batch, name: &str, story: Story<'_>) -> Decided {
    let id = next(batch.ids.accounts.pop_front(), "account")?;
    let event = AccountEvent::from(AccountCreated { name: name.to_owned() });
    batch.append(id, event, &Story { account_id: Some(id), ..story });
    account(batch, id)
}

pub(super) fn set_status(batch: &mut Batch, id: AccountId, status: AccountStatus, story: Story<'_>) -> Decided {
    let known = batch.accounts.get(&id).ok_or(Rejection::NotFound)?;
    if known.status != status {
        batch.append(id, AccountEvent::from(AccountStatusChanged { status }), &Story { account_id: Some(id), ..story });
    }
    account(batch, id)
}

pub(super) fn set_discount(batch: &mut Batch, id: AccountId, rule: &DiscountRule, story: Story<'_>) -> Decided {
    batch.accounts.get(&id).ok_or(Rejection::NotFound)?;
    if rule.product_id.is_some_and(|id| !batch.products.contains_key(&id)) {
        return Err(unknown("product_id").into());
    }
    if rule.category_id.is_some_and(|id| !batch.categories.contains_key(&id)) {
        return Err(unknown("category_id").into());
    }
    let event = DiscountSet { product_id: rule.product_id, category_id: rule.category_id, discount: rule.discount };
    batch.append(id, AccountEvent::from(event), &Story { account_id: Some(id), ..story });
    account(batch, id)
}

fn account(batch: &Batch, id: AccountId) -> Decided {
    batch.accounts.get(&id).cloned().map(Answer::Account).ok_or(Rejection::NotFound.into())
}
