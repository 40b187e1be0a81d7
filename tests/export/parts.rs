//! A partial export. No checkpoint was signed for it, but the tiles of the whole log prove it.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::kept::kept;
use super::succeeds;

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_export_is_verified_by_the_tiles_of_the_whole_log() {
    let kept = kept().await;
    let command = |name: &str, more: &[&str]| {
        let path = kept.path(name);
        let all: Vec<String> =
            ["events", "export", "--out", path.to_str().unwrap()].iter().chain(more).map(|&a| a.to_owned()).collect();
        all
    };
    for (name, more) in [("part.ndjson", &["--from", "20", "--to", "40"][..]), ("type.ndjson", &["--type", "OrderPlaced"])] {
        let arguments = command(name, more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        succeeds(kept.directory.path(), &kept.shop.options, &arguments).await;
        let said = kept.said(&["--export", name]).await;
        assert!(said.contains("give them with --tiles"), "{said}");
        let (is_well, report) = kept.verify(&["--export", name, "--tiles", "tiles"]).await;
        assert!(is_well, "{report:#}");
        let text = std::fs::read_to_string(kept.path(name)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() > 10);
        let position = serde_json::from_str::<Value>(lines[5]).unwrap()["position"].clone();
        let changed = text.replacen(
            lines[5],
            &lines[5].replacen("\"EUR\"", "\"USD\"", 1).replacen("\"reference\":\"", "\"reference\":\"X", 1),
            1,
        );
        assert_ne!(changed, text);
        std::fs::write(kept.path("changed.ndjson"), changed).unwrap();
        let (is_well, report) = kept.verify(&["--export", "changed.ndjson", "--tiles", "tiles", "--part"]).await;
        assert!(!is_well && report["first_bad"] == json!([position, position]), "{report:#}");
    }
    // For a range of positions the verifier knows which events belong there. The manifest states the range.
    let text = std::fs::read_to_string(kept.path("part.ndjson")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 21);
    let without = |left_out: std::ops::Range<usize>| {
        let kept = lines.iter().enumerate().filter(|(at, _)| !left_out.contains(at));
        kept.map(|(_, line)| format!("{line}\n")).collect::<String>()
    };
    for (left_out, missing) in [(10..11, 30), (0..3, 20), (18..21, 38), (0..21, 20)] {
        std::fs::write(kept.path("part.ndjson"), without(left_out)).unwrap();
        let (is_well, report) = kept.verify(&["--export", "part.ndjson", "--tiles", "tiles"]).await;
        assert!(!is_well, "{report:#}");
        let gap = report["differences"].as_array().unwrap().iter().find(|found| found["kind"] == "gap").cloned();
        assert_eq!(gap.unwrap_or_else(|| panic!("{report:#}"))["after"], missing - 1);
    }
    // Someone who removes events can also claim in the manifest that they were not selected. The report says that
    // nothing proves this claim, and the remaining events must match it.
    let text = std::fs::read_to_string(kept.path("kept.ndjson")).unwrap();
    let types = ["WalletDebited", "OrderPlaced"];
    let fitting = |kept: &dyn Fn(&str) -> bool| {
        let is_kept = |line: &&str| kept(serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap());
        text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect::<String>()
    };
    let (part, more) = (fitting(&|name| name == types[0]), fitting(&|name| types.contains(&name)));
    for (edited, is_fitting) in [(&part, true), (&more, false)] {
        let mut manifest: Value =
            serde_json::from_slice(&std::fs::read(kept.path("kept.ndjson.manifest.json")).unwrap()).unwrap();
        let edits = json!({"types": [types[0]], "bytes": edited.len(), "sha256": hex::encode(Sha256::digest(edited))});
        manifest.as_object_mut().unwrap().extend(edits.as_object().unwrap().clone());
        std::fs::write(kept.path("edited.ndjson"), edited).unwrap();
        std::fs::write(kept.path("edited.ndjson.manifest.json"), manifest.to_string()).unwrap();
        let (is_well, report) = kept.verify(&["--export", "edited.ndjson", "--tiles", "tiles"]).await;
        assert_eq!(is_well, is_fitting, "{report:#}");
        let unchecked = report["unchecked"][0].as_str().unwrap();
        assert!(unchecked.contains("of the types WalletDebited), which is not signed"), "{unchecked}");
        assert_eq!(report.to_string().contains("it does not belong to the part that the manifest describes"), !is_fitting);
    }
    // Events beyond the tiles' checkpoint are not reported as proven, even if an earlier export contains them.
    kept.shop.orders(kept.shop.customer.account_id, 30).await;
    let head: i64 = sqlx::query_scalar("SELECT max(position) FROM events").fetch_one(kept.shop.pool()).await.unwrap();
    let head = head.to_string();
    succeeds(
        kept.directory.path(),
        &kept.shop.options,
        &["events", "export", "--from", &head, "--out", kept.path("beyond.ndjson").to_str().unwrap()],
    )
    .await;
    kept.export("all.ndjson").await;
    for more in [&[][..], &["--earlier", "all.ndjson"]] {
        let (is_well, report) = kept.verify(&[&["--export", "beyond.ndjson", "--tiles", "tiles"], more].concat()).await;
        assert!(!is_well && report["differences"][0]["problem"].as_str().unwrap().contains("use newer tiles"), "{report:#}");
    }
}
