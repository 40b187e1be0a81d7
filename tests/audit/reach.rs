use rewards_ledger::audit::verify;

use crate::support::world::World;

#[tokio::test]
async fn how_far_the_deliveries_have_come_is_told() {
    let world = World::new().await;
    world.history().await;
    world.place("25.00", 1).await;
    let report = verify(&world.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:?}", report.differences);
    let reach = report.reached[0];
    assert_eq!((reach.shard, reach.behind()), (1, 2));

    world.tamper("UPDATE projection_checkpoints SET position = 1000000").await;
    let report = verify(&world.options, |_| {}).await.unwrap();
    let lines: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
    let expected = format!("shard 1: the checkpoint of deliveries is 1000000, beyond the log's head at {}", reach.head);
    assert!(lines.contains(&expected), "{lines:#?}");
}
