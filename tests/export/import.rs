use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::TryStreamExt;
use ledger_database::PgConnectOptions;
use ledger_events::Event;
use ledger_events::operator::OperatorRole;
use ledger_events::replay::ReplayKind;
use ledger_events::restrictions::Restrictions;
use ledger_events::webhook::WebhookEventType;
use ledger_projections::listing::maintain::CountStep;
use rewards_ledger::audit::{Progress, verify};
use rewards_ledger::export::{import, import::import_in_pages, page};
use rewards_ledger::ledger::commands::{IssueOperatorToken, RegisterWebhook, RequestReplay};
use rewards_ledger::ledger::projector::{ProjectionStep, Projector};
use rewards_ledger::ledger::{Command, CommandResult, Ledger, SchemaError, commands, reader};
use rewards_ledger::secrets::seal::{Secret, random_secret};
use rewards_ledger::telemetry::Metrics;
use serde_json::Value;
use sqlx::PgConnection;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::{export, fails, rows, succeeds};
use crate::support::ledger::{self, Customer, SHARD, keyring};
use crate::support::postgres::{TestDatabase, database};
use crate::support::shop::Shop;

/// The log, and all tables derived from it.
const DERIVED: [&str; 33] = [
    "events",
    "accounts",
    "credentials",
    "credential_restrictions",
    "users",
    "categories",
    "products",
    "orders",
    "wallets",
    "wallet_transactions",
    "webhooks",
    "webhook_subscriptions",
    "webhook_deactivations",
    "webhook_replays",
    "beneficiaries",
    "payouts",
    "purchases",
    "bank_statements",
    "approvals",
    "shards",
    "daily_totals",
    "stock_days",
    "stock_costs",
    "webhook_audience",
    "webhook_envelopes",
    "deliveries",
    // A group without orders may still have a row.
    "(SELECT * FROM order_counts WHERE orders <> 0)",
    "order_marks",
    "(SELECT * FROM order_mark_counts WHERE orders <> 0)",
    "list_checkpoints",
    "delivery_counts",
    "delivery_marks",
    "(SELECT shard_id, position, recorded_at FROM log_head)",
];

/// Tables that are not part of the log and are restored from their own backup.
const OUTSIDE: [&str; 6] =
    ["vault.vouchers", "product_images", "vault.operators", "vault.operator_users", "vault.texts", "vault.data_keys"];

struct World {
    directory: tempfile::TempDir,
    shop: Shop,
    file: PathBuf,
}

/// Makes a ledger in which everything that can happen has happened, and exports it.
async fn world() -> World {
    let (directory, shop) = (tempfile::tempdir().unwrap(), Shop::open().await);
    shop.eventful().await;
    // Count to the end, because the lag of the lists' counts depends on when they were last counted.
    while shop.projector().count(SHARD).await.unwrap() != CountStep::Idle {}
    let file = directory.path().join("events.ndjson");
    export(&shop.options, &file).await;
    World { directory, shop, file }
}

async fn target() -> (TestDatabase, PgConnectOptions) {
    let database = database().await;
    let options = database.url.parse().unwrap();
    (database, options)
}

/// Copies tables from one database to another.
async fn copy(from: &PgConnectOptions, to: &PgConnectOptions, tables: &[&str]) {
    let (from, to) = (from.connect().await.unwrap(), to.connect().await.unwrap());
    let (mut from, mut to): (PgConnection, PgConnection) = (from, to);
    for table in tables {
        let rows: Vec<_> = from.copy_out_raw(&format!("COPY {table} TO STDOUT")).await.unwrap().try_collect().await.unwrap();
        let mut copy = to.copy_in_raw(&format!("COPY {table} FROM STDIN")).await.unwrap();
        for row in rows {
            copy.send(row).await.unwrap();
        }
        copy.finish().await.unwrap();
    }
}

/// Returns every row of the imported ledger, after a node has derived its daily totals again.
async fn derived(options: &PgConnectOptions) -> Vec<String> {
    let projector = Projector::new(&ledger::open(options).await, options, Metrics::default());
    for shard in [SHARD, 2] {
        while projector.total(shard).await.unwrap() != ProjectionStep::Idle {}
        while projector.stock(shard).await.unwrap() != ProjectionStep::Idle {}
    }
    rows(options, &DERIVED).await
}

async fn verified(options: &PgConnectOptions) -> Vec<String> {
    verify(options, |_| {}).await.unwrap().differences.iter().map(ToString::to_string).collect()
}

