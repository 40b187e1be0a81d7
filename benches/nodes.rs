//! Orders per second of two nodes that share one shard, compared with one node on the same Postgres in the same run:
//!
//! ```text
//! cargo bench --bench nodes            # seven rounds
//! cargo bench --bench nodes -- quick   # two rounds
//! ```

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use embedded_postgres::Server;
use ledger_database::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use support::costs::{Cost, Meter};
use support::load::{Client, Measured};
use support::report::Report;
use support::table::{median, millis, of_rounds, thousands};
use support::{Serve, arguments, count, load};

const WALLETS: usize = 2_000;
/// Number of connections in all, whatever the number of nodes.
const CONNECTIONS: usize = 256;
/// Time for which each side is measured in each round, on one hot wallet and over all wallets. A warm-up of a fifth of
/// it comes first.
const PERIOD: Duration = Duration::from_secs(4);
/// Time for which orders fill the caches of new nodes, until the nodes share the shard as they should.
const SETTLING: Duration = Duration::from_secs(2);
/// Longest time until they do.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// A database with the product and the wallets. Each side gets a copy in each round, so that no side has more rows than
/// another.
const TEMPLATE: &str = "nodes_template";
const COPY: &str = "nodes";

/// Number of leases that are in force.
const LEASES: &str = "SELECT count(*) FROM shard_leaders WHERE expires_at > clock_timestamp()";

/// Arrangement of nodes, and the nodes that get the orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    One,
    /// Each of two nodes gets half of the orders and writes them.
    Unled,
    /// Each of two nodes gets half of the orders. One leads, and the other hands over.
    Led,
    /// The node that does not lead gets all orders.
    ThroughFollower,
}

impl Side {
    const ALL: [Side; 4] = [Side::One, Side::Unled, Side::Led, Side::ThroughFollower];

    fn name(self) -> &'static str {
        match self {
            Side::One => "one node",
            Side::Unled => "two nodes, both write",
            Side::Led => "two nodes, one leads",
            Side::ThroughFollower => "two nodes, all orders through the one that does not lead",
        }
    }

    fn is_led(self) -> bool {
        matches!(self, Side::Led | Side::ThroughFollower)
    }

    /// Starts the nodes. The first one leads, if one does.
    async fn start(self, url: &str, connection: &mut PgConnection) -> Result<Vec<Serve>> {
        let more: &[&str] = if self.is_led() { &["--node-listen", "127.0.0.1:0"] } else { &[] };
        let mut nodes = vec![Serve::start(url, "api", more).await?];
        if self != Side::One {
            let started = Instant::now();
            while self.is_led() && count(&mut *connection, LEASES).await? == 0 {
                ensure!(started.elapsed() < SETTLED_WITHIN, "the first node took no lease");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            nodes.push(Serve::start(url, "api", more).await?);
        }
        Ok(nodes)
    }

    /// Returns whether orders took the intended way between two readings: with a leader, some were handed over, and without
    /// one, none ever.
    fn is_kept(self, before: HandedOver, after: HandedOver) -> bool {
        if self.is_led() { after.answered > before.answered } else { after.all == 0 }
    }

    /// Returns the addresses of the nodes that get orders.
    fn addresses(self, nodes: &[Serve]) -> Vec<String> {
        let leaders = usize::from(self == Side::ThroughFollower);
        nodes.iter().skip(leaders).map(|node| node.address.clone()).collect()
    }
}

/// Clients and product of the template.
#[derive(Debug)]
struct Workload {
    product: i64,
    one: Arc<Vec<Client>>,
    many: Arc<Vec<Client>>,
}

impl Workload {
    async fn prepare(server: &Server) -> Result<Workload> {
        let options = support::database(server, TEMPLATE).await?;
        let serve = Serve::start(&server.url_of(TEMPLATE), "api", &[]).await?;
        let product = serve.product().await?;
        let many = serve.clients(WALLETS).await?;
        drop(serve); // a database with sessions cannot be copied
        let mut connection = options.connect().await?;
        sqlx::raw_sql("VACUUM ANALYZE").execute(&mut connection).await?;
        connection.close().await?;
        Ok(Workload { product, one: Arc::new(many[..1].to_vec()), many })
    }

