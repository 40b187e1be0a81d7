//! How long deliveries take from an order's commit to the receiver's first byte, and what goes on beside them.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sqlx::PgPool;
use tokio::task::JoinHandle;

use super::arrivals::{Arrivals, Behaviour};
use super::load::{self, Measured};
use super::{PATIENCE, Serve, count, until_made};

/// What a worker has in flight by default.
pub const IN_FLIGHT: usize = 256;
/// Connections that make a backlog.
pub const BACKLOG_CONNECTIONS: u64 = 256;
/// Connections that place a flood.
const FLOOD_CONNECTIONS: u64 = 16;
/// Orders that are placed a second beside, where the machine carries it; by one account, or by so many.
const STEADILY: u32 = 1_500;
const MANY: usize = 50;
/// Programs that compute, whatever the machine has of processors.
const PROGRAMS: usize = 2;
/// More than are sent in a second.
const BACKLOG_PER_SECOND: u64 = 20_000;
/// Deliveries due to an endpoint that hangs.
const DUE_TO_ONE_THAT_HANGS: u64 = 1_000;

/// What goes on beside the deliveries that are measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    Nobody,
    /// Two programs that do nothing but compute: what is shared with it is the machine.
    Computing,
    /// An endpoint that answers nothing, with a thousand deliveries due to it.
    OneThatHangs,
    /// Orders that the machine carries, each announced to its account's webhook: as many of one account as of many.
    OneThatOrders,
    ManyThatOrder,
    /// An account that places orders as fast as it can, all announced to its webhook.
    AFlood,
    /// An account with more due to its webhook than can be sent until the end, all placed before: nothing is shared with
    /// it but the node that sends.
    ABacklog,
    /// In each account whose deliveries are measured one that hangs, a thousand due to all of them.
    OneThatHangsInEachAccount,
    /// In each account whose deliveries are measured one with more due to it than can be sent until the end.
    ABacklogInEachAccount,
}

impl Beside {
    pub const ALL: [Beside; 9] = [
        Beside::Nobody,
        Beside::Computing,
        Beside::OneThatHangs,
        Beside::ManyThatOrder,
        Beside::OneThatOrders,
        Beside::AFlood,
        Beside::ABacklog,
        Beside::OneThatHangsInEachAccount,
        Beside::ABacklogInEachAccount,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Beside::Nobody => "alone",
            Beside::Computing => "beside two programs that only compute",
            Beside::OneThatHangs => "beside an endpoint that hangs, 1,000 due to it",
            Beside::ManyThatOrder => "beside fifty accounts that place 1,500 orders a second together",
            Beside::OneThatOrders => "beside one account that places 1,500 orders a second",
            Beside::AFlood => "beside an account that places orders as fast as it can",
            Beside::ABacklog => "beside an account with a backlog",
            Beside::OneThatHangsInEachAccount => "each beside one of its own account that hangs",
            Beside::ABacklogInEachAccount => "each beside one of its own account with a backlog",
        }
    }

    /// How much is due to others before anything is measured.
    fn due(self, period: Duration) -> u64 {
        match self {
            Beside::Nobody | Beside::Computing | Beside::OneThatOrders | Beside::ManyThatOrder | Beside::AFlood => 0,
            Beside::OneThatHangs | Beside::OneThatHangsInEachAccount => DUE_TO_ONE_THAT_HANGS,
            Beside::ABacklog | Beside::ABacklogInEachAccount => BACKLOG_PER_SECOND * period.as_secs(),
        }
    }
}

/// Programs that compute until they are dropped.
struct Computing(Vec<Child>);

impl Computing {
    fn start(programs: usize) -> Result<Computing> {
        let mut computing = Computing(vec![]);
        for _ in 0..programs {
            computing.0.push(Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?);
        }
        Ok(computing)
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        for program in &mut self.0 {
            _ = program.kill();
            _ = program.wait();
        }
    }
}

/// The latencies of so many endpoints' deliveries, of accounts of their own, at a steady rate; and how many deliveries
/// others got meanwhile, a second.
pub async fn latency(
    url: &str,
    endpoints: usize,
    behaviour: Behaviour,
    per_second: u32,
    period: Duration,
    beside: Beside,
) -> Result<(Measured, f64)> {
    let arrivals = Arrivals::start(behaviour, endpoints).await?;
    let warming = period / 3;
    // Those that are measured hear of nothing that is placed before they listen.
    let preparing = Serve::start(url, "api,projector", &[]).await?;
    let (product, clients) = (preparing.product().await?, preparing.clients(endpoints).await?);
    let their = match beside {
        Beside::OneThatHangsInEachAccount | Beside::ABacklogInEachAccount => clients.clone(),
        Beside::ManyThatOrder => preparing.clients(MANY).await?,
        _ => preparing.clients(1).await?,
    };
    match beside {
        Beside::Nobody | Beside::Computing => {}
        Beside::OneThatHangs | Beside::OneThatHangsInEachAccount => {
            preparing.listen(&their, |_| arrivals.hanging_url(), "order.created").await?;
        }
        Beside::OneThatOrders | Beside::ManyThatOrder | Beside::AFlood | Beside::ABacklog | Beside::ABacklogInEachAccount => {
            preparing.listen(&their, |_| arrivals.aside_url(), "order.created").await?;
        }
    }
    let due = beside.due(warming + period);
    load::orders_at_once(&preparing.address, &their, product, due, BACKLOG_CONNECTIONS).await?;
    let pool = PgPool::connect(url).await?;
    until_made(&pool, due).await?;
    preparing.listen(&clients, |n| arrivals.url(n), "order.created").await?;
    drop(preparing);
    let serve = Serve::start(url, "api,projector,delivery", &arrivals.reach()).await?;
    let address = serve.address.clone();
    let flood: Option<JoinHandle<Result<()>>> = match beside {
        Beside::AFlood => {
            Some(tokio::spawn(async move { load::orders_at_once(&address, &their, product, u64::MAX, FLOOD_CONNECTIONS).await }))
        }
        Beside::OneThatOrders | Beside::ManyThatOrder => Some(tokio::spawn(async move {
            load::orders_steadily(&address, &their, product, STEADILY, PATIENCE, "flood").await?;
            Ok(())
        })),
        _ => None,
    };
    let computing = match beside {
        Beside::Computing => Some(Computing::start(PROGRAMS)?),
        _ => None,
    };
    // The first ones open connections.
    let warm_up = load::orders_steadily(&serve.address, &clients, product, per_second, warming, "warm").await?;
    arrivals.until(arrivals.answered_of(warm_up), PATIENCE).await?;
    let delivered = "SELECT count(*) FROM delivery_state WHERE status = 'delivered'";
    let before = count(&pool, delivered).await?;
    arrivals.forget();
    let start = Instant::now();
    let orders = load::orders_steadily(&serve.address, &clients, product, per_second, period, "steady").await?;
    arrivals.until(arrivals.answered_of(orders), PATIENCE).await?;
    let took = start.elapsed();
    drop(computing);
    let others = count(&pool, delivered).await?.saturating_sub(before + orders);
    let measured = Measured::of(arrivals.latencies(), took);
    if let Some(flood) = flood {
        ensure!(!flood.is_finished(), "the flood ended: {:?}", flood.await);
        flood.abort();
    }
    if matches!(beside, Beside::ABacklog | Beside::ABacklogInEachAccount) {
        let left = "SELECT count(*) FROM delivery_state WHERE status = 'pending'";
        ensure!(count(&pool, left).await? > IN_FLIGHT as u64, "the backlog ended");
    }
    Ok((measured, others as f64 / took.as_secs_f64()))
}
