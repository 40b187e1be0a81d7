//! Set-up that every test shares, in terms of commands: nodes, accounts, products, orders.

use std::sync::Arc;
use std::time::Duration;

use ledger_database::PgConnectOptions;
use ledger_events::catalogue::{Denominations, ProductDetails, ProductSupplier};
use ledger_events::{AccountId, Actor, Money, OrderId, ProductId, PurchaseId, ShardId, WalletId};
use rewards_ledger::ledger::commands::PlaceOrder;
use rewards_ledger::ledger::moves::{self, Move};
use rewards_ledger::ledger::{Command, CommandResult, FIRST_SHARD, Ledger, Origin, WriteError, commands, connect};
use rewards_ledger::secrets::seal::Keyring;
use rewards_ledger::telemetry::Metrics;
use tokio_util::task::TaskTracker;

use super::program::DEADLINE;

/// Master key of every node in the tests: 32 bytes in base64.
pub const MASTER_KEY: &str = "dGhlIG1hc3RlciBrZXkgb2YgZXZlcnkgdGVzdCBrZXk=";
/// Signing key of the transparency log: 32 bytes in base64.
pub const LOG_KEY: &str = "dGhlIGtleSBvZiB0aGUgbG9nIG9mIGVhY2ggdGVzdCE=";
/// Pause of a client before it retries.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// The shard of all test data.
pub const SHARD: ShardId = FIRST_SHARD;

pub fn keyring() -> Arc<Keyring> {
    Arc::new(Keyring::from_base64(MASTER_KEY).unwrap())
}

/// Opens the ledger of one node.
pub async fn open(options: &PgConnectOptions) -> Ledger {
    open_with(options, Metrics::default()).await
}

pub async fn open_with(options: &PgConnectOptions, metrics: Metrics) -> Ledger {
    Ledger::open(options, keyring(), metrics, &TaskTracker::new()).await.unwrap()
}

pub fn origin() -> Origin {
    Origin { actor: Actor::Operator(1), request_id: "test".to_owned() }
}

pub fn money(text: &str) -> Money {
    text.parse().unwrap()
}

/// Runs a command, which must succeed (see [`execute`]).
pub async fn run(ledger: &Ledger, command: impl Into<Command>) -> CommandResult {
    execute(ledger, command, origin()).await.unwrap()
}

/// Executes a command. Retries it if nothing happened, because the machine paused for longer than a caller waits.
pub async fn execute(ledger: &Ledger, command: impl Into<Command>, origin: Origin) -> Result<CommandResult, WriteError> {
    let command = command.into();
    let taken = tokio::time::timeout(DEADLINE, async {
        loop {
            match ledger.execute(SHARD, command.clone(), origin.clone()).await {
                Err(WriteError::Unavailable) => tokio::time::sleep(RETRY_PAUSE).await,
                outcome => return outcome,
            }
        }
    });
    taken.await.expect("in time")
}

/// A customer: an account with a wallet, and a product with the face values 10.00 and 25.00.
#[derive(Clone, Copy, Debug)]
pub struct Customer {
    pub account_id: AccountId,
    pub wallet_id: WalletId,
    pub product_id: ProductId,
}

impl Customer {
    /// Creates a customer with this balance and a product without stock.
    pub async fn with(ledger: &Ledger, balance: &str) -> Customer {
        let (account_id, wallet_id) = account(ledger, "Acme", balance).await;
        Customer { account_id, wallet_id, product_id: product(ledger, "Card").await }
    }

    pub fn order(&self, denomination: &str, quantity: i32) -> PlaceOrder {
        PlaceOrder {
            account_id: self.account_id,
            product_id: self.product_id,
            denomination: money(denomination),
            quantity,
            client_reference: None,
            metadata: None,
        }
    }
}

/// Creates an account with a wallet in EUR that holds this amount.
pub async fn account(ledger: &Ledger, name: &str, balance: &str) -> (AccountId, WalletId) {
    let CommandResult::Account(account) = run(ledger, commands::CreateAccount { name: name.to_owned() }).await else { panic!() };
    let open = commands::OpenWallet { account_id: account.id, currency: "EUR".parse().unwrap() };
    let CommandResult::Wallet(wallet) = run(ledger, open).await else { panic!() };
    let reference = format!("opening of {}", wallet.id);
    run(ledger, commands::FundWallet { account_id: None, wallet_id: wallet.id, amount: money(balance), reference, note: None })
        .await;
    (account.id, wallet.id)
}

/// Creates a product with the face values 10.00 and 25.00, without stock.
pub async fn product(ledger: &Ledger, name: &str) -> ProductId {
    let CommandResult::Product(product) = run(ledger, commands::AddProduct { details: details(name) }).await else { panic!() };
    product.id
}

/// Names the supplier "acme" at a product, and requests a purchase of the vouchers over 10.00 EUR that an order lacks.
pub async fn buy(ledger: &Ledger, order_id: OrderId, product_id: ProductId, sku: &str) -> PurchaseId {
    let (name, sku) = ("acme".to_owned(), sku.to_owned());
    let supplier = ProductSupplier { name: name.clone(), sku: sku.clone() };
    run(ledger, commands::SetProductSupplier { product_id, supplier: Some(supplier) }).await;
    let (denomination, budget, currency) = (money("10.00"), money("100000.00"), "EUR".parse().unwrap());
    let request = commands::RequestPurchase { order_id, product_id, denomination, currency, supplier: name, sku, budget };
    let CommandResult::Purchase(Some(purchase)) = run(ledger, request).await else { panic!("the order lacks nothing") };
    purchase.id
}

/// Moves vouchers between shards, whether or not orders wait for them. Returns their number.
pub async fn move_vouchers(options: &PgConnectOptions, wanted: &Move) -> usize {
    let mut connection = connect::mover(options).acquire().await.unwrap();
    let picked = moves::pick(&mut connection, wanted).await.unwrap().unwrap();
    let mut tx = connection.begin().await.unwrap();
    let moved = moves::move_vouchers(&mut tx, &keyring(), &picked).await.unwrap();
    tx.commit().await.unwrap();
    moved.vouchers
}

/// Details of a product with the face values 10.00 and 25.00.
pub fn details(name: &str) -> ProductDetails {
    ProductDetails {
        name: name.to_owned(),
        brand: "Brand".to_owned(),
        category_id: None,
        country: "DE".to_owned(),
        currency: "EUR".parse().unwrap(),
        denominations: Denominations::Fixed { values: vec![money("10.00"), money("25.00")] },
        max_quantity: 100,
        description: String::new(),
        terms: String::new(),
        is_active: true,
        stock_thresholds: vec![],
        supplier: None,
    }
}
