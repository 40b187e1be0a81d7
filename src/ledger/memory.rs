//! What a writer remembers between batches: rows as they are at a position of the log.
//!
//! Under the head lock this is exact as long as the head stands where this writer left it, at the same
//! position with the same event: nobody else has written in between. Otherwise it is forgotten and read again.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use ledger_events::account::{Account, Credential};
use ledger_events::catalogue::Product;
use ledger_events::order::Order;
use ledger_events::user::User;
use ledger_events::wallet::Wallet;
use ledger_events::{AccountId, CredentialId, Currency, Money, OrderId, Position, ProductId, UserId, WalletId};
use uuid::Uuid;

use super::batch::{SealedText, StoredAnswer, Touched};
use super::keys::DataKeys;
use super::needs::Ids;
use super::stock::{self, Shelves};

#[derive(Debug, Default)]
pub struct Memory {
    pub position: Position,
    /// The event at this position; none in an empty log.
    pub last_event: Option<Uuid>,
    /// `log_head.epoch`: when it has grown, what is remembered counts no more.
    pub epoch: i64,
    /// When the log's last event was recorded.
    pub recorded_at: DateTime<Utc>,
    /// Drawn, and never handed out again, wherever the head is.
    pub ids: Ids,
    pub accounts: HashMap<AccountId, Account>,
    pub credentials: HashMap<CredentialId, Credential>,
    pub users: HashMap<UserId, User>,
    pub data_keys: DataKeys,
    pub products: HashMap<ProductId, Product>,
    pub wallets: HashMap<WalletId, Wallet>,
    pub wallets_known_of: HashSet<AccountId>,
    pub wallet_of: HashMap<(AccountId, Currency), WalletId>,
    pub orders: HashMap<OrderId, Order>,
    pub shelves: Shelves,
    /// What no order that was taken up still waits for.
    pub nobody_waits_for: HashSet<(ProductId, Money)>,
}

/// The head of the log, as it was locked.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    pub position: Position,
    /// The event at this position; none in an empty log.
    pub last_event: Option<Uuid>,
    pub epoch: i64,
    /// The time from which on events may be recorded.
    pub recorded_at: DateTime<Utc>,
}

/// What a batch that is being written leaves to the next one besides rows: nobody else can find it
/// in the tables yet.
#[derive(Debug, Default)]
pub struct Recent {
    pub answers: HashMap<[u8; 32], StoredAnswer>,
    pub order_of: HashMap<(AccountId, String), OrderId>,
    pub texts: HashMap<(&'static str, i64), SealedText>,
}

impl Memory {
    /// So many orders are kept for fulfilment to find them at hand; then all go but the last batch's.
    pub const MOST_ORDERS: usize = 20_000;
    /// So many rows of any other kind; then all are forgotten.
    const MOST_ROWS: usize = 100_000;

    /// Keeps what is still exact when the head stands here. The ids that were drawn are kept too, unless the log has gone
    /// back: then the sequences may have gone back with it, and draw the same ids again.
    pub fn still_exact_at(self, head: Standing) -> Memory {
        let Standing { position, last_event, epoch, recorded_at } = head;
        let has_gone_back = position < self.position || position == self.position && last_event != self.last_event;
        let memory = match (self.position, self.epoch) == (position, epoch) {
            _ if has_gone_back => Memory::default(),
            true => self,
            false => self.forget(),
        };
        Memory { position, last_event, epoch, recorded_at, ..memory }
    }

    /// Nothing but the ids that were drawn, and where the head stands.
    fn forget(self) -> Memory {
        let Memory { position, last_event, epoch, recorded_at, ids, .. } = self;
        Memory { position, last_event, epoch, recorded_at, ids, ..Memory::default() }
    }

    /// With what fits. What the last batch changed stays: it may not be in the tables yet.
    pub fn bounded(mut self, touched: &Touched) -> Memory {
        if self.orders.len() > Self::MOST_ORDERS {
            self.orders.retain(|id, _| touched.orders.contains(id));
        }
        let vouchers = self.shelves.values().map(stock::Shelf::len).sum();
        let rows = [
            self.accounts.len(),
            self.wallets.len(),
            self.credentials.len(),
            self.users.len(),
            self.data_keys.len(),
            self.products.len(),
            self.shelves.len(),
            vouchers,
        ];
        if rows.into_iter().all(|rows| rows <= Self::MOST_ROWS) {
            return self;
        }
        let (mut wallets, mut orders) = (std::mem::take(&mut self.wallets), std::mem::take(&mut self.orders));
        wallets.retain(|id, _| touched.wallets.contains(id));
        orders.retain(|id, _| touched.orders.contains(id));
        Memory { wallets, orders, ..self.forget() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_has_gone_back_leaves_nothing_to_be_remembered() {
        let (ours, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let at =
            |position, last_event, epoch| Standing { position, last_event: Some(last_event), epoch, recorded_at: Utc::now() };
        // How many orders' ids, and accounts, are remembered of one each.
        for (head, expected) in [
            (at(10, ours, 0), (1, 1)),
            (at(11, other, 0), (1, 0)),
            (at(10, ours, 1), (1, 0)),
            (at(10, other, 0), (0, 0)),
            (at(9, other, 0), (0, 0)),
        ] {
            let mut memory = Memory { position: 10, last_event: Some(ours), ..Memory::default() };
            memory.ids.orders.push_back(7);
            memory.wallets_known_of.insert(3);
            let memory = memory.still_exact_at(head);
            assert_eq!((memory.ids.orders.len(), memory.wallets_known_of.len()), expected, "{head:?}");
            assert_eq!((memory.position, memory.last_event), (head.position, head.last_event));
        }
    }
}
