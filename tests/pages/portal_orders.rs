//! Ordering in the portal: one product with its price, many from a CSV, voucher codes, and the list as CSV.

use std::collections::BTreeSet;
use std::path::Path;

use rewards_ledger::ledger::Command;
use serde_json::{Value, json};
use webhook_client::receiver::ReceiverResponse;

use super::filters::read;
use super::{check, in_browser};
use crate::support::browser::Browser;
use crate::support::ledger::{Customer, run};
use crate::support::node::{Node, PASSWORD, Setup, User};
use crate::support::shop::{DEADLINE, receiver, worker};
use crate::support::wait::until;

/// Number of lines of the bulk order. One step places 50.
const LINES: usize = 60;

/// Opens a page of the portal, and signs in on the way.
pub async fn enter(browser: &Browser, node: &Node, user: &User, path: &str) {
    browser.open(&format!("{}{path}", node.url())).await;
    browser.fill("Email", &user.email).await;
    browser.fill("Password", PASSWORD).await;
    browser.press("Sign in").await;
}

async fn with_operator() -> (Node, Setup, User) {
    let node = Node::start().await;
    let setup = node.setup().await;
    let operator = node.user(setup.client.account_id, "operator").await;
    (node, setup, operator)
}

/// Returns the number of orders.
async fn orders(node: &Node) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(node.ledger.pool()).await.unwrap()
}

