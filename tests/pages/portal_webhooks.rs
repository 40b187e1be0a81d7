//! Webhooks, deliveries and API keys in the portal.

use std::sync::atomic::{AtomicBool, Ordering};

use ledger_events::webhook::WebhookEventType;
use rewards_ledger::access::Role;
use serde_json::{Value, json};
use webhook_client::receiver::ReceiverResponse;
use webhook_client::signature;

use super::filters::read;
use super::portal_orders::enter;
use super::{check, in_browser, lacks};
use crate::support::node::{Node, PASSWORD};
use crate::support::shop::{self, DEADLINE, receiver};

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_sets_up_a_webhook_and_finds_out_why_an_event_is_missing() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].clone();
    in_browser((1440, 1_400), true, |browser| async move {
        browser.open(&format!("{}/portal/webhooks", node.url())).await;
        browser.fill("Email", &owner.email).await;
        browser.fill("Password", PASSWORD).await;
        browser.press("Sign in").await;
        browser.sees("You have no webhook yet.").await;
        check(&browser, "no webhooks").await;
        browser.press("Set up a webhook").await;
        browser.find("//h1[text()='New webhook']").await;
        browser.press("What each event looks like").await;
        for event in WebhookEventType::ALL.map(WebhookEventType::as_str) {
            browser.find(&format!("//input[@type='checkbox'][@name='events'][@value='{event}']")).await;
            let example = format!("//details[@open]//h3[.='{event}']/following-sibling::pre[1][contains(., '\"{event}\"')]");
            browser.find(&example).await;
        }
        browser.fill("Name", "Shop").await;
        browser.fill("URL", "https://shop.example/hooks").await;
        browser.press("Create the webhook").await;
        browser.find("//*[@role='alert']").await;
        browser.logs_refusal(400).await;
        check(&browser, "a webhook without events").await;
        browser.click("//input[@value='order.delivered']").await;
        browser.press("Create the webhook").await;
        browser.sees("it is never shown again").await;
        check(&browser, "the token of a webhook").await;
        let token = browser.text("//dd//code").await;
        browser.press("To the webhook").await;
        browser.find("//h1[text()='Shop']").await;
        check(&browser, "a webhook").await;
        lacks(&browser, &token, "the webhook").await;
        browser.press("Why did (didn't) I get this?").await;
        browser.fill("Order", &order.to_string()).await;
        browser.press("Explain").await;
        browser.find("//h1[text()=\"Why did (didn't) I get this?\"]").await;
        browser.sees("order.created").await;
        check(&browser, "an explanation").await;
        browser.press("Shop").await;
        browser.press("Send a test").await;
        browser.sees("Sent.").await;
        check(&browser, "a delivery").await;
        browser.press("Webhooks").await;
        browser.find("//h1[text()='Webhooks']").await;
        lacks(&browser, &token, "the list of webhooks").await;
        browser.press("Shop").await;
        browser.press("Delete").await;
        browser.press("Delete the webhook").await;
        browser.sees("Deleted.").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_creates_and_revokes_an_api_key_without_scripts_on_a_phone() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    in_browser((390, 2_000), false, |browser| async move {
        browser.open(&format!("{}/portal/api-keys", node.url())).await;
        browser.fill("Email", &owner.email).await;
        browser.fill("Password", PASSWORD).await;
        browser.press("Sign in").await;
        browser.find("//h1[text()='API keys']").await;
        browser.press("New API key").await;
        browser.fill("Name", "Warehouse").await;
        browser.press("Create the API key").await;
        browser.sees("X-API-Secret").await;
        browser.press("All API keys").await;
        browser.click("//a[@aria-label='Revoke Warehouse']").await;
        browser.sees("This cannot be undone.").await;
        browser.press("Revoke the key").await;
        browser.sees("The key is revoked.").await;
        browser.sees("Revoked").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_attempt_has_its_response_with_its_body() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (viewer, auditor) = (node.user(setup.client.account_id, "viewer").await, node.console_user(Role::Auditor).await);
    let (responses, is_first) = (["too busy", "thank you"], AtomicBool::new(true));
    let (receiver, _arrived) = receiver(move |_| match is_first.swap(false, Ordering::Relaxed) {
        true => ReceiverResponse::StatusWithBody(503, responses[0].to_owned()),
        false => ReceiverResponse::StatusWithBody(202, responses[1].to_owned()),
    })
    .await;
    let hook = json!({"name": "Shop", "url": receiver.url(), "events": ["order.created"]});
    node.client(&setup.client, "POST", "/webhooks", hook).await.json();
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
    node.project().await;
    let delivery: i64 = sqlx::query_scalar("SELECT id FROM deliveries").fetch_one(node.ledger.pool()).await.unwrap();
    let worker = shop::worker(&node.options, &receiver, DEADLINE);
    for (attempt, status) in [(1, "503"), (2, "202")] {
        worker.once().await.unwrap();
        sqlx::raw_sql("UPDATE delivery_state SET next_attempt_at = now()").execute(node.ledger.pool()).await.unwrap();
        let portal = (&viewer.cookie, format!("/portal/webhooks/deliveries/{delivery}"));
        let console = (&auditor.cookie, format!("/console/deliveries/{delivery}"));
        for (cookie, path) in [portal, console] {
            let page = read(&node, cookie, &path).await;
            let table = page.split("</table>").next().unwrap();
            let rows: Vec<&str> = table.split("<tr>").skip(2).collect();
            assert_eq!(rows.len(), attempt, "{path}: {page}");
            assert!(rows[0].contains(">503<") && rows[attempt - 1].contains(&format!(">{status}<")), "{path}: {rows:?}");
            let shown = responses.map(|body| page.contains(body));
            assert_eq!(shown, [true, attempt == 2], "{path}: {page}");
            let open = format!(" open><summary>Attempt {attempt}, status {status}</summary>");
            assert!(page.contains(&open) && page.matches("<summary>Attempt ").count() == attempt, "{path}: {page}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_edits_switches_and_rotates_a_webhook_and_retries_a_delivery() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let operator = node.user(setup.client.account_id, "operator").await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::StatusWithBody(200, "thank you".to_owned())).await;
    let own = json!([{"name": "X-Shop", "value": "7"}]);
    let hook = json!({"name": "Shop", "url": receiver.url(), "events": ["order.created"], "headers": own});
    let hook = node.client(&setup.client, "POST", "/webhooks", hook).await.json();
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
    node.project().await;
    in_browser((390, 2_400), true, |browser| async move {
        enter(&browser, &node, &operator, &format!("/portal/webhooks/{}", hook["id"])).await;
        browser.press("Edit this webhook").await;
        browser.fill("Name", "").await;
        browser.press("Save").await;
        browser.sees("Name ").await;
        browser.find("//input[@id='name'][@aria-invalid='true']").await;
        browser.logs_refusal(400).await;
        browser.fill("Name", "Till").await;
        browser.click("//input[@value='order.cancelled']").await;
        browser.press("Save").await;
        browser.sees("The change is saved.").await;
        browser.find("//h1[text()='Till']").await;
        browser.sees("order.created, order.cancelled").await;
        browser.press("Switch off").await;
        browser.press("Switch the webhook off").await;
        browser.find("//dd//span[text()='Inactive']").await;
        check(&browser, "a webhook that is off").await;
        node.project().await;
        browser.press("Switch on").await;
        browser.find("//dd//span[text()='Active']").await;
        browser.press("Rotate the token").await;
        browser.press("Replace the token").await;
        browser.sees("The new token signs every delivery from now on.").await;
        let token = browser.text("//dd//code").await;
        assert_ne!(token, hook["token"].as_str().unwrap());
        check(&browser, "a webhook's new token").await;
        browser.press("To the webhook").await;
        browser.find("//h1[text()='Till']").await;
        lacks(&browser, &token, "the webhook").await;
        browser.press("Webhooks").await;
        browser.find("//h1[text()='Webhooks']").await;
        lacks(&browser, &token, "the list of webhooks").await;
        browser.press("Till").await;

        browser.press("All deliveries of this webhook").await;
        browser.find("//h1[text()='Deliveries']").await;
        check(&browser, "the deliveries").await;
        browser.click("//td//a[starts-with(@href, '/portal/webhooks/deliveries/')]").await;
        browser.find("//dd//span[text()='Failed']").await;
        browser.press("Retry now").await;
        browser.sees("The delivery is queued again.").await;
        node.project().await;
        assert_eq!(shop::worker(&node.options, &receiver, DEADLINE).once().await.unwrap().delivered, 1);
        let received = arrived.recv().await.unwrap();
        received.verify(&token, chrono::Utc::now().timestamp()).expect("signed with the new token");
        browser.run("location.reload()").await;
        browser.find("//dd//span[text()='Delivered']").await;
        browser.sees("thank you").await;
        let headers = "return [...document.querySelectorAll('td[data-name=Header]')].map(cell => cell.textContent.toLowerCase())";
        let mut headers: Vec<String> = serde_json::from_value(browser.run(headers).await).unwrap();
        let mut sent: Vec<String> = received.headers.iter().map(|(name, _)| name.clone()).collect();
        // Only after a rotation that keeps the old token, and with traces.
        sent.extend(["x-signature-previous".to_owned(), "traceparent".to_owned()]);
        headers.sort();
        sent.sort();
        assert_eq!(headers, sent);
        for name in ["User-Agent", "X-Webhook-ID", "X-Event-ID", "X-Event-Sequence", "X-Timestamp", "X-Request-ID"] {
            let value = received.header(&name.to_ascii_lowercase()).unwrap();
            browser.find(&format!("//tr[td[1]='{name}']/td[@data-name='Value']//code[text()='{value}']")).await;
        }
        browser.find("//h2[text()='Payload']/following-sibling::pre[1][contains(., 'reference_code')]").await;
        browser.press("How to check the signature").await;
        check(&browser, "a delivery with its response").await;

        browser.open(&format!("{}/portal/webhooks/{}", node.url(), hook["id"])).await;
        browser.press("All attempts of this webhook").await;
        browser.find("//td//span[text()='Delivered']").await;
        check(&browser, "the attempts of a webhook").await;
        browser.run("document.querySelector('select[name=outcome]').value = 'failed'").await;
        browser.press("Filter").await;
        browser.sees("No attempt matches these filters.").await;
        browser.press("Show all attempts").await;
        browser.click("//td//a[starts-with(@href, '/portal/webhooks/deliveries/')]").await;
        browser.find("//h2[text()='Attempts']").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_rotates_a_signing_secret_and_deletes_a_beneficiary() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    let hook = json!({"name": "Signed", "url": "https://shop.example/a", "events": ["order.created"],
        "credential_id": setup.client.credential_id});
    node.client(&setup.client, "POST", "/webhooks", hook).await;
    let ada =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let ada = node.client(&setup.client, "POST", "/beneficiaries", ada).await.data(201);
    in_browser((390, 1_800), true, |browser| async move {
        enter(&browser, &node, &owner, "/portal/api-keys").await;
        browser.click("//a[@aria-label='Rotate the signing secret of main']").await;
        browser.find("//h1[text()='Rotate the signing secret?']").await;
        check(&browser, "the rotation of a signing secret").await;
        let head = node.head().await;
        browser.press("Replace the signing secret").await;
        browser.find("//h1[text()='The new signing secret']").await;
        browser.sees("it is never shown again").await;
        let secret = browser.text("//dd//code").await;
        assert!(secret.len() >= 32);
        assert_eq!(node.head().await, head + 1);
        check(&browser, "a new signing secret").await;
        browser.press("All API keys").await;
        browser.find("//h1[text()='API keys']").await;
        lacks(&browser, &secret, "the list of API keys").await;
        browser.click("//a[@aria-label='Rotate the signing secret of main']").await;
        browser.find("//h1[text()='Rotate the signing secret?']").await;
        lacks(&browser, &secret, "the next rotation").await;

        browser.open(&format!("{}/portal/beneficiaries/{}", node.url(), ada["id"])).await;
        browser.press("Delete this beneficiary").await;
        check(&browser, "the deletion of a beneficiary").await;
        browser.press("Delete the beneficiary").await;
        browser.sees("Deleted.").await;
        browser.sees("You have no beneficiary yet.").await;
        let gone = node.client(&setup.client, "GET", &format!("/beneficiaries/{}", ada["id"]), Value::Null).await;
        gone.refused(404, "E_NOT_FOUND");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_tells_why_a_webhook_received_an_event_or_not() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201);
    let hook = json!({"name": "Shop", "url": receiver.url(), "events": ["order.created", "order.delivered"]});
    let hook = node.client(&setup.client, "POST", "/webhooks", hook).await.json();
    node.fulfil(order["id"].as_i64().unwrap()).await;
    node.project().await;
    assert_eq!(shop::worker(&node.options, &receiver, DEADLINE).once().await.unwrap().delivered, 1);
    in_browser((1440, 1_400), true, |browser| async move {
        enter(&browser, &node, &viewer, &format!("/portal/webhooks/{}/explanation", hook["id"])).await;
        // A script sets the value at once: the page would ask for each beginning of a number that is typed slowly.
        let explain = async |order: &str| {
            browser.run(&format!("document.getElementById('order_id').value = '{order}'")).await;
            browser.press("Filter").await;
        };
        let told = [
            ("order.created Not sent", "The webhook was registered later. The event was not sent."),
            ("order.pending Not sent", "The webhook was not subscribed to this event type at that time. The event was not sent."),
            ("order.delivered Delivered", "The webhook was subscribed to this event type. The event was delivered."),
        ];
        for asked in [order["id"].to_string(), order["reference_code"].as_str().unwrap().to_owned()] {
            browser.find("//h1[contains(., 'get this?')]").await;
            explain(&asked).await;
            browser.find(&format!("//input[@id='order_id'][@value='{asked}']")).await;
            browser.find("//ol[@aria-label='Events of the order'][count(li)=3]").await;
            for (event, reason) in told {
                let step = format!("//ol/li[.//strong[normalize-space()='{event}']]//p[normalize-space()='{reason}']");
                browser.find(&step).await;
            }
            browser.find("//ol/li[.//strong[starts-with(., 'order.delivered')]]//ul[count(li)=1]").await;
            browser.find("//ol//ul/li[contains(., ', 1 attempt, your endpoint answered 200')]").await;
        }
        check(&browser, "an explanation with a delivery").await;
        explain("999999").await;
        browser.find("//input[@id='order_id'][@aria-invalid='true'][@value='999999']").await;
        browser.find("//*[@role='alert'][contains(., 'Some fields are not valid.')]").await;
        browser.sees("Order must be the number or the reference of an order of yours.").await;
        assert!(!browser.text("//main").await.contains("Events of"));
        browser.logs_refusal(400).await;
        check(&browser, "an explanation of an unknown order").await;
        explain(&order["id"].to_string()).await;
        browser.click("//ol//ul/li/a[starts-with(@href, '/portal/webhooks/deliveries/')]").await;
        browser.find("//dd//span[text()='Delivered']").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_sets_and_removes_headers_and_lets_the_old_token_sign_for_a_while() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let operator = node.user(setup.client.account_id, "operator").await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    in_browser((390, 2_400), true, |browser| async move {
        enter(&browser, &node, &operator, "/portal/webhooks/new").await;
        browser.fill("Name", "Shop").await;
        browser.fill("URL", &receiver.url()).await;
        browser.click("//input[@value='order.created']").await;
        browser.fill("Headers of your own", "Authorization: Bearer 7f3d\nX-Shop: 7").await;
        browser.press("Create the webhook").await;
        browser.sees("it is never shown again").await;
        let first = browser.text("//dd//code").await;
        browser.press("To the webhook").await;
        browser.find("//div[dt='Headers of your own']/dd[normalize-space()='authorization, x-shop']").await;
        assert_eq!(browser.run("return document.documentElement.outerHTML.includes('7f3d')").await, false);
        let webhooks = node.client(&setup.client, "GET", "/webhooks", Value::Null).await.data(200);
        let test = format!("/webhooks/{}/test", webhooks["webhooks"][0]["id"]);
        let mut tested = async || {
            node.client(&setup.client, "POST", &test, Value::Null).await.data(200);
            node.project().await;
            assert_eq!(shop::worker(&node.options, &receiver, DEADLINE).once().await.unwrap().delivered, 1);
            arrived.recv().await.unwrap()
        };
        let received = tested().await;
        received.verify(&first, chrono::Utc::now().timestamp()).expect("signed with the first token");
        assert_eq!((received.header("authorization"), received.header("x-shop")), (Some("Bearer 7f3d"), Some("7")));
        assert_eq!(received.header("x-signature-previous"), None);

        browser.press("Rotate the token").await;
        let old = "//select[@id=//label[.='Sign deliveries with the old one, too']/@for]";
        browser.find(&format!("{old}/option[1][text()='Not at all']")).await;
        browser.click(&format!("{old}/option[text()='For 24 hours']")).await;
        check(&browser, "the choice of the time of an old token").await;
        browser.press("Replace the token").await;
        browser.sees("The new token signs every delivery from now on.").await;
        let second = browser.text("//dd//code").await;
        assert_ne!(first, second);
        let (received, now) = (tested().await, chrono::Utc::now().timestamp());
        received.verify(&second, now).expect("signed with the new token");
        assert_eq!(received.token(), Some(&*second));
        let (timestamp, previous) = (received.timestamp().unwrap(), received.header("x-signature-previous").unwrap());
        assert_eq!(signature::verify(&first, timestamp, &received.body, previous, now), Ok(()));
        assert_eq!(received.header("x-shop"), Some("7"), "a rotation keeps the headers");

        browser.press("To the webhook").await;
        browser.press("Edit this webhook").await;
        browser.sees("Now: authorization, x-shop.").await;
        browser.click("//label[normalize-space()='Remove them']/input[@name='remove_headers']").await;
        check(&browser, "the removal of headers").await;
        browser.press("Save").await;
        browser.sees("The change is saved.").await;
        browser.find("//div[dt='Headers of your own']/dd[normalize-space()='none']").await;
        let received = tested().await;
        assert_eq!((received.header("authorization"), received.header("x-shop")), (None, None));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_without_an_attempt_left_leads_to_a_replay() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let hook = json!({"name": "Shop", "url": "https://example.com/hook", "events": ["order.created"]});
    let hook = node.client(&setup.client, "POST", "/webhooks", hook).await.json();
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
    node.project().await;
    let fail = "UPDATE delivery_state SET status = 'failed', attempt_count = 5 RETURNING delivery_id";
    let delivery: i64 = sqlx::query_scalar(fail).fetch_one(&mut node.admin().await).await.unwrap();
    let page = read(&node, &viewer.cookie, &format!("/portal/webhooks/deliveries/{delivery}")).await;
    let replays = format!("href=\"/portal/webhooks/{}/replays\"", hook["id"]);
    assert!(page.contains("All attempts are used") && page.contains(&replays), "{page}");
}
