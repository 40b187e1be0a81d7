//! Latency of deliveries from an order's commit to the receiver's first byte, with and without other load.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sqlx::PgPool;
use tokio::task::JoinHandle;

use super::arrivals::{Arrivals, Behaviour};
use super::load::{self, Measured};
use super::{PATIENCE, Serve, count, until_made};

/// Default limit of deliveries that a worker has in flight.
pub const IN_FLIGHT: usize = 256;
/// Number of connections that place the orders of a backlog.
pub const BACKLOG_CONNECTIONS: u64 = 256;
/// Number of connections that place the orders of a flood.
const FLOOD_CONNECTIONS: u64 = 16;
/// Additional orders per second, a rate that the machine sustains. They come from one account, or from `MANY`
/// accounts.
const STEADILY: u32 = 1_500;
const MANY: usize = 50;
/// Number of programs that only compute, whatever the number of processors.
const PROGRAMS: usize = 2;
/// Deliveries in the backlog for each second of the measurement: more than a node sends in a second.
const BACKLOG_PER_SECOND: u64 = 20_000;
/// Deliveries due to an endpoint that hangs.
const DUE_TO_ONE_THAT_HANGS: u64 = 1_000;

/// Load beside the measured deliveries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    Nobody,
    /// Two programs that do nothing but compute. They share only the machine with the node.
    Computing,
    /// An endpoint that never answers, with a thousand deliveries due to it.
    OneThatHangs,
    /// Orders at a rate that the machine sustains, each sent to its account's webhook. One account places as many as
    /// `MANY` accounts do together.
    OneThatOrders,
    ManyThatOrder,
    /// An account that places orders as fast as it can, all of them sent to its webhook.
    AFlood,
    /// An account whose backlog of deliveries outlasts the measurement. All its orders are placed beforehand, so that
    /// only the sending node is shared with it.
    ABacklog,
    /// In each measured account, a webhook that hangs. A thousand deliveries are due to all of these together.
    OneThatHangsInEachAccount,
    /// In each measured account, a webhook whose backlog outlasts the measurement.
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

    /// Returns the number of deliveries due to others before the measurement starts.
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

/// Measures the latency of deliveries at a steady rate to this many endpoints, each of its own account. Also returns
/// how many deliveries per second the others got in the meantime.
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
    // The measured webhooks are registered after the backlog is placed, so that they receive none of it.
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
    // The first deliveries open connections, so they are not measured.
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
