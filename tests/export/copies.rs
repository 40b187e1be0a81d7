//! Copies of the tiles: the checkpoints that they are bound to, and the parts that are not checked.

use std::collections::BTreeSet;

use chrono::Utc;
use rewards_ledger::export::tiles;
use rewards_ledger::ledger::connect;
use rewards_ledger::transparency::cosignature;
use rewards_ledger::transparency::signer::Signer;
use serde_json::Value;
use transparency_log::checkpoint::{Checkpoint, Trust};
use transparency_log::merkle::empty_root;
use transparency_log::note::Note;
use transparency_log::quorum::Quorum;

use super::kept::{Kept, kept};
use super::offline::TAMPERINGS;
use super::succeeds;
use crate::support::ledger::{LOG_KEY, SHARD};
use crate::support::program::{program, run};
use crate::support::tree::{key, witness, witness_name, witness_secret};

/// Lets a witness cosign the newest checkpoint.
async fn cosign(kept: &Kept, number: u8) {
    let newest = kept.tree.newest().await;
    let text = Note::parse(&newest.note).unwrap().text().to_owned();
    let time = u64::try_from(Utc::now().timestamp()).unwrap();
    let signature = witness_secret(number).cosign(&witness_name(number), &text, time).unwrap();
    let note = Note::new(text, vec![signature]).unwrap().to_string();
    cosignature::accept(kept.shop.pool(), SHARD, &[witness(number)], &note, Utc::now()).await.unwrap();
}

/// Returns the sizes of a copy's older checkpoints, from their file names.
fn sizes(kept: &Kept, copy: &str) -> BTreeSet<u64> {
    let files = std::fs::read_dir(kept.path(copy).join("checkpoints")).unwrap();
    files.map(|file| file.unwrap().file_name().into_string().unwrap().parse().unwrap()).collect()
}

/// The log grows faster than witnesses sign. An export that requires witnesses is bound to the newest checkpoint that
/// they have cosigned.
#[tokio::test(flavor = "multi_thread")]
async fn exports_and_tiles_are_bound_to_what_a_quorum_has_cosigned() {
    let kept = kept().await;
    cosign(&kept, 1).await;
    cosign(&kept, 2).await;
    kept.shop.order(1).await;
    let newest = kept.tree.grow().await;
    let cosigned = kept.sizes[1];
    assert!(newest > cosigned);
    let (first, second) = (witness(1).to_string(), witness(2).to_string());
    let by_both = ["--witness", &first, "--witness", &second, "--quorum", "2"];
    let (plain, bound, copy) = (kept.path("plain.ndjson"), kept.path("bound.ndjson"), kept.path("copy"));
    for (out, more) in [
        (&plain, vec!["--tiles", copy.to_str().unwrap()]),
        (&bound, [&by_both[..], &["--tiles", copy.to_str().unwrap()]].concat()),
    ] {
        let arguments = [&["events", "export", "--out", out.to_str().unwrap()], &more[..]].concat();
        succeeds(kept.directory.path(), &kept.shop.options, &arguments).await;
    }
    let said = kept.said(&[&["--export", "plain.ndjson"], &by_both[..]].concat()).await;
    assert!(said.contains("trusted witnesses; it has 0"), "{said}");
    let allowed = &["--allow-unproven"];
    for of in [
        &["--tiles", "copy"][..],
        &[&["--export", "bound.ndjson"][..], allowed].concat(),
        &[&["--export", "bound.ndjson", "--tiles", "copy"][..], allowed].concat(),
    ] {
        let (is_well, report) = kept.verify(&[of, &by_both[..]].concat()).await;
        assert!(is_well && report["proven"].as_u64() == Some(cosigned), "{of:?}: {report:#}");
    }
    // The copy was first made for the newest checkpoint. That checkpoint stays, and the report says which one the
    // copy has now.
    assert_eq!(sizes(&kept, "copy"), BTreeSet::from([cosigned, newest]));
    let (_, report) = kept.verify(&[&["--tiles", "copy"], &by_both[..]].concat()).await;
    assert_eq!(
        report["unchecked"][0].as_str().unwrap(),
        format!("copy/checkpoints/{newest}: the copy's own checkpoint covers only {cosigned} events")
    );
    // Without a quorum, the verifier expects the newest checkpoint and misses the last event.
    let (is_well, report) = kept.verify(&["--tiles", "copy"]).await;
    assert!(!is_well && report["first_bad"] == serde_json::json!([cosigned + 1, cosigned + 1]), "{report:#}");
    // Only witnesses named on the command line count, not others that have cosigned.
    let (none, third) = (kept.path("none"), witness(3).to_string());
    for (arguments, status, problem) in [
        (&["--quorum", "1", "--witness", &third][..], 1, "has the cosignatures of 1 witnesses"),
        (&["--quorum", "1"], 2, "--quorum is 1, but --witness gives 0"),
        (&["--quorum", "2", "--witness", &first, "--witness", &first], 2, "--quorum is 2, but --witness gives 1"),
    ] {
        for to in ["--out", "--tiles"] {
            let command = [&["events", "export", to, none.to_str().unwrap()], arguments].concat();
            let done = run(&mut super::command(kept.directory.path(), &kept.shop.options, &command)).await;
            assert_eq!(done.status.code(), Some(status), "{command:?}");
            let refusal = String::from_utf8_lossy(&done.stderr);
            assert!(refusal.contains(problem) && !none.exists(), "{command:?}: {refusal}");
        }
    }
}

