//! Commands at a terminal: coloured output, and a progress bar for slow commands. `script` provides the terminal.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use rewards_ledger::ledger::commands::PlaceOrder;
use rewards_ledger::ledger::{Command as Ask, CommandResult};
use sqlx::ConnectOptions;
use tokio::process::Command;

use super::{directory, out, program, run};
use crate::support::ledger;
use crate::support::program::write_private;
use crate::support::shop::Shop;
use crate::support::wait::until;

/// Runs the program at a terminal of its own. The output of `script` contains both of its output streams.
fn at_a_terminal(data_dir: &Path, arguments: &str) -> Command {
    let program = program(data_dir);
    let mut command = Command::new("script");
    let line = format!("stty columns 120; exec {} {arguments}", env!("CARGO_BIN_EXE_rewards-ledger"));
    command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]).env_clear();
    for (name, value) in program.as_std().get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command.env("TERM", "xterm-256color").env("SHELL", "/bin/sh").stdin(std::process::Stdio::null()).kill_on_drop(true);
    command
}

/// Returns true if `script` is installed. Where everything must be tested, it has to be.
fn has_terminals() -> bool {
    let is_there = std::process::Command::new("script").arg("--version").output().is_ok();
    assert!(is_there || std::env::var_os("CI").is_none(), "CI is set, but `script` is not installed");
    if !is_there {
        eprintln!("SKIPPED: nothing was run at a terminal, for there is no `script` here");
    }
    is_there
}

/// Escape sequences that set a title and clear the screen, the latter again as a C1 control, and text with reversed
/// direction.
const HOSTILE: &str = "mine\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}2J\u{202e}yenom\u{2066}\u{7f}";

/// A terminal displays any client reference literally and does not act on it.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_wrote_does_nothing_to_a_terminal() {
    if !has_terminals() {
        return;
    }
    let (directory, shop) = (directory(), Shop::open().await);
    let order = PlaceOrder { client_reference: Some(HOSTILE.to_owned()), ..shop.customer.order("10.00", 1) };
    let CommandResult::Order(placed) = ledger::run(&shop.ledger, Ask::PlaceOrder(order)).await else { panic!() };
    let head: i64 = sqlx::query_scalar("SELECT position FROM log_head").fetch_one(shop.pool()).await.unwrap();
    let url = shop.options.hosts()[0].to_url_lossy().to_string();
    let id = placed.order.id;
    for arguments in [
        format!("show order {id}"),
        format!("--json show order {id}"),
        format!("events show {}", head - 1),
        format!("--json events show {}", head - 1),
        format!("events tail --limit {head}"),
        format!("--json events tail --limit {head}"),
        format!("--output csv events tail --limit {head}"),
        "events export".to_owned(),
    ] {
        let done = run(at_a_terminal(directory.path(), &arguments).env("DATABASE_URL", &url)).await;
        let told = out(&done);
        assert!(done.status.success(), "{arguments}: {told}");
        for acted_on in ["\u{1b}]", "\u{1b}[2J", "\u{7}", "\u{9b}", "\u{202e}", "\u{2066}", "\u{7f}"] {
            assert!(!told.contains(acted_on), "{arguments}: {acted_on:?} in {told:?}");
        }
        let is_shown = told.contains("mine\\u001b]0;title\\u0007\\u001b[2J\\u009b2J\\u202eyenom\\u2066\\u007f");
        // The one-line forms have no room for it.
        let is_one_line = arguments.contains("events tail") && !arguments.contains("--json");
        assert!(is_shown || is_one_line, "{arguments}: {told:?}");
    }
    // A program that parses the output gets the original value, and a file gets the original bytes.
    let mut command = program(directory.path());
    let read = run(command.args(["--json", "show", "order", &id.to_string()]).env("DATABASE_URL", &url)).await;
    let read: serde_json::Value = serde_json::from_str(&out(&read)).unwrap();
    assert_eq!(read["order"]["client_reference"], HOSTILE);
    let mut command = program(directory.path());
    let exported = out(&run(command.args(["events", "export"]).env("DATABASE_URL", &url)).await);
    assert!(exported.contains('\u{9b}') && exported.contains('\u{202e}'), "the bytes equal those in the log");
}

#[tokio::test]
async fn the_demo_is_coloured_at_a_terminal_unless_colour_is_off() {
    if !has_terminals() {
        return;
    }
    let directory = directory();
    let coloured = run(&mut at_a_terminal(directory.path(), "demo --exit")).await;
    let told = out(&coloured);
    assert!(coloured.status.success(), "{told}");
    assert!(told.contains("\u{1b}[1m") && told.contains("\u{1b}[32m"), "headings are bold and success is green: {told:?}");
    let plain = anstream::adapter::strip_str(&told).to_string();
    assert!(plain.contains("  signature verified  ") && plain.contains("reconciled to the cent"), "{plain}");

    let plain = run(at_a_terminal(directory.path(), "demo --exit").env("NO_COLOR", "1")).await;
    let told = out(&plain);
    assert!(plain.status.success() && told.contains("reconciled to the cent"), "{told}");
    // The line of the spinner is still erased, but erasing is not a colour.
    let codes = told.split("\u{1b}[").skip(1).filter_map(|code| code.chars().find(|c| !c.is_ascii_digit() && *c != ';'));
    assert!(codes.into_iter().all(|code| code != 'm'), "{told:?}");
}

