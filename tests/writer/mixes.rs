//! Random commands on two nodes whose connections are cut repeatedly. Acknowledged commands take effect once, and the
//! tables match the log.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::{Days, NaiveDate, Utc};
use ledger_events::OrderId;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rewards_ledger::audit::verify;
use rewards_ledger::fulfilment::Fulfilment;
use rewards_ledger::ledger::commands::NewVoucher;
use rewards_ledger::secrets::seal::Secret;
use rewards_ledger::telemetry::Metrics;
use tokio_util::sync::CancellationToken;

use super::*;

const CLIENTS: u64 = 6;
const COMMANDS: usize = 30;
/// Number of cuts before the clients stop. A fast machine would otherwise finish its commands first.
const CUTS: usize = 8;

/// Outcomes that a client was told.
#[derive(Default)]
struct Told {
    placed: Vec<OrderId>,
    cancelled: Vec<OrderId>,
    funded: Vec<String>,
    vouchers: i64,
    /// Number of orders and fundings whose outcome is unknown.
    unknown: i64,
    replays: usize,
}

/// A client that sends random commands to two nodes.
struct Client {
    nodes: [Ledger; 2],
    proxies: [Proxy; 2],
    customer: Customer,
    number: u64,
    random: StdRng,
    told: Told,
}

fn render(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Order(view) = answer else { panic!("{answer:?}") };
    Ok(StoredResponse { status: 201, body: view.order.id.to_string(), is_secret: false })
}

impl Client {
    /// Retries on either node until the outcome is known, as far as that is safe. A command without key or reference
    /// is retried only after a 503.
    async fn insist(
        &mut self,
        command: impl Into<Command>,
        key: Option<Idempotency>,
        is_safe: bool,
    ) -> Result<Reply, WriteError> {
        let command = command.into();
        loop {
            let node = &self.nodes[self.random.random_range(0..2)];
            match node.submit(SHARD, command.clone(), origin(), key).await {
                Err(WriteError::Unavailable | WriteError::InProgress) => {}
                Err(WriteError::OutcomeUnknown) if is_safe => {}
                told => return told,
            }
        }
    }

