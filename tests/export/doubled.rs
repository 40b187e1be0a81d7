//! A copy of the log that pays money twice. A holder of the key can sign it, but the rules detect the duplicate.

use ledger_events::OrderId;
use rewards_ledger::export::{import, tiles};
use rewards_ledger::ledger::reader;
use serde_json::json;
use transparency_log::quorum::Quorum;

use super::kept::kept;
use super::succeeds;
use crate::support::ledger::SHARD;
use crate::support::postgres::database;
use crate::support::shop::Shop;
use crate::support::tampering::REFUNDED_AGAIN;
use crate::support::tree::Tree;

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_refund_is_reported_although_it_is_signed() {
    let kept = kept().await;
    kept.shop.cancel(OrderId(1)).await;
    kept.tree.grow().await;
    kept.export("cancelled.ndjson").await;
    assert!(kept.verify(&["--export", "cancelled.ndjson"]).await.0);

    let database = database().await;
    let options = database.url.parse().unwrap();
    import(&options, &kept.path("cancelled.ndjson"), |_| {}).await.unwrap();
    let copy = Shop::on(&options, kept.shop.customer).await;
    copy.tamper(REFUNDED_AGAIN).await;
    let position = reader::head(copy.pool(), SHARD).await.unwrap();
    let size = Tree::of(&copy.ledger, &options, &copy.metrics).grow().await;
    assert_eq!(i64::try_from(size), Ok(position));
    let file = kept.path("doubled.ndjson");
    succeeds(kept.directory.path(), &options, &["events", "export", "--out", file.to_str().unwrap()]).await;
    tiles::copy(copy.pool(), SHARD, &kept.path("doubled"), &Quorum::default(), |_| {}).await.unwrap();

    // Every checkpoint agrees, including the kept ones, and no reference covers the added event.
    let by_export = ["--export", "doubled.ndjson", "--checkpoint", "first.note", "--checkpoint", "second.note"];
    for of in [&by_export[..], &[&by_export[..], &["--earlier", "cancelled.ndjson"]].concat(), &["--tiles", "doubled"]] {
        let (is_well, report) = kept.verify(of).await;
        assert!(!is_well && report["proven"] == size && report["first_bad"].is_null(), "{of:?}: {report:#}");
        let problem = "refunds 10.00 for order 1, which was not cancelled by the preceding event";
        let (stream, id) = ("wallet", kept.shop.customer.wallet_id);
        let found =
            json!([{"kind": "rule", "shard": SHARD, "stream": stream, "id": id, "position": position, "problem": problem}]);
        assert_eq!(report["differences"], found, "{of:?}");
        let said = kept.said(of).await;
        assert!(said.contains(&format!("shard 1, position {position}: wallet {id}: {problem}")), "{said}");
    }
}
