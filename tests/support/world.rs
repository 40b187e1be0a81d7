//! A ledger with an account, a wallet, a product, stock and webhooks, on a database of its own.

use std::sync::Arc;

use ledger_events::account::DiscountRule;
use ledger_events::catalogue::{Denominations, ProductDetails};
use ledger_events::webhook::WebhookEventType;
use ledger_events::{Actor, Money};
use rewards_ledger::access::seal::{Keyring, Private};
use rewards_ledger::ledger::command::{NewVoucher, PlaceOrder, RegisterWebhook, WebhookChange};
use rewards_ledger::ledger::projector::{Projector, Step};
use rewards_ledger::ledger::{Answer, Command, FIRST_SHARD, Ledger, Origin, WriteError};
use rewards_ledger::telemetry::Metrics;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection};
use tokio_util::task::TaskTracker;

use super::postgres::{TestDatabase, database};

pub struct World {
    pub options: PgConnectOptions,
    pub ledger: Ledger,
    pub account: i64,
    pub wallet: i64,
    pub product: i64,
    projector: Projector,
    _database: TestDatabase,
}

pub fn origin() -> Origin {
    Origin { actor: Actor::Operator(1), request_id: "test".to_owned() }
}

pub fn money(text: &str) -> Money {
    text.parse().unwrap()
}

/// A further node on the database.
pub async fn node(options: &PgConnectOptions) -> Ledger {
    let keyring = Keyring::from_base64("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=").unwrap();
    Ledger::open(options, Arc::new(keyring), Metrics::default(), &TaskTracker::new()).await.unwrap()
}

impl World {
    pub async fn new() -> World {
        let database = database().await;
        let options: PgConnectOptions = database.url.parse().unwrap();
        let ledger = node(&options).await;
        let projector = Projector::new(&ledger, &options, Metrics::default(), Arc::default());
        let mut world = World { options, ledger, account: 0, wallet: 0, product: 0, projector, _database: database };
        let Answer::Account(account) = world.run(Command::CreateAccount { name: "Acme".into() }).await else { panic!() };
        world.account = account.id;
        let open = Command::OpenWallet { account_id: account.id, currency: "EUR".parse().unwrap() };
        let Answer::Wallet(wallet) = world.run(open).await else { panic!() };
        world.wallet = wallet.id;
        let (amount, reference) = (money("1000000.00"), "first".to_owned());
        world.run(Command::FundWallet { wallet_id: wallet.id, amount, reference, note: None }).await;
        let Answer::Category(category) = world.run(Command::AddCategory { name: "Games".into(), parent_id: None }).await else {
            panic!()
        };
        let details = ProductDetails {
            name: "Card".into(),
            brand: "Brand".into(),
            category_id: Some(category.id),
            country: "DE".into(),
            currency: "EUR".parse().unwrap(),
            denominations: Denominations::Fixed { values: vec![money("10.00"), money("25.00")] },
            max_quantity: 10,
            description: String::new(),
            terms: String::new(),
            is_active: true,
        };
        let Answer::Product(product) = world.run(Command::AddProduct { details }).await else { panic!() };
        world.product = product.id;
        world
    }

    pub async fn run(&self, command: Command) -> Answer {
        self.try_run(command).await.unwrap()
    }

    pub async fn try_run(&self, command: Command) -> Result<Answer, WriteError> {
        self.ledger.execute(FIRST_SHARD, command, origin()).await
    }

    pub fn order(&self, denomination: &str, quantity: i32) -> Command {
        Command::PlaceOrder(PlaceOrder {
            account_id: self.account,
            product_id: self.product,
            denomination: money(denomination),
            quantity,
            client_reference: None,
            metadata: None,
        })
    }

    pub async fn place(&self, denomination: &str, quantity: i32) -> i64 {
        let Answer::Order(view) = self.run(self.order(denomination, quantity)).await else { panic!() };
        view.order.id
    }

    pub async fn stock(&self, denomination: &str, prefix: &str, count: i64) {
        let vouchers = (0..count)
            .map(|row| NewVoucher {
                row,
                card_number: Private::new(format!("{prefix}{row}")),
                pin: None,
                claim_url: None,
                reference: None,
                expires_on: None,
            })
            .collect();
        self.run(Command::LoadVouchers { product_id: self.product, denomination: money(denomination), vouchers }).await;
    }

    pub async fn webhook(&self, events: &[WebhookEventType]) -> i64 {
        let webhook = RegisterWebhook {
            account_id: self.account,
            name: Private::new("hook"),
            url: Private::new("https://example.com/hook"),
            events: events.to_vec(),
            credential_id: None,
            new_secret: Private::new("secret"),
        };
        let Answer::Webhook(view) = self.run(Command::RegisterWebhook(webhook)).await else { panic!() };
        view.webhook.id
    }

    /// Runs the deliveries projection until it has caught up.
    pub async fn project(&self) {
        while self.projector.step(FIRST_SHARD).await.unwrap() != Step::Idle {}
    }

    /// A bit of everything: delivered, partly delivered, delayed, cancelled; webhooks that come,
    /// change and go; a suspended account; a discount.
    pub async fn history(&self) {
        self.run(Command::IssueCredential {
            account_id: self.account,
            name: "key".into(),
            api_key: Private::new("abcdefgh-rest"),
            api_secret: Private::new("secret"),
        })
        .await;
        let all = self.webhook(&WebhookEventType::ALL).await;
        let some = self.webhook(&[WebhookEventType::OrderDelivered]).await;
        let delivered = self.place("10.00", 2).await;
        self.stock("10.00", "a", 5).await;
        self.run(Command::FulfilOrder { order_id: delivered }).await;
        let rule =
            DiscountRule { product_id: Some(self.product), category_id: None, discount: money("2.50").try_into().unwrap() };
        self.run(Command::SetDiscount { account_id: self.account, rule }).await;
        let partial = self.place("10.00", 5).await;
        self.run(Command::FulfilOrder { order_id: partial }).await;
        let change = WebhookChange { is_active: Some(false), ..WebhookChange::default() };
        self.run(Command::UpdateWebhook { account_id: self.account, webhook_id: some, change }).await;
        let delayed = self.place("25.00", 1).await;
        self.run(Command::FulfilOrder { order_id: delayed }).await;
        for order_id in [partial, delayed] {
            self.run(Command::CancelOrder { account_id: Some(self.account), order_id, reason: Some(Private::new("why")) }).await;
        }
        self.run(Command::RevealVouchers { account_id: self.account, order_id: delivered }).await;
        self.project().await;
        self.run(Command::DeleteWebhook { account_id: self.account, webhook_id: some }).await;
        let Answer::Account(other) = self.run(Command::CreateAccount { name: "Other".into() }).await else { panic!() };
        let status = ledger_events::account::AccountStatus::Suspended;
        self.run(Command::SetAccountStatus { account_id: other.id, status }).await;
        for _ in 0..5 {
            self.place("25.00", 3).await;
        }
        self.project().await;
        assert!(all > 0);
    }

    /// A superuser's connection.
    pub async fn admin(&self) -> PgConnection {
        self.options.connect().await.unwrap()
    }

    /// What a superuser can do to the tables, past the triggers.
    pub async fn tamper(&self, sql: &str) {
        let script = format!(
            "BEGIN; ALTER TABLE events DISABLE TRIGGER ALL; {sql}; ALTER TABLE events ENABLE ALWAYS TRIGGER events_append_only; ALTER TABLE events ENABLE ALWAYS TRIGGER events_no_truncate; COMMIT"
        );
        sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut self.admin().await).await.unwrap();
    }
}
