//! A ledger on a database of its own, with an account that can order.

use std::sync::Arc;
use std::time::Duration;

use chrono::NaiveDate;
use ledger_events::catalogue::{Denominations, ProductDetails};
use ledger_events::order::Order;
use ledger_events::webhook::WebhookEventType;
use ledger_events::{AccountId, Actor, Money, OrderId, ProductId, ShardId, WalletId, WebhookId};
use ledger_projections::orders;
use rewards_ledger::access::seal::{Keyring, Private, random_secret};
use rewards_ledger::delivery::sender::{Sender, SenderSettings};
use rewards_ledger::delivery::worker::{Worker, WorkerSettings};
use rewards_ledger::ledger::command::{NewVoucher, PlaceOrder, RegisterWebhook};
use rewards_ledger::ledger::projector::{Projector, Step};
use rewards_ledger::ledger::{Answer, Command, FIRST_SHARD, Ledger, Origin};
use rewards_ledger::receiver::{self, Certificate, Received, Receiver, ReceiverSettings};
use rewards_ledger::telemetry::Metrics;
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{Notify, mpsc};
use tokio_util::task::TaskTracker;

use super::postgres::{TestDatabase, database};

/// Base64 of 32 bytes: the master key of every test.
const MASTER_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// The shard that everything in a test is in.
pub const SHARD: ShardId = FIRST_SHARD;
/// What sends and waits are given in tests, except where they are to run out.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// A ledger with one account, its wallet, and one product of 10.00.
pub struct Shop {
    pub ledger: Ledger,
    pub keyring: Arc<Keyring>,
    pub metrics: Metrics,
    pub made: Arc<Notify>,
    pub account_id: AccountId,
    pub wallet_id: WalletId,
    pub product_id: ProductId,
    pub options: PgConnectOptions,
    _database: TestDatabase,
}

pub fn origin() -> Origin {
    Origin { actor: Actor::Operator(1), request_id: "test".to_owned() }
}

pub fn ten() -> Money {
    Money::from_cents(1_000).unwrap()
}

impl Shop {
    pub async fn open() -> Shop {
        let database = database().await;
        let options: PgConnectOptions = database.url.parse().unwrap();
        let keyring = Arc::new(Keyring::from_base64(MASTER_KEY).unwrap());
        let metrics = Metrics::default();
        let ledger = Ledger::open(&options, keyring.clone(), metrics.clone(), &TaskTracker::new()).await.unwrap();
        let mut shop = Shop {
            ledger,
            keyring,
            metrics,
            made: Arc::new(Notify::new()),
            account_id: 0,
            wallet_id: 0,
            product_id: 0,
            options,
            _database: database,
        };
        (shop.account_id, shop.wallet_id) = shop.account("first").await;
        shop.product_id = shop.product("Gift card").await;
        shop
    }

    pub fn pool(&self) -> &PgPool {
        self.ledger.pool()
    }

    pub async fn run(&self, command: Command) -> Answer {
        self.ledger.execute(SHARD, command, origin()).await.unwrap()
    }

    /// An account with a wallet that holds 10,000,000.00 USD.
    pub async fn account(&self, name: &str) -> (AccountId, WalletId) {
        let Answer::Account(account) = self.run(Command::CreateAccount { name: name.to_owned() }).await else {
            panic!("no account")
        };
        let opened = self.run(Command::OpenWallet { account_id: account.id, currency: "USD".parse().unwrap() }).await;
        let Answer::Wallet(wallet) = opened else { panic!("no wallet") };
        let amount = Money::from_cents(1_000_000_000).unwrap();
        let reference = format!("funding of {name}");
        self.run(Command::FundWallet { wallet_id: wallet.id, amount, reference, note: None }).await;
        (account.id, wallet.id)
    }

    pub async fn product(&self, name: &str) -> ProductId {
        let details = ProductDetails {
            name: name.to_owned(),
            brand: "Brand".to_owned(),
            category_id: None,
            country: "US".to_owned(),
            currency: "USD".parse().unwrap(),
            denominations: Denominations::Fixed { values: vec![ten()] },
            max_quantity: 100,
            description: String::new(),
            terms: String::new(),
            is_active: true,
        };
        let Answer::Product(product) = self.run(Command::AddProduct { details }).await else { panic!("no product") };
        product.id
    }

