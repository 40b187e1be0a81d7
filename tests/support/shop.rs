//! A shop: a ledger on a separate database and a customer with a full wallet. Helpers cover stock, webhooks, the
//! projector and the delivery worker.

use std::sync::Arc;
use std::time::Duration;

use chrono::NaiveDate;
use ledger_database::PgConnectOptions;
use ledger_events::beneficiary::BeneficiaryKind;
use ledger_events::order::Order;
use ledger_events::webhook::WebhookEventType;
use ledger_events::{AccountId, BeneficiaryId, OrderId, PayoutId, ShardId, WalletId, WebhookId};
use ledger_projections::deliveries::DeliveryFilter;
use ledger_projections::orders;
use rewards_ledger::delivery::worker::{Worker, WorkerSettings};
use rewards_ledger::ledger::commands::{AddBeneficiary, NewVoucher, PlaceOrder, RegisterWebhook, RequestPayout};
use rewards_ledger::ledger::projector::{ProjectionStep, Projector};
use rewards_ledger::ledger::{Command, CommandResult, Ledger, NewDeliveries, commands, connect};
use rewards_ledger::secrets::seal::{Secret, random_secret};
use rewards_ledger::telemetry::Metrics;
use sqlx::PgConnection;
use tokio::sync::mpsc;
use webhook_client::receiver::{self, Certificate, Received, Receiver, ReceiverSettings};
use webhook_client::sender::{CONNECTION_LIFETIME, Sender, SenderSettings};

pub use super::ledger::SHARD;
use super::ledger::{self, Customer, money};
use super::postgres::{TestDatabase, database};

/// Timeout of sends and waits in tests, except for those that are meant to time out. Longer than a slow machine pauses.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Initial balance of every account.
const BALANCE: &str = "1000000.00";

pub struct Shop {
    pub ledger: Ledger,
    pub metrics: Metrics,
    pub customer: Customer,
    pub options: PgConnectOptions,
    _database: Option<TestDatabase>,
}

impl Shop {
    pub async fn open() -> Shop {
        let database = database().await;
        let options: PgConnectOptions = database.url.parse().unwrap();
        let metrics = Metrics::default();
        let ledger = ledger::open_with(&options, metrics.clone()).await;
        let customer = Customer::with(&ledger, BALANCE).await;
        Shop { ledger, metrics, customer, options, _database: Some(database) }
    }

    /// Opens a shop on an existing database, for one of its customers. The caller keeps the database.
    pub async fn on(options: &PgConnectOptions, customer: Customer) -> Shop {
        let metrics = Metrics::default();
        let ledger = ledger::open_with(options, metrics.clone()).await;
        Shop { ledger, metrics, customer, options: options.clone(), _database: None }
    }

    pub fn pool(&self) -> &ledger_database::PgPool {
        self.ledger.pool()
    }

    /// Connects as superuser.
    pub async fn admin(&self) -> PgConnection {
        self.options.connect().await.unwrap()
    }

    pub async fn run(&self, command: impl Into<Command>) -> CommandResult {
        ledger::run(&self.ledger, command).await
    }

    /// Creates another account with a full wallet.
    pub async fn account(&self, name: &str) -> (AccountId, WalletId) {
        ledger::account(&self.ledger, name, BALANCE).await
    }

    /// Adds vouchers of 10.00 whose card numbers begin with `prefix`.
    pub async fn load(&self, prefix: &str, count: i64, expires_on: Option<NaiveDate>) {
        self.run(self.stock(prefix, count, expires_on)).await;
    }

    /// Builds the command that adds these vouchers.
    pub fn stock(&self, prefix: &str, count: i64, expires_on: Option<NaiveDate>) -> Command {
        let vouchers = (1..=count)
            .map(|row| NewVoucher {
                row,
                card_number: Secret::new(format!("{prefix}-{row}")),
                pin: None,
                claim_url: None,
                reference: None,
                expires_on,
            })
            .collect();
        let (product_id, denomination) = (self.customer.product_id, money("10.00"));
        commands::LoadVouchers { product_id, denomination, vouchers, cost: None, supplier_reference: None }.into()
    }

    pub async fn place(&self, order: PlaceOrder) -> OrderId {
        let CommandResult::Order(view) = self.run(Command::PlaceOrder(order)).await else { panic!("no order") };
        view.order.id
    }

    /// Places an order for this many units of 10.00.
    pub async fn order(&self, quantity: i32) -> OrderId {
        self.place(self.customer.order("10.00", quantity)).await
    }

    /// Places many orders in a few transactions.
    pub async fn orders(&self, account_id: AccountId, count: usize) {
        let order = PlaceOrder { account_id, ..self.customer.order("10.00", 1) };
        futures::future::join_all((0..count).map(|_| self.place(order.clone()))).await;
    }

    pub async fn fulfil(&self, order_id: OrderId) {
        self.run(commands::FulfilOrder { order_id }).await;
    }

    pub async fn cancel(&self, order_id: OrderId) {
        self.run(commands::CancelOrder { account_id: None, order_id, reason: None }).await;
    }

    pub async fn find(&self, order_id: OrderId) -> Order {
        orders::find(self.pool(), SHARD, order_id, None).await.unwrap().unwrap()
    }

    /// Registers a webhook for `order.created`. Returns its id and token.
    pub async fn webhook(&self, url: &str) -> (WebhookId, String) {
        self.webhook_for(self.customer.account_id, url, &[WebhookEventType::OrderCreated]).await
    }

