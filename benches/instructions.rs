//! Instructions and allocations of the service for an order, counted by Valgrind. Unlike times, they repeat almost exactly on
//! any machine. Needs `valgrind` (Debian: `apt-get install valgrind`).
//!
//! ```text
//! cargo bench --bench instructions
//! cargo bench --bench instructions -- check   # fails if an order costs over 3 % more than docs/benchmarks.md says
//! ```
//!
//! The row of traces needs line tables in the program, which change no instruction. Give `cargo bench` the arguments
//! `--config 'profile.release.package.rewards-ledger.debug="line-tables-only"'` and
//! `--config 'profile.release.package.rewards-ledger.strip="none"'`.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use support::callgrind::{self, Profile};
use support::report::{self, Report};
use support::table::thousands;
use support::{Serve, arguments, load};

/// Orders placed before the count starts, which fills caches and prepares statements.
const WARM_UP: u64 = 100;
/// Orders that are counted, one after the other. Every batch therefore has one order.
const ORDERS: u64 = 400;
/// Largest share by which a check accepts more instructions.
const TOLERANCE: f64 = 0.03;

/// Source files of traces: their own, and that of the variable in which a task keeps its trace.
const TRACES: [&str; 3] = ["src/telemetry/traces/", "src/api/trace.rs", "tokio/src/task/task_local.rs"];

/// Row of the table that `check` compares.
const PER_ORDER: &str = "instructions an order";

#[tokio::main]
async fn main() -> Result<()> {
    let is_check = arguments().first().is_some_and(|mode| mode == "check");
    let mut report = Report::start("instructions");
    let server = support::postgres().await?;
    support::database(&server, "instructions").await?;
    let directory = std::env::temp_dir().join(format!("rewards-ledger-callgrind-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let counted = count(&server.url_of("instructions"), &directory).await;
    _ = std::fs::remove_dir_all(&directory);
    let profile = counted?;

    let instructions = profile.instructions() as f64 / ORDERS as f64;
    let of_traces = profile.instructions_in(&TRACES).map(|counted| counted as f64);
    let share = |counted: f64| {
        format!("{} ({:.2} %)", thousands(counted / ORDERS as f64), counted / profile.instructions() as f64 * 100.0)
    };
    let rows = [
        (PER_ORDER, thousands(instructions)),
        (
            "of these in the sources of traces, which are off",
            of_traces.map_or_else(|| "not known without line tables".to_owned(), share),
        ),
        ("allocations an order", thousands(profile.calls(callgrind::is_allocation) as f64 / ORDERS as f64)),
    ];
    let note = format!(
        "One client places {ORDERS} orders one after the other on one wallet, so every batch has one order. The service runs under \
         Valgrind with the role `api`. The kernel and Postgres are not counted."
    );
    report.table(
        "The service's path of an order",
        &note,
        &["", "value"],
        &rows.map(|(name, value)| vec![name.to_owned(), value]),
    );
    report.table("Where the instructions go", "", &["crate", "instructions an order", "share"], &shares(&profile));
    if is_check {
        compare(instructions)?;
    }
    report.end(&server).await?;
    server.stop().await?;
    Ok(())
}

/// Runs the service under Valgrind, and returns the profile of the counted orders.
async fn count(url: &str, directory: &Path) -> Result<Profile> {
    let file = directory.join("profile");
    let out = format!("--callgrind-out-file={}", file.display());
    let valgrind = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", &out];
    let serve = Serve::start_under(&valgrind, url, "api", &[]).await.context("the program under valgrind")?;
    let product = serve.product().await?;
    let clients = Arc::new(serve.clients(1).await?);
    let control = |action: &str| {
        let done = Command::new("callgrind_control").args([action, &serve.pid().to_string()]).output()?;
        ensure!(done.status.success(), "callgrind_control {action}: {}", String::from_utf8_lossy(&done.stderr));
        anyhow::Ok(())
    };
    control("--instr=on")?;
    load::orders_at_once(&serve.address, &clients, product, WARM_UP, 1).await?;
    control("--zero")?;
    load::orders_at_once(&serve.address, &clients, product, ORDERS, 1).await?;
    control("--dump")?;
    // A dump on request gets a number.
    let dump = directory.join("profile.1");
    let text = std::fs::read_to_string(&dump).with_context(|| format!("failed to read {}", dump.display()))?;
    callgrind::parse(&text)
}

/// Returns the crates with the most instructions.
fn shares(profile: &Profile) -> Vec<Vec<String>> {
    let mut by_crate = BTreeMap::<&str, u64>::new();
    for (function, instructions) in &profile.functions {
        *by_crate.entry(callgrind::crate_of(function)).or_default() += instructions;
    }
    let mut sorted: Vec<_> = by_crate.into_iter().collect();
    sorted.sort_unstable_by_key(|(_, instructions)| std::cmp::Reverse(*instructions));
    let all = profile.instructions() as f64;
    let row = |(name, instructions): &(&str, u64)| {
        let share = format!("{:.1} %", *instructions as f64 / all * 100.0);
        vec![format!("`{name}`"), thousands(*instructions as f64 / ORDERS as f64), share]
    };
    sorted.iter().take(20).map(row).collect()
}

/// Compares with the recorded figure.
fn compare(instructions: f64) -> Result<()> {
    let document = std::fs::read_to_string(report::document())?;
    let row = document.lines().find(|line| line.starts_with(&format!("| {PER_ORDER} "))).context("no recorded figure")?;
    let recorded: f64 = row.split('|').nth(2).context("no value")?.trim().replace(',', "").parse()?;
    let change = instructions / recorded - 1.0;
    println!("\n{:+.1} % compared with the recorded {}", change * 100.0, thousands(recorded));
    if change > TOLERANCE {
        bail!("an order costs more instructions than recorded; find out why, or record the new figure with a complete run");
    }
    Ok(())
}