#[tokio::test]
async fn log_lines_are_coloured_at_a_terminal_unless_colour_is_off() {
    if !has_terminals() {
        return;
    }
    let directory = directory();
    // The node logs a warning before it ends, because the address is taken.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let arguments = format!("serve --listen {} --data-dir {}", taken.local_addr().unwrap(), directory.path().display());
    for (variable, is_coloured) in [("TERM", true), ("NO_COLOR", false)] {
        let mut command = at_a_terminal(directory.path(), &arguments);
        let ended = run(command.env("RUST_LOG", "debug").env(variable, "xterm")).await;
        let told = out(&ended);
        assert!(told.contains("DEBUG"), "{told}");
        assert_eq!(told.contains("\u{1b}[34m") || told.contains("\u{1b}[2m"), is_coloured, "{variable}: {told:?}");
    }
}

#[tokio::test]
async fn a_table_is_coloured_at_a_terminal_unless_colour_is_off() {
    if !has_terminals() {
        return;
    }
    let directory = directory();
    let folder = directory.path().join(".config/rewards-ledger");
    std::fs::create_dir_all(&folder).unwrap();
    let profile = "[profiles.mine]\nurl = \"http://127.0.0.1:1\"\napi_key = \"a-key-of-mine\"\napi_secret = \"hidden\"\n";
    write_private(&folder.join("client.toml"), profile);
    for (variable, is_coloured) in [("TERM", true), ("NO_COLOR", false)] {
        let listed = run(at_a_terminal(directory.path(), "profiles --output table").env(variable, "xterm")).await;
        let told = out(&listed);
        assert!(listed.status.success() && told.contains("mine  false"), "{told}");
        assert_eq!(told.contains("\u{1b}[2mname"), is_coloured, "{variable}: {told:?}");
        assert_eq!(told.contains('\u{1b}'), is_coloured, "{variable}: {told:?}");
    }
}

/// Duration from which a command shows a progress bar.
const BAR: Duration = Duration::from_secs(1);

/// Runs a command while the log is locked. The lock is held until the command has waited long enough for a bar to
/// appear.
async fn run_held_up(shop: &Shop, command: &mut Command) -> Output {
    let mut holder = shop.admin().await;
    sqlx::raw_sql("BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE").execute(&mut holder).await.unwrap();
    let hold = async {
        let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'events'::regclass AND NOT granted
                        AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
        until("the command reads the log", async || sqlx::query_scalar(waits).fetch_one(&mut holder).await.unwrap()).await;
        tokio::time::sleep(BAR).await; // a bar appears only after this time
        sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    };
    let ((), done) = tokio::join!(hold, run(command));
    done
}

/// Export to a file and to a pipe. When the lines themselves go to the terminal, no bar appears between them.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_takes_its_time_shows_a_bar() {
    if !has_terminals() {
        return;
    }
    let (directory, shop) = (directory(), Shop::open().await);
    shop.history().await;
    let url = shop.options.hosts()[0].to_url_lossy().to_string();
    let file = directory.path().join("log.ndjson");
    let path = file.to_str().unwrap();
    for (arguments, has_bar) in [
        (format!("events export --out {path}"), true),
        (format!("events export > {path}"), true),
        ("events export".to_owned(), false),
    ] {
        let mut command = at_a_terminal(directory.path(), &arguments);
        let exported = run_held_up(&shop, command.env("DATABASE_URL", &url)).await;
        let told = out(&exported);
        assert!(exported.status.success(), "{told}");
        assert_eq!(told.contains("shard 1 export") && told.contains('█'), has_bar, "{arguments}: {told:?}");
        let written = if has_bar { std::fs::read_to_string(&file).unwrap() } else { told };
        assert!(written.lines().count() > 10 && written.starts_with("{\""), "{arguments}");
        _ = std::fs::remove_file(&file);
        _ = std::fs::remove_file(format!("{path}.manifest.json"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_that_takes_its_time_shows_a_bar() {
    if !has_terminals() {
        return;
    }
    let (directory, shop) = (directory(), Shop::open().await);
    shop.history().await;
    let url = shop.options.hosts()[0].to_url_lossy().to_string();
    let mut command = at_a_terminal(directory.path(), "rebuild --all");
    let rebuilt = run_held_up(&shop, command.env("DATABASE_URL", &url)).await;
    let told = out(&rebuilt);
    assert!(rebuilt.status.success(), "{told}");
    assert!(told.contains("shard 1 fold") && told.contains('█'), "{told:?}");
    let before_the_end = told.rfind("shard 1").expect("a bar");
    let end = anstream::adapter::strip_str(&told[before_the_end..]).to_string();
    assert!(end.contains("\r\norders: ") && end.contains("no row differed"), "the result replaces the bar: {end:?}");
}
