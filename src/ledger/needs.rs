//! Which rows and ids a batch of commands needs, read off the commands before anything is loaded.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;

use ledger_database::PgConnection;
use ledger_events::reconciliation::Decision;
use ledger_events::{
    AccountId, Actor, BeneficiaryId, CategoryId, CredentialId, OrderId, PayoutId, ProductId, ReplayId, StatementId, UserId,
    WalletId,
};

use super::command::{Command, NewVoucher};
use super::erasure::{Part, Subject};
use super::keys::Owner;
use super::submission::Submission;
use super::texts::{FAILURE_REASON, METADATA, WEBHOOK_NAME, WEBHOOK_URL};

/// Ids that may be handed out.
#[derive(Debug, Default)]
pub struct Ids {
    pub orders: VecDeque<i64>,
    pub transactions: VecDeque<i64>,
    pub accounts: VecDeque<i64>,
    pub credentials: VecDeque<i64>,
    pub wallets: VecDeque<i64>,
    pub webhooks: VecDeque<i64>,
    pub products: VecDeque<i64>,
    pub categories: VecDeque<i64>,
    pub vouchers: VecDeque<i64>,
    pub deliveries: VecDeque<i64>,
    pub replays: VecDeque<i64>,
    pub beneficiaries: VecDeque<i64>,
    pub payouts: VecDeque<i64>,
    pub users: VecDeque<i64>,
    pub statements: VecDeque<i64>,
    pub decisions: VecDeque<i64>,
    pub data_keys: VecDeque<i64>,
    pub operators: VecDeque<i64>,
}

