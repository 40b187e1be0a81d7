//! Wallets and the movements of money on them.

use std::collections::{HashMap, HashSet};

use ledger_events::wallet::{Wallet, WalletEvent};
use ledger_events::{AccountId, Currency, Moment, ShardId, WalletId};
use ledger_projections::state;
use ledger_projections::wallets::{self, Transaction};

use super::{Loader, Slot, Stream, StreamRead, projected};
use crate::ledger::keys::Owner;
use crate::ledger::lookup::Lookup;

#[derive(Debug, Default)]
pub struct Index {
    by_currency: HashMap<(AccountId, Currency), WalletId>,
    /// Accounts whose wallets are all loaded.
    pub complete: HashSet<AccountId>,
    /// Fundings by their reference.
    pub fundings: Lookup<String, Transaction>,
}

#[derive(Debug, Default)]
pub struct Query<'a> {
    /// Accounts whose wallets are read by currency.
    pub of_accounts: HashSet<AccountId>,
    /// References of fundings.
    pub fundings: Vec<&'a str>,
    /// Wallets with a movement that gets a note.
    pub noted: HashSet<WalletId>,
}

impl Slot<Wallet> {
    /// Returns an account's wallet of a currency.
    ///
    /// # Panics
    /// In debug builds, if no command of the batch asked for the account's wallets.
    #[track_caller]
    pub fn in_currency(&self, account_id: AccountId, currency: Currency) -> Option<&Wallet> {
        debug_assert!(
            self.index.complete.contains(&account_id),
            "wallets of account {account_id} are read, but no command of the batch asked for them"
        );
        self.loaded(*self.index.by_currency.get(&(account_id, currency))?)
    }

    /// Adds a wallet that an account opens.
    pub fn open(&mut self, account_id: AccountId, currency: Currency, id: WalletId) {
        self.index.by_currency.insert((account_id, currency), id);
    }
}

/// Wallets are written by the one statement of [`Batch::statement`](crate::ledger::batch::Batch::statement).
impl Stream for Wallet {
    type Index = Index;
    type Query<'a> = Query<'a>;

    const NAME: &'static str = "wallet";
    const SEQUENCE: Option<&'static str> = Some("wallet_ids");

    projected!();

    fn movement(&self, event: &WalletEvent, at: &Moment) -> Option<Transaction> {
        Transaction::of(self, event, at)
    }

    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        let of_accounts = &mut read.query.of_accounts;
        if cfg!(debug_assertions) {
            let cached = slot.index.by_currency.iter().filter(|((account, _), _)| of_accounts.contains(account));
            let cached: Vec<_> = cached.map(|(_, id)| *id).collect();
            slot.ask(cached);
        }
        of_accounts.retain(|account| !slot.index.complete.contains(account));
        if !of_accounts.is_empty() {
            let accounts: Vec<_> = of_accounts.iter().copied().collect();
            let loaded: Vec<Wallet> = state::load_of_accounts(loader.conn, loader.shard, &accounts).await?;
            slot.index.by_currency.extend(loaded.iter().map(|wallet| ((wallet.account_id, wallet.currency), wallet.id)));
            slot.keep(loaded);
            slot.index.complete.extend(accounts);
        }
        slot.load_missing(read, loader).await?;
        let query = &read.query;
        let noted = query.noted.iter().filter_map(|id| slot.loaded(*id));
        loader.follow_ups.data_keys.extend(noted.map(|wallet| Owner::Account(wallet.account_id)));
        if !query.fundings.is_empty() {
            let known = wallets::load_fundings(loader.conn, loader.shard, &query.fundings).await?;
            let fundings = &mut slot.index.fundings;
            fundings.ask(query.fundings.iter().map(|reference| (*reference).to_owned()));
            fundings.extend(known.into_iter().filter_map(|movement| Some((movement.reference.clone()?, movement))));
        }
        Ok(())
    }

    fn is_cached(_: ShardId) -> bool {
        true
    }

    fn drop_uncached(index: &mut Index) {
        index.fundings = Lookup::default();
    }
}
