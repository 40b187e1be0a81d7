//! Deciding a batch: each command in turn, in memory, on what the batch has loaded and what the
//! commands before it did. A refused command leaves no trace.

use ledger_events::account::{
    AccountCreated, AccountStatus, AccountStatusChanged, CredentialIssued, CredentialRevoked, DiscountSet, SigningSecretRotated,
};
use ledger_events::account::{AccountEvent, CredentialEvent};
use ledger_events::catalogue::{CategoryAdded, CategoryEvent, ProductAdded, ProductChanged, ProductEvent, VoucherStockLoaded};
use ledger_events::order::{self, CancelledBy, OrderCommand, OrderEvent};
use ledger_events::placement::{self, place};
use ledger_events::wallet::{self, WalletCommand, WalletEvent, WalletOpened};
use ledger_events::webhook::{Webhook, WebhookDeleted, WebhookEvent, WebhookRegistered, WebhookUpdated};
use ledger_events::{AccountId, Actor, CredentialId, Money, OrderId, ProductId, Rejection, TransactionId, WalletId, WebhookId};
use ledger_projections::wallets::Transaction;
use sha2::{Digest, Sha256};

use super::append::Story;
use super::batch::{Batch, StoredAnswer};
use super::command::{
    Answer, Command, NewVoucher, OrderView, PlaceOrder, RegisterWebhook, Reply, StockLoaded, Submission, WebhookChange,
    WebhookView, WriteError,
};
use super::stock;
use crate::access::seal::{Private, SealError, salted_hash};

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
    submissions
        .iter()
        .map(|submission| match decide_one(batch, submission) {
            Ok(reply) => Ok(Ok(reply)),
            Err(Stop::Rejected(rejection)) => Ok(Err(rejection.into())),
            Err(Stop::Broken(error)) => Err(error),
        })
        .collect()
}

fn decide_one(batch: &mut Batch, submission: &Submission) -> Result<Reply, Stop> {
    let idempotency = submission.idempotency.as_ref();
    if let Some(key) = idempotency
        && let Some(stored) = batch.answers.get(&key.key_hash)
    {
        if stored.fingerprint != key.fingerprint {
            return Err(Rejection::IdempotencyKeyReused.into());
        }
        return Ok(Reply::Rendered { rendered: stored.rendered.clone(), is_replay: true });
    }
    if let Actor::Credential(id) = submission.origin.actor
        && batch.credentials.get(&id).is_none_or(|credential| credential.is_revoked)
    {
        return Err(Rejection::CredentialRevoked.into());
    }
    let story = Story { origin: &submission.origin, idempotency, account_id: None, correlation_id: None, causation_id: None };
    let answer = decide(batch, &submission.command, story)?;
    let Some(key) = idempotency else { return Ok(Reply::Answer(Box::new(answer))) };
    let rendered = (key.render)(&answer)?;
    batch.answers.insert(key.key_hash, StoredAnswer { fingerprint: key.fingerprint, rendered: rendered.clone() });
    batch.new_answers.push(key.key_hash);
    Ok(Reply::Rendered { rendered, is_replay: false })
}

