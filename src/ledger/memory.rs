//! What a writer remembers between batches: rows as they are at a position of the log.
//!
//! Under the head lock this is exact as long as the head stands where this writer left it: nobody
//! else has written in between. Otherwise it is forgotten and read again.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use ledger_events::account::{Account, Credential};
use ledger_events::catalogue::Product;
use ledger_events::order::Order;
use ledger_events::user::User;
use ledger_events::wallet::Wallet;
use ledger_events::{AccountId, CredentialId, Currency, Money, OrderId, Position, ProductId, UserId, WalletId};

use super::batch::{SealedText, StoredAnswer, Touched};
use super::keys::DataKeys;
use super::needs::Ids;
use super::stock::{self, Shelves};

#[derive(Debug, Default)]
pub struct Memory {
    pub position: Position,
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

    /// What is still exact when the log stands at this position and epoch, at this time.
    pub fn still_exact_at(self, position: Position, epoch: i64, recorded_at: DateTime<Utc>) -> Memory {
        let memory = if (self.position, self.epoch) == (position, epoch) { self } else { self.forget() };
        Memory { position, epoch, recorded_at, ..memory }
    }

    /// Nothing but the ids that were drawn, and where the head stands.
    fn forget(self) -> Memory {
        let Memory { position, epoch, recorded_at, ids, .. } = self;
        Memory { position, epoch, recorded_at, ids, ..Memory::default() }
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
