//! Orders per second and rebuilding with ten million events in the log, compared with an empty and with a small log on the
//! same Postgres in the same run:
//!
//! ```text
//! cargo bench --bench growth            # ten million events, seven rounds; needs 25 GB of disk
//! cargo bench --bench growth -- quick   # a million events, two rounds
//! ```

mod support;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use embedded_postgres::Server;
use ledger_database::PgConnectOptions;
use rewards_ledger::audit::{Rebuild, rebuild};
use rewards_ledger::export::{import, line};
use rewards_ledger::ledger::FIRST_SHARD;
use rewards_ledger::ledger::reader::Stored;
use serde_json::json;
use sqlx::Connection;
use support::costs::{Cost, Meter};
use support::load::{Client, Measured};
use support::report::Report;
use support::table::{median, millis, of_rounds, thousands};
use support::{Serve, arguments, load};
use uuid::Uuid;

/// Number of accounts, each with one wallet, in every log.
const ACCOUNTS: i64 = 1_000;
/// Number of events before the first order: of accounts, the product, its stock, and the wallets with their funds.
const BEFORE_ORDERS: i64 = ACCOUNTS + 2 + 2 * ACCOUNTS;
/// Number of events of each order: placed, debited, queued and delivered.
const PER_ORDER: i64 = 4;
const CONNECTIONS: usize = 256;
/// Time for which each log is measured in each round, after a warm-up of a fifth of it.
const PERIOD: Duration = Duration::from_secs(8);
/// Time between two orders of the imported log.
const BETWEEN_ORDERS: TimeDelta = TimeDelta::milliseconds(2_500);
/// Actors, as the metadata of events have them.
const OPERATOR: &str = r#"{"operator":1}"#;
const CLIENT: &str = r#"{"credential":1}"#;
const FULFILMENT: &str = r#""fulfilment""#;
const FUNDS: i64 = 1_000_000_000;
const PRICE: i64 = 10;

/// Builds the events of a log, one after the other, and writes them as an export.
struct Exported<W> {
    out: W,
    position: i64,
    at: DateTime<Utc>,
    line: Vec<u8>,
}

impl<W: Write> Exported<W> {
    fn new(out: W) -> Exported<W> {
        Exported { out, position: 0, at: DateTime::UNIX_EPOCH + TimeDelta::days(20_454), line: vec![] } // 2026-01-01
    }