/// Entry bundles are available to auditors only. A copy may lack all of them, which is reported, but not some of
/// them.
#[tokio::test(flavor = "multi_thread")]
async fn missing_bundles_are_named_and_a_copy_without_any_is_reported() {
    let kept = kept().await;
    kept.shop.orders(kept.shop.customer.account_id, 150).await;
    let size = kept.tree.grow().await;
    tiles::copy(kept.shop.pool(), SHARD, &kept.path("tiles"), &Quorum::default(), |_| {}).await.unwrap();
    let (is_well, report) = kept.verify(&["--tiles", "tiles"]).await;
    // Files of an earlier state of the copy are not read.
    let old = kept.sizes[1];
    let stale = |place| format!("tiles/tile/{place}/000.p/{old}: it is not a part of the tree of {size} events");
    assert!(is_well && report["unchecked"] == serde_json::json!([stale("entries"), stale("0")]), "{report:#}");
    for place in ["0", "entries"] {
        std::fs::remove_file(kept.path(&format!("tiles/tile/{place}/000.p/{old}"))).unwrap();
    }
    let (is_well, report) = kept.verify(&["--tiles", "tiles"]).await;
    assert!(is_well && report["unchecked"] == serde_json::json!([]), "{report:#}");
    // Nothing may be added after the last entry.
    let last = kept.path(&format!("tiles/tile/entries/001.p/{}", size % 256));
    let intact = std::fs::read(&last).unwrap();
    std::fs::write(&last, [&intact[..], b"\x00\x04fake"].concat()).unwrap();
    let said = kept.said(&["--tiles", "tiles"]).await;
    assert!(said.contains("the bundle has extra bytes at its end"), "{said}");
    std::fs::write(&last, intact).unwrap();
    let hashes = kept.path(&format!("tiles/tile/0/001.p/{}", size % 256));
    let intact = std::fs::read(&hashes).unwrap();
    std::fs::write(&hashes, [&intact[..], &[7; 32]].concat()).unwrap();
    let said = kept.said(&["--tiles", "tiles"]).await;
    assert!(said.contains("does not have the length that its name states"), "{said}");
    std::fs::write(&hashes, intact).unwrap();
    std::fs::remove_file(kept.path("tiles/tile/entries/000")).unwrap();
    let (is_well, report) = kept.verify(&["--tiles", "tiles"]).await;
    assert!(!is_well && report["found"] == 1, "{report:#}");
    let said = kept.said(&["--tiles", "tiles"]).await;
    assert!(said.contains("tile/entries/000: the bundle is missing"), "{said}");
    std::fs::remove_dir_all(kept.path("tiles/tile/entries")).unwrap();
    let (is_well, report) = kept.verify(&["--tiles", "tiles"]).await;
    assert!(is_well && report["proven"].as_u64() == Some(size), "{report:#}");
    let mut command = program(kept.directory.path());
    command.current_dir(kept.directory.path()).args(["verify", "--key", "log.pub", "--tiles", "tiles"]);
    let said = String::from_utf8(run(&mut command).await.stdout).unwrap();
    assert!(said.contains("not checked: the events themselves: the copy has no entry bundles\n"), "{said}");
}

