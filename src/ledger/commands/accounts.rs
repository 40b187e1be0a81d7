//! Accounts and their discounts.

use ledger_events::AccountId;
use ledger_events::account::{Account, AccountCreated, AccountStatus, AccountStatusChanged, DiscountRule, DiscountSet};

use super::unknown;
use crate::ledger::commands::prelude::*;

#[derive(Clone, Debug)]
pub struct CreateAccount {
    pub name: String,
}

impl Handler for CreateAccount {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.new_id();
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let id = batch.streams.accounts.next_id()?;
        batch.append::<Account>(id, AccountCreated { name: self.name.clone() }, &context.of_account(id));
        account(batch, id)
    }
}

#[derive(Clone, Debug)]
pub struct SetAccountStatus {
    pub account_id: AccountId,
    pub status: AccountStatus,
}

impl Handler for SetAccountStatus {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let (id, status) = (self.account_id, self.status);
        if batch.streams.accounts.find(id)?.status != status {
            batch.append::<Account>(id, AccountStatusChanged { status }, &context.of_account(id));
        }
        account(batch, id)
    }
}

#[derive(Clone, Debug)]
pub struct SetDiscount {
    pub account_id: AccountId,
    pub rule: DiscountRule,
}

impl Handler for SetDiscount {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.products.ids.extend(self.rule.product_id);
        reads.streams.categories.ids.extend(self.rule.category_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let DiscountRule { product_id, category_id, discount } = self.rule;
        batch.streams.accounts.find(self.account_id)?;
        if product_id.is_some_and(|id| batch.streams.products.get(id).is_none()) {
            return Err(unknown("product_id").into());
        }
        if category_id.is_some_and(|id| batch.streams.categories.get(id).is_none()) {
            return Err(unknown("category_id").into());
        }
        let event = DiscountSet { product_id, category_id, discount };
        batch.append::<Account>(self.account_id, event, &context.of_account(self.account_id));
        account(batch, self.account_id)
    }
}

fn account(batch: &Batch, id: AccountId) -> Decided {
    Ok(CommandResult::Account(batch.streams.accounts.find(id)?.clone()))
}
