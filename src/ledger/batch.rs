//! What a batch of commands is decided on: loaded under the head lock with one statement per
//! table, then changed in memory by each command in turn, so that each sees those before it.

mod allocation;
mod load;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use chrono::{DateTime, Utc};
use ledger_events::account::{Account, Credential};
use ledger_events::beneficiary::Beneficiary;
use ledger_events::catalogue::{Category, Product};
use ledger_events::order::Order;
use ledger_events::payout::Payout;
use ledger_events::reconciliation::Statement;
use ledger_events::replay::Replay;
use ledger_events::user::User;
use ledger_events::wallet::Wallet;
use ledger_events::webhook::{Retryable, Webhook};
use ledger_events::{
    AccountId, BeneficiaryId, CategoryId, CredentialId, Currency, Event, Metadata, Moment, Money, OrderId, PayoutId, Position,
    ProductId, ReplayId, ShardId, StatementId, UserId, WalletId, WebhookId,
};
use ledger_projections::wallets::Transaction;
use uuid::Uuid;

use super::erasure::Erasable;
use super::keys::{DataKeys, NewKey};
use super::memory::{Memory, Recent};
use super::operators;
use super::stock::{self, Shelves, Voucher};
use super::submission::Rendered;
use super::sunset::Declared;
use crate::secrets::seal::{DataKey, Keyring, Private, SealError};
pub use allocation::pair;

/// A text in the vault, sealed.
#[derive(Clone, Debug)]
pub struct SealedText {
    pub kind: &'static str,
    pub id: i64,
    pub salt: Vec<u8>,
    pub sealed: Vec<u8>,
    /// Whose data it is; none: the service's own, or from before there were data keys.
    pub key: Option<Arc<DataKey>>,
}

impl SealedText {
    pub fn open(&self, keyring: &Keyring) -> Result<Private, SealError> {
        keyring.open_text_under(self.key.as_deref(), self.kind, self.id, &self.sealed)
    }
}

/// An answer under an idempotency key.
#[derive(Debug)]
pub struct StoredAnswer {
    pub fingerprint: [u8; 32],
    pub rendered: Rendered,
    /// What it is sealed under, if it shows somebody's data.
    pub key: Option<Arc<DataKey>>,
    /// The id of what it shows then.
    pub about: Option<i64>,
}

/// An event that is about to be written.
#[derive(Debug)]
pub struct Appended {
    pub moment: Moment,
    pub stream_id: i64,
    pub event: Event,
    pub metadata: Metadata,
}

/// What becomes of how a user logs in.
#[derive(Debug)]
pub enum UserChange {
    Admit { id: UserId, email_lookup: [u8; 32], password_hash: Private, mac: [u8; 32] },
    Password { id: UserId, password_hash: Private, mac: [u8; 32] },
    EndSessions(UserId),
    Remove(UserId),
}

/// How a client with a new API key is known.
#[derive(Debug)]
pub struct NewCredential {
    pub id: CredentialId,
    pub key_hash: [u8; 32],
    pub secret_hash: [u8; 32],
    pub mac: [u8; 32],
}

/// Rows that the commands' secrets become.
#[derive(Debug, Default)]
pub struct VaultRows {
    pub texts: Vec<SealedText>,
    pub keys: Vec<NewKey>,
    pub credentials: Vec<NewCredential>,
    /// Sealed, each with its MAC.
    pub signing_secrets: Vec<(CredentialId, Vec<u8>, [u8; 32])>,
    pub lifted: Vec<IpAddr>,
    /// In the order in which they were decided.
    pub operators: Vec<operators::Change>,
    /// In the order in which they were decided: a removed user's email is free again.
    pub users: Vec<UserChange>,
    pub vouchers: Vec<stock::NewRow>,
    pub claims: Vec<(i64, OrderId)>,
    pub erased: Vec<Erasable>,
}

#[derive(Debug)]
pub struct Batch {
    pub shard: ShardId,
    pub keyring: Arc<Keyring>,
    pub head: Position,
    /// The event at the head; none in an empty log.
    pub head_event: Option<Uuid>,
    pub epoch: i64,
    /// When the head was locked, by this node's clock.
    pub locked_at: Instant,
    /// When everything in this batch is recorded: never before what the log holds.
    pub recorded_at: DateTime<Utc>,
    /// The database's clock when the batch was begun.
    pub now: DateTime<Utc>,
    pub ids: super::needs::Ids,

