//! The signer's state outside the database, and the refusals that follow from it.

use ledger_database::PgConnectOptions;
use rewards_ledger::ledger::commands::RecordLogIncident;
use rewards_ledger::ledger::{Command, Ledger};
use rewards_ledger::secrets::seal::Secret;
use rewards_ledger::telemetry::Metrics;
use rewards_ledger::transparency::Refusal;
use rewards_ledger::transparency::projector::SigningStep;
use serde_json::Value;
use sqlx::AssertSqlSafe;

use super::growth::tree;
use crate::support::failover::Standby;
use crate::support::ledger::{self, SHARD};
use crate::support::node::Node;
use crate::support::shop::Shop;
use crate::support::tree::{Signing, Tree, key_of};
use crate::support::wait::until;

/// Copies a database as it is now, as a backup.
async fn backup(options: &PgConnectOptions) -> PgConnectOptions {
    Standby::of(options).await.options()
}

/// Opens a node on another database, with the state of the first one.
async fn on(options: &PgConnectOptions, signing: Signing) -> (Ledger, Tree) {
    let ledger = ledger::open(options).await;
    let tree = Tree::with(&ledger, options, &Metrics::default(), signing);
    (ledger, tree)
}

fn remembering(tree: &Tree) -> Signing {
    Signing { state_of: Some(tree.clone()), ..Signing::default() }
}

