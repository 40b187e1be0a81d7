//! The state that a batch of commands is decided on.
//!
//! The batch loads rows with one statement per table. Each command then changes them in memory, so that it sees the
//! commands before it.

mod allocation;
mod load;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use chrono::{DateTime, NaiveDate, Utc};
use ledger_events::{AccountId, CredentialId, Event, Metadata, Moment, OrderId, Position, ProductId, ShardId, UserId};
use ledger_projections::wallets::Transaction;
use uuid::Uuid;

use super::cache::{HeadState, IdempotencyRecord, UnflushedState, WriterCache};
use super::erasure::Erasable;
use super::ids::Ids;
use super::keys::{DataKeys, NewKey};
use super::operators;
use super::outbox::{Mail, QueuedMail, Recipient};
use super::stock::{NewRow, Stock};
use super::streams::Streams;
use super::texts::SealedText;
use super::user_security;
use crate::secrets::seal::{Keyring, SealError, Secret};

/// An event that is about to be written.
#[derive(Debug)]
pub struct Appended {
    pub moment: Moment,
    pub stream_id: i64,
    pub event: Event,
    pub metadata: Metadata,
}

/// A change to the row by which a user logs in.
#[derive(Debug)]
pub enum UserChange {
    Admit { id: UserId, email_lookup: [u8; 32], password_hash: Secret, mac: [u8; 32] },
    Password { id: UserId, password_hash: Secret, mac: [u8; 32] },
    EndSessions(UserId),
    EndOtherSessions { id: UserId, kept: i64 },
    Remove(UserId),
}

/// The row by which a new API key is found.
#[derive(Debug)]
pub struct NewCredential {
    pub id: CredentialId,
    pub key_hash: [u8; 32],
    pub secret_hash: [u8; 32],
    pub mac: [u8; 32],
}

/// Everything that a batch writes besides the rows of its streams.
#[derive(Debug, Default)]
pub struct PendingWrites {
    pub events: Vec<Appended>,
    pub transactions: Vec<Transaction>,
    /// Hashes of the idempotency keys with a new response.
    pub responses: Vec<[u8; 32]>,
    pub texts: Vec<SealedText>,
    pub keys: Vec<NewKey>,
    pub credentials: Vec<NewCredential>,
    /// Sealed, each with its MAC.
    pub signing_secrets: Vec<(CredentialId, Vec<u8>, [u8; 32])>,
    pub lifted_ips: Vec<IpAddr>,
    /// In the order of the decisions.
    pub operators: Vec<operators::Change>,
    /// In the order of the decisions: the email of a removed user is free again.
    pub users: Vec<UserChange>,
    /// In the order of the decisions, after the changes of users.
    pub user_security: Vec<user_security::Change>,
    pub mails: Vec<QueuedMail>,
    pub vouchers: Vec<NewRow>,
    /// Vouchers, and the orders that they are given to.
    pub claims: Vec<(i64, OrderId)>,
    /// Vouchers that no order may get any more.
    pub voided: Vec<i64>,
    /// Vouchers, and their new last day.
    pub expiries: Vec<(i64, NaiveDate)>,
    /// Vouchers, and the products that they are given to.
    pub transferred: Vec<(i64, ProductId)>,
    /// Vouchers whose expiry is recorded.
    pub expired: Vec<i64>,
    pub erased: Vec<Erasable>,
}

