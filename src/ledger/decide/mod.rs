//! Deciding a batch: each command in turn, in memory, on what the batch has loaded and what the
//! commands before it did. A refused command leaves no trace.

mod accounts;
mod beneficiaries;
mod blocks;
mod catalogue;
mod credentials;
mod erasure;
mod log;
mod operators;
mod orders;
mod payouts;
mod reconciliation;
mod replays;
mod sunset;
mod users;
mod wallets;
mod webhooks;

use ledger_events::account::AccountStatus;
use ledger_events::{AccountId, Actor, Rejection};

use super::answer::Answer;
use super::append::Story;
use super::batch::{Batch, StoredAnswer};
use super::command::Command;
use super::keys::Owner;
use super::submission::{Idempotency, Reply, Submission, WriteError};
use crate::secrets::seal::{Keyring, SealError};

/// What makes the whole batch unusable, as opposed to a refusal of one command. Nothing is
/// written then; bisection finds the command.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("the batch ran out of {0} ids")]
    NoIdLeft(&'static str),
}

/// A refusal, or a batch that cannot go on.
#[derive(Debug)]
enum Stop {
    Rejected(Rejection),
    Broken(DecideError),
}

impl From<Rejection> for Stop {
    fn from(rejection: Rejection) -> Stop {
        Stop::Rejected(rejection)
    }
}

impl From<SealError> for Stop {
    fn from(error: SealError) -> Stop {
        Stop::Broken(error.into())
    }
}

impl From<serde_json::Error> for Stop {
    fn from(error: serde_json::Error) -> Stop {
        Stop::Broken(error.into())
    }
}

type Decided = Result<Answer, Stop>;

/// Decides every command, in the order of arrival; one reply each.
pub fn decide_all(batch: &mut Batch, submissions: &[Submission]) -> Result<Vec<Result<Reply, WriteError>>, DecideError> {
    let replies = submissions
        .iter()
        .map(|submission| match decide_one(batch, submission) {
            Ok(reply) => Ok(Ok(reply)),
            Err(Stop::Rejected(rejection)) => Ok(Err(rejection.into())),
            Err(Stop::Broken(error)) => Err(error),
        })
        .collect();
    batch.put_back_stock();
    replies
}

fn decide_one(batch: &mut Batch, submission: &Submission) -> Result<Reply, Stop> {
    let idempotency = submission.idempotency.as_ref();
    if let Some(key) = idempotency
        && let Some(stored) = batch.answer(&key.key_hash)
    {
        if !is_same_request(&batch.keyring, key, &stored.fingerprint) {
            return Err(Rejection::IdempotencyKeyReused.into());
        }
        return Ok(Reply::Rendered { rendered: stored.rendered.clone(), is_replay: true });
    }
    if let Actor::Credential(id) = submission.origin.actor
        && batch.credentials.get(&id).is_none_or(|credential| credential.is_revoked)
    {
        return Err(Rejection::CredentialRevoked.into());
    }
    if let Actor::User(id) = submission.origin.actor
        && batch.users.get(&id).is_none_or(|user| user.is_removed)
    {
        return Err(Rejection::UserRemoved.into());
    }
    let story = Story { origin: &submission.origin, idempotency, account_id: None, correlation_id: None, causation_id: None };
    let answer = decide(batch, &submission.command, story)?;
    let Some(key) = idempotency else { return Ok(Reply::Answer(Box::new(answer))) };
    let rendered = (key.render)(&answer)?;
    let (owner, about) = owner_of(&answer).filter(|_| rendered.is_secret).unzip();
    let data_key = owner.map(|owner| batch.data_key(owner)).transpose()?;
    let fingerprint = fingerprint(&batch.keyring, key);
    let stored = StoredAnswer { fingerprint, rendered: rendered.clone(), key: data_key, about };
    batch.answers.insert(key.key_hash, stored);
    batch.new_answers.push(key.key_hash);
    Ok(Reply::Rendered { rendered, is_replay: false })
}

/// What is stored of a request: a keyed hash, of its key too. By a plain one whoever reads the table could
/// tell whether a request was the one that he guesses, after what it says was erased.
fn fingerprint(keyring: &Keyring, key: &Idempotency) -> [u8; 32] {
    keyring.fingerprint("idempotency", [key.key_hash, key.fingerprint].as_flattened())
}

/// An earlier version stored the plain hash; such an answer is repeated for its 24 hours, too.
fn is_same_request(keyring: &Keyring, key: &Idempotency, stored: &[u8; 32]) -> bool {
    *stored == fingerprint(keyring, key) || *stored == key.fingerprint
}

/// Whose data an answer shows, if it shows any, and the id of what it is about.
fn owner_of(answer: &Answer) -> Option<(Owner, i64)> {
    match answer {
        Answer::Order(view) => Some((Owner::Account(view.order.placed.account_id), view.order.id)),
        Answer::Webhook(view) => Some((Owner::Account(view.webhook.account_id), view.webhook.id)),
        Answer::Beneficiary(view) => Some((Owner::Beneficiary(view.beneficiary.id), view.beneficiary.id)),
        Answer::Payout(view) => Some((Owner::Beneficiary(view.payout.requested.beneficiary_id), view.payout.id)),
        _ => None,
    }
}

