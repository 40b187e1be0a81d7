//! State that a writer keeps between batches: rows as they are at a position of the log.
//!
//! Under the head lock, the cache is exact as long as the head has the position and event that this writer left. Nobody
//! else has written in between then. Otherwise the writer drops the cache and loads the rows again.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use ledger_events::{AccountId, OrderId, Position};
use uuid::Uuid;

use super::context::StoredResponse;
use super::ids::Ids;
use super::keys::DataKeys;
use super::stock::Stock;
use super::streams::Streams;
use super::texts::SealedText;
use crate::secrets::seal::DataKey;

/// A position of the head of a shard's log.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadState {
    pub position: Position,
    /// Event at this position; none in an empty log.
    pub last_event: Option<Uuid>,
    /// `log_head.epoch`. A higher one makes the cache and undelivered statements invalid.
    pub epoch: i64,
    /// Earliest time that the next event may be recorded at.
    pub recorded_at: DateTime<Utc>,
}

/// Part of the cached state that still counts at another head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StillExact {
    /// Nobody has written since: every row.
    Everything,
    /// The log has grown, or the tables were replaced: the ids that were drawn.
    Ids,
    /// The log has gone back: not even the ids.
    Nothing,
}

impl HeadState {
    /// Compares the head at which state was cached with the present one.
    ///
    /// The last event tells apart a log that reached the same position again after a failover that lost commits.
    pub fn still_exact_at(&self, now: &HeadState) -> StillExact {
        let has_gone_back = now.position < self.position || now.position == self.position && now.last_event != self.last_event;
        match (self.position, self.epoch) == (now.position, now.epoch) {
            _ if has_gone_back => StillExact::Nothing,
            true => StillExact::Everything,
            false => StillExact::Ids,
        }
    }
}

#[derive(Debug, Default)]
pub struct WriterCache {
    pub head: HeadState,
    pub streams: Box<Streams>,
    /// Ids that were drawn. They are never assigned twice, wherever the head is.
    pub ids: Ids,
    pub data_keys: DataKeys,
    pub stock: Stock,
}

/// A response under an idempotency key.
#[derive(Debug)]
pub struct IdempotencyRecord {
    pub fingerprint: [u8; 32],
    pub response: StoredResponse,
    /// Data key that seals it, if it shows personal data.
    pub key: Option<Arc<DataKey>>,
    /// Id of the object that it shows then.
    pub about: Option<i64>,
}

/// State that a batch in flight leaves to the next one besides rows. Nobody else finds it in the tables yet.
#[derive(Debug, Default)]
pub struct UnflushedState {
    pub responses: HashMap<[u8; 32], IdempotencyRecord>,
    pub order_by_reference: HashMap<(AccountId, String), OrderId>,
    pub texts: HashMap<(&'static str, i64), SealedText>,
}

impl WriterCache {
    /// Orders that stay for fulfilment to find. Above this number only the last batch's orders stay.
    const MAX_ORDERS: usize = 20_000;
    /// Rows of any other kind. Above this number the cache is dropped.
    const MAX_ROWS: usize = 100_000;

    /// Returns what is still exact at this head. Ids that were drawn stay, unless the log has gone back: the sequences may
    /// have gone back with it, and draw the same ids again.
    pub fn still_exact_at(self, head: HeadState) -> WriterCache {
        let cache = match self.head.still_exact_at(&head) {
            StillExact::Everything => self,
            StillExact::Ids => self.forget(),
            StillExact::Nothing => WriterCache::default(),
        };
        WriterCache { head, ..cache }
    }

    /// Drops everything but the ids that were drawn, and the head.
    fn forget(mut self) -> WriterCache {
        self.streams.forget();
        WriterCache { head: self.head, streams: self.streams, ids: self.ids, ..WriterCache::default() }
    }

    /// Evicts rows above the limits, and ends the batch. Rows that the batch changed stay: they may not be in the tables yet.
    pub fn end_batch(mut self) -> WriterCache {
        if self.streams.orders.len() > Self::MAX_ORDERS {
            self.streams.orders.evict_untouched();
        }
        let others = [self.data_keys.len(), self.stock.shelves.len(), self.stock.vouchers()];
        if self.streams.sizes().chain(others).any(|rows| rows > Self::MAX_ROWS) {
            self.streams.orders.evict_untouched();
            self.streams.wallets.evict_untouched();
            let (orders, wallets) = (self.streams.orders.take_states(), self.streams.wallets.take_states());
            self = self.forget();
            self.streams.orders.keep(orders);
            self.streams.wallets.keep(wallets);
        }
        self.streams.end_batch();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_has_gone_back_leaves_nothing_to_be_remembered() {
        let (ours, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let at =
            |position, last_event, epoch| HeadState { position, last_event: Some(last_event), epoch, recorded_at: Utc::now() };
        // Numbers of orders' ids and of accounts that stay, of one each.
        for (head, expected) in [
            (at(10, ours, 0), (1, 1)),
            (at(11, other, 0), (1, 0)),
            (at(10, ours, 1), (1, 0)),
            (at(10, other, 0), (0, 0)),
            (at(9, other, 0), (0, 0)),
        ] {
            let mut cache = WriterCache { head: at(10, ours, 0), ..WriterCache::default() };
            cache.streams.orders.ids.put_back(OrderId(7));
            cache.streams.wallets.index.complete.insert(AccountId(3));
            let cache = cache.still_exact_at(head);
            let left = (cache.streams.orders.ids.len(), cache.streams.wallets.index.complete.len());
            assert_eq!(left, expected, "{head:?}");
            assert_eq!((cache.head.position, cache.head.last_event), (head.position, head.last_event));
        }
    }
}
