//! Recovery after signed events are lost for good.

use rewards_ledger::audit::{Difference, Refused, verify};
use rewards_ledger::transparency::projector::SigningStep;
use serde_json::Value;
use sqlx::ConnectOptions;

use super::signers::{failed_over, step};
use crate::support::program::{Program, run};
use crate::support::tree::{Tree, key};

pub async fn log(api: &Program, arguments: &[&str]) -> Result<Value, String> {
    let url = api.url();
    let output = run(api.command().args(["log", "--url", &url]).args(arguments).arg("--json")).await;
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_names_the_missing_events_and_an_incident_lets_the_log_continue() {
    let (shop, more, less, signed, common) = failed_over().await;
    let api = Program::start(shop.options.hosts()[0].to_url_lossy().as_str(), &["--roles", "api"]).await;
    let incident = ["incident", "--reason", "the disk of the primary failed"];
    let early = log(&api, &incident).await.unwrap_err();
    assert!(early.contains("no node refuses"), "{early}");

    let refused = Tree::refused(step(&more).await).to_string();
    let kept = less.newest().await;
    let (common, signed) = (i64::try_from(common).unwrap(), i64::try_from(signed).unwrap());
    let report = verify(&shop.options, |_| {}).await.unwrap();
    let [Difference::Refused(Refused { node, reason, missing, .. })] = &report.differences[..] else {
        panic!("{:#?}", report.differences)
    };
    assert_eq!((*node, reason, *missing), (more.projector.identity().node, &refused, Some((common + 1, signed))));
    let line = report.differences[0].to_string();
    assert!(line.contains(&format!("positions {} to {signed} are missing", common + 1)), "{line}");

    let recorded = log(&api, &incident).await.unwrap();
    assert_eq!(recorded["origin"], kept.origin);
    assert_eq!((&recorded["signed"]["size"], &recorded["kept"]["size"]), (&signed.into(), &common.into()));
    let again = log(&api, &incident).await.unwrap_err();
    assert!(again.contains("no node refuses"), "{again}");

    // Every node continues, under the next origin.
    assert_eq!(step(&less).await.unwrap(), SigningStep::Waiting);
    more.grow().await;
    shop.order(1).await;
    assert!(matches!(step(&less).await.unwrap(), SigningStep::Signed { .. }));
    let newest = less.newest().await;
    assert_eq!(newest.origin, recorded["next_origin"]);
    assert!(i64::try_from(newest.size).unwrap() > recorded["position"].as_i64().unwrap());
    assert_eq!(step(&more).await.unwrap(), SigningStep::Idle);
    let report = verify(&shop.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
    let (data, actor): (String, String) = sqlx::query_as(
        "SELECT data::text, metadata ->> 'actor' FROM events WHERE type = 'LogIncidentRecorded' AND stream_type = 'log' AND stream_id = shard_id",
    )
    .fetch_one(shop.pool())
    .await
    .unwrap();
    assert!(data.contains(&refused) && !data.contains("disk of the primary"), "{data}");
    assert!(actor.contains("operator"), "{actor}");

    // Verifiers: the old key reports that its log has ended. Old checkpoints up to the kept events agree with the new
    // log.
    let ended = log(&api, &["checkpoint", "--key", &key().to_string()]).await.unwrap_err();
    assert!(ended.contains("has ended") && ended.contains(&newest.origin), "{ended}");
    let keys = log(&api, &["keys"]).await.unwrap();
    assert_eq!(keys["incidents"][0]["signed"]["size"], signed);
    let next = keys["keys"].as_array().unwrap().iter().filter_map(|key| key["verifier_key"].as_str());
    let next = next.rev().find(|key| key.starts_with(&format!("{}+", newest.origin))).unwrap();
    let note = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(note.path(), &kept.note).unwrap();
    let path = note.path().to_str().unwrap();
    let proved =
        log(&api, &["consistency", "--from-checkpoint", path, "--key", &key().to_string(), "--key", next]).await.unwrap();
    assert_eq!(proved["from"], common);
}