async fn orders(shop: &Shop, ledger: &Ledger, count: usize) {
    let order = shop.customer.order("10.00", 1);
    let place = |_| ledger::run(ledger, Command::PlaceOrder(order.clone()));
    futures::future::join_all((0..count).map(place)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_older_backup_is_detected_even_after_it_has_grown_again() {
    let shop = Shop::open().await;
    let first = tree(&shop, Signing::default());
    shop.orders(shop.customer.account_id, 20).await;
    let old_size = first.grow().await;
    let old = backup(&shop.options).await;
    shop.orders(shop.customer.account_id, 30).await;
    let signed = first.grow().await;
    let before = std::fs::read_to_string(&first.state).unwrap();

    let (restored, tree) = on(&old, remembering(&first)).await;
    // Making the backup cut connections, which may have raised the epoch. In this test only the trees decide.
    let epoch: i64 = sqlx::query_scalar("SELECT epoch FROM log_head").fetch_one(shop.pool()).await.unwrap();
    sqlx::query("UPDATE log_head SET epoch = $1").bind(epoch).execute(restored.pool()).await.unwrap();
    let head = i64::try_from(old_size).unwrap();
    assert_eq!(Tree::refused(tree.projector.step(SHARD).await), Refusal::Cut { head, signed });
    // Still too short, then exactly as long, then longer.
    orders(&shop, &restored, 5).await;
    assert_eq!(Tree::refused(tree.projector.step(SHARD).await), Refusal::Cut { head: head + 10, signed });
    orders(&shop, &restored, 25).await;
    assert_eq!(Tree::refused(tree.projector.step(SHARD).await), Refusal::Rewritten { size: signed });
    orders(&shop, &restored, 300).await;
    assert_eq!(Tree::refused(tree.projector.step(SHARD).await), Refusal::Rewritten { size: signed });
    assert_eq!(tree.newest().await.size, old_size, "nothing more was signed");
    assert_eq!(std::fs::read_to_string(&first.state).unwrap(), before);

    // A node without this state does not sign either.
    let (_, stranger) = on(&old, Signing::default()).await;
    assert!(Tree::refused(stranger.projector.step(SHARD).await).is_of_another());
    assert_eq!(tree.newest().await.size, old_size);

    // The remedy is another log, under whose origin nothing has been signed. Only an incident begins one.
    let anew = Signing { origin: "ledger.example.com/log-2".to_owned(), ..remembering(&first) };
    let (_, anew) = on(&old, anew).await;
    assert_eq!(Tree::refused(anew.projector.step(SHARD).await), Refusal::Rewritten { size: signed });
    let [origin, next_origin] = ["ledger.example.com/log/1", "ledger.example.com/log-2/1"].map(str::to_owned);
    let reason = Secret::new("an intended restore");
    let incident = RecordLogIncident { origin, next_origin, signed: None, kept: None, refusal: String::new(), reason, known: 0 };
    ledger::run(&restored, Command::RecordLogIncident(incident)).await;
    anew.grow().await;
    let newest = anew.newest().await;
    assert_eq!(newest.origin, "ledger.example.com/log-2/1");
    // The state of the old log stays.
    assert!(std::fs::read_to_string(&first.state).unwrap().contains(&format!("\"size\": {signed}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_log_is_detected() {
    let shop = Shop::open().await;
    let tree = tree(&shop, Signing::default());
    shop.orders(shop.customer.account_id, 20).await;
    let signed = tree.grow().await;
    let head = i64::try_from(signed).unwrap() - 4;
    shop.tamper(&format!("DELETE FROM events WHERE position > {head}; UPDATE log_head SET position = {head}")).await;
    assert_eq!(Tree::refused(tree.projector.step(SHARD).await), Refusal::Cut { head, signed });
    // If `log_head` is left unchanged, the hole is noticed as soon as the log continues.
    shop.tamper(&format!("UPDATE log_head SET position = {signed}")).await;
    shop.orders(shop.customer.account_id, 1).await;
    shop.tamper(&format!("DELETE FROM events WHERE position = {}", signed + 1)).await;
    assert_eq!(Tree::refused(tree.projector.step(SHARD).await), Refusal::Gap(signed as i64 + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_epoch_is_an_older_database() {
    let shop = Shop::open().await;
    sqlx::raw_sql("UPDATE log_head SET epoch = 7").execute(&mut shop.admin().await).await.unwrap();
    let tree = tree(&shop, Signing::default());
    tree.grow().await;
    sqlx::raw_sql("UPDATE log_head SET epoch = 6").execute(&mut shop.admin().await).await.unwrap();
    assert_eq!(Tree::refused(tree.projector.step(SHARD).await), Refusal::Epoch { found: 6, signed: 7 });
    // A rebuild raises the epoch, which is no reason to refuse.
    sqlx::raw_sql("UPDATE log_head SET epoch = 8").execute(&mut shop.admin().await).await.unwrap();
    assert_eq!(tree.projector.step(SHARD).await.unwrap(), SigningStep::Idle);
    sqlx::raw_sql("UPDATE log_head SET epoch = 7").execute(&mut shop.admin().await).await.unwrap();
    assert_eq!(Tree::refused(tree.projector.step(SHARD).await), Refusal::Epoch { found: 7, signed: 8 });
}

/// The process died after the tree was remembered and before it was committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_death_between_remembering_and_publishing_costs_nothing() {
    let shop = Shop::open().await;
    let first = tree(&shop, Signing::default());
    first.grow().await;
    shop.orders(shop.customer.account_id, 20).await;
    // A database without the commit of the next step.
    let without = backup(&shop.options).await;
    let signed = first.grow().await;

    let (ledger, again) = on(&without, remembering(&first)).await;
    orders(&shop, &ledger, 10).await;
    assert_eq!(
        again.projector.step(SHARD).await.unwrap(),
        SigningStep::Signed { size: signed, is_more: true },
        "the same tree comes first"
    );
    assert_eq!(again.newest().await.root, first.newest().await.root);
    assert_eq!(again.grow().await, signed + 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_whose_tables_were_changed_is_not_signed() {
    let shop = Shop::open().await;
    let first = tree(&shop, Signing::default());
    shop.orders(shop.customer.account_id, 150).await;
    let size = first.grow().await;
    shop.orders(shop.customer.account_id, 1).await;
    let intact = backup(&shop.options).await;
    for (tampering, expected) in [
        (
            "UPDATE log_edges SET hashes = set_byte(hashes, 0, (get_byte(hashes, 0) + 1) % 256) WHERE level = 0",
            Refusal::Edge { size },
        ),
        (
            "UPDATE projection_checkpoints SET position = position - 1 WHERE projection = 'transparency'",
            Refusal::Edge { size: size - 1 },
        ),
        (
            "ALTER TABLE log_checkpoints DISABLE TRIGGER ALL; UPDATE log_checkpoints SET root = sha256(root)",
            Refusal::Rewritten { size },
        ),
        ("ALTER TABLE log_checkpoints DISABLE TRIGGER ALL; DELETE FROM log_checkpoints", Refusal::Edge { size }),
    ] {
        let copy = backup(&intact).await;
        sqlx::raw_sql(AssertSqlSafe(tampering)).execute(&mut copy.connect().await.unwrap()).await.unwrap();
        let (_, tree) = on(&copy, remembering(&first)).await;
        assert_eq!(Tree::refused(tree.projector.step(SHARD).await), expected, "{tampering}");
    }
}

/// The signer continues a tree that another node has published only if one of its own keys has signed it.
#[tokio::test(flavor = "multi_thread")]
async fn a_tree_signed_by_an_unknown_key_is_not_continued() {
    const OTHER_KEY: &str = "bmV3IGtleSBuZXcga2V5IG5ldyBrZXkgbmV3IGtleS4=";
    let shop = Shop::open().await;
    let ours = tree(&shop, Signing::default());
    shop.orders(shop.customer.account_id, 3).await;
    ours.grow().await;
    shop.orders(shop.customer.account_id, 3).await;
    let stranger = tree(&shop, Signing { key_file: OTHER_KEY.to_owned(), ..Signing::default() });
    let size = stranger.grow().await;
    assert_eq!(Tree::refused(ours.projector.step(SHARD).await), Refusal::Stranger { size });
    // A key rotation that went too fast. With both keys in the file the signer continues.
    let both = Signing { key_file: format!("{}\n{OTHER_KEY}", Signing::default().key_file), ..remembering(&ours) };
    assert_ne!(key_of(&both.key_file), key_of(&Signing::default().key_file));
    assert_eq!(tree(&shop, both).grow().await, size);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_visible_in_the_metrics_and_the_node_stays_ready() {
    let node = Node::start().await;
    node.setup().await;
    let tree = node.publish().await;
    let ready = || async { node.anyone("GET", "/readyz", Value::Null).await };
    let mut admin = node.options.connect().await.unwrap();
    sqlx::raw_sql("UPDATE log_head SET epoch = epoch - 1").execute(&mut admin).await.unwrap();
    assert!(tree.projector.once(SHARD).await.is_err());
    // The node takes orders as before.
    assert_eq!(ready().await.status, 200);
    let metrics = node.anyone("GET", "/metrics", Value::Null).await.text;
    assert!(metrics.contains("ledger_transparency_refusals_total 1"), "{metrics}");
    assert!(metrics.contains("ledger_transparency_refused{shard=\"1\"} 1"), "{metrics}");
    assert!(metrics.contains("ledger_projection_lag_positions{projection=\"transparency\",shard=\"1\"} 0"), "{metrics}");
    sqlx::raw_sql("UPDATE log_head SET epoch = epoch + 1").execute(&mut admin).await.unwrap();
    tree.projector.once(SHARD).await.unwrap();
    until("the tree is signed again", async || {
        let metrics = node.anyone("GET", "/metrics", Value::Null).await.text;
        metrics.contains("ledger_transparency_refused{shard=\"1\"} 0")
    })
    .await;
}
