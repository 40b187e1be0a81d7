//! Erasing personal data: whether it may be, what the log says of it, and what ends with it.

use ledger_events::account::{AccountEvent, AccountStatus};
use ledger_events::beneficiary::{BeneficiaryDeleted, BeneficiaryEvent};
use ledger_events::erasure::PersonalDataErased;
use ledger_events::order::OrderEvent;
use ledger_events::reconciliation::ReconciliationEvent;
use ledger_events::user::{UserEvent, UserRemoved};
use ledger_events::webhook::{WebhookDeleted, WebhookEvent};
use ledger_events::{AccountId, Event, Rejection};

use super::{Decided, Stop, Story, new_salt, replays};
use crate::ledger::answer::Answer;
use crate::ledger::batch::{Batch, UserChange};
use crate::ledger::erasure::{Erasable, Erased, Subject};
use crate::ledger::texts::ERASURE_REASON;
use crate::secrets::seal::Private;

pub(super) fn erase(batch: &mut Batch, subject: Subject, reason: &Private, story: Story<'_>) -> Decided {
    let erasable = batch.erasable.take().ok_or(Rejection::NotFound)?;
    let (account_id, is_ended) = may_be_erased(batch, subject, &erasable)?;
    let counts = erasable.counts();
    if erasable.is_empty() && is_ended {
        return Ok(Answer::Erased(Erased { counts, event: None }));
    }
    let position = batch.end() + 1;
    let event = PersonalDataErased {
        texts: counts.texts,
        vouchers: counts.vouchers,
        answers: counts.answers,
        data_keys: counts.data_keys,
        is_complete: erasable.is_last,
        line: if let Subject::Statement { line, .. } = subject { line } else { None },
        reason_hash: batch.keep_text(ERASURE_REASON, position, new_salt(), reason)?,
    };
    let (stream_id, event): (i64, Event) = match subject {
        Subject::Account(id) => (id, AccountEvent::from(event).into()),
        Subject::Beneficiary(id) => (id, BeneficiaryEvent::from(event).into()),
        Subject::Order(id) => (id, OrderEvent::from(event).into()),
        Subject::User(id) => (id, UserEvent::from(event).into()),
        Subject::Statement { id, .. } => (id, ReconciliationEvent::from(event).into()),
    };
    let mut story = Story { account_id, ..story };
    if let Subject::Order(id) = subject
        && let Some(order) = batch.orders.get(&id)
    {
        (story.correlation_id, story.causation_id) = (Some(order.placed_event_id), Some(order.last_event_id));
    }
    let event_id = batch.append(stream_id, event, &story);
    match subject {
        Subject::User(id) => batch.vault.users.push(UserChange::Remove(id)),
        Subject::Account(id) if erasable.is_last => {
            let story = Story { correlation_id: Some(event_id), causation_id: Some(event_id), ..story };
            close(batch, id, &erasable, &story);
        }
        _ => {}
    }
    batch.vault.erased.push(erasable);
    // Some of them are gone; who still has one is looked up again.
    batch.data_keys.clear();
    Ok(Answer::Erased(Erased { counts, event: Some((position, event_id)) }))
}

/// Whose it is, if it is an account's, and whether all that ends with an erasure has ended before.
fn may_be_erased(batch: &Batch, subject: Subject, erasable: &Erasable) -> Result<(Option<AccountId>, bool), Stop> {
    Ok(match subject {
        Subject::Account(id) => {
            let account = batch.accounts.get(&id).ok_or(Rejection::NotFound)?;
            if account.status != AccountStatus::Suspended {
                return Err(Rejection::Conflict("the account is not suspended").into());
            }
            let lives = batch.webhooks.values().any(|webhook| webhook.account_id == id && !webhook.is_deleted);
            let has_users = erasable.users.iter().any(|id| batch.users.get(id).is_some_and(|user| !user.is_removed));
            (Some(id), !erasable.is_last || !lives && !has_users && erasable.beneficiaries.is_empty())
        }
        Subject::Beneficiary(id) => {
            let beneficiary = batch.beneficiaries.get(&id).ok_or(Rejection::NotFound)?;
            if erasable.has_pending_payouts {
                return Err(Rejection::Conflict("a payout to the beneficiary is not settled").into());
            }
            (Some(beneficiary.account_id), beneficiary.is_deleted)
        }
        Subject::Order(id) => {
            let order = batch.orders.get(&id).ok_or(Rejection::NotFound)?;
            if !order.status.is_final() {
                return Err(Rejection::Conflict("the order is neither delivered nor cancelled").into());
            }
            (Some(order.placed.account_id), true)
        }
        Subject::User(id) => {
            let user = batch.users.get(&id).ok_or(Rejection::NotFound)?;
            (Some(user.account_id), user.is_removed)
        }
        Subject::Statement { id, .. } => {
            batch.statements.get(&id).ok_or(Rejection::NotFound)?;
            (None, true)
        }
    })
}

/// Webhooks, users and beneficiaries that nothing is known of any more can do nothing any more.
fn close(batch: &mut Batch, id: AccountId, erasable: &Erasable, story: &Story<'_>) {
    let live = batch.webhooks.values().filter(|webhook| webhook.account_id == id && !webhook.is_deleted);
    let mut webhooks: Vec<i64> = live.map(|webhook| webhook.id).collect();
    webhooks.sort_unstable();
    for webhook in webhooks {
        batch.append(webhook, WebhookEvent::from(WebhookDeleted {}), story);
        replays::end(batch, webhook, story);
    }
    for user in &erasable.users {
        if batch.users.get(user).is_some_and(|user| !user.is_removed) {
            batch.append(*user, UserEvent::from(UserRemoved {}), story);
            batch.vault.users.push(UserChange::Remove(*user));
        }
    }
    for beneficiary in &erasable.beneficiaries {
        batch.append(*beneficiary, BeneficiaryEvent::from(BeneficiaryDeleted {}), story);
    }
}