    /// Returns the id of an event. Like the ids of a node, they grow.
    fn id(position: i64) -> Uuid {
        Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + u128::from(position.unsigned_abs()))
    }

    /// Writes the next event of a stream, with its version. `cause` is the position of the event that caused it, within the same
    /// command.
    fn write(
        &mut self,
        stream: (&str, i64, i64),
        event: (&str, i16),
        actor: &str,
        account: Option<i64>,
        cause: Option<i64>,
        data: String,
    ) -> Result<()> {
        self.position += 1;
        let first = cause.unwrap_or(self.position);
        let cause = cause.map(|cause| format!(r#","causation_id":"{}""#, Self::id(cause))).unwrap_or_default();
        let account = account.map(|account| format!(r#","account_id":{account}"#)).unwrap_or_default();
        let correlation = Self::id(first);
        let stored = Stored {
            shard_id: FIRST_SHARD,
            position: self.position,
            event_id: Self::id(self.position),
            stream_type: stream.0.to_owned(),
            stream_id: stream.1,
            version: stream.2,
            event_type: event.0.to_owned(),
            schema_version: event.1,
            data,
            metadata: format!(r#"{{"actor":{actor}{account},"request_id":"growth","correlation_id":"{correlation}"{cause}}}"#),
            recorded_at: self.at,
        };
        self.line.clear();
        line::write(&stored, &mut self.line)?;
        Ok(self.out.write_all(&self.line)?)
    }

    /// Writes accounts, a product, its stock, and wallets with money.
    fn begin(&mut self, orders: i64) -> Result<()> {
        for id in 1..=ACCOUNTS {
            self.write(("account", id, 1), ("AccountCreated", 1), OPERATOR, None, None, format!(r#"{{"name":"Account {id}"}}"#))?;
        }
        let details = json!({"name": "Card", "brand": "Brand", "category_id": null, "country": "DE", "currency": "EUR",
            "denominations": {"type": "FIXED", "values": ["10.00"]}, "max_quantity": 100, "description": "", "terms": "",
            "is_active": true});
        self.write(("product", 1, 1), ("ProductAdded", 1), OPERATOR, None, None, json!({"details": details}).to_string())?;
        let stock = json!({"denomination": "10.00", "accepted": orders, "duplicates": 0}).to_string();
        self.write(("product", 1, 2), ("VoucherStockLoaded", 1), OPERATOR, None, None, stock)?;
        for id in 1..=ACCOUNTS {
            let opened = json!({"account_id": id, "currency": "EUR"}).to_string();
            self.write(("wallet", id, 1), ("WalletOpened", 1), OPERATOR, Some(id), None, opened)?;
            let amount = format!("{FUNDS}.00");
            let funded = json!({"transaction_id": id, "amount": amount, "balance_after": amount,
                "reference": format!("opening-{id}"), "note_hash": null});
            self.write(("wallet", id, 2), ("WalletFunded", 1), OPERATOR, Some(id), None, funded.to_string())?;
        }
        ensure!(self.position == BEFORE_ORDERS, "the log begins with {} events", self.position);
        Ok(())
    }

    /// Writes an order that is paid and delivered. Wallets take turns.
    fn order(&mut self, n: i64) -> Result<()> {
        self.at += BETWEEN_ORDERS;
        let (wallet, of_wallet) = (1 + n % ACCOUNTS, n / ACCOUNTS);
        let (reference, transaction) = (format!("ORD-{n:010}"), ACCOUNTS + 1 + n);
        let balance = FUNDS - PRICE * (of_wallet + 1);
        let account = Some(wallet); // it has the same id
        let placed = json!({"account_id": wallet, "reference_code": reference, "client_reference": null, "product_id": 1,
            "product_name": "Card", "currency": "EUR", "denomination": "10.00", "quantity": 1, "face_value": "10.00",
            "discount": "0.00", "discount_amount": "0.00", "amount": "10.00", "wallet_id": wallet,
            "transaction_id": transaction, "metadata_hash": null});
        let order = n + 1;
        self.write(("order", order, 1), ("OrderPlaced", 1), CLIENT, account, None, placed.to_string())?;
        let first = self.position;
        let debited = json!({"transaction_id": transaction, "amount": "10.00", "balance_after": format!("{balance}.00"),
            "order_id": order, "reference": reference});
        self.write(("wallet", wallet, 3 + of_wallet), ("WalletDebited", 2), CLIENT, account, Some(first), debited.to_string())?;
        self.write(("order", order, 2), ("OrderQueued", 1), FULFILMENT, account, Some(first), "{}".to_owned())?;
        let delivered = json!({"vouchers": [format!("VR-{n:010}")]}).to_string();
        self.write(("order", order, 3), ("OrderDelivered", 1), FULFILMENT, account, Some(first), delivered)
    }
}

/// Writes an export with this number of orders.
fn write_export(path: &Path, orders: i64) -> Result<()> {
    let mut log = Exported::new(BufWriter::with_capacity(1 << 20, File::create(path)?));
    log.begin(orders)?;
    for n in 0..orders {
        log.order(n)?;
    }
    Ok(log.out.flush()?)
}

/// A ledger with an imported log.
struct Grown {
    name: &'static str,
    options: PgConnectOptions,
    events: i64,
    /// Time that the import took.
    imported: Duration,
}

impl Grown {
    /// Creates a database, and imports a log with this number of orders.
    async fn import(server: &Server, directory: &Path, name: &'static str, orders: i64) -> Result<Grown> {
        let options = support::database(server, name).await?;
        let file: PathBuf = directory.join(format!("{name}.ndjson"));
        write_export(&file, orders)?;
        let started = Instant::now();
        let imported = import(&options, &file, |_| {}).await.with_context(|| format!("the import of {name}"))?;
        let took = started.elapsed();
        std::fs::remove_file(&file)?;
        let events = BEFORE_ORDERS + PER_ORDER * orders;
        ensure!(imported.events == events, "{} events instead of {events}", imported.events);
        println!("{name}: {} events imported in {took:.1?}", thousands(events as f64));
        Ok(Grown { name, options, events, imported: took })
    }

    /// Rebuilds every table, and returns the time that it took.
    async fn rebuild(&self) -> Result<Duration> {
        let started = Instant::now();
        let rebuilt =
            rebuild(&self.options, Rebuild::All, |_| {}).await.with_context(|| format!("the rebuild of {}", self.name))?;
        let took = started.elapsed();
        ensure!(rebuilt.was_clean(), "{}: {:?}", self.name, rebuilt.differences.first());
        println!("{}: rebuilt in {took:.1?}", self.name);
        Ok(took)
    }

    /// Brings the tables into the state in which autovacuum keeps them, and returns the size of the database in bytes.
    async fn settle(&self) -> Result<f64> {
        let mut connection = self.options.connect().await?;
        sqlx::raw_sql("VACUUM ANALYZE").execute(&mut connection).await?;
        let size: i64 = sqlx::query_scalar("SELECT pg_database_size(current_database())").fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(size as f64)
    }

    /// Issues an API key to every account.
    async fn clients(&self, server: &Server) -> Result<Arc<Vec<Client>>> {
        let serve = Serve::start(&server.url_of(self.name), "api", &[]).await?;
        let mut clients = vec![];
        for id in 1..=ACCOUNTS {
            clients.push(serve.credential(id).await?);
        }
        Ok(Arc::new(clients))
    }
}

/// Measurement of one period: latencies, cost, and the number of orders in the cost.
type Sample = (Measured, Cost, u64);

/// One of the two logs under load.
struct Side {
    events: i64,
    /// Database that each round gets a copy of, if it does.
    template: Option<&'static str>,
    /// Database in which the orders are placed.
    database: &'static str,
    clients: Arc<Vec<Client>>,
    samples: Vec<Sample>,
}

impl Side {
    /// Starts a node, and places orders for a period, after a checkpoint.
    async fn measure(&mut self, server: &Server) -> Result<()> {
        if let Some(template) = self.template {
            support::copy_database(server, template, self.database).await?;
        }
        let nodes = [Serve::start(&server.url_of(self.database), "api", &[]).await?];
        let admin: PgConnectOptions = server.url_of("postgres").parse()?;
        sqlx::raw_sql("CHECKPOINT").execute(&mut admin.connect().await?).await?;
        let addresses = [nodes[0].address.clone()];
        let meter = Meter::start(server, &nodes).await?;
        let (measured, orders) = load::orders_over(&addresses, &self.clients, 1, CONNECTIONS, PERIOD).await?;
        self.samples.push((measured, meter.end(&nodes).await?, orders));
        Ok(())
    }

    fn row(&self, none: &Side) -> Vec<String> {
        let of = |value: fn(&Sample) -> f64| median(self.samples.iter().map(value));
        let time = |value: fn(&Sample) -> f64| millis(Duration::from_secs_f64(of(value)));
        let micros = |value: fn(&Sample) -> f64| format!("{:.0} µs", 1e6 * of(value));
        let ratios = |value: fn(&Sample) -> f64| match self.events == none.events {
            true => String::new(),
            false => of_rounds(self.samples.iter().zip(&none.samples).map(|(sample, none)| value(sample) / value(none))),
        };
        vec![
            thousands(self.events as f64),
            thousands(of(|(measured, ..)| measured.per_second)),
            time(|(measured, ..)| measured.p50.as_secs_f64()),
            time(|(measured, ..)| measured.p99.as_secs_f64()),
            micros(|(_, cost, orders)| cost.program.as_secs_f64() / *orders as f64),
            micros(|(_, cost, orders)| cost.postgres.as_secs_f64() / *orders as f64),
            ratios(|(measured, ..)| measured.per_second),
            ratios(|(measured, ..)| 1.0 / measured.p99.as_secs_f64()),
        ]
    }
}

/// Rebuilds both logs, and reports that and their imports.
async fn rebuilds(report: &mut Report, small: &Grown, large: &Grown) -> Result<()> {
    // The logs take turns, so that both find the machine in the same state.
    let (before, of_large, after) = (small.rebuild().await?, large.rebuild().await?, small.rebuild().await?);
    let row = |what: &str, small_took: Duration, large_took: Duration| {
        let rates = [(small, small_took), (large, large_took)].map(|(log, took)| log.events as f64 / took.as_secs_f64());
        vec![
            what.to_owned(),
            format!("{:.1} s", small_took.as_secs_f64()),
            thousands(rates[0]),
            format!("{:.1} s", large_took.as_secs_f64()),
            thousands(rates[1]),
            format!("{:.2}×", rates[1] / rates[0]),
        ]
    };
    let rows = [row("import", small.imported, large.imported), row("rebuild of every table", (before + after) / 2, of_large)];
    let [few, many] = [small, large].map(|log| format!("{} events", thousands(log.events as f64)));
    report.table(
        &format!("Importing and rebuilding {many}, beside a tenth of them"),
        "An empty log has nothing to rebuild, so a tenth of the log is the comparison. Its rebuild runs before and after the \
         other, and counts with the mean. The target is 0.9× of its events per second.",
        &["", &few, "events/s", &many, "events/s", "events/s, of the small log's"],
        &rows,
    );
    Ok(())
}

/// Measures orders on both logs, which take turns within a round, and reports them.
async fn orders(report: &mut Report, server: &Server, none: &Grown, large: &Grown, rounds: usize) -> Result<()> {
    let side =
        |log: &Grown, template, database, clients| Side { events: log.events, template, database, clients, samples: vec![] };
    let mut sides = [
        side(none, Some(none.name), "growth_copy", none.clients(server).await?),
        side(large, None, large.name, large.clients(server).await?),
    ];
    for round in 0..rounds {
        for n in 0..sides.len() {
            // Another side begins each round, so that none is always the first on a rested machine.
            let at = (round + n) % sides.len();
            sides[at].measure(server).await?;
        }
    }
    let [of_none, of_large] = &sides;
    let paid = (large.events - BEFORE_ORDERS) / PER_ORDER / ACCOUNTS;
    report.table(
        &format!("Orders on top of {} events", thousands(large.events as f64)),
        &format!(
            "{CONNECTIONS} connections place orders over {} wallets for {} seconds a round, through a node of the role `api`. \
             Both databases are on one server, and take turns within a round. Their accounts and wallets are the same: in the \
             large one, each wallet has paid for {} orders. The empty one is copied anew for each round. Both fit into memory, \
             and have no vouchers and no webhooks. A row is the median of {rounds} rounds. A ratio is the median of the rounds' \
             ratios, with the lowest and the highest. The p99 counts inversely, so that less than 1× is slower. The targets are \
             0.9×.",
            thousands(ACCOUNTS as f64),
            PERIOD.as_secs(),
            thousands(paid as f64),
        ),
        &[
            "events in the log",
            "orders/s",
            "p50",
            "p99",
            "service's processor time an order",
            "Postgres's",
            "orders/s, of the empty log's",
            "p99, of the same, inverse",
        ],
        &[of_none.row(of_none), of_large.row(of_none)],
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let (rounds, orders_in_all) = if arguments().contains(&"quick".to_owned()) { (2, 250_000) } else { (7, 2_500_000) };
    let mut report = Report::start("growth");
    let server = support::postgres().await?;
    let directory = tempfile::tempdir()?;
    let none = Grown::import(&server, directory.path(), "growth_none", 0).await?;
    let small = Grown::import(&server, directory.path(), "growth_small", orders_in_all / 10).await?;
    let large = Grown::import(&server, directory.path(), "growth_large", orders_in_all).await?;
    rebuilds(&mut report, &small, &large).await?;
    let (empty, full) = (none.settle().await?, large.settle().await?);
    orders(&mut report, &server, &none, &large, rounds).await?;
    report.text(&format!(
        "After the rebuild, the large database takes {:.1} GB, {} bytes for each event with the rows of orders, wallets and \
         movements. Stored responses, vouchers and deliveries are not among them.",
        full / 1e9,
        thousands((full - empty) / large.events as f64)
    ));
    report.end(&server).await?;
    server.stop().await?;
    Ok(())
}
