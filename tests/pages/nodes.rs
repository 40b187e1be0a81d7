//! The addresses that people type, and the pages about nodes, runs of verify and rebuild, and the events behind numbers.

use rewards_ledger::access::Role;
use rewards_ledger::audit::Progress;
use rewards_ledger::audit::runs::{self, Kind};
use rewards_ledger::ledger::nodes;
use rewards_ledger::telemetry;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
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

/// Returns whether a label of a plot is a time of its table in Kolkata, and the name of the plot's axis.
const LABEL_AND_ITS_TIME: &str = "const texts = [...document.querySelectorAll('figure.plot svg text')];
    const label = texts.find((text) => text.querySelector('title')), plot = label.closest('figure');
    const utc = label.querySelector('title').textContent.slice(0, 5);
    const time = [...plot.querySelectorAll('tbody time')].find((time) => time.dateTime.slice(11, 16) === utc);
    const format = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23', timeZone: 'Asia/Kolkata' };
    const there = new Intl.DateTimeFormat(undefined, format).format(new Date(time.dateTime));
    const axis = [...plot.querySelectorAll('svg text')].find((text) => text.textContent.trim() === 'Minute');
    return [label.firstChild.data === there && there !== utc, axis?.textContent]";

/// Waits until a run has recorded that it is in a stage.
async fn until_stage(stage: &str, node: &Node) {
    let is_recorded = format!("SELECT EXISTS (SELECT FROM audit_runs WHERE ended_at IS NULL AND stage = '{stage}')");
    until_true("the run is in the stage", node.ledger.pool(), &is_recorded).await;
}

/// Begins a rebuild as its command does, and waits until it has recorded its progress. Returns its id, how to end its work, and
/// the task that follows it.
async fn rebuilding(node: &Node) -> (i64, oneshot::Sender<()>, JoinHandle<()>) {
    let pool = node.ledger.pool().clone();
    let id = runs::begin(&pool, Kind::Rebuild("orders")).await.unwrap();
    let (end, ended) = oneshot::channel();
    let task = tokio::spawn(async move {
        let (_sender, progress) = watch::channel(Some(Progress { stage: "fold", shard: 1, done: 5, total: 9 }));
        runs::follow(&pool, id, progress, ended).await.unwrap().unwrap();
    });
    until_stage("fold", node).await;
    (id, end, task)
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
        // The labels of a plot of minutes are in the time zone of the viewer.
        browser.move_to("Asia/Kolkata").await;
        browser.press("Operations").await;
        let label = "//figure//*[local-name()='text'][*[local-name()='title'][contains(., ' UTC')]]";
        browser.find(label).await;
        assert_eq!(browser.run(LABEL_AND_ITS_TIME).await, json!([true, "Minute"]));
        browser.move_to("UTC").await;
        browser.press("Verify and rebuild").await;
        browser.sees("Nothing was verified yet.").await;
        check(&browser, "no audit runs").await;
        // The verification has compared the credentials, and waits for the lock of a table of the users.
        let mut admin = node.admin().await;
        sqlx::raw_sql("BEGIN; LOCK TABLE vault.user_macs IN ACCESS EXCLUSIVE MODE").execute(&mut admin).await.unwrap();
        browser.press("Start a verification").await;
        browser.sees("Last heartbeat").await;
        until_stage("credential", &node).await;
        let run = browser.run("return location.href").await;
        browser.open(run.as_str().unwrap()).await;
        browser.find("//main[.//p[contains(., 'Credential of shard 1')]]//progress[@value > 0 and @value <= @max]").await;
        sqlx::raw_sql("ROLLBACK").execute(&mut admin).await.unwrap();
        // The page follows the run until it has ended.
        browser.sees("Nothing differs.").await;
        browser.sees("everything matches the log").await;
        check(&browser, "a verification").await;
        let (command, end, rebuilding) = rebuilding(&node).await;
        browser.press("All runs").await;
        browser.sees("A run is in progress.").await;
        browser.sees(&format!("Rebuild of orders {command}")).await;
        browser.find("//main//div[h2[contains(., 'Rebuild of orders')]]/progress[@value=5][@max=9]").await;
        check(&browser, "audit runs").await;
        end.send(()).unwrap();
        rebuilding.await.unwrap();
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