/// Writes a bulk order. The last line is refused, because its reference is in use.
pub fn bulk(directory: &Path, product: i64) -> String {
    let lines = (1..=LINES).map(|line| match line {
        LINES => format!("{product},10.00,2,taken\n"),
        _ => format!("{product},10.00,1,basket-{line}\n"),
    });
    let path = directory.join("bulk.csv");
    std::fs::write(&path, format!("product_id,denomination,quantity,client_reference\n{}", lines.collect::<String>())).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Waits until a download has ended, and removes its file. Returns its content.
pub async fn downloaded(path: &Path) -> String {
    String::from_utf8(downloaded_bytes(path).await).unwrap()
}

/// Waits until a download of any kind has ended, and removes its file. Returns its content.
pub async fn downloaded_bytes(path: &Path) -> Vec<u8> {
    // The browser reserves the name with an empty file, and replaces it with the whole one.
    let is_whole = async || tokio::fs::metadata(path).await.is_ok_and(|file| file.len() > 0);
    until(&format!("{} is downloaded", path.display()), is_whole).await;
    let content = tokio::fs::read(path).await.unwrap();
    tokio::fs::remove_file(path).await.unwrap();
    content
}

#[tokio::test(flavor = "multi_thread")]
async fn the_price_appears_as_one_types_and_the_order_is_placed_once() {
    let (node, setup, operator) = with_operator().await;
    in_browser((390, 1_600), true, |browser| async move {
        enter(&browser, &node, &operator, "/portal/products").await;
        browser.find("//h1[text()='Catalogue']").await;
        check(&browser, "the catalogue").await;
        browser.press("Acme Card").await;
        browser.find("//h1[text()='Acme Card']").await;
        browser.run("window.opened = 'once'").await;
        browser.click("//select[@id='denomination']/option[contains(text(), '25')]").await;
        browser.type_into("//input[@id='quantity']", "3").await;
        browser.find("//p[contains(@class, 'price')][contains(., '75.00')]").await;
        assert_eq!(browser.run("return window.opened").await, "once", "the price comes without a reload");
        browser.fill("Units", "9").await;
        browser.sees("must be at most 5").await;
        browser.fill("Units", "2").await;
        browser.find("//p[contains(@class, 'price')][contains(., '50.00')]").await;
        browser.fill("Your reference", "basket-1").await;
        browser.find("//input[@type='hidden'][@name='client_reference'][@value='basket-1']").await;
        check(&browser, "a product with its price").await;
        browser.press("Place the order").await;
        browser.sees("The order is placed.").await;
        browser.sees("basket-1").await;
        check(&browser, "a placed order").await;
        // A person goes back, and sends the form again.
        browser.run("history.back()").await;
        browser.press("Place the order").await;
        browser.sees("basket-1").await;
        assert_eq!(orders(&node).await, 1);
        let wallet = node.client(&setup.client, "GET", "/wallets", Value::Null).await.data(200);
        assert_eq!(wallet["wallets"][0]["balance"], "950.00");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_order_shows_its_progress_and_places_nothing_twice() {
    let (node, setup, operator) = with_operator().await;
    let taken = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1, "client_reference": "taken"});
    node.client(&setup.client, "POST", "/orders", taken).await.data(201);
    let directory = tempfile::tempdir().unwrap();
    let file = bulk(directory.path(), setup.product_id);
    in_browser((1440, 2_400), true, |browser| async move {
        browser.save_files_in(directory.path()).await;
        // While it is held, a page does not send its next step by itself.
        let hold = "const wait = window.setTimeout;
            if (sessionStorage.held) window.setTimeout = (step, time) => (time === 400 ? 0 : wait(step, time));";
        browser.run_before_scripts(hold).await;
        enter(&browser, &node, &operator, "/portal/orders/bulk").await;
        browser.find("//h1[text()='Order many at once']").await;
        browser.fill("Pasted CSV", &format!("product_id,denomination,quantity\n{},11,1\n", setup.product_id)).await;
        browser.press("Check the orders").await;
        browser.sees("must be 10.00, 25.00 EUR").await;
        browser.logs_refusal(400).await;
        check(&browser, "a bulk order to correct").await;
        for is_first in [true, false] {
            browser.open(&format!("{}/portal/orders/bulk", node.url())).await;
            browser.type_into("//input[@id='file']", &file).await;
            browser.press("Check the orders").await;
            browser.find("//td[contains(normalize-space(), '610.00')]").await;
            if is_first {
                check(&browser, "the preview of a bulk order").await;
                browser.sees("Entries 1 to 50 of 60.").await;
                browser.press("Next lines").await;
                browser.sees("Entries 51 to 60 of 60.").await;
                browser.find("//td[@data-name='Line'][.='60']/following-sibling::td[.='taken']").await;
                assert_eq!(orders(&node).await, 1, "a preview places nothing");
            }
            let hold = if is_first { "sessionStorage.held = 1" } else { "delete sessionStorage.held" };
            browser.run(hold).await;
            browser.press(&format!("Place {LINES} orders")).await;
            if is_first {
                browser.find("//h1[text()='Bulk order in progress']").await;
                assert_eq!(browser.run("return document.querySelector('progress').value").await, 50);
                browser.sees("50 of 60 lines: 50 placed, 0 refused.").await;
                assert_eq!(orders(&node).await, 51);
                check(&browser, "a bulk order in progress").await;
                browser.press("Pause").await;
                browser.press("Place the next 10 lines").await;
            }
            // The second time, the page sends its steps by itself.
            browser.find("//h1[text()='Bulk order: results']").await;
            browser.sees("60 of 60 lines: 59 placed, 1 refused.").await;
            browser.find("//td[normalize-space()='60']/following-sibling::td[normalize-space()='Not placed']").await;
            assert_eq!(orders(&node).await, 60, "each line is placed once");
        }
        check(&browser, "the results of a bulk order").await;
        let links = "return [...document.querySelectorAll('main td a[href^=\"/portal/orders/\"]')].map((order) => order.href)";
        let placed = browser.run(links).await;
        assert_eq!(placed.as_array().unwrap().len(), 49, "the line without an order comes first");
        browser.press("Next lines").await;
        browser.sees("Entries 51 to 60 of 60.").await;
        assert_eq!(browser.run(links).await.as_array().unwrap().len(), 10);
        browser.press_for_file("Download as CSV").await;
        let csv = downloaded(&directory.path().join("bulk-results.csv")).await;
        let rows: Vec<&str> = csv.lines().collect();
        assert!(rows.len() == 61 && rows[59].contains(",basket-59,placed,") && rows[60].contains(",taken,refused,,"), "{csv}");
        browser.run("sessionStorage.held = 1").await;
        browser.press("Place the file again").await;
        browser.sees("50 of 60 lines: 50 placed, 0 refused.").await;
        browser.press("Place the next 10 lines").await;
        browser.sees("60 of 60 lines: 59 placed, 1 refused.").await;
        assert_eq!((browser.run(links).await, orders(&node).await), (placed, 60), "the same orders result");
        browser.press("Next lines").await;
        browser.click("//td[@data-name='Line'][.='59']/following-sibling::td/a[starts-with(., 'Order ')]").await;
        browser.sees("basket-59").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_order_without_a_file_has_its_problem_at_the_field_for_lines() {
    let (node, _, operator) = with_operator().await;
    in_browser((390, 2_400), true, |browser| async move {
        enter(&browser, &node, &operator, "/portal/orders/bulk").await;
        browser.press("Check the orders").await;
        browser.find("//textarea[@id='lines'][@aria-invalid='true'][contains(@aria-describedby, 'lines-problem')]").await;
        browser.find("//p[@id='lines-problem'][contains(., 'must name the columns')]").await;
        let others = "return document.querySelectorAll('[aria-invalid]:not(#lines), .problem:not(#lines-problem)').length";
        assert_eq!(browser.run(others).await, 0, "the problem stands at one field");
        browser.logs_refusal(400).await;
        check(&browser, "a bulk order without a file").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn voucher_codes_are_shown_and_downloaded_and_each_reading_is_audited() {
    let (node, setup, operator) = with_operator().await;
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 2, "client_reference": "=1+1"});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(order).await;
    let downloads = tempfile::tempdir().unwrap();
    in_browser((1440, 1_600), true, |browser| async move {
        browser.save_files_in(downloads.path()).await;
        enter(&browser, &node, &viewer, &format!("/portal/orders/{order}")).await;
        browser.sees("To read the codes, you need the role operator or owner.").await;
        browser.press("Sign out").await;
        enter(&browser, &node, &operator, &format!("/portal/orders/{order}")).await;
        browser.press("Show the voucher codes").await;
        browser.sees("This reading is recorded.").await;
        browser.sees("card-1").await;
        check(&browser, "the codes of vouchers").await;
        for _ in 0..2 {
            browser.press_for_file("Download the codes as CSV").await;
            let codes = downloaded(&downloads.path().join(format!("vouchers-{order}.csv"))).await;
            assert!(codes.contains("card-1") && codes.contains("card-2") && codes.lines().count() == 3, "{codes}");
        }
        let readings = node.operator("GET", "/audit?type=VouchersRevealed", Value::Null).await.data(200);
        let readings = readings["entries"].as_array().unwrap();
        let by_user =
            readings.iter().filter(|one| (&one["actor_type"], &one["actor_id"]) == (&json!("user"), &json!(operator.id)));
        assert_eq!((by_user.count(), readings.len()), (3, 3), "{readings:?}");
        browser.press("Back to the order").await;
        browser.sees("The codes of 2 units were read").await;
        browser.open(&format!("{}/portal/orders?status=DELIVERED", node.url())).await;
        browser.press_for_file("Download as CSV").await;
        let list = downloaded(&downloads.path().join("orders.csv")).await;
        assert!(list.lines().count() == 2 && list.contains(",'=1+1,DELIVERED,"), "{list}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_line_of_an_order_leads_to_its_movement_and_to_each_delivery() {
    let (node, setup, operator) = with_operator().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(503)).await;
    let hook = json!({"name": "Shop", "url": format!("{}/hooks", receiver.url()), "events": ["order.created"]});
    node.client(&setup.client, "POST", "/webhooks", hook).await.json();
    let order = super::place(&node, &setup).await;
    node.project().await;
    worker(&node.options, &receiver, DEADLINE).once().await.unwrap();
    in_browser((1440, 1_600), true, |browser| async move {
        enter(&browser, &node, &operator, &format!("/portal/orders/{order}")).await;
        browser.find("//ol[@aria-label='What happened']//*[contains(., 'Attempt 1 to webhook “Shop”: failed')]").await;
        browser.find("//ol[@aria-label='What happened']//*[contains(., 'HTTP status 503')]").await;
        browser.click("(//ol[@aria-label='What happened']//a[starts-with(., 'Transaction ')])[1]").await;
        browser.find("//dt[.='Cause']/following-sibling::dd/a[starts-with(., 'Order ')]").await;
        browser.press(&format!("Order {order}")).await;
        browser.click("(//ol[@aria-label='What happened']//a[starts-with(., 'Delivery ')])[1]").await;
        browser.sees("503").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_orders_as_csv_are_all_orders_of_the_list() {
    const ORDERS: usize = 1_050;
    let node = Node::start().await;
    let customer = Customer::with(&node.ledger, "1000000.00").await;
    let viewer = node.user(customer.account_id.0, "viewer").await;
    for _ in 0..ORDERS / 150 {
        let place = |_| run(&node.ledger, Command::PlaceOrder(customer.order("10.00", 1)));
        futures::future::join_all((0..150).map(place)).await;
    }
    let numbers = async |query: &str| {
        let csv = read(&node, &viewer.cookie, &format!("/portal/orders.csv{query}")).await;
        let rows: Vec<i64> = csv.lines().skip(1).map(|row| row.split(',').next().unwrap().parse().unwrap()).collect();
        (rows.len(), rows.into_iter().collect::<BTreeSet<i64>>().len())
    };
    for query in ["", "?status=PENDING", &format!("?product_id={}", customer.product_id)] {
        assert_eq!(numbers(query).await, (ORDERS, ORDERS), "{query}");
    }
    assert_eq!(numbers("?status=DELIVERED").await, (0, 0));
    // More orders of one millisecond than a call returns.
    let at_once = "UPDATE orders SET created_at = date_trunc('day', created_at)";
    sqlx::query(at_once).execute(&mut node.admin().await).await.unwrap();
    assert_eq!(numbers("").await, (ORDERS, ORDERS));
}