/// A new copy includes older checkpoints as well, and all of them must agree.
#[tokio::test(flavor = "multi_thread")]
async fn older_checkpoints_are_copied_and_compared() {
    let kept = kept().await;
    let mut grown = vec![];
    for orders in [110, 150] {
        kept.shop.orders(kept.shop.customer.account_id, orders).await;
        grown.push(kept.tree.grow().await);
    }
    assert!(kept.sizes[1] < 256 && (256..512).contains(&grown[0]) && grown[1] >= 512, "{grown:?}");
    tiles::copy(kept.shop.pool(), SHARD, &kept.path("fresh"), &Quorum::default(), |_| {}).await.unwrap();
    assert_eq!(sizes(&kept, "fresh"), BTreeSet::from([grown[0], grown[1]]), "one for each full tile");
    let (is_well, report) = kept.verify(&["--tiles", "fresh"]).await;
    let compared: Vec<(u64, &str)> = report["checkpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["size"].as_u64().unwrap(), c["outcome"].as_str().unwrap()))
        .collect();
    assert!(is_well, "{report:#}");
    assert_eq!(compared, [(grown[0], "agrees"), (grown[1], "agrees")]);

    // A checkpoint by an unknown key is reported as unchecked. One that differs is found.
    let opened = kept.tree.opened().await.checkpoint;
    let note = |seed: &str, size| {
        let checkpoint = Checkpoint { size, root: empty_root(), ..opened.clone() };
        Signer::from_text(seed).unwrap().sign(&checkpoint).unwrap().to_string()
    };
    let place = kept.path("fresh/checkpoints/300");
    std::fs::write(&place, note("bmV3IGtleSBuZXcga2V5IG5ldyBrZXkgbmV3IGtleS4=", 300)).unwrap();
    let (is_well, report) = kept.verify(&["--tiles", "fresh"]).await;
    assert!(is_well && report["unchecked"][0] == "fresh/checkpoints/300: none of the given keys has signed it", "{report:#}");
    std::fs::write(&place, note(LOG_KEY, 300)).unwrap();
    kept.export("all.ndjson").await;
    for of in [&["--tiles", "fresh"][..], &["--export", "all.ndjson", "--tiles", "fresh"]] {
        let (is_well, report) = kept.verify(of).await;
        let differing: Vec<&Value> =
            report["checkpoints"].as_array().unwrap().iter().filter(|c| c["outcome"] == "differs").collect();
        assert!(!is_well && differing.len() == 1 && differing[0]["size"] == 300, "{of:?}: {report:#}");
    }
}

/// A superuser changed the database, and the tiles were then copied to an empty directory.
#[tokio::test(flavor = "multi_thread")]
async fn tiles_copied_after_the_database_was_changed_tell_of_it() {
    let kept = kept().await;
    let position = kept.sizes[0] + 3;
    kept.shop.tamper(&format!("UPDATE events SET data = replace(data::text, ':', ': ')::json WHERE position = {position}")).await;
    tiles::copy(kept.shop.pool(), SHARD, &kept.path("fresh"), &Quorum::default(), |_| {}).await.unwrap();
    let (is_well, report) = kept.verify(&["--tiles", "fresh"]).await;
    assert!(!is_well && report["first_bad"] == serde_json::json!([position, position]), "{report:#}");

    // Make the leaf hash in the tree fit. The tree then differs from the signed one.
    let changed: Vec<u8> = {
        let events = rewards_ledger::ledger::reader::stored_at(kept.shop.pool(), SHARD, &[i64::try_from(position).unwrap()])
            .await
            .unwrap();
        transparency_log::merkle::leaf_hash(&events[0].leaf().to_bytes()).to_vec()
    };
    let fit = "UPDATE log_edges SET hashes = overlay(hashes PLACING $1 FROM $2) WHERE level = 0";
    let at = i32::try_from(32 * (position - 1) + 1).unwrap();
    sqlx::query(fit).bind(changed).bind(at).execute(&mut kept.shop.admin().await).await.unwrap();
    tiles::copy(kept.shop.pool(), SHARD, &kept.path("fitted"), &Quorum::default(), |_| {}).await.unwrap();
    let (is_well, report) = kept.verify(&["--tiles", "fitted", "--checkpoint", "first.note"]).await;
    assert!(!is_well && report["first_bad"] == serde_json::json!([kept.sizes[0] + 1, kept.sizes[1]]), "{report:#}");
    // An earlier copy identifies the changed event.
    kept.export("changed.ndjson").await;
    let (is_well, report) = kept.verify(&["--export", "changed.ndjson", "--tiles", "tiles"]).await;
    assert!(!is_well && report["first_bad"] == serde_json::json!([position, position]), "{report:#}");
    assert!(Trust::in_keys(vec![key()]).open(&std::fs::read_to_string(kept.path("fitted/checkpoint")).unwrap()).is_ok());
}

/// Events were removed, inserted or moved before the copy was made.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_changed_log_reveals_the_first_bad_or_missing_position() {
    for (tampering, position, _, shows) in TAMPERINGS {
        let kept = kept().await;
        kept.shop.tamper(tampering).await;
        let fresh = kept.path("fresh");
        let copy = async || tiles::copy(kept.shop.pool(), SHARD, &fresh, &Quorum::default(), |_| {}).await;
        if shows {
            let refused = copy().await.unwrap_err().to_string();
            assert_eq!(refused, format!("position {position} of shard 1 is missing from the database: run `verify`"));
            assert!(!fresh.join("checkpoint").exists(), "an incomplete copy has no checkpoint");
            continue;
        }
        // After a hole was closed, the log soon has as many events as the tree again.
        kept.shop.order(1).await;
        let size = copy().await.unwrap();
        let (is_well, report) = kept.verify(&["--tiles", "fresh"]).await;
        if u64::try_from(position).unwrap() > size {
            assert!(is_well, "its checkpoint does not reach that far: {report:#}");
        } else {
            assert!(!is_well && report["first_bad"] == serde_json::json!([position, position]), "{tampering}: {report:#}");
        }
    }
}