    pub accounts: HashMap<AccountId, Account>,
    pub credentials: HashMap<CredentialId, Credential>,
    pub data_keys: DataKeys,
    pub signing_secrets: HashMap<CredentialId, Vec<u8>>,
    pub ip_blocks: HashMap<IpAddr, i64>,
    /// The last emergency sunset.
    pub sunset: Option<Declared>,
    /// The version of the stream of the shard's transparency log, where the batch asks for it.
    pub log_version: i64,
    /// Operators' tokens, by their ids.
    pub operators: HashMap<i64, operators::Known>,
    pub users: HashMap<UserId, User>,
    /// Who has an email, by its keyed hash: of those that the batch asks for.
    pub user_of: HashMap<[u8; 32], UserId>,
    pub products: HashMap<ProductId, Product>,
    pub categories: HashMap<CategoryId, Category>,
    pub wallets: HashMap<WalletId, Wallet>,
    pub orders: HashMap<OrderId, Order>,
    pub webhooks: HashMap<WebhookId, Webhook>,
    pub replays: HashMap<ReplayId, Replay>,
    /// The request's event and the last one of each replay that goes on.
    pub replay_stories: HashMap<ReplayId, (Uuid, Uuid)>,
    /// Deliveries that are to be retried, with their account and webhook.
    pub retryable: HashMap<i64, (AccountId, WebhookId, Retryable)>,
    /// What there is to erase of the subject that the batch is about.
    pub erasable: Option<Erasable>,
    pub beneficiaries: HashMap<BeneficiaryId, Beneficiary>,
    pub payouts: HashMap<PayoutId, Payout>,
    pub statements: HashMap<StatementId, Statement>,
    /// How many lines the vault has of the files that are imported, by their fingerprints.
    pub kept_lines: HashMap<String, i64>,
    pub wallet_of: HashMap<(AccountId, Currency), WalletId>,
    /// Accounts all of whose wallets are here.
    pub wallets_known_of: HashSet<AccountId>,
    pub order_of: HashMap<(AccountId, String), OrderId>,
    pub payout_of: HashMap<(AccountId, String), PayoutId>,
    pub fundings: HashMap<String, Transaction>,
    pub texts: HashMap<(&'static str, i64), SealedText>,
    pub answers: HashMap<[u8; 32], StoredAnswer>,
    /// Keys whose day has passed: they may stand for a new request.
    pub expired_answers: Vec<[u8; 32]>,
    /// The vouchers that each order to be fulfilled gets, the oldest order first.
    pub allocated: HashMap<OrderId, Vec<Voucher>>,
    pub shelves: Shelves,
    pub nobody_waits_for: HashSet<(ProductId, Money)>,
    /// What the batch before this one, which is being written, leaves to it.
    recent: Recent,
    pub known_vouchers: stock::Known,

    pub appended: Vec<Appended>,
    pub transactions: Vec<Transaction>,
    pub new_answers: Vec<[u8; 32]>,
    pub vault: VaultRows,
    pub touched: Touched,
}

/// Whose rows changed.
#[derive(Debug, Default)]
pub struct Touched {
    pub accounts: BTreeSet<AccountId>,
    pub credentials: BTreeSet<CredentialId>,
    pub users: BTreeSet<UserId>,
    pub products: BTreeSet<ProductId>,
    pub categories: BTreeSet<CategoryId>,
    pub wallets: BTreeSet<WalletId>,
    pub orders: BTreeSet<OrderId>,
    pub webhooks: BTreeSet<WebhookId>,
    pub replays: BTreeSet<ReplayId>,
    pub beneficiaries: BTreeSet<BeneficiaryId>,
    pub payouts: BTreeSet<PayoutId>,
    pub statements: BTreeSet<StatementId>,
}

impl Batch {
    /// A batch that begins with what is remembered, which is exact.
    pub fn recall(shard: ShardId, keyring: Arc<Keyring>, memory: Memory, recent: Recent, now: DateTime<Utc>) -> Batch {
        Batch {
            shard,
            keyring,
            head: memory.position,
            head_event: memory.last_event,
            epoch: memory.epoch,
            locked_at: Instant::now(),
            recorded_at: memory.recorded_at,
            now,
            ids: memory.ids,
            accounts: memory.accounts,
            credentials: memory.credentials,
            users: memory.users,
            data_keys: memory.data_keys,
            products: memory.products,
            wallets: memory.wallets,
            wallets_known_of: memory.wallets_known_of,
            wallet_of: memory.wallet_of,
            orders: memory.orders,
            shelves: memory.shelves,
            nobody_waits_for: memory.nobody_waits_for,
            recent,
            signing_secrets: HashMap::new(),
            ip_blocks: HashMap::new(),
            sunset: None,
            log_version: 0,
            operators: HashMap::new(),
            user_of: HashMap::new(),
            categories: HashMap::new(),
            webhooks: HashMap::new(),
            replays: HashMap::new(),
            replay_stories: HashMap::new(),
            retryable: HashMap::new(),
            erasable: None,
            beneficiaries: HashMap::new(),
            payouts: HashMap::new(),
            statements: HashMap::new(),
            kept_lines: HashMap::new(),
            order_of: HashMap::new(),
            payout_of: HashMap::new(),
            fundings: HashMap::new(),
            texts: HashMap::new(),
            answers: HashMap::new(),
            expired_answers: vec![],
            allocated: HashMap::new(),
            known_vouchers: stock::Known::default(),
            appended: vec![],
            transactions: vec![],
            new_answers: vec![],
            vault: VaultRows::default(),
            touched: Touched::default(),
        }
    }

