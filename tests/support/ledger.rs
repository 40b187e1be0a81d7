//! A ledger on a test's database, and a shop in it: an account with a wallet, and a product.

use std::sync::Arc;

use ledger_events::catalogue::{Denominations, ProductDetails};
use ledger_events::{AccountId, Actor, Money, ProductId, WalletId};
use rewards_ledger::access::seal::Keyring;
use rewards_ledger::ledger::{Answer, Command, FIRST_SHARD, Ledger, Origin};
use rewards_ledger::telemetry::Metrics;
use sqlx::postgres::PgConnectOptions;
use tokio_util::task::TaskTracker;

/// Base64 of 32 bytes: the master key of every node of every test.
pub const MASTER_KEY: &str = "dGhlIG1hc3RlciBrZXkgb2YgZXZlcnkgdGVzdCBrZXk=";

pub fn keyring() -> Arc<Keyring> {
    Arc::new(Keyring::from_base64(MASTER_KEY).unwrap())
}

/// One node's ledger.
pub async fn open(options: &PgConnectOptions) -> Ledger {
    Ledger::open(options, keyring(), Metrics::default(), &TaskTracker::new()).await.unwrap()
}

#[derive(Clone, Debug)]
pub struct Shop {
    pub account_id: AccountId,
    pub wallet_id: WalletId,
    pub product_id: ProductId,
    pub denomination: Money,
}

pub fn origin() -> Origin {
    Origin { actor: Actor::Operator(0), request_id: "set-up".into() }
}

/// An account with so much in its wallet, and a product of 10.00 without stock.
pub async fn shop(ledger: &Ledger, balance: &str) -> Shop {
    let run = |command| ledger.execute(FIRST_SHARD, command, origin());
    let Answer::Account(account) = run(Command::CreateAccount { name: "Shop".into() }).await.unwrap() else { panic!() };
    let currency = "EUR".parse().unwrap();
    let Answer::Wallet(wallet) = run(Command::OpenWallet { account_id: account.id, currency }).await.unwrap() else { panic!() };
    let reference = format!("opening-{}", wallet.id);
    run(Command::FundWallet { wallet_id: wallet.id, amount: balance.parse().unwrap(), reference, note: None }).await.unwrap();
    let denomination: Money = "10.00".parse().unwrap();
    let details = ProductDetails {
        name: "Book voucher".into(),
        brand: "Bookshop".into(),
        category_id: None,
        country: "DE".into(),
        currency,
        denominations: Denominations::Fixed { values: vec![denomination] },
        max_quantity: 100,
        description: String::new(),
        terms: String::new(),
        is_active: true,
    };
    let Answer::Product(product) = run(Command::AddProduct { details }).await.unwrap() else { panic!() };
    Shop { account_id: account.id, wallet_id: wallet.id, product_id: product.id, denomination }
}
