//! The addresses that people type, and the pages about nodes, runs of verify and rebuild, and the events behind numbers.

use rewards_ledger::access::Role;
use rewards_ledger::audit::runs::{self, Kind};
use rewards_ledger::ledger::nodes;
use rewards_ledger::telemetry;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::console::enter;
use super::{check, in_browser};
use crate::support::node::Node;
use crate::support::wait::until_true;

#[tokio::test]
async fn the_addresses_that_people_type_lead_to_the_portal() {
    let node = Node::start().await;
    let browser = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    for path in ["/", "/login"] {
        let answer = browser.get(format!("{}{path}", node.url())).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.headers()["location"].to_str().unwrap()), (303, "/portal"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_starts_a_verification_and_reads_its_result() {
    let node = Node::start().await;
    node.setup().await;
    node.project().await;
    let stop = CancellationToken::new();
    let me = nodes::Me::starting(vec!["api".to_owned()]);
    let beats = tokio::spawn(nodes::run(me, node.ledger.clone(), node.metrics.clone(), stop.clone()));
    until_true("the node has beaten", node.ledger.pool(), "SELECT EXISTS (SELECT FROM nodes)").await;
    in_browser((1440, 2_400), true, |browser| async move {
        enter(&node, &browser, Role::Admin).await;
        browser.press("Operations").await;
        browser.sees("All nodes").await;
        browser.sees(&telemetry::host()).await;
        check(&browser, "operations with nodes").await;
        browser.press("Verify and rebuild").await;
        browser.sees("Nothing was verified yet.").await;
        check(&browser, "no audit runs").await;
        browser.press("Start a verification").await;
        // The page follows the run until it has ended.
        browser.sees("Nothing differs.").await;
        browser.sees("everything matches the log").await;
        check(&browser, "a verification").await;
        let command = runs::begin(node.ledger.pool(), Kind::Rebuild("orders")).await.unwrap();
        browser.press("All runs").await;
        browser.sees("A run is in progress.").await;
        browser.sees(&format!("Rebuild of orders {command}")).await;
        check(&browser, "audit runs").await;
        sqlx::raw_sql("DELETE FROM audit_runs WHERE kind = 'rebuild'").execute(node.ledger.pool()).await.unwrap();
        // Nothing works on this one.
        let waiting = runs::begin(node.ledger.pool(), Kind::Verify).await.unwrap();
        browser.open(&format!("{}/console/audit-runs/{waiting}", node.url())).await;
        browser.click("//summary[.='Stop the verification']").await;
        check(&browser, "a verification that can be stopped").await;
        browser.press("Stop it").await;
        browser.sees("The verification was stopped before its end: an operator stopped the run.").await;
    })
    .await;
    stop.cancel();
    beats.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_movement_leads_to_its_event() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let fund = json!({"amount": "5.00", "reference": "SEPA 4711"});
    let funded = node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), fund).await.data(201);
    let head = node.head().await;
    in_browser((390, 2_400), true, |browser| async move {
        enter(&node, &browser, Role::Auditor).await;
        browser.open(&format!("{}/console/search?q=SEPA%204711", node.url())).await;
        browser.sees(&format!("Transaction {}", funded["id"])).await;
        check(&browser, "a transaction of any wallet").await;
        browser.click(&format!("//a[@href='/console/events/1/{head}']")).await;
        browser.sees("WalletFunded").await;
        let runs = node.operator("GET", "/audit-runs", Value::Null).await.data(200);
        assert_eq!(runs["audit_runs"], json!([]));
        browser.open(&format!("{}/console/audit-runs", node.url())).await;
        browser.sees("you need the role admin").await;
        check(&browser, "audit runs of an auditor").await;
    })
    .await;
}
