//! Operations, replays and the transparency log in the console.

use chrono::Utc;
use rewards_ledger::access::Role;
use serde_json::{Value, json};
use transparency_log::note::Note;

use super::console::enter;
use super::{check, in_browser, place};
use crate::support::node::Node;
use crate::support::tree::{witness_name, witness_secret};

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_sees_operations_and_replays_what_a_webhook_missed() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
    let hook = json!({"name": "Shop", "url": "https://example.com/hook", "events": ["order.created"]});
    let webhook = node.client(&setup.client, "POST", "/webhooks", hook).await.json()["id"].clone();
    // The first order is older than the webhook. The second one has a delivery.
    place(&node, &setup).await;
    node.project().await;
    in_browser((1440, 2_400), true, |browser| async move {
        enter(&node, &browser, Role::Admin).await;
        browser.find("//div[@class='figure'][span='Alerts that fire'][strong/a='0']").await;
        browser.press("Operations").await;
        browser.sees("No condition of an alert holds").await;
        browser.sees("Lag of the projections").await;
        browser.sees("No replay is running.").await;
        check(&browser, "operations").await;
        browser.press("Replays").await;
        browser.fill("Webhook number", "999999").await;
        browser.press("Count the events").await;
        browser.sees("is unknown").await;
        browser.logs_refusal(400).await;
        browser.fill("Webhook number", &webhook.to_string()).await;
        browser.press("Count the events").await;
        browser.sees("1 event").await;
        check(&browser, "the count of an operator's replay").await;
        browser.press("Start the replay").await;
        browser.sees("The replay has started.").await;
        check(&browser, "an operator's replays").await;
        browser.press("Operations").await;
        browser.sees("Running").await;
        check(&browser, "operations with a replay").await;
        browser.press("Replays").await;
        browser.click("//summary[starts-with(normalize-space(), 'Cancel replay')]").await;
        browser.press("Cancel the replay").await;
        browser.sees("The replay is cancelled.").await;
        browser.click("//select[@id='kind']/option[text()='Everything that it has a delivery of']").await;
        browser.fill("Since", "2026-01-01").await;
        browser.fill("Deliveries per second", "501").await;
        browser.press("Count the events").await;
        browser.sees("Deliveries per second must be between 1 and 500").await;
        browser.logs_refusal(400).await;
        browser.fill("Deliveries per second", "7").await;
        browser.press("Count the events").await;
        browser.sees("1 event would be delivered").await;
        browser.press("Start the replay").await;
        browser.sees("The replay has started.").await;
        browser.find("//tr[td[@data-name='Events']='All with a delivery']//span[text()='Running']").await;
        let replays = node.operator("GET", &format!("/webhooks/{webhook}/replays"), Value::Null).await.data(200);
        let [kind, per_second] = ["kind", "per_second"].map(|name| &replays["replays"][0][name]);
        assert_eq!((kind, per_second), (&json!("deliveries"), &json!(7)));

        let (product, low) = (setup.product_id, json!({"denomination": "10.00", "threshold": 50}));
        node.operator("PUT", &format!("/products/{product}/stock-threshold"), low).await.data(200);
        let figure = |name: &str| format!("//div[@class='figure'][span='{name}']//a[number(.) > 0]");
        browser.press("Overview").await;
        browser.click(&figure("Face values low on stock")).await;
        browser.find(&format!("//section[@id='low-stock']//a[@href='/console/products/{product}/stock']")).await;
        browser.press("Overview").await;
        browser.click(&figure("Alerts that fire")).await;
        browser.find("//section[@id='alerts']//strong[text()='LedgerStockLow']").await;

        // A number that cannot be read leaves the others and the search.
        let mut admin = node.admin().await;
        sqlx::raw_sql("ALTER TABLE payouts RENAME TO payouts_away").execute(&mut admin).await.unwrap();
        browser.press("Overview").await;
        browser.find("//div[@class='figure'][span='Payouts to settle'][strong='–']/span[contains(., 'went wrong')]").await;
        check(&browser, "an overview without a number").await;
        browser.fill("Search for", &setup.client.account_id.to_string()).await;
        browser.find(&figure("Accounts")).await;
        sqlx::raw_sql("ALTER TABLE payouts_away RENAME TO payouts").execute(&mut admin).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_adds_a_shard_and_drains_it() {
    let node = Node::start().await;
    in_browser((1440, 2_400), true, |browser| async move {
        enter(&node, &browser, Role::Admin).await;
        browser.press("Operations").await;
        browser.click("//summary[text()='Add a shard']").await;
        browser.press("Add the shard").await;
        browser.sees("The shard is added.").await;
        let row = "//tr[td[normalize-space()='Shard 2']]";
        browser.click(&format!("{row}//summary[text()='Drain']")).await;
        browser.click(&format!("{row}//button[text()='Drain it']")).await;
        browser.sees("The change is saved.").await;
        browser.find(&format!("{row}//span[text()='Draining']")).await;
        browser.find(&format!("{row}//summary[text()='Open again']")).await;
        check(&browser, "operations with a shard that drains").await;
        let shards = node.operator("GET", "/shards", Value::Null).await.data(200);
        assert_eq!(shards["shards"][1]["status"], "draining");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_auditor_sees_erasures_and_retention() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let user = node.user(client.account_id, "viewer").await;
    in_browser((390, 2_400), true, |browser| async move {
        // Without the alerts, the start page has the other numbers and the search. No other number needs this table.
        let mut admin = node.admin().await;
        sqlx::raw_sql("ALTER TABLE supplier_calls RENAME TO supplier_calls_away").execute(&mut admin).await.unwrap();
        enter(&node, &browser, Role::Auditor).await;
        for name in ["Alerts that fire", "Face values low on stock"] {
            browser.find(&format!("//div[@class='figure'][span='{name}'][strong='–']/span[contains(., 'went wrong')]")).await;
        }
        browser.find("//div[@class='figure'][span='Accounts']//a[number(.) > 0]").await;
        browser.find("//main//form[@role='search']").await;
        sqlx::raw_sql("ALTER TABLE supplier_calls_away RENAME TO supplier_calls").execute(&mut admin).await.unwrap();

        browser.press("Erasures").await;
        browser.sees("Nothing was erased in this shard.").await;
        check(&browser, "no erasures").await;
        node.erase_user(user.id).await;
        browser.press("Erasures").await;
        browser.sees(&format!("user/{}", user.id)).await;
        browser.sees("Operator of the configuration").await;
        browser.sees("vault.users").await;
        browser.sees("--attempt-retention").await;
        browser.sees("90 days").await;
        assert!(!browser.text("//main").await.contains(&user.email));
        check(&browser, "erasures").await;
        browser.click("//main//table//a[time]").await;
        browser.find("//h1[contains(text(), 'PersonalDataErased')]").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_auditor_proves_an_order_on_a_phone() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].clone();
    in_browser((390, 2_400), true, |browser| async move {
        enter(&node, &browser, Role::Auditor).await;
        browser.press("Transparency log").await;
        browser.sees("has no checkpoint yet").await;
        check(&browser, "a log without a checkpoint").await;
        node.publish().await;
        browser.press("Transparency log").await;
        browser.sees("Not yet").await;
        browser.sees("Published checkpoints").await;
        browser.sees("nobody").await;
        check(&browser, "the log").await;
        browser.fill("Order number", &order.to_string()).await;
        browser.press("Prove the order").await;
        browser.sees("Proven: the receipt of order").await;
        browser.sees("The log of today continues the tree").await;
        browser.sees("No witness of this service has cosigned this checkpoint.").await;
        check(&browser, "a proof").await;
        browser.press("Replays").await;
        browser.sees("you need the role admin").await;
        check(&browser, "replays of an auditor").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_auditor_sees_which_witnesses_have_cosigned() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = place(&node, &setup).await;
    node.publish().await;
    let checkpoint = node.anyone("GET", "/log/1/checkpoint", Value::Null).await.text;
    let text = Note::parse(&checkpoint).unwrap().text().to_owned();
    let now = u64::try_from(Utc::now().timestamp()).unwrap();
    let cosignature = witness_secret(1).cosign(&witness_name(1), &text, now).unwrap();
    let note = Note::new(text, vec![cosignature]).unwrap().to_string();
    let request = node.request("POST", "/log/1/cosignatures").header("Content-Type", "text/plain");
    node.send(request.body(note)).await.data(200);
    in_browser((1440, 2_400), true, |browser| async move {
        enter(&node, &browser, Role::Auditor).await;
        browser.press("Transparency log").await;
        for (witness, state) in [(1, "Cosigned"), (2, "Not yet")] {
            let name = witness_name(witness);
            browser.find(&format!("//main//tr[td[normalize-space()='{name}']][.//span[text()='{state}']]")).await;
        }
        browser.find(&format!("//main//td[@data-name='Cosigned by'][contains(., '{}, ')]", witness_name(1))).await;
        check(&browser, "a log with a cosignature").await;
        browser.fill("Order number", &order.to_string()).await;
        browser.press("Prove the order").await;
        browser.sees("Proven: the receipt of order").await;
        browser.sees(&format!("Cosigned by {}.", witness_name(1))).await;
        check(&browser, "a proof with a cosignature").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_is_proven_as_text_and_as_a_file() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].clone();
    node.publish().await;
    let receipt = node.operator("GET", &format!("/orders/{order}/receipt"), Value::Null).await.data(200).to_string();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("receipt.json");
    std::fs::write(&file, &receipt).unwrap();
    in_browser((1440, 2_400), true, |browser| async move {
        enter(&node, &browser, Role::Auditor).await;
        browser.press("Transparency log").await;
        browser.press("Prove the receipt").await;
        browser.sees("is required, or a file").await;
        browser.logs_refusal(400).await;
        check(&browser, "no receipt").await;
        browser.fill("Or its text", &receipt).await;
        browser.press("Prove the receipt").await;
        browser.sees("Proven: the receipt of order").await;
        check(&browser, "a proof of a text").await;
        browser.press("Transparency log").await;
        browser.type_into("//input[@id='file']", file.to_str().unwrap()).await;
        browser.press("Prove the receipt").await;
        browser.sees("Proven: the receipt of order").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_that_was_changed_is_not_proven() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].clone();
    node.publish().await;
    let mut receipt = node.operator("GET", &format!("/orders/{order}/receipt"), Value::Null).await.data(200);
    let auditor = node.console_user(Role::Auditor).await;
    let prove = async |receipt: String| {
        let form: String = url::form_urlencoded::Serializer::new(String::new()).append_pair("receipt", &receipt).finish();
        let request = reqwest::Client::new().post(format!("{}/console/log/proof", node.url()));
        let request = request.header("Cookie", &auditor.cookie).header("Origin", node.url());
        let response = request.header("Content-Type", "application/x-www-form-urlencoded").body(form).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let (status, page) = prove(receipt.to_string()).await;
    assert!(status == 200 && page.contains("Proven: the receipt"), "{page}");
    receipt["events"][0]["data"]["quantity"] = json!(2);
    let (status, page) = prove(receipt.to_string()).await;
    assert!(status == 200 && page.contains("Not proven") && page.contains("the readable fields differ from the leaf"), "{page}");
    assert!(!page.contains("The story is whole"));
    receipt["checkpoint"] = json!("<script>alert(1)</script>");
    let (_, page) = prove(receipt.to_string()).await;
    assert!(page.contains("The checkpoint is not signed by this log") && !page.contains("<script>alert"), "{page}");
    let (status, page) = prove("{".to_owned()).await;
    assert!(status == 400 && page.contains("is no receipt"), "{page}");
}
