//! Cost of the rate limit per order. Orders pass through the gate, alternately charged and not charged, on one ledger
//! in this process. The cost is also given as a share of an order through HTTP, which is always charged.
//!
//! ```text
//! cargo bench --bench limiter            # six rounds of 3 s
//! cargo bench --bench limiter -- quick   # one round
//! ```

mod support;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use ledger_events::{Actor, Money, ProductId};
use rewards_ledger::access::Gate;
use rewards_ledger::access::gate::{PresentedCredentials, Verdict};
use rewards_ledger::access::limits::Rule;
use rewards_ledger::access::rate_limits::RateLimits;
use rewards_ledger::ledger::commands::PlaceOrder;
use rewards_ledger::ledger::{Command, FIRST_SHARD, Ledger, Origin, connect};
use rewards_ledger::secrets::seal::Keyring;
use rewards_ledger::telemetry::Metrics;
use support::load::{Client, Measured};
use support::report::Report;
use support::table::{median, millis, of_rounds, thousands};
use support::{Serve, arguments, load};
use tokio_util::task::TaskTracker;

const PERIOD: Duration = Duration::from_secs(3);
/// Number of concurrent requests.
const LANES: usize = 256;
const WALLETS: usize = 10_000;
const IP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[tokio::main]
async fn main() -> Result<()> {
    let rounds = if arguments().contains(&"quick".to_owned()) { 1 } else { 6 };
    let mut report = Report::start("limiter");
    let server = support::postgres().await?;
    let options = support::database(&server, "limiter").await?;
    let serve = Serve::start(&server.url_of("limiter"), "api", &[]).await?;
    let (product_id, clients) = (serve.product().await?, serve.clients(WALLETS).await?);
    let tasks = TaskTracker::new();
    let keyring = Arc::new(Keyring::from_base64(&support::MASTER_KEY)?);
    let ledger = Ledger::open(&options, keyring.clone(), Metrics::default(), &tasks).await?;
    let limits: RateLimits = support::RATE_LIMITS.parse().map_err(anyhow::Error::msg)?;
    let gate = Gate::start(connect::gate(&options), ledger.pool().clone(), keyring, limits, &tasks);

    let mut rows = vec![];
    for (name, clients) in [("one hot wallet", Arc::new(clients[..1].to_vec())), ("10,000 wallets", clients)] {
        let (mut free, mut charged, mut through_http) = (vec![], vec![], vec![]);
        for _ in 0..rounds {
            free.push(orders(&ledger, &gate, None, &clients, product_id).await?);
            charged.push(orders(&ledger, &gate, Some(Rule::Orders), &clients, product_id).await?);
            through_http.push(load::orders(&serve.address, &clients, product_id, LANES, PERIOD).await?);
        }
        let cost = |n: usize| 1.0 / charged[n].per_second - 1.0 / free[n].per_second;
        let share = of_rounds((0..rounds).map(|n| cost(n) * through_http[n].per_second));
        for (side, measured, share) in [
            ("the key is looked up", &free, String::new()),
            ("and the limit is charged", &charged, String::new()),
            ("all of it, through HTTP", &through_http, share),
        ] {
            rows.push(vec![
                name.to_owned(),
                side.to_owned(),
                thousands(median(measured.iter().map(|m| m.per_second))),
                millis(Duration::from_secs_f64(median(measured.iter().map(|m| m.p50.as_secs_f64())))),
                share,
            ]);
        }
    }
    report.table(
        "Cost of the rate limit",
        &format!(
            "{LANES} lanes place orders, alternately with the limit charged and without. A row is the median of {rounds} rounds. The \
             limit's share of an order is a median with the lowest and the highest round. A share around zero is below the noise."
        ),
        &["wallets", "", "orders/s", "p50", "the limit's share of it"],
        &rows,
    );
    report.end(&server).await?;
    server.stop().await?;
    Ok(())
}

/// Places orders for the period; the gate admits each of them first.
async fn orders(
    ledger: &Ledger,
    gate: &Gate,
    rule: Option<Rule>,
    clients: &Arc<Vec<Client>>,
    product_id: i64,
) -> Result<Measured> {
    let (warm_up, start) = (PERIOD / 5, Instant::now());
    let lanes: Vec<_> = (0..LANES)
        .map(|lane| {
            let (ledger, gate, clients) = (ledger.clone(), gate.clone(), clients.clone());
            tokio::spawn(async move {
                let (mut latencies, mut n) = (Vec::with_capacity(10_000), lane);
                while start.elapsed() < warm_up + PERIOD {
                    let client = &clients[n.wrapping_mul(7_919) % clients.len()];
                    let begun = Instant::now();
                    place(&ledger, &gate, rule, client, product_id).await?;
                    if begun.duration_since(start) > warm_up {
                        latencies.push(begun.elapsed());
                    }
                    n += LANES;
                }
                anyhow::Ok(latencies)
            })
        })
        .collect();
    let mut latencies = vec![];
    for lane in lanes {
        latencies.extend(lane.await??);
    }
    Ok(Measured::of(latencies, PERIOD))
}

async fn place(ledger: &Ledger, gate: &Gate, rule: Option<Rule>, client: &Client, product_id: i64) -> Result<()> {
    let credentials = PresentedCredentials::Key { api_key: &client.api_key, api_secret: &client.api_secret };
    let Verdict::Seen { client: Ok(client), quota } = gate.ask(IP, credentials, rule).await? else {
        bail!("the key is not valid")
    };
    ensure!(quota.is_some_and(|quota| !quota.is_exceeded) == rule.is_some(), "the limit was not charged as expected");
    let account_id = client.principal.account_id;
    let order = PlaceOrder {
        account_id,
        product_id: ProductId(product_id),
        denomination: Money::from_cents(1_000)?,
        quantity: 1,
        client_reference: None,
        metadata: None,
    };
    let origin = Origin { actor: Actor::Operator(1), request_id: "bench".to_owned() };
    ledger.execute(FIRST_SHARD, Command::PlaceOrder(order), origin).await?;
    Ok(())
}