fn decide(batch: &mut Batch, command: &Command, story: Story<'_>) -> Decided {
    match command {
        Command::CreateAccount { name } => {
            let id = next(batch.ids.accounts.pop_front(), "account")?;
            batch.append(id, AccountEvent::from(AccountCreated { name: name.clone() }), &Story { account_id: Some(id), ..story });
            account(batch, id)
        }
        Command::SetAccountStatus { account_id, status } => {
            let known = batch.accounts.get(account_id).ok_or(Rejection::NotFound)?;
            if known.status != *status {
                let event = AccountEvent::from(AccountStatusChanged { status: *status });
                batch.append(*account_id, event, &Story { account_id: Some(*account_id), ..story });
            }
            account(batch, *account_id)
        }
        Command::SetDiscount { account_id, rule } => {
            batch.accounts.get(account_id).ok_or(Rejection::NotFound)?;
            if rule.product_id.is_some_and(|id| !batch.products.contains_key(&id)) {
                return Err(unknown("product_id").into());
            }
            if rule.category_id.is_some_and(|id| !batch.categories.contains_key(&id)) {
                return Err(unknown("category_id").into());
            }
            let event = AccountEvent::from(DiscountSet {
                product_id: rule.product_id,
                category_id: rule.category_id,
                discount: rule.discount,
            });
            batch.append(*account_id, event, &Story { account_id: Some(*account_id), ..story });
            account(batch, *account_id)
        }
        Command::IssueCredential { account_id, name, api_key, api_secret } => {
            issue_credential(batch, *account_id, name, api_key, api_secret, story)
        }
        Command::RevokeCredential { account_id, credential_id } => {
            let known =
                batch.credentials.get(credential_id).filter(|c| c.account_id == *account_id).ok_or(Rejection::NotFound)?;
            if !known.is_revoked {
                batch.append(
                    *credential_id,
                    CredentialEvent::from(CredentialRevoked {}),
                    &Story { account_id: Some(*account_id), ..story },
                );
            }
            credential(batch, *credential_id)
        }
        Command::OpenWallet { account_id, currency } => {
            batch.accounts.get(account_id).ok_or(Rejection::NotFound)?;
            if batch.wallet_of.contains_key(&(*account_id, *currency)) {
                return Err(Rejection::Conflict("the account has a wallet of this currency").into());
            }
            let id = next(batch.ids.wallets.pop_front(), "wallet")?;
            let event = WalletEvent::from(WalletOpened { account_id: *account_id, currency: *currency });
            batch.append(id, event, &Story { account_id: Some(*account_id), ..story });
            batch.wallet_of.insert((*account_id, *currency), id);
            batch.wallets.get(&id).cloned().map(Answer::Wallet).ok_or(Rejection::NotFound.into())
        }
        Command::FundWallet { wallet_id, amount, reference, note } => {
            fund_wallet(batch, *wallet_id, *amount, reference, note.as_ref(), story)
        }
        Command::AdjustWallet { wallet_id, direction, amount, reason } => {
            let transaction_id = next(batch.ids.transactions.pop_front(), "transaction")?;
            let salt = new_salt();
            let reason_hash = salted_hash(&salt, reason.expose());
            let command = WalletCommand::Adjust { direction: *direction, amount: *amount, reason_hash };
            let transaction = move_money(batch, *wallet_id, transaction_id, command, &story)?;
            batch.keep_text("transaction.note", transaction_id, salt, reason)?;
            Ok(Answer::Transaction(transaction))
        }
        Command::AddCategory { name, parent_id } => {
            if parent_id.is_some_and(|id| !batch.categories.contains_key(&id)) {
                return Err(unknown("parent_id").into());
            }
            let id = next(batch.ids.categories.pop_front(), "category")?;
            batch.append(id, CategoryEvent::from(CategoryAdded { name: name.clone(), parent_id: *parent_id }), &story);
            batch.categories.get(&id).cloned().map(Answer::Category).ok_or(Rejection::NotFound.into())
        }
        Command::AddProduct { details } => {
            known_category(batch, details.category_id)?;
            let id = next(batch.ids.products.pop_front(), "product")?;
            batch.append(id, ProductEvent::from(ProductAdded { details: details.clone() }), &story);
            product(batch, id)
        }
        Command::ChangeProduct { product_id, details } => {
            let known = batch.products.get(product_id).ok_or(Rejection::NotFound)?;
            if known.details.currency != details.currency {
                return Err(Rejection::InvalidField { field: "currency", problem: "cannot be changed" }.into());
            }
            known_category(batch, details.category_id)?;
            batch.append(*product_id, ProductEvent::from(ProductChanged { details: details.clone() }), &story);
            product(batch, *product_id)
        }
        Command::LoadVouchers { product_id, denomination, vouchers } => {
            load_vouchers(batch, *product_id, *denomination, vouchers, story)
        }
        Command::PlaceOrder(order) => place_order(batch, order, story),
        Command::CancelOrder { account_id, order_id, reason } => {
            cancel_order(batch, *account_id, *order_id, reason.as_ref(), story)
        }
        Command::FulfilOrder { order_id } => fulfil_order(batch, *order_id, story),
        Command::RevealVouchers { account_id, order_id } => {
            let known = batch.orders.get(order_id).filter(|o| o.placed.account_id == *account_id).ok_or(Rejection::NotFound)?;
            let events = order::decide(known, OrderCommand::RevealVouchers)?;
            append_to_order(batch, *order_id, events, &story);
            order_view(batch, *order_id, false)
        }
        Command::RegisterWebhook(webhook) => register_webhook(batch, webhook, story),
        Command::UpdateWebhook { account_id, webhook_id, change } => {
            update_webhook(batch, *account_id, *webhook_id, change, story)
        }
        Command::DeleteWebhook { account_id, webhook_id } => {
            own_webhook(batch, *account_id, *webhook_id)?;
            batch.append(*webhook_id, WebhookEvent::from(WebhookDeleted {}), &Story { account_id: Some(*account_id), ..story });
            webhook_view(batch, *webhook_id, None)
        }
    }
}

// ------------------------------------------------------------------------------- orders