    pub async fn webhook_for(&self, account_id: AccountId, url: &str, events: &[WebhookEventType]) -> (WebhookId, String) {
        let command = RegisterWebhook {
            account_id,
            name: Secret::new("test"),
            url: Secret::new(url),
            events: events.to_vec(),
            headers: None,
            credential_id: None,
            new_secret: random_secret(),
        };
        let CommandResult::Webhook(view) = self.run(Command::RegisterWebhook(command)).await else { panic!("no webhook") };
        (view.webhook.id, view.token.unwrap().expose().to_owned())
    }

    /// Creates a beneficiary in EUR whom the customer can pay.
    pub async fn beneficiary(&self) -> BeneficiaryId {
        let command = AddBeneficiary {
            account_id: self.customer.account_id,
            kind: BeneficiaryKind::Bank,
            country: "DE".to_owned(),
            currency: "EUR".parse().unwrap(),
            profile: Secret::new(r#"{"name":"Ada","account_last4":"3000","bank_code":null}"#),
            account_number: Secret::new("DE89370400440532013000"),
        };
        let CommandResult::Beneficiary(view) = self.run(Command::AddBeneficiary(command)).await else { panic!("no beneficiary") };
        view.beneficiary.id
    }

    /// Builds the customer's request for a payout of this amount.
    pub fn payout_of(&self, beneficiary_id: BeneficiaryId, amount: &str) -> RequestPayout {
        let Customer { account_id, wallet_id, .. } = self.customer;
        RequestPayout { account_id, beneficiary_id, wallet_id, amount: money(amount), client_reference: None }
    }

    pub async fn payout(&self, beneficiary_id: BeneficiaryId, amount: &str) -> PayoutId {
        let command = Command::RequestPayout(self.payout_of(beneficiary_id, amount));
        let CommandResult::Payout(view) = self.run(command).await else { panic!("no payout") };
        view.payout.id
    }

    pub fn projector(&self) -> Projector {
        Projector::new(&self.ledger, &self.options, self.metrics.clone())
    }

    /// Makes the deliveries and the daily totals of everything in the log.
    pub async fn project(&self) {
        self.project_in(SHARD).await;
    }

    /// Makes the deliveries and the daily totals of everything in the log of a shard.
    pub async fn project_in(&self, shard: ShardId) {
        let projector = self.projector();
        // The first step creates the checkpoint.
        _ = projector.step(shard).await.unwrap();
        // The previous projector may hold the projection until its connection has ended.
        while projector.step(shard).await.unwrap() != ProjectionStep::Idle {}
        _ = projector.total(shard).await.unwrap();
        while projector.total(shard).await.unwrap() != ProjectionStep::Idle {}
        _ = projector.stock(shard).await.unwrap();
        while projector.stock(shard).await.unwrap() != ProjectionStep::Idle {}
    }

    pub fn worker(&self, receiver: &Receiver, deadline: Duration) -> Worker {
        Worker {
            metrics: self.metrics.clone(),
            made: self.ledger.wake().deliveries(),
            ..worker(&self.options, receiver, deadline)
        }
    }
}

/// Builds a filter that selects all deliveries of an account.
pub fn deliveries_of(account_id: AccountId) -> DeliveryFilter {
    DeliveryFilter {
        account_id,
        status: None,
        event_type: None,
        order_id: None,
        webhook_id: None,
        replay_id: None,
        created_from: None,
        created_to: None,
        retries: vec![],
    }
}

/// Builds a worker that trusts these receivers and may connect to this machine. No lease ends, and no result is given up,
/// because the machine pauses.
pub fn worker(database: &PgConnectOptions, receiver: &Receiver, deadline: Duration) -> Worker {
    let (lease_margin, stop_grace) = (DEADLINE, DEADLINE);
    Worker {
        database: connect::delivery(database),
        shards: [SHARD].into(),
        keyring: ledger::keyring(),
        sender: sender(trusting(receiver.ca_pem(), deadline)),
        settings: WorkerSettings { deadline, lease_margin, stop_grace, ..WorkerSettings::default() },
        metrics: Metrics::default(),
        made: NewDeliveries::none(), // only its timer wakes it
        targets: Arc::default(),
    }
}

/// Builds settings that trust these certificate authorities and allow connections to this machine.
pub fn trusting(ca_pem: &str, deadline: Duration) -> SenderSettings {
    SenderSettings {
        service_name: "SERVICE".to_owned(),
        deadline,
        ca_pem: Some(ca_pem.as_bytes().to_vec()),
        allowed_nets: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        max_connections: 2_000,
        connection_lifetime: CONNECTION_LIFETIME,
    }
}

pub fn sender(settings: SenderSettings) -> Arc<Sender> {
    Arc::new(Sender::new(settings).unwrap())
}

/// Starts a receiver on this machine that answers with `respond`.
pub async fn receiver(
    respond: impl Fn(&Received) -> receiver::ReceiverResponse + Send + Sync + 'static,
) -> (Receiver, mpsc::UnboundedReceiver<Received>) {
    let settings = ReceiverSettings {
        listen: ([127, 0, 0, 1], 0).into(),
        service_name: "SERVICE".to_owned(),
        certificate: Certificate::generate().unwrap(),
        respond: Arc::new(respond),
    };
    Receiver::start(settings).await.unwrap()
}