/// Otherwise an import, a rebuild or a verification would meet an untested event for the first time in production.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_that_is_imported_has_every_event_in_every_version() {
    let World { shop, .. } = world().await;
    shop.moves().await;
    let found: Vec<(String, String, i16)> =
        sqlx::query_as("SELECT DISTINCT stream_type, type, schema_version FROM events").fetch_all(shop.pool()).await.unwrap();
    let versions = |(stream, name, newest)| (1..=newest).map(move |version| (format!("{stream}"), String::from(name), version));
    let known: BTreeSet<_> = Event::types().flat_map(versions).collect();
    assert_eq!(BTreeSet::from_iter(found), known);
}

async fn count(options: &PgConnectOptions, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&mut options.connect().await.unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_imported_log_and_its_derived_tables_are_identical_byte_for_byte() {
    let World { directory, shop, file } = world().await;
    let (_database, options) = target().await;
    copy(&shop.options, &options, &OUTSIDE).await;
    let imported = import(&options, &file, |_| {}).await.unwrap();
    assert_eq!((imported.shard_id, imported.before), (SHARD, 0));
    for table in ["bank_statements", "daily_totals", "stock_days", "stock_costs"] {
        assert!(!rows(&shop.options, &[table]).await.is_empty(), "{table} has rows to compare");
    }
    assert_eq!(derived(&options).await, rows(&shop.options, &DERIVED).await);
    assert_eq!(verified(&options).await, Vec::<String>::new());

    let again = directory.path().join("again.ndjson");
    export(&options, &again).await;
    assert!(std::fs::read(&again).unwrap() == std::fs::read(&file).unwrap());
    let refusal = import(&options, &file, |_| {}).await.unwrap_err().to_string();
    assert!(refusal.contains("the ledger is not empty"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_logs_of_two_shards_are_imported_with_the_moves_between_them() {
    let World { directory, shop, .. } = world().await;
    shop.moves().await;
    let (_database, options) = target().await;
    copy(&shop.options, &options, &OUTSIDE).await;
    for shard in [SHARD, 2] {
        while shop.projector().count(shard).await.unwrap() != CountStep::Idle {}
        let events = reader::stored_after(shop.pool(), shard, 0, i64::MAX).await.unwrap();
        let path = directory.path().join(format!("{shard}.ndjson"));
        std::fs::write(&path, page(&events, false).unwrap()).unwrap();
        import(&options, &path, |_| {}).await.unwrap();
    }
    let costs = "SELECT shard_id || ' ' || cost FROM stock_costs
        WHERE reference IN (SELECT reference FROM stock_costs WHERE shard_id = 2)";
    let expected = derived(&options).await;
    let costs: Vec<String> = sqlx::query_scalar(costs).fetch_all(&mut options.connect().await.unwrap()).await.unwrap();
    assert_eq!(BTreeSet::from_iter(costs), BTreeSet::from(["1 9.50".to_owned(), "2 9.50".to_owned()]));
    assert_eq!(rows(&shop.options, &DERIVED).await, expected);
    assert_eq!(verified(&options).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_log_is_imported_as_it_is() {
    let World { directory, shop, file } = world().await;
    let (_database, options) = target().await;
    copy(&shop.options, &options, &OUTSIDE).await;
    let packed = directory.path().join("events.ndjson.zst");
    let packed = packed.to_str().unwrap();
    succeeds(directory.path(), &shop.options, &["events", "export", "--zstd", "--out", packed]).await;
    let said = succeeds(directory.path(), &options, &["events", "import", packed]).await;
    let count = std::fs::read_to_string(&file).unwrap().lines().count();
    assert!(String::from_utf8(said).unwrap().contains(&format!("{count} events imported")));
    assert_eq!(derived(&options).await, rows(&shop.options, &DERIVED).await);
    assert_eq!(verified(&options).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_continues_after_the_end_of_the_imported_log() {
    let World { directory: _directory, shop, file } = world().await;
    let (_database, options) = target().await;
    copy(&shop.options, &options, &OUTSIDE).await;
    import(&options, &file, |_| {}).await.unwrap();
    let made = count(&options, "SELECT count(*) FROM deliveries").await;
    assert!(made > 5);
    // Nothing from before the import is sent.
    assert_eq!(count(&options, "SELECT count(*) FROM delivery_state WHERE status = 'failed' AND attempt_count = 0").await, made);
    assert_eq!(count(&options, "SELECT count(*) FROM delivery_attempts").await, 0);

    let imported = Shop::on(&options, shop.customer).await;
    imported.load("new", 5, None).await;
    let register = RegisterWebhook {
        account_id: imported.customer.account_id,
        name: Secret::new("new"),
        url: Secret::new("https://example.com/new"),
        events: vec![WebhookEventType::OrderCreated],
        headers: None,
        credential_id: None,
        new_secret: random_secret(),
    };
    let CommandResult::Webhook(webhook) = imported.run(Command::RegisterWebhook(register)).await else { panic!() };
    let order = imported.order(1).await;
    imported.fulfil(order).await;
    imported.run(commands::AddCategory { name: "New".into(), parent_id: None }).await;
    let (account, _) = imported.account("New").await;
    let beneficiary = imported.beneficiary().await;
    imported.payout(beneficiary, "1.00").await;
    let other = Customer::with(&imported.ledger, "5.00").await;
    assert!(account < other.account_id);
    let account_id = imported.customer.account_id;
    let (api_key, api_secret) = (Secret::new("qrstuvwx-rest"), Secret::new("secret"));
    imported
        .run(commands::IssueCredential {
            account_id,
            name: "new".into(),
            api_key,
            api_secret,
            restrictions: Restrictions::default(),
        })
        .await;
    imported.run(Command::IssueOperatorToken(IssueOperatorToken::of("new", OperatorRole::Auditor, &Secret::new("new")))).await;
    let (webhook_id, kind) = (webhook.webhook.id, ReplayKind::Missed);
    imported
        .run(Command::RequestReplay(RequestReplay { account_id, webhook_id, kind, from: 1, per_second: 1, only: None }))
        .await;
    imported
        .run(commands::TestWebhook { account_id: imported.customer.account_id, webhook_id: webhook.webhook.id, event_type: None })
        .await;
    imported.project().await;
    let pending = "SELECT count(*) FROM delivery_state WHERE status = 'pending'";
    assert!(count(&options, pending).await >= 2, "new events are delivered");
    assert_eq!(verified(&options).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_vault_only_its_contents_are_missing() {
    let World { directory: _directory, shop: _shop, file } = world().await;
    let (_database, options) = target().await;
    import(&options, &file, |_| {}).await.unwrap();
    let found = verified(&options).await;
    assert!(!found.is_empty());
    for line in found {
        let is_expected = line.contains("is not in the stock")
            || line.contains("the image of product 1 is missing")
            || line.contains("vault.operator") && line.ends_with("is missing")
            || line.starts_with("vault.texts webhook.") && line.ends_with("is missing");
        assert!(is_expected, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_import_continues_and_no_node_works_on_half_of_it() {
    let World { shop, file, directory } = world().await;
    let (_database, options) = target().await;
    copy(&shop.options, &options, &OUTSIDE).await;
    let stop_after = |pages: usize| {
        let (reached, midway) = tokio::sync::mpsc::unbounded_channel();
        let seen = AtomicUsize::new(0);
        let progress = move |progress: Progress| {
            if progress.stage == "import" && seen.fetch_add(1, Ordering::Relaxed) + 1 == pages {
                _ = reached.send(());
            }
        };
        (progress, midway)
    };
    for _ in 0..2 {
        // Dropping the import halfway closes its connection, like a killed process.
        let (progress, mut midway) = stop_after(3);
        tokio::select! {
            biased;
            _ = midway.recv() => {}
            done = import_in_pages(&options, &file, 7, false, progress) => panic!("it ended: {done:?}"),
        }
        let open = Ledger::open(&options, keyring(), Metrics::default(), &TaskTracker::new()).await;
        assert!(matches!(open, Err(SchemaError::HalfImported { .. })), "{open:?}");
        assert!(verified(&options).await.iter().any(|line| line.contains("an import stopped at position")));
    }
    assert!(count(&options, "SELECT position FROM log_head WHERE shard_id = 1").await >= 42);

    // A different file is not accepted as a continuation.
    shop.tamper(
        "UPDATE events SET data = replace(data::text, 'Acme', 'Acne')::json WHERE type = 'AccountCreated' AND stream_id = 1",
    )
    .await;
    let other = directory.path().join("other.ndjson");
    export(&shop.options, &other).await;
    let refusal = import(&options, &other, |_| {}).await.unwrap_err().to_string();
    assert!(
        refusal.contains("the database has an unfinished import of another file: shard 1 differs from this file at position 1"),
        "{refusal}"
    );
    shop.tamper(
        "UPDATE events SET data = replace(data::text, 'Acne', 'Acme')::json WHERE type = 'AccountCreated' AND stream_id = 1",
    )
    .await;

    let imported = import_in_pages(&options, &file, 7, false, |_| {}).await.unwrap();
    assert!(imported.before >= 42, "{imported:?}");
    assert_eq!(derived(&options).await, rows(&shop.options, &DERIVED).await);
    assert_eq!(verified(&options).await, Vec::<String>::new());
    ledger::open(&options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_log_is_refused_before_anything_is_written() {
    let World { directory, file, .. } = world().await;
    let (_database, options) = target().await;
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let swapped: Vec<&str> = [&lines[..9], &[lines[10], lines[9]], &lines[11..]].concat();
    let with = |number: usize, from: &str, to: &str| {
        let mut lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        assert!(lines[number].contains(from));
        lines[number] = lines[number].replacen(from, to, 1);
        lines.concat()
    };
    for (content, expected) in [
        (String::new(), "has no events"),
        (lines[1..].concat(), "position 1 is missing"),
        ([&lines[..9], &lines[10..]].concat().concat(), "position 10 is missing"),
        (swapped.concat(), "position 10 is missing"),
        ([&lines[..9], &lines[8..]].concat().concat(), "position 9 follows position 9"),
        (text[..text.len() - 5].to_owned(), "the file ends in the middle of a line"),
        (with(4, "\"position\":5", "\"position\":5.5"), "line 5: "),
        (with(4, "\"schema_version\":1", "\"schema_version\":99"), "schema version 99"),
        (with(4, "\"version\":1", "\"version\":2"), "has version 2 instead of 1"),
        (with(4, "\"recorded_at\":\"20", "\"recorded_at\":\"19"), "before its predecessor's"),
        (with(4, "\"shard_id\":1", "\"shard_id\":2"), "position 5: the event belongs to shard 2"),
    ] {
        let path = directory.path().join("wrong.ndjson");
        std::fs::write(&path, content).unwrap();
        let refusal = import(&options, &path, |_| {}).await.unwrap_err().to_string();
        assert!(refusal.contains(expected), "{expected}: {refusal}");
    }
    let manifest = |name: &str| directory.path().join(format!("{name}.manifest.json"));
    let other = directory.path().join("other.ndjson");
    std::fs::write(&other, &text).unwrap();
    let mut described: Value = serde_json::from_slice(&std::fs::read(manifest("events.ndjson")).unwrap()).unwrap();
    described["from"] = 2.into();
    std::fs::write(manifest("other.ndjson"), described.to_string()).unwrap();
    refused(&options, &other, "contains only a part of a log").await;
    described["from"] = 1.into();
    described["sha256"] = "00".into();
    std::fs::write(manifest("other.ndjson"), described.to_string()).unwrap();
    refused(&options, &other, "does not match its manifest").await;
    std::fs::write(manifest("other.ndjson"), "{").unwrap();
    refused(&options, &other, "manifest.json").await;
    assert_eq!(count(&options, "SELECT count(*) + (SELECT count(*) FROM projection_checkpoints) FROM events").await, 0);
    refused(&options, &directory.path().join("nowhere"), "nowhere").await;

    // The message of the command.
    let said = succeeds(directory.path(), &options, &["events", "import", file.to_str().unwrap()]).await;
    assert!(String::from_utf8(said).unwrap().contains("events imported; their webhooks are not sent"));
    let refusal = fails(directory.path(), &options, &["events", "import", file.to_str().unwrap()]).await;
    assert!(refusal.starts_with("error: the ledger is not empty") && refusal.lines().count() == 1, "{refusal}");
}

async fn refused(options: &PgConnectOptions, path: &Path, expected: &str) {
    let refusal = import(options, path, |_| {}).await.unwrap_err().to_string();
    assert!(refusal.contains(expected), "{expected}: {refusal}");
}

/// A node that works on the ledger during the import is detected, and its events are not mixed in.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_another_writer_stop_the_import() {
    let World { directory: _directory, shop: _shop, file } = world().await;
    let (_database, options) = target().await;
    let node = Arc::new(ledger::open(&options).await);
    let write = {
        let node = node.clone();
        move |progress: Progress| {
            if progress.stage == "import" {
                let add = commands::AddCategory { name: "Other".into(), parent_id: None };
                // The node writes between two pages. A write on what the import has changed since may be refused.
                let written = node.execute(SHARD, add, ledger::origin());
                _ = tokio::task::block_in_place(|| Handle::current().block_on(written));
            }
        }
    };
    let refusal = import_in_pages(&options, &file, 7, false, write).await.unwrap_err().to_string();
    assert!(refusal.contains("another process writes to shard 1"), "{refusal}");
}