fn place_order(batch: &mut Batch, command: &PlaceOrder, story: Story<'_>) -> Decided {
    if let Some(reference) = &command.client_reference
        && let Some(existing) = batch.order_of.get(&(command.account_id, reference.clone()))
    {
        return existing_order(batch, *existing, command);
    }
    let account = batch.accounts.get(&command.account_id).ok_or(Rejection::NotFound)?;
    let order_id = next(batch.ids.orders.pop_front(), "order")?;
    let transaction_id = next(batch.ids.transactions.pop_front(), "transaction")?;
    let metadata = command.metadata.as_ref().map(|text| (new_salt(), text));
    let request = placement::PlaceOrder {
        product_id: command.product_id,
        denomination: command.denomination,
        quantity: command.quantity,
        client_reference: command.client_reference.clone(),
        metadata_hash: metadata.as_ref().map(|(salt, text)| salted_hash(salt, text.expose())),
    };
    let wallet_in = |currency| batch.wallet_of.get(&(command.account_id, currency)).and_then(|id| batch.wallets.get(id));
    let (placed, debited) =
        place(account, batch.products.get(&command.product_id), wallet_in, order_id, transaction_id, request)?;

    let wallet_id = placed.wallet_id;
    let story = Story { account_id: Some(command.account_id), ..story };
    let placed_id = batch.append(order_id, OrderEvent::from(placed), &story);
    batch.append(wallet_id, debited, &Story { correlation_id: Some(placed_id), causation_id: Some(placed_id), ..story });
    if let Some((salt, text)) = metadata {
        batch.keep_text("order.metadata", order_id, salt, text)?;
    }
    if let Some(reference) = &command.client_reference {
        batch.order_of.insert((command.account_id, reference.clone()), order_id);
    }
    order_view(batch, order_id, true)
}

/// The `client_reference` was used: the same payload answers the order that exists.
fn existing_order(batch: &Batch, id: OrderId, command: &PlaceOrder) -> Decided {
    let order = batch.orders.get(&id).ok_or(Rejection::DuplicateReference)?;
    let metadata = batch.text("order.metadata", id)?;
    let is_same = (order.placed.product_id, order.placed.denomination, order.placed.quantity)
        == (command.product_id, command.denomination, command.quantity)
        && metadata == command.metadata;
    if is_same { order_view(batch, id, false) } else { Err(Rejection::DuplicateReference.into()) }
}

fn cancel_order(
    batch: &mut Batch,
    account_id: Option<AccountId>,
    order_id: OrderId,
    reason: Option<&Private>,
    story: Story<'_>,
) -> Decided {
    let order = batch
        .orders
        .get(&order_id)
        .filter(|o| account_id.is_none_or(|id| o.placed.account_id == id))
        .ok_or(Rejection::NotFound)?;
    let by = match account_id {
        Some(id) => {
            active(batch, id)?;
            CancelledBy::Client
        }
        None => CancelledBy::Operator,
    };
    let transaction_id = next(batch.ids.transactions.pop_front(), "transaction")?;
    let reason = reason.map(|text| (new_salt(), text));
    let reason_hash = reason.as_ref().map(|(salt, text)| salted_hash(salt, text.expose()));
    let events = order::decide(order, OrderCommand::Cancel { by, refund_transaction_id: transaction_id, reason_hash })?;
    let refund = events.iter().find_map(|event| match event {
        OrderEvent::OrderCancelled(cancelled) if cancelled.refunded_amount.is_positive() => Some(cancelled.refunded_amount),
        _ => None,
    });
    let (wallet_id, reference) = (order.placed.wallet_id, order.placed.reference_code.clone());
    let refunded = match refund {
        Some(amount) => {
            let wallet = batch.wallets.get(&wallet_id).ok_or(Rejection::NotFound)?;
            Some(wallet::decide(wallet, transaction_id, WalletCommand::RefundOrder { amount, order_id, reference })?)
        }
        None => None,
    };
    let account_id = order.placed.account_id;
    append_to_order(batch, order_id, events, &story);
    if let (Some(event), Some(order)) = (refunded, batch.orders.get(&order_id)) {
        let story = Story {
            account_id: Some(account_id),
            correlation_id: Some(order.placed_event_id),
            causation_id: Some(order.last_event_id),
            ..story
        };
        batch.append(wallet_id, event, &story);
    }
    if let Some((salt, text)) = reason {
        batch.keep_text("order.cancel_reason", order_id, salt, text)?;
    }
    order_view(batch, order_id, false)
}

