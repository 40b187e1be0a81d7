//! The tour, as a new user sees it first.

use super::{directory, err, out, program, run};

#[tokio::test]
async fn the_demo_tells_its_story_and_exits_well() {
    let directory = directory();
    let demo = run(program(directory.path()).args(["demo", "--exit"])).await;
    let told = out(&demo);
    assert!(demo.status.success(), "{told}{}", err(&demo));
    assert_eq!(err(&demo), "", "no log lines disturb it");
    assert!(!told.contains('\u{1b}'), "no colours in a pipe");
    for event in ["OrderPlaced", "OrderDelivered", "OrderPartiallyDelivered", "OrderDelayed", "OrderCancelled", "WalletRefunded"]
    {
        assert!(told.contains(event), "{event} is not in {told}");
    }
    assert_eq!(told.matches("  signature verified  ").count(), 13, "{told}");
    for line in [
        "opening balance                0.00 USD",
        "credits                      500.00 USD",
        "refunds                       97.50 USD",
    ] {
        assert!(told.contains(line), "{line} is not in {told}");
    }
    assert!(told.contains("reconciled to the cent"), "{told}");
}

#[tokio::test]
async fn the_demo_as_json_is_an_object_a_line() {
    let directory = directory();
    let demo = run(program(directory.path()).args(["demo", "--exit", "--json"])).await;
    assert!(demo.status.success(), "{}", err(&demo));
    let told = out(&demo);
    let lines: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
    assert_eq!((of("section"), of("webhook"), of("statement")), (8, 13, 1));
    let statement = lines.iter().find(|line| line["kind"] == "statement").unwrap();
    assert_eq!(statement["is_reconciled"], true);
    assert_eq!(statement["closing_balance"], statement["balance"]);
    let positions: Vec<i64> =
        lines.iter().filter(|line| line["kind"] == "event").map(|line| line["position"].as_i64().unwrap()).collect();
    assert_eq!(positions, (1..).take(positions.len()).collect::<Vec<_>>(), "every position, in order");
}