    /// The position of this batch's last event, or of what was there before.
    pub fn end(&self) -> Position {
        self.head + i64::try_from(self.appended.len()).unwrap_or(i64::MAX)
    }

    /// What is worth remembering once this batch is written, and what until then.
    pub fn into_memory(self) -> (Memory, Recent) {
        let end = self.end();
        let last_event = self.appended.last().map(|event| event.moment.event_id).or(self.head_event);
        let mut ids = self.ids;
        ids.vouchers.clear(); // a voucher's id tells which stock is newer
        let memory = Memory {
            position: end,
            last_event,
            epoch: self.epoch,
            recorded_at: self.recorded_at,
            ids,
            accounts: self.accounts,
            credentials: self.credentials,
            users: self.users,
            // That there is none may change without an event.
            data_keys: self.data_keys.into_iter().filter(|(_, key)| key.is_some()).collect(),
            // Another shard's log tells of the catalogue: only the first one's writer knows when it changed.
            products: if self.shard == super::FIRST_SHARD { self.products } else { HashMap::new() },
            wallets: self.wallets,
            wallets_known_of: self.wallets_known_of,
            wallet_of: self.wallet_of,
            orders: self.orders,
            shelves: self.shelves,
            nobody_waits_for: self.nobody_waits_for,
        };
        (memory.bounded(&self.touched), Recent { answers: self.answers, order_of: self.order_of, texts: self.texts })
    }

    /// The answer under an idempotency key.
    pub fn answer(&self, key: &[u8; 32]) -> Option<&StoredAnswer> {
        self.answers.get(key).or_else(|| self.recent.answers.get(key))
    }

    /// The order that an account placed under a `client_reference`.
    pub fn order_under(&self, account: AccountId, reference: &str) -> Option<OrderId> {
        let key = (account, reference.to_owned());
        self.order_of.get(&key).or_else(|| self.recent.order_of.get(&key)).copied()
    }

    /// A text of the vault, sealed.
    pub fn sealed_text(&self, kind: &'static str, id: i64) -> Option<&SealedText> {
        self.texts.get(&(kind, id)).or_else(|| self.recent.texts.get(&(kind, id)))
    }

    /// The id of the next event. UUIDv7 of the recorded time.
    pub fn next_event_id(&self) -> Uuid {
        let millis = u64::try_from(self.recorded_at.timestamp_millis()).unwrap_or_default();
        Uuid::new_v7(uuid::Timestamp::from_unix(
            uuid::NoContext,
            millis / 1000,
            u32::try_from(millis % 1000).unwrap_or_default() * 1_000_000,
        ))
    }
}

/// What a sealed answer is bound to begins with this, and ends with its key's hash.
pub const ANSWER_KIND: &str = "idempotency";

/// What a sealed answer is bound to: its key.
pub fn answer_kind(key_hash: &[u8; 32]) -> String {
    format!("{ANSWER_KIND}.{}", hex::encode(key_hash))
}