/// All events of a tile, or of the log, are deleted. The copy must fail, instead of being one without entries.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_fails_when_the_events_of_a_bundle_are_gone() {
    let kept = kept().await;
    kept.shop.orders(kept.shop.customer.account_id, 150).await;
    assert!(kept.tree.grow().await > 256);
    for last in [256, 0] {
        kept.shop.tamper(&format!("DELETE FROM events WHERE position > {last}; UPDATE log_head SET position = {last}")).await;
        let refused = tiles::copy(kept.shop.pool(), SHARD, &kept.path("fresh"), &Quorum::default(), |_| {}).await;
        let missing = format!("position {} of shard 1 is missing from the database", last + 1);
        assert!(refused.unwrap_err().to_string().starts_with(&missing), "{last}");
        assert!(!kept.path("fresh/checkpoint").exists());
    }
}

/// The end of the log and its checkpoints were cut off. An existing longer copy is not continued, and reveals the
/// cut.
#[tokio::test(flavor = "multi_thread")]
async fn a_longer_copy_is_not_continued_and_reveals_the_cut() {
    let kept = kept().await;
    let [first, second] = kept.sizes;
    let cut = format!(
        "DELETE FROM events WHERE position > {first}; UPDATE log_head SET position = {first};
         ALTER TABLE log_checkpoints DISABLE TRIGGER ALL; DELETE FROM log_checkpoints WHERE size > {first}"
    );
    kept.shop.tamper(&cut).await;
    let refused = tiles::copy(kept.shop.pool(), SHARD, &kept.path("tiles"), &Quorum::default(), |_| {}).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains(&format!("has a checkpoint of {second} events, but the log's newest one has {first}")), "{refused}");
    let (is_well, report) = kept.verify(&["--tiles", "tiles"]).await;
    assert!(is_well && report["proven"].as_u64() == Some(second), "the kept copy is unchanged: {report:#}");
    // If someone copies the shorter log over it, the larger checkpoint is still beside it.
    tiles::copy(kept.shop.pool(), SHARD, &kept.path("cut"), &Quorum::default(), |_| {}).await.unwrap();
    assert!(kept.verify(&["--tiles", "cut"]).await.0);
    kept.export("cut.ndjson").await;
    let place = format!("checkpoints/{second}");
    std::fs::copy(kept.path("tiles").join(&place), kept.path("cut").join(&place)).unwrap();
    for of in [&["--tiles", "cut"][..], &["--export", "cut.ndjson", "--tiles", "cut"]] {
        let (is_well, report) = kept.verify(of).await;
        assert!(!is_well && report["first_bad"] == serde_json::json!([first + 1, first + 1]), "{of:?}: {report:#}");
    }
    let said = kept.said(&["--tiles", "cut"]).await;
    assert!(said.contains(&format!("positions {} to {second} are missing", first + 1)), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_tiles_is_verified_by_itself() {
    let kept = kept().await;
    kept.shop.orders(kept.shop.customer.account_id, 300).await;
    let size = kept.tree.grow().await;
    succeeds(kept.directory.path(), &kept.shop.options, &["events", "export", "--tiles", kept.path("tiles").to_str().unwrap()])
        .await;
    let (is_well, report) = kept.verify(&["--tiles", "tiles", "--checkpoint", "first.note", "--checkpoint", "second.note"]).await;
    assert!(is_well && report["proven"].as_u64() == Some(size), "{report:#}");
    assert!(kept.path("tiles/tile/0/001").exists() && kept.path("tiles/tile/entries/000").exists());
    assert!(kept.path(&format!("tiles/checkpoints/{}", kept.sizes[1])).exists());

    let flipped = |name: &str, at: usize| {
        let path = kept.path("tiles").join(name);
        let intact = std::fs::read(&path).unwrap();
        let mut bytes = intact.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        (path, intact)
    };
    // The last byte of the seventh entry, which comes after six length-prefixed entries.
    let bundle = std::fs::read(kept.path("tiles/tile/entries/000")).unwrap();
    let mut at = 0;
    for _ in 0..7 {
        at += 2 + usize::from(u16::from_be_bytes([bundle[at], bundle[at + 1]]));
    }
    for (name, at, expected) in [
        ("tile/entries/000", at - 1, "the first bad position is 7\n".to_owned()),
        ("tile/0/000", 32 * 9, "the first bad position is one of 1 to 10\n".to_owned()),
        ("tile/0/001", 0, format!("the first bad position is one of {} to ", kept.sizes[1] + 1)),
        ("tile/1/000.p/2", 32, "tile/1/000.p/2: the tile does not match those below it".to_owned()),
        ("checkpoint", 0, "checkpoint: ".to_owned()),
    ] {
        let (path, intact) = flipped(name, at);
        let said = kept.said(&["--tiles", "tiles", "--checkpoint", "first.note", "--checkpoint", "second.note"]).await;
        assert!(said.contains(&expected), "{name}: {said}");
        std::fs::write(path, intact).unwrap();
    }
    std::fs::remove_file(kept.path("tiles/tile/0/001")).unwrap();
    let said = kept.said(&["--tiles", "tiles"]).await;
    assert!(said.contains("tile/0/001: the tile is missing"), "{said}");
    // A copy is not extended from a database that was changed.
    sqlx::raw_sql("ALTER TABLE log_tiles DISABLE TRIGGER ALL").execute(&mut kept.shop.admin().await).await.unwrap();
    let sql = "UPDATE log_tiles SET hashes = set_byte(hashes, 5, (get_byte(hashes, 5) + 1) % 256) WHERE level = 0 AND index = 0";
    sqlx::raw_sql(sql).execute(&mut kept.shop.admin().await).await.unwrap();
    let copied = tiles::copy(&connect::pool(&kept.shop.options), SHARD, &kept.path("tiles"), &Quorum::default(), |_| {}).await;
    assert!(copied.unwrap_err().to_string().contains("tile/0/000 differs from the database"));
}
