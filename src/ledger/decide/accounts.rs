//! Accounts, their discounts and their credentials.

use ledger_events::account::{
    AccountCreated, AccountEvent, AccountStatus, AccountStatusChanged, CredentialEvent, CredentialIssued, CredentialRevoked,
    DiscountRule, DiscountSet,
};
use ledger_events::{AccountId, CredentialId, Rejection};
use sha2::{Digest, Sha256};

use super::{Decided, Story, next, unknown};
use crate::access::seal::Private;
use crate::ledger::batch::Batch;
use crate::ledger::command::Answer;

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

pub(super) fn issue_credential(
    batch: &mut Batch,
    account_id: AccountId,
    name: &str,
    api_key: &Private,
    api_secret: &Private,
    story: Story<'_>,
) -> Decided {
    batch.accounts.get(&account_id).ok_or(Rejection::NotFound)?;
    let id = next(batch.ids.credentials.pop_front(), "credential")?;
    let key_prefix = api_key.expose().chars().take(8).collect();
    let event = CredentialEvent::from(CredentialIssued { account_id, name: name.to_owned(), key_prefix });
    batch.append(id, event, &Story { account_id: Some(account_id), ..story });
    let hash = |text: &Private| -> [u8; 32] { Sha256::digest(text.expose().as_bytes()).into() };
    batch.vault.credentials.push((id, hash(api_key), hash(api_secret)));
    credential(batch, id)
}

pub(super) fn revoke_credential(batch: &mut Batch, account_id: AccountId, id: CredentialId, story: Story<'_>) -> Decided {
    let known = batch.credentials.get(&id).filter(|c| c.account_id == account_id).ok_or(Rejection::NotFound)?;
    if !known.is_revoked {
        batch.append(id, CredentialEvent::from(CredentialRevoked {}), &Story { account_id: Some(account_id), ..story });
    }
    credential(batch, id)
}

fn account(batch: &Batch, id: AccountId) -> Decided {
    batch.accounts.get(&id).cloned().map(Answer::Account).ok_or(Rejection::NotFound.into())
}

fn credential(batch: &Batch, id: CredentialId) -> Decided {
    batch.credentials.get(&id).cloned().map(Answer::Credential).ok_or(Rejection::NotFound.into())
}