    async fn place(&mut self, n: usize) {
        let mut order = self.customer.order("10.00", self.random.random_range(1..4));
        let reference = self.random.random_bool(0.5).then(|| format!("{}-{n}", self.number));
        order.client_reference.clone_from(&reference);
        order.metadata = self.random.random_bool(0.3).then(|| Secret::new(format!("{{\"n\":{n}}}")));
        let mut key_hash = [0; 32];
        key_hash[..16].copy_from_slice(&((u128::from(self.number) << 64) | n as u128).to_be_bytes());
        let key = self.random.random_bool(0.5).then_some(Idempotency { key_hash, fingerprint: [1; 32], render, renderer: None });
        let is_safe = reference.is_some() || key.is_some();
        let times = if is_safe { self.random.random_range(1..3) } else { 1 };
        let mut ids = HashSet::new();
        for _ in 0..times {
            match self.insist(Command::PlaceOrder(order.clone()), key, is_safe).await {
                Ok(Reply::Result(answer)) => {
                    let CommandResult::Order(view) = *answer else { panic!("no order") };
                    ids.insert(view.order.id);
                }
                Ok(Reply::Stored { response, is_replay }) => {
                    self.told.replays += usize::from(is_replay);
                    ids.insert(response.body.parse().unwrap());
                }
                Err(WriteError::OutcomeUnknown) => self.told.unknown += 1,
                Err(WriteError::Rejected(Rejection::InsufficientBalance)) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(ids.len() <= 1, "one key or reference, one order: {ids:?}");
        self.told.placed.extend(ids);
    }

    async fn cancel(&mut self) {
        if self.told.placed.is_empty() {
            return;
        }
        let order_id = self.told.placed[self.random.random_range(0..self.told.placed.len())];
        let command = commands::CancelOrder { account_id: Some(self.customer.account_id), order_id, reason: None };
        match self.insist(command, None, true).await {
            Ok(_) => self.told.cancelled.push(order_id),
            Err(WriteError::Rejected(Rejection::OrderNotCancellable)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    async fn fulfil(&mut self) {
        let Some(&order_id) = self.told.placed.last() else { return };
        self.insist(commands::FulfilOrder { order_id }, None, true).await.unwrap();
    }

    async fn fund(&mut self, n: usize) {
        let reference = format!("funding {} {n}", self.number);
        let amount = "30.00".parse().unwrap();
        let wallet_id = self.customer.wallet_id;
        let command = commands::FundWallet { account_id: None, wallet_id, amount, reference: reference.clone(), note: None };
        self.insist(command, None, true).await.unwrap();
        self.told.funded.push(reference);
    }

    async fn stock(&mut self, n: usize) {
        let today = Utc::now().date_naive();
        let expires_on = |day: u64| -> Option<NaiveDate> {
            match day {
                0 => today.checked_sub_days(Days::new(1)),
                1 => Some(today),
                2 => today.checked_add_days(Days::new(1)),
                _ => None,
            }
        };
        let vouchers: Vec<_> = (1..=self.random.random_range(1..8))
            .map(|row| NewVoucher {
                row,
                card_number: Secret::new(format!("{}-{n}-{row}", self.number)),
                pin: None,
                claim_url: None,
                reference: None,
                expires_on: expires_on(self.random.random_range(0..6)),
            })
            .collect();
        self.told.vouchers += vouchers.len() as i64;
        let (product_id, denomination) = (self.customer.product_id, "10.00".parse().unwrap());
        self.insist(
            commands::LoadVouchers { product_id, denomination, vouchers, cost: None, supplier_reference: None },
            None,
            true,
        )
        .await
        .unwrap();
    }

    async fn run(mut self) -> Told {
        let mut n = 0;
        while n < COMMANDS || self.proxies.iter().map(Proxy::cuts).sum::<usize>() < CUTS {
            match self.random.random_range(0..100) {
                0..60 => self.place(n).await,
                60..72 => self.cancel().await,
                72..82 => self.fulfil().await,
                82..90 => self.fund(n).await,
                _ => self.stock(n).await,
            }
            n += 1;
        }
        self.told
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_commands_on_two_nodes_with_cut_connections_take_effect_once() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let database = postgres::database().await;
    let (one, proxy) = behind_a_proxy(&database.url).await;
    let (other, other_proxy) = behind_a_proxy(&database.url).await;
    let (nodes, proxies) = ([one, other], [proxy, other_proxy]);
    let customer = Customer::with(&nodes[0], "500.00").await;
    let stop = CancellationToken::new();
    let fulfilling: Vec<_> =
        nodes.iter().map(|node| tokio::spawn(Fulfilment::new(node.clone(), Metrics::default()).run(stop.clone()))).collect();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let random = StdRng::seed_from_u64(seed.wrapping_add(number));
            let (nodes, proxies) = (nodes.clone(), proxies.clone());
            tokio::spawn(Client { nodes, proxies, customer, number, random, told: Told::default() }.run())
        })
        .collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let cutter = tokio::spawn({
        let is_over = is_over.clone();
        let mut random = StdRng::seed_from_u64(seed ^ u64::MAX);
        async move {
            while !is_over.load(Ordering::Relaxed) {
                let proxy = &proxies[random.random_range(0..2)];
                match random.random_range(0..5) {
                    0 | 1 => proxy.set(NextCommit::LosesItsAnswer),
                    2 | 3 => proxy.set(NextCommit::IsLost),
                    _ => {
                        proxy.set_away(true);
                        tokio::time::sleep(Duration::from_millis(50)).await; // the length of the outage
                        proxy.set_away(false);
                    }
                }
                // The time until the next fault is random.
                tokio::time::sleep(Duration::from_millis(random.random_range(50..300))).await;
            }
        }
    });
    let mut told = Told::default();
    for client in clients {
        let one = client.await.unwrap();
        told.placed.extend(one.placed);
        told.cancelled.extend(one.cancelled);
        told.funded.extend(one.funded);
        told.vouchers += one.vouchers;
        told.unknown += one.unknown;
        told.replays += one.replays;
    }
    is_over.store(true, Ordering::Relaxed);
    cutter.await.unwrap();
    stop.cancel();
    for fulfilling in fulfilling {
        fulfilling.await.unwrap();
    }
    assert!(told.replays > 0 && !told.cancelled.is_empty(), "the mix was one");

    let pool = PgPool::patient(database.url.parse().unwrap(), 4);
    let of_type = async |name: &'static str| -> Vec<i64> {
        sqlx::query_scalar("SELECT stream_id FROM events WHERE type = $1 ORDER BY 1").bind(name).fetch_all(&pool).await.unwrap()
    };
    let placed = of_type("OrderPlaced").await;
    let acknowledged: HashSet<OrderId> = told.placed.iter().copied().collect();
    assert_eq!(acknowledged.len(), told.placed.len(), "no two orders were acknowledged under one id");
    assert!(acknowledged.iter().all(|id| placed.binary_search(&id.0).is_ok()), "every acknowledged order is there");
    let more = (placed.len() - acknowledged.len()) as i64;
    assert!(
        (0..=told.unknown).contains(&more),
        "{more} orders were reported to no client, {} have an unknown outcome",
        told.unknown
    );
    told.cancelled.sort_unstable();
    let cancelled = of_type("OrderCancelled").await;
    assert!(told.cancelled.iter().all(|id| cancelled.binary_search(&id.0).is_ok()));
    assert!(cancelled.is_sorted_by(|a, b| a < b), "an order is cancelled once");
    assert_eq!(of_type("WalletFunded").await.len(), told.funded.len() + 1);
    assert_eq!(count(&pool, "SELECT count(*) FROM vault.vouchers").await, told.vouchers);
    assert_eq!(
        count(
            &pool,
            "SELECT count(*) FROM vault.vouchers v JOIN orders o ON o.id = v.order_id WHERE v.expires_on < o.created_at::date"
        )
        .await,
        0,
        "no expired voucher was used"
    );
    assert_eq!(
        count(&pool, "SELECT count(*) FROM (SELECT recorded_at < lag(recorded_at) OVER (ORDER BY position) AS goes_back FROM events) e WHERE goes_back").await,
        0,
        "time never runs against position"
    );
    let report = verify(&database.url.parse().unwrap(), |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
}