/// Takes an order up and allocates what stock there is. Nobody is served before an older order
/// that waits for the same vouchers.
fn fulfil_order(batch: &mut Batch, order_id: OrderId, story: Story<'_>) -> Decided {
    let order = batch.orders.get(&order_id).ok_or(Rejection::NotFound)?;
    let key = (order.placed.product_id, order.placed.denomination);
    let is_next = batch.first_in_line.get(&key).is_none_or(|first| order.placed_position < *first);
    let mut vouchers = vec![];
    if order.is_waiting()
        && is_next
        && let Some(stock) = batch.stock.get_mut(&key)
    {
        let missing = usize::try_from(order.undelivered_quantity()).unwrap_or_default();
        vouchers = stock.drain(..missing.min(stock.len())).collect();
    }
    let references = vouchers.iter().map(|v| v.reference.clone()).collect();
    let events = order::decide(order, OrderCommand::Fulfil { vouchers: references })?;
    append_to_order(batch, order_id, events, &story);
    batch.vault.claims.extend(vouchers.iter().map(|v| (v.id, order_id)));
    order_view(batch, order_id, false)
}

/// Each event follows from the one before it, and all belong to the story that `OrderPlaced` began.
fn append_to_order(batch: &mut Batch, order_id: OrderId, events: Vec<OrderEvent>, story: &Story<'_>) {
    for event in events {
        let Some(order) = batch.orders.get(&order_id) else { return };
        let story = Story {
            account_id: Some(order.placed.account_id),
            correlation_id: Some(order.placed_event_id),
            causation_id: Some(order.last_event_id),
            origin: story.origin,
            idempotency: story.idempotency,
        };
        batch.append(order_id, event, &story);
    }
}

fn order_view(batch: &Batch, id: OrderId, is_new: bool) -> Decided {
    let order = batch.orders.get(&id).cloned().ok_or(Rejection::NotFound)?;
    let metadata = batch.text("order.metadata", id)?;
    let cancel_reason = batch.text("order.cancel_reason", id)?;
    Ok(Answer::Order(Box::new(OrderView { order, metadata, cancel_reason, is_new })))
}

// ------------------------------------------------------------------------------ wallets

