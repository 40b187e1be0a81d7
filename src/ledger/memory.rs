//! What a writer remembers between batches: rows as they are at a position of the log.
//!
//! Under the head lock this is exact as long as the head stands where this writer left it: nobody
//! else has written in between. Otherwise it is forgotten and read again.

use std::collections::{HashMap, HashSet};

use ledger_events::account::{Account, Credential};
use ledger_events::catalogue::Product;
use ledger_events::order::Order;
use ledger_events::user::User;
use ledger_events::wallet::Wallet;
use ledger_events::{AccountId, CredentialId, Currency, OrderId, Position, ProductId, UserId, WalletId};

use super::needs::Ids;

#[derive(Debug, Default)]
pub struct Memory {
    pub position: Position,
    /// `log_head.epoch`: tables were replaced when it has grown.
    pub epoch: i64,
    /// Drawn, and never handed out again, wherever the head is.
    pub ids: Ids,
    pub accounts: HashMap<AccountId, Account>,
    pub credentials: HashMap<CredentialId, Credential>,
    pub users: HashMap<UserId, User>,
    pub products: HashMap<ProductId, Product>,
    pub wallets: HashMap<WalletId, Wallet>,
    pub wallets_known_of: HashSet<AccountId>,
    pub wallet_of: HashMap<(AccountId, Currency), WalletId>,
    pub orders: HashMap<OrderId, Order>,
}

impl Memory {
    /// So many orders are kept for fulfilment to find them at hand; then the delivered ones go.
    pub const MOST_ORDERS: usize = 20_000;
    /// So many rows of any other kind; then all are forgotten.
    const MOST_ROWS: usize = 100_000;

    /// What is still exact when the log stands at this position and epoch.
    pub fn still_exact_at(self, position: Position, epoch: i64) -> Memory {
        if (self.position, self.epoch) == (position, epoch) { self } else { Memory { ids: self.ids, ..Memory::default() } }
    }

    pub fn bounded(self) -> Memory {
        let rows = [self.accounts.len(), self.wallets.len(), self.credentials.len(), self.users.len(), self.products.len()];
        let largest = rows.into_iter().max().unwrap_or_default();
        if largest > Self::MOST_ROWS { Memory { ids: self.ids, ..Memory::default() } } else { self }
    }
}
