use std::io::Write;
use std::path::Path;

use rewards_ledger::export::{ExportFile, Manifest, line};
use rewards_ledger::ledger::FIRST_SHARD;
use rewards_ledger::ledger::reader::{self, Stored};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{command, fails, succeeds, whole};
use crate::support::program::run;
use crate::support::shop::Shop;

fn events(bytes: &[u8]) -> Vec<Stored> {
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(|text| line::read(text).unwrap()).collect()
}

async fn log(shop: &Shop) -> Vec<Stored> {
    reader::stored_after(shop.pool(), FIRST_SHARD, 0, 10_000).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_contains_every_event_as_stored_and_its_manifest_matches() {
    let (directory, shop) = (tempfile::tempdir().unwrap(), Shop::open().await);
    shop.history().await;
    let log = log(&shop).await;
    for (name, compressed) in [("events.ndjson", false), ("events.ndjson.zst", true)] {
        let path = directory.path().join(name);
        let out = path.to_str().unwrap();
        let mut arguments = vec!["events", "export", "--json", "--out", out];
        arguments.extend(compressed.then_some("--zstd"));
        let said: Manifest = serde_json::from_slice(&succeeds(directory.path(), &shop.options, &arguments).await).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let text = if compressed { zstd::stream::decode_all(&bytes[..]).unwrap() } else { bytes.clone() };
        assert_eq!(events(&text), log);
        // Any JSON tool can read the file.
        for (text, stored) in std::str::from_utf8(&text).unwrap().lines().zip(&log) {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(value["position"], stored.position);
            assert_eq!(value["data"], serde_json::from_str::<Value>(&stored.data).unwrap());
        }
        let manifest = Manifest::of(&path).unwrap().unwrap();
        assert_eq!(manifest, said);
        assert!(manifest.describes(&path).unwrap());
        assert_eq!(manifest.sha256, hex::encode(Sha256::digest(&bytes)));
        assert_eq!((manifest.events as usize, manifest.first, manifest.last), (log.len(), Some(1), Some(manifest.head)));
        assert_eq!(manifest.compression.as_deref(), compressed.then_some("zstd"));
        let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().contains("partial")), "{left:?}");
        let again = fails(directory.path(), &shop.options, &arguments).await;
        assert!(again.contains("already exists"), "{again}");
    }
    let all = succeeds(directory.path(), &shop.options, &["events", "export"]).await;
    assert_eq!(events(&all), log);
    let packed = succeeds(directory.path(), &shop.options, &["events", "export", "--zstd"]).await;
    assert_eq!(zstd::stream::decode_all(&packed[..]).unwrap(), all);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_export_contains_exactly_the_selection() {
    let (directory, shop) = (tempfile::tempdir().unwrap(), Shop::open().await);
    shop.history().await;
    let log = log(&shop).await;
    let (first, last) = (log[0].recorded_at, log[log.len() - 1].recorded_at);
    let middle = log[log.len() / 2].recorded_at;
    let account = |stored: &Stored| serde_json::from_str::<Value>(&stored.metadata).unwrap()["account_id"].as_i64();
    type Wanted<'a> = Box<dyn Fn(&Stored) -> bool + 'a>;
    let (since, until, end) = (middle.to_rfc3339(), middle.to_rfc3339(), last.to_rfc3339());
    let head = log[log.len() - 1].position;
    let to = (head - 1).to_string();
    let cases: Vec<(Vec<&str>, Wanted<'_>)> = vec![
        (vec!["--from", "7", "--to", "11"], Box::new(|s| (7..=11).contains(&s.position))),
        (vec!["--from", "1000000"], Box::new(|_| false)),
        (vec!["--since", &since], Box::new(|s| s.recorded_at >= middle)),
        (vec!["--until", &until], Box::new(|s| s.recorded_at < middle)),
        (vec!["--account", "1"], Box::new(|s| account(s) == Some(1))),
        (vec!["--account", "2"], Box::new(|s| account(s) == Some(2))),
        (vec!["--stream", "order/1"], Box::new(|s| s.stream_type == "order" && s.stream_id == 1)),
        (
            vec!["--stream", "order/1", "--type", "OrderDelivered"],
            Box::new(|s| s.event_type == "OrderDelivered" && s.stream_id == 1),
        ),
        (vec!["--stream", "order/1", "--account", "2"], Box::new(|_| false)),
        (vec!["--stream", "order/1", "--to", "3"], Box::new(|_| false)),
        (
            vec!["--stream", "wallet/1", "--from", "7"],
            Box::new(|s| s.stream_type == "wallet" && s.stream_id == 1 && s.position >= 7),
        ),
        (vec!["--since", &since, "--until", &end], Box::new(|s| s.recorded_at >= middle && s.recorded_at < last)),
        (
            vec!["--from", "7", "--to", &to, "--since", &since, "--until", &end],
            Box::new(|s| s.position < head && s.recorded_at >= middle && s.recorded_at < last),
        ),
        (vec!["--account", "1", "--since", &since], Box::new(|s| account(s) == Some(1) && s.recorded_at >= middle)),
        (
            vec!["--type", "OrderPlaced", "--type", "WalletDebited", "--account", "1"],
            Box::new(|s| matches!(&*s.event_type, "OrderPlaced" | "WalletDebited")),
        ),
    ];
    assert!(first < last);
    for (arguments, wanted) in cases {
        let all: Vec<&str> = ["events", "export"].into_iter().chain(arguments.iter().copied()).collect();
        let found = events(&succeeds(directory.path(), &shop.options, &all).await);
        let expected: Vec<Stored> = log.iter().filter(|stored| wanted(stored)).cloned().collect();
        assert_eq!(found, expected, "{arguments:?}");
    }
    for wrong in [vec!["--stream", "pony/1"], vec!["--type", "OrderEaten"], vec!["--from", "0"], vec!["--since", "now"]] {
        let all: Vec<&str> = ["events", "export"].into_iter().chain(wrong.iter().copied()).collect();
        let output = run(&mut command(directory.path(), &shop.options, &all)).await;
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
    }
}