/// Which rows the commands of a batch need.
#[derive(Default)]
pub struct Needs<'a> {
    pub keys: Vec<[u8; 32]>,
    pub accounts: HashSet<AccountId>,
    pub credentials: HashSet<CredentialId>,
    pub signing_secrets: HashSet<CredentialId>,
    pub ip_blocks: Vec<IpAddr>,
    /// The last emergency sunset.
    pub sunset: bool,
    /// Ids of operators' tokens.
    pub operators: HashSet<i64>,
    pub users: HashSet<UserId>,
    /// Whether the stream of the shard's transparency log goes on.
    pub log: bool,
    /// Keyed hashes of emails that are to be given to users.
    pub emails: Vec<[u8; 32]>,
    pub products: HashSet<ProductId>,
    pub categories: HashSet<CategoryId>,
    pub wallets: HashSet<WalletId>,
    pub wallets_of: HashSet<AccountId>,
    /// Wallets with a movement that gets a note.
    pub noted: HashSet<WalletId>,
    pub data_keys: HashSet<Owner>,
    pub erased: Option<(Subject, &'a Part)>,
    pub orders: HashSet<OrderId>,
    pub cancelled: Vec<OrderId>,
    pub references: Vec<(AccountId, &'a str)>,
    pub fundings: Vec<&'a str>,
    pub webhooks_of: HashSet<AccountId>,
    pub texts: Vec<(&'static str, i64)>,
    pub vouchers: Vec<(ProductId, &'a [NewVoucher])>,
    pub fulfil: Vec<OrderId>,
    pub retried: Vec<i64>,
    pub replays: HashSet<ReplayId>,
    /// Accounts whose webhooks' running replays count.
    pub running_replays_of: HashSet<AccountId>,
    pub beneficiaries: HashSet<BeneficiaryId>,
    pub payouts: HashSet<PayoutId>,
    pub payout_references: Vec<(AccountId, &'a str)>,
    pub statements: HashSet<StatementId>,
    /// What lines of statements are decided to be.
    pub decided: Vec<Decision>,
    /// Of statements that are imported.
    pub fingerprints: Vec<&'a str>,
    pub counts: [i64; Needs::KINDS],
}

impl<'a> Needs<'a> {
    const ORDERS: usize = 0;
    const TRANSACTIONS: usize = 1;
    const ACCOUNTS: usize = 2;
    const CREDENTIALS: usize = 3;
    const WALLETS: usize = 4;
    const WEBHOOKS: usize = 5;
    const PRODUCTS: usize = 6;
    const CATEGORIES: usize = 7;
    const VOUCHERS: usize = 8;
    const BENEFICIARIES: usize = 9;
    const PAYOUTS: usize = 10;
    const USERS: usize = 11;
    const DELIVERIES: usize = 12;
    const REPLAYS: usize = 13;
    const STATEMENTS: usize = 14;
    const DECISIONS: usize = 15;
    const DATA_KEYS: usize = 16;
    const OPERATORS: usize = 17;
    const KINDS: usize = 18;

    pub fn of(submissions: &'a [Submission]) -> Needs<'a> {
        let mut needs = Needs::default();
        for submission in submissions {
            needs.keys.extend(submission.idempotency.as_ref().map(|i| i.key_hash));
            // Each may seal something for somebody who has no data key yet.
            needs.counts[Self::DATA_KEYS] += 1;
            match submission.origin.actor {
                Actor::Credential(id) => _ = needs.credentials.insert(id),
                Actor::User(id) => _ = needs.users.insert(id),
                Actor::Operator(_) | Actor::Fulfilment | Actor::Replay | Actor::Sandbox => {}
            }
            needs.add(&submission.command);
        }
        needs
    }

    fn add(&mut self, command: &'a Command) {
        match command {
            Command::CreateAccount { .. } => self.counts[Self::ACCOUNTS] += 1,
            Command::SetAccountStatus { account_id, .. } => _ = self.accounts.insert(*account_id),
            Command::SetDiscount { account_id, rule } => {
                self.accounts.insert(*account_id);
                self.products.extend(rule.product_id);
                self.categories.extend(rule.category_id);
            }
            Command::IssueCredential { account_id, .. } => {
                self.accounts.insert(*account_id);
                self.counts[Self::CREDENTIALS] += 1;
            }
            Command::RevokeCredential { account_id, credential_id } => {
                self.accounts.insert(*account_id);
                self.credentials.insert(*credential_id);
            }
            Command::SetHmacRequired { credential_id, .. } => {
                self.credentials.insert(*credential_id);
                self.signing_secrets.insert(*credential_id);
            }
            Command::RotateSigningSecret { account_id, credential_id, .. } => {
                self.accounts.insert(*account_id);
                self.credentials.insert(*credential_id);
            }
            Command::IssueOperatorToken(_) => self.counts[Self::OPERATORS] += 1,
            Command::RevokeOperatorToken { id } => _ = self.operators.insert(*id),
            Command::RecordLogIncident(_) => self.log = true,
            Command::LiftIpBlock { ip } => self.ip_blocks.push(*ip),
            Command::DeclareEmergencySunset(_) => self.sunset = true,
            Command::CreateUser(user) => {
                self.accounts.insert(user.account_id);
                self.emails.push(user.email_lookup);
                self.counts[Self::USERS] += 1;
            }
            Command::ChangeUser(change) => _ = self.users.insert(change.user_id),
            Command::EndSessions { user_id, .. } | Command::RemoveUser { user_id, .. } => _ = self.users.insert(*user_id),
            Command::OpenWallet { account_id, .. } => {
                self.accounts.insert(*account_id);
                self.wallets_of.insert(*account_id);
                self.counts[Self::WALLETS] += 1;
            }
            Command::FundWallet { account_id, wallet_id, reference, note, .. } => {
                self.noted.extend(note.as_ref().map(|_| *wallet_id));
                self.accounts.extend(*account_id);
                self.wallets.insert(*wallet_id);
                self.fundings.push(reference);
                self.counts[Self::TRANSACTIONS] += 1;
            }
            Command::AdjustWallet { wallet_id, .. } => {
                self.noted.insert(*wallet_id);
                self.wallets.insert(*wallet_id);
                self.counts[Self::TRANSACTIONS] += 1;
            }
            Command::AddCategory { parent_id, .. } => {
                self.categories.extend(*parent_id);
                self.counts[Self::CATEGORIES] += 1;
            }
            Command::AddProduct { details } => {
                self.categories.extend(details.category_id);
                self.counts[Self::PRODUCTS] += 1;
            }
            Command::ChangeProduct { product_id, change } => {
                self.products.insert(*product_id);
                self.categories.extend(change.category_id.flatten());
            }
            Command::SetProductImage { product_id, .. } => _ = self.products.insert(*product_id),
            Command::LoadVouchers { product_id, vouchers, .. } => {
                self.products.insert(*product_id);
                self.vouchers.push((*product_id, vouchers));
                let new = i64::try_from(vouchers.len()).unwrap_or(i64::MAX);
                self.counts[Self::VOUCHERS] += new;
                self.counts[Self::DATA_KEYS] += new;
            }
            Command::QuoteCharge { account_id, product_id, .. } => {
                self.accounts.insert(*account_id);
                self.wallets_of.insert(*account_id);
                self.products.insert(*product_id);
            }
            Command::PlaceOrder(order) => {
                self.accounts.insert(order.account_id);
                self.wallets_of.insert(order.account_id);
                self.products.insert(order.product_id);
                self.data_keys.extend(order.metadata.as_ref().map(|_| Owner::Account(order.account_id)));
                self.references.extend(order.client_reference.as_deref().map(|reference| (order.account_id, reference)));
                self.counts[Self::ORDERS] += 1;
                self.counts[Self::TRANSACTIONS] += 1;
            }
            Command::CancelOrder { order_id, .. } => {
                self.orders.insert(*order_id);
                self.cancelled.push(*order_id);
                self.texts.push((METADATA, *order_id));
                self.counts[Self::TRANSACTIONS] += 1;
            }
            Command::FulfilOrder { order_id } => {
                self.orders.insert(*order_id);
                self.fulfil.push(*order_id);
            }
            Command::RevealVouchers { order_id, .. } => _ = self.orders.insert(*order_id),
            Command::RegisterWebhook(webhook) => {
                self.accounts.insert(webhook.account_id);
                self.webhooks_of.insert(webhook.account_id);
                self.data_keys.insert(Owner::Account(webhook.account_id));
                self.credentials.extend(webhook.credential_id);
                self.signing_secrets.extend(webhook.credential_id);
                self.counts[Self::WEBHOOKS] += 1;
            }
            Command::UpdateWebhook { account_id, webhook_id, .. }
            | Command::RotateWebhookToken { account_id, webhook_id, .. }
            | Command::DeleteWebhook { account_id, webhook_id } => {
                self.accounts.insert(*account_id);
                self.webhooks_of.insert(*account_id);
                self.running_replays_of.insert(*account_id);
                self.texts.extend([(WEBHOOK_NAME, *webhook_id), (WEBHOOK_URL, *webhook_id)]);
                match command {
                    Command::UpdateWebhook { change, .. } => {
                        let credential = change.link.as_ref().map(|link| link.credential_id);
                        self.credentials.extend(credential);
                        self.signing_secrets.extend(credential);
                    }
                    // An answer that is stored is sealed for the account.
                    Command::RotateWebhookToken { .. } => _ = self.data_keys.insert(Owner::Account(*account_id)),
                    _ => {}
                }
            }
            Command::TestWebhook { account_id, .. } => {
                self.accounts.insert(*account_id);
                self.webhooks_of.insert(*account_id);
                self.counts[Self::DELIVERIES] += 1;
            }
            Command::RetryDelivery { account_id, delivery_id } => {
                self.accounts.insert(*account_id);
                self.webhooks_of.insert(*account_id);
                self.retried.push(*delivery_id);
            }
            Command::RequestReplay(replay) => {
                self.webhooks_of.insert(replay.account_id);
                self.running_replays_of.insert(replay.account_id);
                self.counts[Self::REPLAYS] += 1;
            }
            Command::AdvanceReplay(step) => {
                self.webhooks_of.insert(step.account_id);
                self.replays.insert(step.replay_id);
            }
            Command::CancelReplay { replay_id } => _ = self.replays.insert(*replay_id),
            Command::AddBeneficiary(beneficiary) => {
                self.accounts.insert(beneficiary.account_id);
                self.counts[Self::BENEFICIARIES] += 1;
            }
            Command::DeleteBeneficiary { account_id, beneficiary_id } => {
                self.accounts.insert(*account_id);
                self.beneficiaries.insert(*beneficiary_id);
            }
            Command::RequestPayout(payout) => {
                self.accounts.insert(payout.account_id);
                self.beneficiaries.insert(payout.beneficiary_id);
                self.wallets.insert(payout.wallet_id);
                self.payout_references.extend(payout.client_reference.as_deref().map(|text| (payout.account_id, text)));
                self.counts[Self::PAYOUTS] += 1;
                self.counts[Self::TRANSACTIONS] += 1;
            }
            Command::CancelPayout { account_id, payout_id } => {
                self.accounts.insert(*account_id);
                self.payouts.insert(*payout_id);
                self.counts[Self::TRANSACTIONS] += 1;
            }
            Command::SettlePayout { payout_id, .. } => {
                self.payouts.insert(*payout_id);
                self.texts.push((FAILURE_REASON, *payout_id));
                self.counts[Self::TRANSACTIONS] += 1;
            }
            Command::ImportStatement(statement) => {
                self.fingerprints.push(&statement.0.fingerprint);
                self.counts[Self::STATEMENTS] += 1;
            }
            Command::DecideMatch(decision) => {
                self.statements.insert(decision.statement_id);
                self.decided.push(decision.decision);
                self.counts[Self::DECISIONS] += 1;
            }
            Command::RevokeMatchDecision { statement_id, .. } => _ = self.statements.insert(*statement_id),
            Command::Erase { subject, part, .. } => {
                self.erased = Some((*subject, part));
                match subject {
                    Subject::Account(id) => {
                        self.accounts.insert(*id);
                        self.webhooks_of.insert(*id);
                        self.running_replays_of.insert(*id);
                    }
                    Subject::Beneficiary(id) => _ = self.beneficiaries.insert(*id),
                    Subject::Order(id) => _ = self.orders.insert(*id),
                    Subject::User(id) => _ = self.users.insert(*id),
                    Subject::Statement { id, .. } => _ = self.statements.insert(*id),
                }
            }
        }
    }
}

/// Ids of kinds that every order needs are drawn so many at a time; what a node has left when it
/// ends is never used.
const BLOCK: i64 = 1_000;

impl Ids {
    /// Draws from the sequences what is missing for a batch.
    pub async fn refill(&mut self, conn: &mut PgConnection, counts: &[i64; Needs::KINDS]) -> Result<(), sqlx::Error> {
        let kinds = [
            (Needs::ORDERS, &mut self.orders, "order_ids", BLOCK),
            (Needs::TRANSACTIONS, &mut self.transactions, "transaction_ids", BLOCK),
            (Needs::ACCOUNTS, &mut self.accounts, "account_ids", 0),
            (Needs::CREDENTIALS, &mut self.credentials, "credential_ids", 0),
            (Needs::WALLETS, &mut self.wallets, "wallet_ids", 0),
            (Needs::WEBHOOKS, &mut self.webhooks, "webhook_ids", 0),
            (Needs::PRODUCTS, &mut self.products, "product_ids", 0),
            (Needs::CATEGORIES, &mut self.categories, "category_ids", 0),
            (Needs::VOUCHERS, &mut self.vouchers, "voucher_ids", 0),
            (Needs::DELIVERIES, &mut self.deliveries, "delivery_ids", 0),
            (Needs::REPLAYS, &mut self.replays, "replay_ids", 0),
            (Needs::BENEFICIARIES, &mut self.beneficiaries, "beneficiary_ids", 0),
            (Needs::PAYOUTS, &mut self.payouts, "payout_ids", 0),
            (Needs::USERS, &mut self.users, "user_ids", 0),
            (Needs::STATEMENTS, &mut self.statements, "bank_statement_ids", 0),
            (Needs::DECISIONS, &mut self.decisions, "match_decision_ids", 0),
            (Needs::DATA_KEYS, &mut self.data_keys, "vault.data_key_ids", BLOCK),
            (Needs::OPERATORS, &mut self.operators, "vault.operators_id_seq", 0),
        ];
        for (kind, left, sequence, block) in kinds {
            let missing = counts[kind] - i64::try_from(left.len()).unwrap_or(i64::MAX);
            if missing > 0 {
                let drawn: Vec<i64> = sqlx::query_scalar("SELECT nextval($1::regclass) FROM generate_series(1, $2)")
                    .bind(sequence)
                    .bind(missing.max(block))
                    .fetch_all(&mut *conn)
                    .await?;
                left.extend(drawn);
            }
        }
        Ok(())
    }
}