    /// Returns the clients of each group of rows in the report.
    fn groups(&self) -> [(&'static str, &Arc<Vec<Client>>); 2] {
        [("one hot wallet", &self.one), ("2,000 wallets", &self.many)]
    }
}

/// Number of commands that nodes have handed over so far.
#[derive(Clone, Copy, Debug, Default)]
struct HandedOver {
    /// Commands that the leader answered.
    answered: u64,
    /// Commands with any outcome.
    all: u64,
}

impl HandedOver {
    async fn by(nodes: &[Serve]) -> Result<HandedOver> {
        let mut handed = HandedOver::default();
        for node in nodes {
            let (_, metrics) = node.get(None, "/metrics", "*/*").await?;
            for line in metrics.lines().filter(|line| line.starts_with("ledger_handed_over_total{")) {
                let value = line.rsplit(' ').next().context("a value")?;
                let commands: u64 = value.parse().with_context(|| format!("a counter: {line}"))?;
                handed.all += commands;
                if line.contains("outcome=\"answered\"") {
                    handed.answered += commands;
                }
            }
        }
        Ok(handed)
    }
}

/// Result of one side over one group of wallets in one round.
#[derive(Clone, Debug)]
struct Sample {
    measured: Measured,
    cost: Cost,
    /// Number of orders in the cost.
    orders: u64,
    /// Number of orders that the leader answered to another node.
    handed: u64,
}

/// Samples of one side over one group of wallets, one per round.
struct Series {
    wallets: &'static str,
    side: Side,
    samples: Vec<Sample>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let rounds = if arguments().contains(&"quick".to_owned()) { 2 } else { 7 };
    let mut report = Report::start("nodes");
    let server = support::postgres().await?;
    let workload = Workload::prepare(&server).await?;
    let sides = |wallets| Side::ALL.map(|side| Series { wallets, side, samples: vec![] });
    let mut groups = workload.groups().map(|(wallets, _)| sides(wallets));
    for round in 0..rounds {
        for n in 0..Side::ALL.len() {
            // Another side begins each round, so that none is always the first on a rested machine.
            let at = (round + n) % Side::ALL.len();
            let samples = measure(&server, &workload, Side::ALL[at]).await?;
            for (group, sample) in groups.iter_mut().zip(samples) {
                group[at].samples.push(sample);
            }
        }
    }
    let rows: Vec<_> = groups.iter().flat_map(|sides| sides.iter().map(move |series| row(series, &sides[0]))).collect();
    let note = format!(
        "{CONNECTIONS} connections place orders for {} seconds a round. The sides take turns within a round, each on its own copy \
         of the same database. A row is the median of {rounds} rounds. A ratio is the median of the rounds' ratios, with the \
         lowest and the highest. {NOTE}",
        PERIOD.as_secs(),
    );
    report.table("Two nodes on one shard", &note, &COLUMNS, &rows);
    report.end(&server).await?;
    server.stop().await?;
    Ok(())
}

const COLUMNS: [&str; 10] = [
    "nodes",
    "wallets",
    "orders/s",
    "p50",
    "p99",
    "service's processor time an order",
    "Postgres's",
    "handed over",
    "orders/s, of one node's",
    "p99, of one node's",
];

/// Meaning of the columns and the targets.
const NOTE: &str = "\
    Processor time is user and system time from the processes' own accounting, of all nodes together and without the load \
    generator. *Handed over* is the share of orders that one node handed to the other and that the other answered.\n\n\
    Two nodes share the connections equally, unless the row says otherwise. Load, nodes and Postgres share the processors. \
    The targets for two nodes of which one leads: at least 0.85× of one node's orders per second, and at most 1.5× of its p99.";

/// Measures one side on a new copy of the template, over each group of wallets.
async fn measure(server: &Server, workload: &Workload, side: Side) -> Result<Vec<Sample>> {
    support::copy_database(server, TEMPLATE, COPY).await?;
    let url = server.url_of(COPY);
    let options: PgConnectOptions = url.parse()?;
    let mut connection = options.connect().await?;
    let nodes = side.start(&url, &mut connection).await?;
    let addresses = side.addresses(&nodes);
    settle(side, &nodes, &addresses, workload, &mut connection).await?;
    let mut samples = vec![];
    for (_, clients) in workload.groups() {
        let before = HandedOver::by(&nodes).await?;
        let meter = Meter::start(server, &nodes).await?;
        let (measured, orders) = load::orders_over(&addresses, clients, workload.product, CONNECTIONS, PERIOD).await?;
        let cost = meter.end(&nodes).await?;
        let after = HandedOver::by(&nodes).await?;
        ensure!(side.is_kept(before, after), "{}: {before:?} and {after:?}", side.name());
        samples.push(Sample { measured, cost, orders, handed: after.answered - before.answered });
    }
    connection.close().await?;
    Ok(samples)
}

/// Places orders until a node leads and the other one hands over. Without leases, checks that nothing is handed over.
async fn settle(
    side: Side,
    nodes: &[Serve],
    addresses: &[String],
    workload: &Workload,
    connection: &mut PgConnection,
) -> Result<()> {
    let started = Instant::now();
    loop {
        let before = HandedOver::by(nodes).await?;
        load::orders_over(addresses, &workload.many, workload.product, CONNECTIONS, SETTLING).await?;
        let after = HandedOver::by(nodes).await?;
        let leases = count(&mut *connection, LEASES).await?;
        if leases == u64::from(side.is_led()) && side.is_kept(before, after) {
            return Ok(());
        }
        ensure!(started.elapsed() < SETTLED_WITHIN, "{}: {leases} leases, {after:?}", side.name());
    }
}

/// Returns the row of a side, compared with one node.
fn row(series: &Series, one: &Series) -> Vec<String> {
    let of = |value: fn(&Sample) -> f64| median(series.samples.iter().map(value));
    let time = |value: fn(&Sample) -> f64| millis(Duration::from_secs_f64(of(value)));
    let micros = |value: fn(&Sample) -> f64| format!("{:.0} µs", 1e6 * of(value));
    let ratios = |value: fn(&Sample) -> f64| {
        let ratios = series.samples.iter().zip(&one.samples).map(|(sample, one)| value(sample) / value(one));
        if series.side == Side::One { String::new() } else { of_rounds(ratios) }
    };
    vec![
        series.side.name().to_owned(),
        series.wallets.to_owned(),
        thousands(of(|sample| sample.measured.per_second)),
        time(|sample| sample.measured.p50.as_secs_f64()),
        time(|sample| sample.measured.p99.as_secs_f64()),
        micros(|sample| sample.cost.program.as_secs_f64() / sample.orders as f64),
        micros(|sample| sample.cost.postgres.as_secs_f64() / sample.orders as f64),
        format!("{:.0} %", 100.0 * of(|sample| sample.handed as f64 / sample.orders as f64)),
        ratios(|sample| sample.measured.per_second),
        ratios(|sample| sample.measured.p99.as_secs_f64()),
    ]
}