    /// Adds vouchers whose card numbers begin with `prefix`.
    pub async fn load(&self, prefix: &str, count: i64, expires_on: Option<NaiveDate>) {
        let vouchers = (1..=count)
            .map(|row| NewVoucher {
                row,
                card_number: Private::new(format!("{prefix}-{row}")),
                pin: None,
                claim_url: None,
                reference: None,
                expires_on,
            })
            .collect();
        self.run(Command::LoadVouchers { product_id: self.product_id, denomination: ten(), vouchers }).await;
    }

    pub async fn order(&self, quantity: i32) -> OrderId {
        self.order_for(self.account_id, quantity).await
    }

    pub async fn order_for(&self, account_id: AccountId, quantity: i32) -> OrderId {
        let order = PlaceOrder {
            account_id,
            product_id: self.product_id,
            denomination: ten(),
            quantity,
            client_reference: None,
            metadata: None,
        };
        let Answer::Order(view) = self.run(Command::PlaceOrder(order)).await else { panic!("no order") };
        view.order.id
    }

    /// Places many orders in a few transactions.
    pub async fn orders(&self, account_id: AccountId, count: usize) {
        futures::future::join_all((0..count).map(|_| self.order_for(account_id, 1))).await;
    }

    pub async fn cancel(&self, order_id: OrderId) {
        self.run(Command::CancelOrder { account_id: None, order_id, reason: None }).await;
    }

    pub async fn find(&self, order_id: OrderId) -> Order {
        orders::find(self.pool(), SHARD, order_id, None).await.unwrap().unwrap()
    }

    /// A webhook that hears `order.created`; its id and token.
    pub async fn webhook(&self, url: &str) -> (WebhookId, String) {
        self.webhook_for(self.account_id, url).await
    }

    pub async fn webhook_for(&self, account_id: AccountId, url: &str) -> (WebhookId, String) {
        let command = RegisterWebhook {
            account_id,
            name: Private::new("test"),
            url: Private::new(url),
            events: vec![WebhookEventType::OrderCreated],
            credential_id: None,
            new_secret: random_secret(),
        };
        let Answer::Webhook(view) = self.run(Command::RegisterWebhook(command)).await else { panic!("no webhook") };
        (view.webhook.id, view.token.unwrap().expose().to_owned())
    }

    pub fn projector(&self) -> Projector {
        Projector::new(&self.ledger, &self.options, self.metrics.clone(), self.made.clone())
    }

    /// Makes the deliveries of everything in the log.
    pub async fn project(&self) {
        let projector = self.projector();
        // The first step makes the checkpoint.
        _ = projector.step(SHARD).await.unwrap();
        while matches!(projector.step(SHARD).await.unwrap(), Step::Applied { .. }) {}
    }

    /// A worker that trusts these receivers and may dial this machine.
    pub fn worker(&self, receiver: &Receiver, deadline: Duration) -> Worker {
        let sender = Sender::new(SenderSettings {
            service_name: "SERVICE".to_owned(),
            deadline,
            ca_pem: Some(receiver.ca_pem().as_bytes().to_vec()),
            allowed_nets: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
            max_idle_per_host: 512,
        });
        Worker {
            pool: self.pool().clone(),
            shards: vec![SHARD],
            keyring: self.keyring.clone(),
            sender: Arc::new(sender.unwrap()),
            settings: WorkerSettings { deadline, ..WorkerSettings::default() },
            metrics: self.metrics.clone(),
            made: self.made.clone(),
        }
    }
}

/// A receiver on this machine that answers so.
pub async fn receiver(
    respond: impl Fn(&Received) -> receiver::Answer + Send + Sync + 'static,
) -> (Receiver, mpsc::UnboundedReceiver<Received>) {
    let settings = ReceiverSettings {
        listen: ([127, 0, 0, 1], 0).into(),
        service_name: "SERVICE".to_owned(),
        certificate: Certificate::generate().unwrap(),
        respond: Arc::new(respond),
    };
    Receiver::start(settings).await.unwrap()
}
