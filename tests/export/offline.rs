//! A superuser changed the database, bypassing the triggers. An export of it, the log's public key and previously
//! kept files are enough to detect that.

use rewards_ledger::export::{import, tiles};
use rewards_ledger::transparency::signer::Signer;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use transparency_log::checkpoint::Checkpoint;
use transparency_log::merkle::empty_root;
use transparency_log::quorum::Quorum;

use super::kept::{Kept, export, kept, with};
use super::succeeds;
use crate::support::ledger::{LOG_KEY, SHARD};
use crate::support::postgres::{TestDatabase, database};
use crate::support::program::{program, run};
use crate::support::shop::Shop;
use crate::support::tree::{Signing, Tree, key};

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_log_matches_its_signatures() {
    let kept = kept().await;
    let [first, second] = kept.sizes;
    for more in
        [&[][..], &["--tiles", "tiles"], &["--earlier", "first.ndjson"], &["--tiles", "tiles", "--earlier", "kept.ndjson"]]
    {
        let (is_well, report) = kept.verify(&with("kept.ndjson", more)).await;
        assert!(is_well, "{more:?}: {report:#}");
        assert_eq!((report["proven"].as_u64(), report["events"].as_u64()), (Some(second), Some(second)));
        assert_eq!(report["root"], hex::encode(kept.tree.newest().await.root));
        assert!(report["first_bad"].is_null());
    }
    // The manifest contains a checkpoint of its own.
    assert!(kept.verify(&["--export", "kept.ndjson"]).await.0);
    assert!(kept.verify(&["--export", "first.ndjson", "--checkpoint", "first.note"]).await.0);
    let (_, report) = kept.verify(&["--tiles", "tiles", "--checkpoint", "first.note"]).await;
    assert_eq!(report["checkpoints"].as_array().unwrap().len(), 2, "{report:#}");
    assert_eq!((report["proven"].as_u64(), report["found"].as_u64()), (Some(second), Some(0)));
    // No checkpoint proves the events after the last one. That is a failure unless it is allowed.
    kept.shop.order(1).await;
    kept.export("grown.ndjson").await;
    for (allowed, expected) in [(&[][..], false), (&["--allow-unproven"], true)] {
        let (is_well, report) = kept.verify(&with("grown.ndjson", &[&["--tiles", "tiles"], allowed].concat())).await;
        assert_eq!((is_well, &report["found"]), (expected, &json!(0)), "{report:#}");
        assert!(report["proven"].as_u64() == Some(second) && report["events"].as_u64() == Some(second + 2), "{report:#}");
        assert_eq!(report["unproven"], json!([second + 1, second + 2]));
    }
    let said = kept.said(&with("grown.ndjson", &[])).await;
    let (unchecked, verdict) = (
        format!("not checked: positions {} to {}: no given checkpoint covers them\n", second + 1, second + 2),
        format!("nothing differs, but positions {} to {} are not proven\n", second + 1, second + 2),
    );
    assert!(said.contains(&unchecked) && said.ends_with(&verdict), "{said}");
    // Once the log is signed, a new export is bound to that checkpoint.
    let size = kept.tree.grow().await;
    kept.export("signed.ndjson").await;
    let (is_well, report) = kept.verify(&["--export", "signed.ndjson"]).await;
    assert!(is_well && report["proven"].as_u64() == Some(size) && size == second + 2, "{report:#}");
    assert_eq!((&report["unproven"], &report["unchecked"]), (&Value::Null, &json!([])));
    // An older export does not reach the second checkpoint.
    let said = kept.said(&with("first.ndjson", &[])).await;
    assert!(said.contains(&format!("positions {} to {second} are missing", first + 1)), "{said}");
    assert!(said.contains(&format!("the first bad position is {}\n", first + 1)), "{said}");
}