#[derive(Debug)]
pub struct Batch {
    pub shard: ShardId,
    pub keyring: Arc<Keyring>,
    /// The head before this batch. Its `recorded_at` is the time of every event in this batch.
    pub head: HeadState,
    /// Time when the head was locked, by this node's clock.
    pub locked_at: Instant,
    /// Time of the database when the batch was begun.
    pub now: DateTime<Utc>,
    /// On the heap, because batches are moved often.
    pub streams: Box<Streams>,
    pub ids: Ids,
    pub data_keys: DataKeys,
    pub stock: Stock,
    /// Texts in the vault, by kind and id.
    pub texts: HashMap<(&'static str, i64), SealedText>,
    /// Responses by the hash of their idempotency key.
    pub responses: HashMap<[u8; 32], IdempotencyRecord>,
    /// Idempotency keys that are older than 24 hours. A new request may use them.
    pub expired_keys: Vec<[u8; 32]>,
    /// Hashes of the idempotency keys whose stored responses the batch repeats.
    pub repeated: Vec<[u8; 32]>,
    /// Personal data of the subject that the batch erases.
    pub erasable: Option<Erasable>,
    unflushed: UnflushedState,
    pub pending: PendingWrites,
}

impl Batch {
    /// Begins a batch on cached state, which is exact.
    pub fn new(
        shard: ShardId,
        keyring: Arc<Keyring>,
        cache: WriterCache,
        unflushed: UnflushedState,
        now: DateTime<Utc>,
    ) -> Batch {
        Batch {
            shard,
            keyring,
            head: cache.head,
            locked_at: Instant::now(),
            now,
            streams: cache.streams,
            ids: cache.ids,
            data_keys: cache.data_keys,
            stock: cache.stock,
            texts: HashMap::new(),
            responses: HashMap::new(),
            expired_keys: vec![],
            repeated: vec![],
            erasable: None,
            unflushed,
            pending: PendingWrites::default(),
        }
    }

    /// Returns the head after this batch.
    pub fn head_after(&self) -> HeadState {
        let last_event = self.pending.events.last().map(|event| event.moment.event_id).or(self.head.last_event);
        HeadState { position: self.end(), last_event, ..self.head }
    }

    /// Returns the position of this batch's last event, or the head before it.
    pub fn end(&self) -> Position {
        self.head.position + i64::try_from(self.pending.events.len()).unwrap_or(i64::MAX)
    }

    /// Splits the state after this batch into what outlasts it and what counts until it is written.
    pub fn into_cache(mut self) -> (WriterCache, UnflushedState) {
        let head = self.head_after();
        let order_by_reference = std::mem::take(&mut self.streams.orders.index.by_reference).into_found();
        let unflushed = UnflushedState { responses: self.responses, order_by_reference, texts: self.texts };
        self.streams.drop_uncached(self.shard);
        self.ids.vouchers.clear(); // A voucher's id says which stock is newer.
        self.data_keys.retain(|_, key| key.is_some()); // A data key may appear without an event.
        self.stock.end_batch();
        let cache = WriterCache { head, streams: self.streams, ids: self.ids, data_keys: self.data_keys, stock: self.stock };
        (cache.end_batch(), unflushed)
    }

    /// Returns the response under an idempotency key.
    pub fn response(&self, key: &[u8; 32]) -> Option<&IdempotencyRecord> {
        self.responses.get(key).or_else(|| self.unflushed.responses.get(key))
    }

    /// Returns the order that an account placed under a `client_reference`.
    pub fn order_under(&self, account: AccountId, reference: &str) -> Option<OrderId> {
        let key = (account, reference.to_owned());
        let found = self.streams.orders.index.by_reference.get(&key);
        found.or_else(|| self.unflushed.order_by_reference.get(&key)).copied()
    }

    /// Returns the id of the next event: a UUIDv7 of the recorded time.
    pub fn next_event_id(&self) -> Uuid {
        let millis = u64::try_from(self.head.recorded_at.timestamp_millis()).unwrap_or_default();
        Uuid::new_v7(uuid::Timestamp::from_unix(
            uuid::NoContext,
            millis / 1000,
            u32::try_from(millis % 1000).unwrap_or_default() * 1_000_000,
        ))
    }

    /// Opens a text of the vault, if there is one.
    pub fn text(&self, kind: &'static str, id: i64) -> Result<Option<Secret>, SealError> {
        let text = self.texts.get(&(kind, id)).or_else(|| self.unflushed.texts.get(&(kind, id)));
        text.map(|text| text.open(&self.keyring)).transpose()
    }

    /// Stores a mail with the events of this batch.
    pub fn queue_mail(&mut self, mail: &Mail, to: Recipient) -> Result<(), SealError> {
        self.pending.mails.push(QueuedMail::new(&self.keyring, mail, to)?);
        Ok(())
    }

    /// Returns whether the batch writes nothing: every command was refused or had its response already.
    pub fn is_empty(&self) -> bool {
        self.pending.events.is_empty() && self.pending.responses.is_empty() && self.pending.keys.is_empty()
    }
}