fn fund_wallet(
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
        batch.keep_text("transaction.note", transaction_id, salt, text)?;
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

// ------------------------------------------------------------------- accounts, catalogue

fn issue_credential(
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

fn load_vouchers(
    batch: &mut Batch,
    product_id: ProductId,
    denomination: Money,
    vouchers: &[NewVoucher],
    story: Story<'_>,
) -> Decided {
    let product = batch.products.get(&product_id).ok_or(Rejection::NotFound)?;
    if !product.details.denominations.include(denomination) {
        return Err(Rejection::InvalidDenomination.into());
    }
    let mut loaded = StockLoaded::default();
    for voucher in vouchers {
        let fingerprint = stock::fingerprint(&batch.keyring, voucher);
        if batch.known_vouchers.fingerprints.contains(&(product_id, fingerprint)) {
            loaded.duplicates += 1;
            continue;
        }
        let id = next(batch.ids.vouchers.pop_front(), "voucher")?;
        let reference = voucher.reference.clone().unwrap_or_else(|| format!("{GENERATED_REFERENCE}{id:010}"));
        if voucher.reference.as_ref().is_some_and(|r| r.starts_with(GENERATED_REFERENCE))
            || batch.known_vouchers.references.contains(&reference)
        {
            loaded.rejected.push((voucher.row, "voucher_reference_number is taken"));
            continue;
        }
        let codes = serde_json::json!({
            "card_number": voucher.card_number.expose(),
            "pin": voucher.pin.as_ref().map(Private::expose),
            "claim_url": voucher.claim_url.as_ref().map(Private::expose),
        });
        let sealed = batch.keyring.seal(stock::KIND, id, codes.to_string().as_bytes())?;
        batch.known_vouchers.fingerprints.insert((product_id, fingerprint));
        batch.known_vouchers.references.insert(reference.clone());
        batch.vault.vouchers.push(stock::NewRow {
            id,
            product_id,
            denomination,
            reference,
            fingerprint,
            sealed,
            expires_on: voucher.expires_on,
        });
        loaded.accepted += 1;
    }
    let event = ProductEvent::from(VoucherStockLoaded { denomination, accepted: loaded.accepted, duplicates: loaded.duplicates });
    batch.append(product_id, event, &story);
    Ok(Answer::Stock(loaded))
}

/// What the references that we make begin with; nobody else's may.
const GENERATED_REFERENCE: &str = "VR-";

fn account(batch: &Batch, id: AccountId) -> Decided {
    batch.accounts.get(&id).cloned().map(Answer::Account).ok_or(Rejection::NotFound.into())
}

fn credential(batch: &Batch, id: CredentialId) -> Decided {
    batch.credentials.get(&id).cloned().map(Answer::Credential).ok_or(Rejection::NotFound.into())
}

fn product(batch: &Batch, id: ProductId) -> Decided {
    batch.products.get(&id).cloned().map(Answer::Product).ok_or(Rejection::NotFound.into())
}

fn known_category(batch: &Batch, id: Option<i64>) -> Result<(), Rejection> {
    if id.is_some_and(|id| !batch.categories.contains_key(&id)) { Err(unknown("category_id")) } else { Ok(()) }
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

// ------------------------------------------------------------------------------ webhooks

fn register_webhook(batch: &mut Batch, command: &RegisterWebhook, story: Story<'_>) -> Decided {
    let account_id = command.account_id;
    active(batch, account_id)?;
    let alive = batch.webhooks.values().filter(|w| w.account_id == account_id && !w.is_deleted).count();
    if alive >= Webhook::MOST_PER_ACCOUNT {
        return Err(Rejection::WebhookLimitReached.into());
    }
    if let Some(id) = command.credential_id {
        batch.credentials.get(&id).filter(|c| c.account_id == account_id && !c.is_revoked).ok_or(unknown("credential_id"))?;
    }
    let id = next(batch.ids.webhooks.pop_front(), "webhook")?;
    let story = Story { account_id: Some(account_id), ..story };
    let token = match command.credential_id {
        Some(credential_id) => signing_secret(batch, credential_id, &command.new_secret, &story)?,
        None => {
            batch.keep_text("webhook.token", id, new_salt(), &command.new_secret)?;
            command.new_secret.clone()
        }
    };
    let name_hash = batch.keep_text("webhook.name", id, new_salt(), &command.name)?;
    let url_hash = batch.keep_text("webhook.url", id, new_salt(), &command.url)?;
    let event = WebhookRegistered {
        account_id,
        credential_id: command.credential_id,
        events: command.events.clone(),
        name_hash,
        url_hash,
    };
    batch.append(id, WebhookEvent::from(event), &story);
    webhook_view(batch, id, Some(token))
}

/// The credential's signing secret; the new one becomes it where there is none.
fn signing_secret(batch: &mut Batch, id: CredentialId, new_secret: &Private, story: &Story<'_>) -> Result<Private, Stop> {
    if let Some(sealed) = batch.signing_secrets.get(&id) {
        return Ok(batch.keyring.open_text("credential.signing_secret", id, sealed)?);
    }
    let sealed = batch.keyring.seal("credential.signing_secret", id, new_secret.expose().as_bytes())?;
    batch.append(id, CredentialEvent::from(SigningSecretRotated {}), story);
    batch.signing_secrets.insert(id, sealed.clone());
    batch.vault.signing_secrets.push((id, sealed));
    Ok(new_secret.clone())
}

fn update_webhook(batch: &mut Batch, account_id: AccountId, id: WebhookId, change: &WebhookChange, story: Story<'_>) -> Decided {
    own_webhook(batch, account_id, id)?;
    let name_hash = change.name.as_ref().map(|text| batch.keep_text("webhook.name", id, new_salt(), text)).transpose()?;
    let url_hash = change.url.as_ref().map(|text| batch.keep_text("webhook.url", id, new_salt(), text)).transpose()?;
    let event = WebhookUpdated { events: change.events.clone(), is_active: change.is_active, name_hash, url_hash };
    batch.append(id, WebhookEvent::from(event), &Story { account_id: Some(account_id), ..story });
    webhook_view(batch, id, None)
}

fn own_webhook(batch: &Batch, account_id: AccountId, id: WebhookId) -> Result<(), Rejection> {
    batch.webhooks.get(&id).filter(|w| w.account_id == account_id && !w.is_deleted).ok_or(Rejection::NotFound)?;
    active(batch, account_id)
}

fn webhook_view(batch: &Batch, id: WebhookId, token: Option<Private>) -> Decided {
    let webhook = batch.webhooks.get(&id).cloned().ok_or(Rejection::NotFound)?;
    let name = batch.text("webhook.name", id)?.ok_or(SealError::Unreadable)?;
    let url = batch.text("webhook.url", id)?.ok_or(SealError::Unreadable)?;
    Ok(Answer::Webhook(WebhookView { webhook, name, url, token }))
}

// ------------------------------------------------------------------------------- shared

fn next(id: Option<i64>, kind: &'static str) -> Result<i64, Stop> {
    id.ok_or(Stop::Broken(DecideError::NoIdLeft(kind)))
}

fn new_salt() -> Vec<u8> {
    rand::random::<[u8; 16]>().to_vec()
}