/// Changes to the database: the SQL, the position, the text that the report must contain, and true if the position is
/// visible without other references.
pub(super) const TAMPERINGS: [(&str, i64, &str, bool); 12] = [
    ("UPDATE events SET data = replace(data::text, ':', ': ')::json WHERE position = 10", 10, "contradicts the checkpoint", false),
    ("UPDATE events SET data = replace(data::text, 'Acme', 'Acne')::json WHERE position = 1", 1, "contradicts", false),
    ("UPDATE events SET metadata = replace(metadata::text, ':', ': ')::json WHERE position = 60", 60, "contradicts", false),
    ("UPDATE events SET recorded_at = recorded_at + interval '1 ms' WHERE position = 50", 50, "contradicts", false),
    ("UPDATE events SET event_id = gen_random_uuid() WHERE position = 70", 70, "contradicts", false),
    ("DELETE FROM events WHERE position = 40", 40, "position 40 is missing", true),
    // An event is removed and the hole is closed.
    (
        "DELETE FROM events WHERE position = 41; UPDATE events SET position = position + 1000000 WHERE position > 41;
         UPDATE events SET position = position - 1000001 WHERE position > 1000000; UPDATE log_head SET position = position - 1",
        41,
        "are missing",
        false,
    ),
    (
        "UPDATE events SET position = 1000000 WHERE position = 11; UPDATE events SET position = 11 WHERE position = 13;
         UPDATE events SET position = 13 WHERE position = 1000000",
        11,
        "contradicts",
        false,
    ),
    (
        "UPDATE events SET position = position + 1000000 WHERE position >= 12; UPDATE events SET position = position - 999999 WHERE position > 1000000;
         INSERT INTO events SELECT shard_id, 12, gen_random_uuid(), 'category', 999999, 1, 'CategoryAdded', 1, '{\"name\":\"x\",\"parent_id\":null}', metadata, recorded_at FROM events WHERE position = 11;
         UPDATE log_head SET position = position + 1",
        12,
        "contradicts",
        false,
    ),
    ("DELETE FROM events WHERE position > 80; UPDATE log_head SET position = 80", 81, "positions 81 to", true),
    ("DELETE FROM events WHERE position > 20; UPDATE log_head SET position = 20", 21, "positions 21 to", true),
    // The checkpoints that cover the event are deleted as well.
    (
        "UPDATE events SET data = replace(data::text, ':', ': ')::json WHERE position = 70;
         ALTER TABLE log_checkpoints DISABLE TRIGGER ALL; DELETE FROM log_checkpoints WHERE size > 60",
        70,
        "contradicts",
        false,
    ),
];

