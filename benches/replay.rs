//! Time to fold a million events into orders and wallets, read from Postgres and from an export of the same log. Only
//! the folds run, in memory, with every state kept. This is the cost of a replay before anything is written.
//!
//! `cargo bench --bench replay`

mod support;

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ledger_database::PgConnectOptions;
use ledger_events::order::{Order, OrderStatus};
use ledger_events::wallet::Wallet;
use ledger_events::{Event, Money, OrderId, Recorded, WalletId};
use ledger_projections::{state, wallets};
use rewards_ledger::export::selection::Range;
use rewards_ledger::export::{ExportError, ExportFile, Plan, Selection, line, read};
use rewards_ledger::ledger::{FIRST_SHARD, connect, reader};
use support::report::Report;
use support::table::thousands;

const PAGE_EVENTS: i64 = 20_000;

/// States that a replay keeps in memory.
#[derive(Debug, Default)]
struct Replay {
    events: u64,
    orders: HashMap<OrderId, Order>,
    wallets: HashMap<WalletId, Wallet>,
}

impl Replay {
    fn fold(&mut self, page: &[Recorded]) {
        for recorded in page {
            match &recorded.event {
                Event::Order(_) => state::fold(&mut self.orders, recorded),
                Event::Wallet(event) => _ = wallets::fold(&mut self.wallets, recorded, event),
                _ => {}
            }
        }
        self.events += page.len() as u64;
    }

    /// Checks that the replay reached the states that `million.sql` describes.
    fn check(&self, events: u64) -> Result<()> {
        let delivered = self.orders.values().filter(|order| order.status == OrderStatus::Delivered).count();
        ensure!((self.events, self.orders.len(), delivered) == (events, 250_000, 250_000), "other orders: {delivered}");
        let left: Money = "7500.00".parse().map_err(|error| anyhow::anyhow!("{error:?}"))?;
        ensure!(self.wallets.len() == 1_000 && self.wallets.values().all(|wallet| wallet.balance == left), "other balances");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = support::postgres().await?;
    let options = support::database(&server, "replay").await?;
    sqlx::raw_sql(include_str!("support/million.sql")).execute(&mut options.connect().await?).await.context("million.sql")?;
    let pool = connect::pool(&options);
    let head = reader::head(&pool, FIRST_SHARD).await?;
    let events = u64::try_from(head)?;
    let directory = tempfile::tempdir()?;
    let mut report = Report::start("replay");

    let mut rows = vec![];
    let mut add = |what: &str, took: Duration, target: &str| {
        let per_second = thousands(events as f64 / took.as_secs_f64());
        rows.push(vec![what.to_owned(), format!("{:.1} s", took.as_secs_f64()), per_second, target.to_owned()]);
    };
    add("folded from Postgres", from_postgres(&options, events).await?, "under 20 s");
    for (is_compressed, written, folded) in
        [(false, "exported", "folded from the export"), (true, "exported, with zstd", "folded from the export, with zstd")]
    {
        let path = directory.path().join(format!("{is_compressed}.ndjson"));
        let started = Instant::now();
        let selection = Selection::all(FIRST_SHARD, head);
        let plan =
            Plan { range: Range::default(), selection: selection.clone(), head, epoch: 0, is_compressed, checkpoint: None };
        let mut file = ExportFile::open(&path, plan)?;
        let mut at = 0;
        while at < head {
            let page = selection.page(&pool, at).await?;
            file.append(&page.events)?;
            at = page.reached;
        }
        let manifest = file.finish(chrono::Utc::now())?;
        add(&format!("{written}: {} MB", manifest.bytes / 1_000_000), started.elapsed(), "");
        add(folded, from_export(&path, events)?, "under 10 s");
    }
    report.table(
        &format!("Folding {} events", thousands(events as f64)),
        "The folds run in memory and keep every state. Nothing is written to Postgres.",
        &["", "took", "events/s", "target"],
        &rows,
    );
    report.end(&server).await?;
    server.stop().await?;
    Ok(())
}

/// Reading, decoding and folding of pages overlap.
async fn from_postgres(options: &PgConnectOptions, events: u64) -> Result<Duration> {
    let started = Instant::now();
    let (pages, mut read) = tokio::sync::mpsc::channel(2);
    let pool = connect::pool(options);
    let reading = tokio::spawn(async move {
        let mut at = 0;
        loop {
            let page = reader::stored_after(&pool, FIRST_SHARD, at, PAGE_EVENTS).await?;
            let Some(last) = page.last() else { return Ok::<_, sqlx::Error>(()) };
            at = last.position;
            if pages.send(page).await.is_err() {
                return Ok(());
            }
        }
    });
    let folding = tokio::task::spawn_blocking(move || {
        let mut replay = Replay::default();
        while let Some(page) = read.blocking_recv() {
            replay.fold(&page.iter().map(reader::Stored::decode).collect::<Result<Vec<_>, _>>()?);
        }
        anyhow::Ok(replay)
    });
    reading.await??;
    let replay = folding.await??;
    let took = started.elapsed();
    replay.check(events)?;
    Ok(took)
}

fn from_export(path: &Path, events: u64) -> Result<Duration> {
    let started = Instant::now();
    let mut replay = Replay::default();
    let decode = |text: &str| {
        let stored = line::read(text).map_err(|error| error.to_string())?;
        stored.decode().map_err(|error| error.to_string())
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    read::each_page(path, threads, decode, |page| {
        replay.fold(&page);
        Ok::<_, ExportError>(())
    })?;
    let took = started.elapsed();
    replay.check(events)?;
    Ok(took)
}
