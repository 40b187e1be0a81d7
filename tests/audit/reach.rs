use rewards_ledger::audit::verify;

use crate::support::shop::Shop;

#[tokio::test(flavor = "multi_thread")]
async fn verify_reports_the_lag_of_the_deliveries() {
    let shop = Shop::open().await;
    shop.history().await;
    shop.order(1).await;
    let report = verify(&shop.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:?}", report.differences);
    let reach = report.reached[0];
    assert_eq!((reach.shard, reach.behind()), (1, 2));

    let tampering = "UPDATE projection_checkpoints SET position = 1000000";
    sqlx::raw_sql(tampering).execute(&mut shop.admin().await).await.unwrap();
    let report = verify(&shop.options, |_| {}).await.unwrap();
    let lines: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
    let expected = format!("shard 1: the checkpoint of deliveries is 1000000, beyond the log's head at {}", reach.head);
    assert!(lines.contains(&expected), "{lines:#?}");
}