fn decide(batch: &mut Batch, command: &Command, story: Story<'_>) -> Decided {
    match command {
        Command::CreateAccount { name } => accounts::create(batch, name, story),
        Command::SetAccountStatus { account_id, status } => accounts::set_status(batch, *account_id, *status, story),
        Command::SetDiscount { account_id, rule } => accounts::set_discount(batch, *account_id, rule, story),
        Command::IssueCredential { account_id, name, api_key, api_secret } => {
            credentials::issue(batch, *account_id, name, api_key, api_secret, story)
        }
        Command::RevokeCredential { account_id, credential_id } => credentials::revoke(batch, *account_id, *credential_id, story),
        Command::SetHmacRequired { account_id, credential_id, is_required, new_secret } => {
            credentials::set_hmac_required(batch, *account_id, *credential_id, *is_required, new_secret, story)
        }
        Command::RotateSigningSecret { account_id, credential_id, new_secret } => {
            credentials::rotate_signing_secret(batch, *account_id, *credential_id, new_secret, story)
        }
        Command::IssueOperatorToken(token) => operators::issue(batch, token, story),
        Command::RevokeOperatorToken { id } => operators::revoke(batch, *id, story),
        Command::RecordLogIncident(incident) => log::record_incident(batch, incident, story),
        Command::LiftIpBlock { ip } => blocks::lift(batch, *ip, story),
        Command::DeclareEmergencySunset(sunset) => sunset::declare(batch, sunset, story),
        Command::CreateUser(user) => users::create(batch, user, story),
        Command::ChangeUser(change) => users::change(batch, change, story),
        Command::EndSessions { account_id, user_id } => users::end_sessions(batch, *account_id, *user_id, story),
        Command::RemoveUser { account_id, user_id } => users::remove(batch, *account_id, *user_id, story),
        Command::OpenWallet { account_id, currency } => wallets::open(batch, *account_id, *currency, story),
        Command::FundWallet { account_id, wallet_id, amount, reference, note } => {
            wallets::owned(batch, *account_id, *wallet_id)?;
            wallets::fund(batch, *wallet_id, *amount, reference, note.as_ref(), story)
        }
        Command::AdjustWallet { wallet_id, direction, amount, reason } => {
            wallets::adjust(batch, *wallet_id, *direction, *amount, reason, story)
        }
        Command::AddCategory { name, parent_id } => catalogue::add_category(batch, name, *parent_id, story),
        Command::AddProduct { details } => catalogue::add_product(batch, details, story),
        Command::ChangeProduct { product_id, change } => catalogue::change_product(batch, *product_id, change, story),
        Command::SetProductImage { product_id, image } => catalogue::set_image(batch, *product_id, image, story),
        Command::LoadVouchers { product_id, denomination, vouchers } => {
            catalogue::load_vouchers(batch, *product_id, *denomination, vouchers, story)
        }
        Command::QuoteCharge { account_id, product_id, denomination, quantity } => {
            orders::quote_charge(batch, *account_id, *product_id, *denomination, *quantity)
        }
        Command::PlaceOrder(order) => orders::place_order(batch, order, story),
        Command::CancelOrder { account_id, order_id, reason } => {
            orders::cancel(batch, *account_id, *order_id, reason.as_ref(), story)
        }
        Command::FulfilOrder { order_id } => orders::fulfil(batch, *order_id, story),
        Command::RevealVouchers { account_id, order_id } => orders::reveal_vouchers(batch, *account_id, *order_id, story),
        Command::RegisterWebhook(webhook) => webhooks::register(batch, webhook, story),
        Command::UpdateWebhook { account_id, webhook_id, change } => {
            webhooks::update(batch, *account_id, *webhook_id, change, story)
        }
        Command::RotateWebhookToken { account_id, webhook_id, new_token } => {
            webhooks::rotate_token(batch, *account_id, *webhook_id, new_token, story)
        }
        Command::DeleteWebhook { account_id, webhook_id } => webhooks::delete(batch, *account_id, *webhook_id, story),
        Command::AddBeneficiary(beneficiary) => beneficiaries::add(batch, beneficiary, story),
        Command::DeleteBeneficiary { account_id, beneficiary_id } => {
            beneficiaries::delete(batch, *account_id, *beneficiary_id, story)
        }
        Command::RequestPayout(payout) => payouts::request(batch, payout, story),
        Command::CancelPayout { account_id, payout_id } => payouts::cancel(batch, *account_id, *payout_id, story),
        Command::SettlePayout { payout_id, outcome } => payouts::settle(batch, *payout_id, outcome, story),
        Command::TestWebhook { account_id, webhook_id } => webhooks::test(batch, *account_id, *webhook_id, story),
        Command::RetryDelivery { account_id, delivery_id } => webhooks::retry(batch, *account_id, *delivery_id, story),
        Command::RequestReplay(replay) => replays::request(batch, replay, story),
        Command::AdvanceReplay(step) => replays::advance(batch, step, story),
        Command::CancelReplay { replay_id } => replays::cancel(batch, *replay_id, story),
        Command::ImportStatement(statement) => reconciliation::import(batch, statement, story),
        Command::DecideMatch(decision) => reconciliation::decide(batch, decision, story),
        Command::RevokeMatchDecision { statement_id, line, reason } => {
            reconciliation::revoke(batch, *statement_id, *line, reason, story)
        }
        Command::Erase { subject, reason, .. } => erasure::erase(batch, *subject, reason, story),
    }
}

fn unknown(field: &'static str) -> Rejection {
    Rejection::InvalidField { field, problem: "is unknown" }
}

/// Every change by a suspended account is refused.
fn active(batch: &Batch, id: AccountId) -> Result<(), Rejection> {
    match batch.accounts.get(&id).ok_or(Rejection::NotFound)?.status {
        AccountStatus::Active => Ok(()),
        AccountStatus::Suspended => Err(Rejection::AccountSuspended),
    }
}

fn next(id: Option<i64>, kind: &'static str) -> Result<i64, Stop> {
    id.ok_or(Stop::Broken(DecideError::NoIdLeft(kind)))
}

fn new_salt() -> Vec<u8> {
    rand::random::<[u8; 16]>().to_vec()
}
