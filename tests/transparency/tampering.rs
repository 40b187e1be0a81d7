//! A superuser changed the database, bypassing the triggers: `verify` names the first bad position.

use rewards_ledger::audit::verify;
use sqlx::AssertSqlSafe;

use super::growth::tree;
use crate::support::shop::Shop;
use crate::support::tree::Signing;

/// Changes to the database, each with the line that the report must contain. Event 300 lies under a full tile, event
/// 10 under another one.
const TAMPERINGS: [(&str, &str); 16] = [
    // A change that nothing else notices: white space in a payload.
    ("UPDATE events SET data = (data::text || ' ')::json WHERE position = 10", "position 10: the event differs from the one in the tree"),
    ("UPDATE events SET metadata = (' ' || metadata::text)::json WHERE position = 300", "position 300: the event differs from the one in the tree"),
    ("UPDATE events SET recorded_at = recorded_at + interval '1 ms' WHERE position = 530", "position 530: the event differs from the one in the tree"),
    ("UPDATE events SET event_id = gen_random_uuid() WHERE position = 10", "position 10: the event differs from the one"),
    ("DELETE FROM events WHERE position = 300", "position 300: the tree has an event here, but the log has none"),
    (
        "DELETE FROM events WHERE position > 540; UPDATE log_head SET position = 540",
        "position 541: the tree has an event here, but the log has none",
    ),
    // Two events change places.
    (
        "UPDATE events SET position = 1000000 WHERE position = 11; UPDATE events SET position = 11 WHERE position = 13;
         UPDATE events SET position = 13 WHERE position = 1000000",
        "position 11: the event differs from the one in the tree",
    ),
    // An event is inserted in the middle, and all later ones move.
    (
        "UPDATE events SET position = position + 1000000 WHERE position >= 12; UPDATE events SET position = position - 999999 WHERE position > 1000000;
         INSERT INTO events SELECT shard_id, 12, gen_random_uuid(), 'order', 999999, 1, type, schema_version, data, metadata, recorded_at FROM events WHERE position = 11;
         UPDATE log_head SET position = position + 1",
        "position 12: the event differs from the one in the tree",
    ),
    ("UPDATE log_tiles SET hashes = set_byte(hashes, 32 * 4, (get_byte(hashes, 32 * 4) + 1) % 256) WHERE level = 0 AND index = 1", "position 261: the event differs"),
    ("DELETE FROM log_tiles WHERE level = 0 AND index = 1", "position 257: tile/0/001 of the tree is missing"),
    ("UPDATE log_edges SET hashes = set_byte(hashes, 33, (get_byte(hashes, 33) + 1) % 256) WHERE level = 1", "position 257: tile/1/000.p/2 of the tree does not match its events"),
    // The tree is rewritten with the event, but its checkpoints were signed before.
    ("UPDATE log_checkpoints SET root = sha256(root) WHERE size = (SELECT max(size) FROM log_checkpoints)", "the checkpoint that was signed here covers other events"),
    // Without the checkpoints, the other tables still show the size of the tree.
    (
        "UPDATE events SET data = (data::text || ' ')::json WHERE position = 10; DELETE FROM log_checkpoints",
        "position 10: the event differs from the one in the tree",
    ),
    ("DELETE FROM log_checkpoints", "but its newest checkpoint covers 0"),
    (
        "DELETE FROM log_checkpoints; UPDATE projection_checkpoints SET position = 0 WHERE projection = 'transparency'",
        "position 1: the tree has 512 events, but its newest checkpoint covers 0 and its own row states 0: rows are missing",
    ),
    ("UPDATE log_checkpoints SET note = replace(note, 'ledger', 'lodger')", "the note of the checkpoint"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_detected_and_its_position_named() {
    let checks = TAMPERINGS.map(|(tampering, expected)| async move {
        let shop = Shop::open().await;
        let tree = tree(&shop, Signing::default());
        for orders in [30, 200, 60] {
            shop.orders(shop.customer.account_id, orders).await;
            tree.grow().await;
        }
        assert!(tree.newest().await.size > 545);
        let tables = ["log_tiles", "log_checkpoints"].map(|table| format!("ALTER TABLE {table} DISABLE TRIGGER ALL;")).concat();
        sqlx::raw_sql(AssertSqlSafe(tables)).execute(&mut shop.admin().await).await.unwrap();
        shop.tamper(tampering).await;
        let report = verify(&shop.options, |_| {}).await.unwrap();
        let lines: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
        assert!(lines.iter().any(|line| line.contains(expected)), "{tampering}\n{expected}\n{lines:#?}");
    });
    // Only a few at a time, because each has a separate database.
    let mut checks = checks.into_iter();
    loop {
        let some: Vec<_> = checks.by_ref().take(3).collect();
        if some.is_empty() {
            return;
        }
        futures::future::join_all(some).await;
    }
}

/// The owner of the database rewrites an event and the whole tree. Only the earlier signatures reveal it, and the
/// range that contains it.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_rewritten_with_its_tree_contradicts_its_checkpoints() {
    let shop = Shop::open().await;
    let first = tree(&shop, Signing::default());
    shop.orders(shop.customer.account_id, 100).await;
    let old = first.grow().await;
    shop.orders(shop.customer.account_id, 100).await;
    let new = first.grow().await;
    shop.tamper(&format!("UPDATE events SET data = (data::text || ' ')::json WHERE position = {}", old + 3)).await;
    // The forger's own signer makes the tree, whose tiles replace the old ones.
    let checkpoints: Vec<(i64, String, Vec<u8>, String)> =
        sqlx::query_as("SELECT size, origin, root, note FROM log_checkpoints").fetch_all(shop.pool()).await.unwrap();
    let forge = "ALTER TABLE log_tiles DISABLE TRIGGER ALL; ALTER TABLE log_checkpoints DISABLE TRIGGER ALL;
        DELETE FROM log_tiles; DELETE FROM log_edges; DELETE FROM log_checkpoints;
        UPDATE projection_checkpoints SET position = 0 WHERE projection = 'transparency'";
    sqlx::raw_sql(forge).execute(&mut shop.admin().await).await.unwrap();
    assert_eq!(tree(&shop, Signing::default()).grow().await, new);
    sqlx::raw_sql("DELETE FROM log_checkpoints").execute(&mut shop.admin().await).await.unwrap();
    for (size, origin, root, note) in checkpoints {
        sqlx::query("INSERT INTO log_checkpoints (shard_id, size, origin, root, note) VALUES (1, $1, $2, $3, $4)")
            .bind(size)
            .bind(origin)
            .bind(root)
            .bind(note)
            .execute(shop.pool())
            .await
            .unwrap();
    }
    let report = verify(&shop.options, |_| {}).await.unwrap();
    let lines: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
    let expected = format!(
        "shard 1, position {new}: the checkpoint that was signed here covers other events: one of the positions {} to {new} was changed",
        old + 1
    );
    assert_eq!(lines, [expected]);
}