/// Simulates an export that was killed after this many events, with the leftovers of a crash at the end of the file.
async fn begin(shop: &Shop, path: &Path, compressed: bool, count: usize, rubbish: &[u8]) {
    let mut file = ExportFile::open(path, whole(shop.pool(), compressed).await).unwrap();
    let log = log(shop).await;
    for page in log[..count].chunks(5) {
        file.append(page).unwrap();
    }
    drop(file);
    let partial = format!("{}.partial", path.display());
    std::fs::OpenOptions::new().append(true).open(partial).unwrap().write_all(rubbish).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_export_continues_after_its_last_complete_line() {
    let (directory, shop) = (tempfile::tempdir().unwrap(), Shop::open().await);
    shop.history().await;
    let complete = succeeds(directory.path(), &shop.options, &["events", "export"]).await;
    let next = String::from_utf8(complete.clone()).unwrap().lines().nth(20).unwrap().to_owned();
    let frame = zstd::stream::encode_all(format!("{next}\n").as_bytes(), 3).unwrap();
    let cut_line = &next.as_bytes()[..next.len() / 2];
    let mut ended = vec![];
    for (number, (compressed, count, rubbish)) in [
        (false, 0, &b""[..]),
        (false, 20, b""),
        (false, 20, cut_line),
        (false, 20, b"\0\0\0\0\n\0\0"),
        (false, 20, b"{}\n"),
        (true, 20, b""),
        (true, 20, &frame[..frame.len() - 3]),
        (true, 20, b"\0\0\0\0"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = directory.path().join(format!("{number}.ndjson"));
        begin(&shop, &path, compressed, count, rubbish).await;
        assert!(!path.exists());
        let mut arguments = vec!["events", "export", "--out", path.to_str().unwrap()];
        arguments.extend(compressed.then_some("--zstd"));
        ended.push((path.clone(), compressed));
        let said = String::from_utf8(succeeds(directory.path(), &shop.options, &arguments).await).unwrap();
        assert_eq!(said.contains("resumed after position 20"), count == 20, "{said}");
        let bytes = std::fs::read(&path).unwrap();
        let text = if compressed { zstd::stream::decode_all(&bytes[..]).unwrap() } else { bytes };
        assert!(text == complete, "{number}");
        assert!(Manifest::of(&path).unwrap().unwrap().describes(&path).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_continues_only_with_the_same_selection_and_end() {
    let (directory, shop) = (tempfile::tempdir().unwrap(), Shop::open().await);
    shop.history().await;
    let complete = succeeds(directory.path(), &shop.options, &["events", "export"]).await;
    let path = directory.path().join("events.ndjson");
    let out = path.to_str().unwrap();
    begin(&shop, &path, false, 10, b"").await;
    shop.order(1).await;
    for other in [&["--zstd"][..], &["--from", "2"], &["--account", "1"], &["--to", "12"]] {
        let arguments: Vec<&str> = ["events", "export", "--out", out].into_iter().chain(other.iter().copied()).collect();
        let refusal = fails(directory.path(), &shop.options, &arguments).await;
        assert!(refusal.contains("was begun with other settings"), "{refusal}");
    }
    {
        let _writing = ExportFile::open(&path, whole(shop.pool(), false).await).unwrap();
        let refusal = fails(directory.path(), &shop.options, &["events", "export", "--out", out]).await;
        assert!(refusal.contains("is being written by another export"), "{refusal}");
    }
    succeeds(directory.path(), &shop.options, &["events", "export", "--out", out]).await;
    assert!(std::fs::read(&path).unwrap() == complete, "the export ends where the log ended when it began");
    // A file that has the name of an unfinished export but is not one is not overwritten.
    let foreign = directory.path().join("mine.partial");
    std::fs::write(&foreign, "mine").unwrap();
    let mine = directory.path().join("mine");
    fails(directory.path(), &shop.options, &["events", "export", "--out", mine.to_str().unwrap()]).await;
    assert_eq!(std::fs::read_to_string(&foreign).unwrap(), "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_no_line_can_hold_is_refused_by_its_position() {
    let (directory, shop) = (tempfile::tempdir().unwrap(), Shop::open().await);
    shop.history().await;
    shop.tamper("UPDATE events SET data = (E'{\\n}')::json WHERE position = 9").await;
    let refusal = fails(directory.path(), &shop.options, &["events", "export"]).await;
    assert!(refusal.contains("shard 1, position 9: the stored text has a line break"), "{refusal}");
}
