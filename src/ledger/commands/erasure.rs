//! Erasure of personal data: whether it is permitted, its event, and what ends with it.

use ledger_events::account::{Account, AccountStatus};
use ledger_events::beneficiary::{Beneficiary, BeneficiaryDeleted};
use ledger_events::erasure::PersonalDataErased;
use ledger_events::order::Order;
use ledger_events::reconciliation::BankStatement;
use ledger_events::user::{User, UserRemoved};
use ledger_events::webhook::{Webhook, WebhookDeleted};
use ledger_events::{AccountId, UserId};
use uuid::Uuid;

use super::replays::end_replays;
use crate::ledger::batch::UserChange;
use crate::ledger::commands::prelude::*;
use crate::ledger::erasure::{Erasable, Erased, Part, Subject};
use crate::ledger::texts::ERASURE_REASON;

/// Destroys a subject's personal data.
#[derive(Clone, Debug)]
pub struct Erase {
    pub subject: Subject,
    pub reason: Secret,
    /// Data of an account that this step erases.
    pub part: Part,
}

impl Handler for Erase {
    const IS_SOLITARY: bool = true;

    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.erased = Some((self.subject, &self.part));
        match self.subject {
            Subject::Account(id) => {
                reads.streams.accounts.id(id);
                reads.streams.webhooks.of_account(id);
                reads.streams.replays.query.running_of.insert(id);
            }
            Subject::Beneficiary(id) => reads.streams.beneficiaries.id(id),
            Subject::Order(id) => reads.streams.orders.id(id),
            Subject::User(id) => reads.streams.users.id(id),
            Subject::Statement { id, .. } => reads.streams.statements.id(id),
        }
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let subject = self.subject;
        let erasable = batch.erasable.take().ok_or(Rejection::NotFound)?;
        let (account_id, is_ended) = require_erasable(batch, subject, &erasable)?;
        let counts = erasable.counts();
        if erasable.is_empty() && is_ended {
            return Ok(CommandResult::Erased(Erased { counts, event: None }));
        }
        let position = batch.end() + 1;
        let event = PersonalDataErased {
            texts: counts.texts,
            vouchers: counts.vouchers,
            answers: counts.answers,
            data_keys: counts.data_keys,
            is_complete: erasable.is_last,
            line: if let Subject::Statement { line, .. } = subject { line } else { None },
            reason_hash: batch.keep_text(ERASURE_REASON, position, new_salt(), &self.reason)?,
        };
        let context = CommandContext { account_id, ..*context };
        let event_id = append(batch, subject, event, &context);
        match subject {
            Subject::User(id) => batch.pending.users.push(UserChange::Remove(id)),
            Subject::Account(id) if erasable.is_last => close(batch, id, &erasable, &context.caused_by(event_id, event_id)),
            _ => {}
        }
        batch.pending.erased.push(erasable);
        // Some data keys are gone. The next batch loads those that are left.
        batch.data_keys.clear();
        Ok(CommandResult::Erased(Erased { counts, event: Some((position, event_id)) }))
    }
}

/// Refuses an erasure that is not permitted yet. Returns the account that the subject belongs to, if any, and whether an
/// earlier erasure ended everything that ends with the subject.
fn require_erasable(batch: &Batch, subject: Subject, erasable: &Erasable) -> Result<(Option<AccountId>, bool), Rejection> {
    Ok(match subject {
        Subject::Account(id) => {
            if batch.streams.accounts.find(id)?.status != AccountStatus::Suspended {
                return Err(Rejection::Conflict("the account is not suspended"));
            }
            let lives = batch.streams.webhooks.values().any(|webhook| webhook.account_id == id && !webhook.is_deleted);
            let has_users = erasable.users.iter().any(|id| is_present(batch, *id));
            (Some(id), !erasable.is_last || !lives && !has_users && erasable.beneficiaries.is_empty())
        }
        Subject::Beneficiary(id) => {
            let beneficiary = batch.streams.beneficiaries.find(id)?;
            if erasable.has_pending_payouts {
                return Err(Rejection::Conflict("a payout to the beneficiary is not settled"));
            }
            (Some(beneficiary.account_id), beneficiary.is_deleted)
        }
        Subject::Order(id) => {
            let order = batch.streams.orders.find(id)?;
            if !order.status.is_final() {
                return Err(Rejection::Conflict("the order is neither delivered nor cancelled"));
            }
            (Some(order.placed.account_id), true)
        }
        Subject::User(id) => {
            let user = batch.streams.users.find(id)?;
            (Some(user.account_id), user.is_removed)
        }
        Subject::Statement { id, .. } => {
            batch.streams.statements.find(id)?;
            (None, true)
        }
    })
}

fn is_present(batch: &Batch, user: UserId) -> bool {
    batch.streams.users.loaded(user).is_some_and(|user| !user.is_removed)
}

fn append(batch: &mut Batch, subject: Subject, event: PersonalDataErased, context: &CommandContext<'_>) -> Uuid {
    match subject {
        Subject::Account(id) => batch.append::<Account>(id, event, context),
        Subject::Beneficiary(id) => batch.append::<Beneficiary>(id, event, context),
        Subject::Order(id) => {
            let cause = batch.streams.orders.get(id).map(|order| (order.placed_event_id, order.last_event_id));
            let context = cause.map_or(*context, |(first, last)| context.caused_by(first, last));
            batch.append::<Order>(id, event, &context)
        }
        Subject::User(id) => batch.append::<User>(id, event, context),
        Subject::Statement { id, .. } => batch.append::<BankStatement>(id, event, context),
    }
}

/// Ends the webhooks, users and beneficiaries of an erased account: without their data they can do nothing any more.
fn close(batch: &mut Batch, id: AccountId, erasable: &Erasable, context: &CommandContext<'_>) {
    let live = batch.streams.webhooks.values().filter(|webhook| webhook.account_id == id && !webhook.is_deleted);
    let mut webhooks: Vec<_> = live.map(|webhook| webhook.id).collect();
    webhooks.sort_unstable();
    for webhook in webhooks {
        batch.append::<Webhook>(webhook, WebhookDeleted {}, context);
        end_replays(batch, webhook, context);
    }
    for &user in &erasable.users {
        if is_present(batch, user) {
            batch.append::<User>(user, UserRemoved {}, context);
            batch.pending.users.push(UserChange::Remove(user));
        }
    }
    for &beneficiary in &erasable.beneficiaries {
        batch.append::<Beneficiary>(beneficiary, BeneficiaryDeleted {}, context);
    }
}