/// Returns the range of positions that contains the fault. If nothing differs, returns the range that nothing proves.
fn suspected(report: &Value) -> [i64; 2] {
    let field = if report["first_bad"].is_null() { "unproven" } else { "first_bad" };
    serde_json::from_value(report[field].clone()).unwrap_or_else(|_| panic!("{report:#}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_detected_and_the_first_bad_position_is_named() {
    for (tampering, position, expected, shows) in TAMPERINGS {
        let kept = kept().await;
        kept.shop.tamper(tampering).await;
        kept.export("now.ndjson").await;
        // The public key alone is enough, because the manifest contains the newest checkpoint. Without a manifest,
        // the published checkpoint shows that something differs.
        std::fs::copy(kept.path("now.ndjson"), kept.path("bare.ndjson")).unwrap();
        for arguments in [&["--export", "now.ndjson"][..], &["--export", "bare.ndjson", "--checkpoint", "second.note"]] {
            let (is_well, report) = kept.verify(arguments).await;
            assert!(!is_well, "{tampering}: {arguments:?}");
            let range = suspected(&report);
            assert!(range[0] <= position && position <= range[1], "{tampering}: {arguments:?}: {report:#}");
        }
        // Checkpoints alone narrow the fault to a range.
        let (is_well, report) = kept.verify(&with("now.ndjson", &[])).await;
        let lines = report["differences"].to_string();
        assert!(!is_well, "{tampering}");
        let range: [i64; 2] = serde_json::from_value(report["first_bad"].clone()).unwrap();
        assert!(range[0] <= position && position <= range[1], "{tampering}: {report:#}");
        let before = report["proven"].as_i64().unwrap();
        assert!(before < position && (shows || range[1] <= kept.sizes[1] as i64), "{report:#}");
        let said = kept.said(&with("now.ndjson", &[])).await;
        assert!(said.contains(expected), "{tampering}: {said} {lines}");
        // Tiles or an earlier export give the exact position.
        for reference in [["--tiles", "tiles"], ["--earlier", "kept.ndjson"]] {
            let (is_well, report) = kept.verify(&with("now.ndjson", &reference)).await;
            assert!(!is_well);
            assert_eq!(report["first_bad"], json!([position, position]), "{tampering} {reference:?}: {report:#}");
            let said = kept.said(&with("now.ndjson", &reference)).await;
            assert!(said.contains(&format!("the first bad position is {position}\n")), "{said}");
        }
    }
}

/// A checkpoint of an empty log proves nothing. Without another one no event is proven, with or without
/// `--allow-unproven`.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_of_an_empty_log_proves_no_event() {
    let kept = kept().await;
    let empty = Checkpoint { size: 0, root: empty_root(), ..kept.tree.opened().await.checkpoint };
    std::fs::write(kept.path("empty.note"), Signer::from_text(LOG_KEY).unwrap().sign(&empty).unwrap().to_string()).unwrap();
    std::fs::remove_file(kept.path("kept.ndjson.manifest.json")).unwrap();
    for allowed in [&[][..], &["--allow-unproven"]] {
        let arguments = [&["--export", "kept.ndjson", "--checkpoint", "empty.note"], allowed].concat();
        let (is_well, report) = kept.verify(&arguments).await;
        assert!(!is_well && report["found"] == 0, "{report:#}");
        assert_eq!(report["unproven"], json!([1, kept.sizes[1]]));
    }
}

/// A holder of the database and the log's key rebuilds and signs the tree. Earlier signatures remain valid and
/// contradict it.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_rewritten_with_its_tree_contradicts_the_kept_files() {
    let kept = kept().await;
    let [first, second] = kept.sizes;
    let position = first + 5;
    let change = format!("UPDATE events SET data = replace(data::text, ':', ': ')::json WHERE position = {position}");
    kept.shop.tamper(&change).await;
    let forge = "ALTER TABLE log_tiles DISABLE TRIGGER ALL; ALTER TABLE log_checkpoints DISABLE TRIGGER ALL;
        DELETE FROM log_tiles; DELETE FROM log_edges; DELETE FROM log_checkpoints;
        UPDATE projection_checkpoints SET position = 0 WHERE projection = 'transparency'";
    sqlx::raw_sql(forge).execute(&mut kept.shop.admin().await).await.unwrap();
    let forged = Tree::with(&kept.shop.ledger, &kept.shop.options, &kept.shop.metrics, Signing::default());
    assert_eq!(forged.grow().await, second);
    kept.export("forged.ndjson").await;
    // The forged export alone is consistent, because its manifest contains the forged checkpoint.
    assert!(kept.verify(&["--export", "forged.ndjson"]).await.0);
    let (is_well, report) = kept.verify(&with("forged.ndjson", &[])).await;
    assert!(!is_well);
    let outcomes: Vec<&str> = report["checkpoints"].as_array().unwrap().iter().map(|c| c["outcome"].as_str().unwrap()).collect();
    assert_eq!((outcomes[0], outcomes.contains(&"differs"), outcomes.contains(&"agrees")), ("agrees", true, true), "{report:#}");
    let range: [u64; 2] = serde_json::from_value(report["first_bad"].clone()).unwrap();
    assert_eq!(range, [first + 1, second], "{report:#}");
    // The kept leaves give the exact position.
    for reference in [["--earlier", "kept.ndjson"], ["--tiles", "tiles"]] {
        let (is_well, report) = kept.verify(&with("forged.ndjson", &reference)).await;
        assert!(!is_well && report["first_bad"] == json!([position, position]), "{reference:?}: {report:#}");
        assert_eq!(report["proven"].as_u64(), Some(position - 1), "{reference:?}");
        let said = kept.said(&with("forged.ndjson", &reference)).await;
        assert!(said.contains(&format!("the first bad position is {position}\n")), "{said}");
    }
    // The forged tiles, copied to another directory, are consistent as well.
    tiles::copy(kept.shop.pool(), SHARD, &kept.path("elsewhere"), &Quorum::default(), |_| {}).await.unwrap();
    assert!(kept.verify(&["--tiles", "elsewhere"]).await.0);
    let (is_well, report) = kept.verify(&["--tiles", "elsewhere", "--checkpoint", "first.note"]).await;
    assert!(is_well, "the beginning is unchanged: {report:#}");
    let (is_well, report) = kept.verify(&["--tiles", "elsewhere", "--checkpoint", "second.note"]).await;
    assert!(!is_well && report["checkpoints"].to_string().contains("differs"), "{report:#}");
    let range: [u64; 2] = serde_json::from_value(report["first_bad"].clone()).unwrap();
    assert!(range[0] <= position && position <= range[1], "{report:#}");
    // The tiles come from the same forger as the export, so they prove nothing that the export does not.
    let (_, report) = kept.verify(&with("forged.ndjson", &["--tiles", "elsewhere"])).await;
    assert_eq!(report["first_bad"], json!([first + 1, second]), "{report:#}");
    // A copy does not overwrite the kept tiles with forged ones.
    let copied = tiles::copy(kept.shop.pool(), SHARD, &kept.path("tiles"), &Quorum::default(), |_| {}).await;
    assert!(copied.unwrap_err().to_string().contains("differs from the database"));
    // The signer remembers the old tree and refuses.
    kept.shop.order(1).await;
    Tree::refused(kept.tree.projector.step(SHARD).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_older_backup_that_grew_again_contradicts_the_kept_files() {
    let kept = kept().await;
    let [first, second] = kept.sizes;
    let (_database, restored) = restored(&kept).await;
    restored.orders(kept.shop.customer.account_id, 30).await;
    export(&restored, kept.directory.path(), "restored.ndjson").await;
    let (is_well, report) = kept.verify(&with("restored.ndjson", &[])).await;
    assert!(!is_well);
    assert_eq!((report["proven"].as_u64(), &report["first_bad"]), (Some(first), &json!([first + 1, second])), "{report:#}");
    let (_, report) = kept.verify(&with("restored.ndjson", &["--tiles", "tiles"])).await;
    assert_eq!(report["first_bad"], json!([first + 1, first + 1]));
    // The signer remembers more than this database holds, and does not sign it either.
    let remembering = Signing { state_of: Some(kept.tree.clone()), ..Signing::default() };
    let tree = Tree::with(&restored.ledger, &restored.options, &restored.metrics, remembering);
    Tree::refused(tree.projector.step(SHARD).await);
}

/// Restores the log as it was at the first checkpoint.
async fn restored(kept: &Kept) -> (TestDatabase, Shop) {
    let database = database().await;
    let options = database.url.parse().unwrap();
    import(&options, &kept.path("first.ndjson"), |_| {}).await.unwrap();
    let shop = Shop::on(&options, kept.shop.customer).await;
    (database, shop)
}

/// To the signer, an imported log is the same log.
#[tokio::test(flavor = "multi_thread")]
async fn an_imported_log_is_signed_by_a_signer_with_the_same_memory() {
    let kept = kept().await;
    sqlx::raw_sql("UPDATE log_head SET epoch = epoch + 3").execute(&mut kept.shop.admin().await).await.unwrap();
    kept.tree.grow().await;
    kept.export("moved.ndjson").await;
    let database = database().await;
    let options = database.url.parse().unwrap();
    import(&options, &kept.path("moved.ndjson"), |_| {}).await.unwrap();
    let moved = Shop::on(&options, kept.shop.customer).await;
    let remembering = Signing { state_of: Some(kept.tree.clone()), ..Signing::default() };
    let tree = Tree::with(&moved.ledger, &moved.options, &moved.metrics, remembering);
    assert_eq!(tree.grow().await, kept.sizes[1]);
    assert_eq!(tree.newest().await.root, kept.tree.newest().await.root);
    moved.order(1).await;
    assert_eq!(tree.grow().await, kept.sizes[1] + 2);
    export(&moved, kept.directory.path(), "grown.ndjson").await;
    assert!(kept.verify(&with("grown.ndjson", &["--tiles", "tiles"])).await.0);
}

/// To the verifier, a compressed export is the same log.
#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_export_is_verified_as_it_is() {
    let kept = kept().await;
    let packed = async |name: &str| {
        let path = kept.path(name);
        let arguments = ["events", "export", "--zstd", "--out", path.to_str().unwrap()];
        succeeds(kept.directory.path(), &kept.shop.options, &arguments).await;
    };
    packed("kept.ndjson.zst").await;
    for more in [&[][..], &["--tiles", "tiles"], &["--earlier", "first.ndjson"]] {
        let (is_well, report) = kept.verify(&with("kept.ndjson.zst", more)).await;
        assert!(is_well && report["proven"].as_u64() == Some(kept.sizes[1]), "{more:?}: {report:#}");
    }
    kept.shop.tamper("UPDATE events SET data = replace(data::text, ':', ': ')::json WHERE position = 10").await;
    packed("now.ndjson.zst").await;
    assert!(!kept.verify(&["--export", "now.ndjson.zst"]).await.0);
    for reference in [["--tiles", "tiles"], ["--earlier", "kept.ndjson.zst"]] {
        let (is_well, report) = kept.verify(&with("now.ndjson.zst", &reference)).await;
        assert!(!is_well && report["first_bad"] == json!([10, 10]), "{reference:?}: {report:#}");
    }
}

/// A file that was edited later, checked with nothing but the key. It contradicts its manifest. If the manifest was
/// edited to match, the file contradicts the signature.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_was_edited_contradicts_itself() {
    let kept = kept().await;
    let text = std::fs::read_to_string(kept.path("kept.ndjson")).unwrap();
    let manifest: Value = serde_json::from_slice(&std::fs::read(kept.path("kept.ndjson.manifest.json")).unwrap()).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let changed = lines[9].replacen("\"recorded_at\":\"2", "\"recorded_at\":\"3", 1);
    assert_ne!(changed, lines[9]);
    for (edited, expected) in [
        ([&lines[..9], &[changed.as_str()], &lines[10..]].concat().concat(), "contradicts the checkpoint"),
        ([&lines[..9], &lines[10..]].concat().concat(), "position 10 is missing"),
        ([&lines[..9], &[lines[10], lines[9]], &lines[11..]].concat().concat(), "position 10 is missing"),
        (lines[..lines.len() - 1].concat(), "are missing"),
    ] {
        std::fs::write(kept.path("edited.ndjson"), &edited).unwrap();
        let fits = json!({"bytes": edited.len(), "sha256": hex::encode(Sha256::digest(&edited))});
        for fit in [json!({}), fits] {
            let mut manifest = manifest.clone();
            manifest.as_object_mut().unwrap().extend(fit.as_object().unwrap().clone());
            std::fs::write(kept.path("edited.ndjson.manifest.json"), manifest.to_string()).unwrap();
            let said = kept.said(&["--export", "edited.ndjson"]).await;
            let is_described = !fit.as_object().unwrap().is_empty();
            assert!(said.contains(expected) && said.contains("it does not match the export") != is_described, "{said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsigned_data_proves_nothing() {
    let kept = kept().await;
    std::fs::remove_file(kept.path("kept.ndjson.manifest.json")).unwrap();
    let said = kept.said(&["--export", "kept.ndjson"]).await;
    assert!(said.contains("there is no signed checkpoint to compare with"), "{said}");
    let text = std::fs::read_to_string(kept.path("second.note")).unwrap();
    let forged = text.replacen(&kept.sizes[1].to_string(), &(kept.sizes[1] + 1).to_string(), 1);
    std::fs::write(kept.path("forged.note"), forged).unwrap();
    let said = kept.said(&["--export", "kept.ndjson", "--checkpoint", "forged.note"]).await;
    assert!(said.contains("forged.note: "), "{said}");
    // Another key, and witnesses that have not cosigned.
    let other = crate::support::tree::key_of("bmV3IGtleSBuZXcga2V5IG5ldyBrZXkgbmV3IGtleS4=");
    std::fs::write(kept.path("log.pub"), other.to_string()).unwrap();
    let said = kept.said(&with("kept.ndjson", &[])).await;
    assert!(said.contains("second.note: ") && said.contains("first.note: "), "{said}");
    std::fs::write(kept.path("log.pub"), key().to_string()).unwrap();
    let witness = crate::support::tree::witness(1).to_string();
    let said = kept.said(&with("kept.ndjson", &["--witness", &witness, "--quorum", "1"])).await;
    assert!(said.contains("the checkpoint needs cosignatures of 1 trusted witnesses; it has 0"), "{said}");
    let said = kept.said(&with("nowhere.ndjson", &[])).await;
    assert!(said.contains("nowhere.ndjson"), "{said}");
    // The key and something to verify are both required. An argument for the proof that cannot be used is an error.
    for arguments in [
        &["--export", "kept.ndjson"][..],
        &["--key", "log.pub"],
        &["--key", "log.pub", "--checkpoint", "second.note"],
        &["--checkpoint", "second.note"],
        &["--witness", &witness],
        &["--quorum", "1"],
        &["--allow-unproven"],
    ] {
        let mut command = program(kept.directory.path());
        command.current_dir(kept.directory.path()).arg("verify").args(arguments);
        assert_eq!(run(&mut command).await.status.code(), Some(2), "{arguments:?}");
    }
}
