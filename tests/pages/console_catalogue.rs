//! The catalogue and its stock in the console.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rewards_ledger::access::Role;
use serde_json::{Value, json};

use super::console::enter;
use super::furnished::PNG;
use super::long_work::{seen_in_other, upload_under};
use super::{check, in_browser};
use crate::support::browser::Browser;
use crate::support::node::{Node, product};

/// Writes a file for an upload.
pub fn file(directory: &Path, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Loads 1,001 vouchers of a product, which are two parts. Holds up the second one until the other window shows that the first one
/// is loaded.
async fn load_in_parts(browser: &Browser, node: &Node, directory: &Path, (product, name): (i64, &str), lot: &str) {
    let rows: Vec<String> = (1..=1_001).map(|number| format!("{lot}-{number},{lot}-{number},10")).collect();
    let content = format!("card_number,voucher_reference_number,denomination\n{}\n", rows.join("\n"));
    browser.open(&format!("{}/console/products/{product}/vouchers", node.url())).await;
    browser.type_into("//input[@id='file']", &file(directory, "lot.csv", content)).await;
    // The index of references lets no other transaction add this one until the first one ends.
    let last = format!(
        "BEGIN; INSERT INTO vault.vouchers (shard_id, id, product_id, denomination, reference, fingerprint, sealed)
         VALUES (1, 0, 0, 10, '{lot}-1001', '', '')"
    );
    assert_eq!(upload_under(browser, node, &last).await, "Vouchers loaded: 1\u{202f}000 of 1\u{202f}001");
    let titles = "page.readyState === 'complete' &&
        [...page.querySelectorAll('h1')].filter((title) => title.checkVisibility()).map((title) => title.textContent)";
    assert_eq!(seen_in_other(browser, titles).await, json!([format!("Vouchers of {name}")]));
    let figures = "[...page.querySelectorAll('.figure strong')].map((figure) => figure.textContent)";
    assert_eq!(seen_in_other(browser, figures).await, json!(["1001", "0", "0"]));
    browser.run("window.other.close()").await;
}

/// Adds a category and a part of it, and a product in the category. The page of the product stays open.
async fn add_product(browser: &Browser) {
    browser.press("Products").await;
    browser.sees("The catalogue is empty.").await;
    check(browser, "an empty catalogue").await;
    browser.press("Categories").await;
    browser.fill("Name", "Gift cards").await;
    browser.press("Add the category").await;
    browser.sees("Created.").await;
    browser.fill("Name", "Game cards").await;
    browser.click("//select[@id='parent_id']/option[text()='Gift cards']").await;
    browser.press("Add the category").await;
    browser.find("//tr[td[@data-name='Name'][.='Game cards']][td[@data-name='Part of'][.='Gift cards']]").await;
    check(browser, "the categories").await;
    browser.press("Products").await;
    browser.press("Add the first product").await;
    browser.fill("Name", "Acme Card").await;
    browser.fill("Brand", "Acme").await;
    browser.click("//option[text()='Gift cards']").await;
    browser.fill("Country", "de").await;
    browser.fill("Fixed values", "10, 25").await;
    browser.fill("Units per order", "5").await;
    browser.press("Add the product").await;
    browser.sees("Currency is required").await;
    browser.logs_refusal(400).await;
    browser.fill("Currency", "eur").await;
    check(browser, "a new product").await;
    browser.press("Add the product").await;
    browser.find("//h1[text()='Acme Card']").await;
    check(browser, "a product in the console").await;
}

/// Adds a product that has any value in a range. Its page stays open.
async fn add_product_with_a_range(browser: &Browser) {
    browser.press("Products").await;
    browser.press("Add a product").await;
    for (label, text) in [
        ("Name", "Flex Card"),
        ("Brand", "Acme"),
        ("Country", "de"),
        ("Currency", "eur"),
        ("Smallest value", "5"),
        ("Units per order", "5"),
    ] {
        browser.fill(label, text).await;
    }
    browser.click("//option[text()='Game cards']").await;
    browser.click("//option[text()='Any value in a range']").await;
    browser.press("Add the product").await;
    browser.sees("Largest value is required for a RANGE product").await;
    browser.logs_refusal(400).await;
    check(browser, "a product without an end of its range").await;
    browser.fill("Largest value", "50").await;
    browser.press("Add the product").await;
    browser.find("//h1[text()='Flex Card']").await;
    browser.find("//div[dt='Face values']/dd[normalize-space()='5.00 to 50.00 EUR']").await;
    browser.find("//div[dt='Category']/dd[.='Game cards']").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_adds_a_product_loads_its_vouchers_voids_one_moves_one_and_expires_one() {
    let node = Node::start().await;
    let account = node.account("Globex").await.account_id;
    let directory = tempfile::tempdir().unwrap();
    let image = file(directory.path(), "card.png", STANDARD.decode(PNG).unwrap());
    let rows = "card_number,voucher_reference_number,denomination,expires_on\nA-1,VCH-1,10,\nA-2,VCH-2,10,\n,VCH-3,10,\n\
        A-4,VCH-4,11,\nA-5,VCH-5,10,2020-01-31\nA-6,VCH-6,10,\nA-1,,10,\n";
    let vouchers = file(directory.path(), "vouchers.csv", rows);
    let (node, directory) = (&node, directory.path());
    in_browser((1440, 2_000), true, |browser| async move {
        enter(node, &browser, Role::Admin).await;
        add_product(&browser).await;
        let successor = node.operator("POST", "/products", product("Acme Card II")).await.data(201)["id"].as_i64().unwrap();
        browser.press("Set the image").await;
        browser.type_into("//input[@id='image']", &image).await;
        browser.press("Upload the image").await;
        browser.find("//img[contains(@alt, 'Acme Card')]").await;

        browser.press("Load vouchers").await;
        browser.press("Load the vouchers").await;
        browser.sees("File is required").await;
        browser.logs_refusal(400).await;
        check(&browser, "the upload of vouchers").await;
        browser.type_into("//input[@id='file']", &vouchers).await;
        browser.press("Load the vouchers").await;
        browser.sees("card_number is required").await;
        browser.sees("denomination is not available for this product").await;
        browser.find("//h2[text()='Rows already there']/following-sibling::p[1][text()='7']").await;
        check(&browser, "the result of an upload").await;
        browser.press("To the stock").await;
        browser.sees("In stock").await;
        browser.fill("Low below", "5").await;
        browser.press("Save the threshold").await;
        browser.find("//td//span[text()='Low']").await;
        // Three are available, and one has expired.
        browser.find("//tbody/tr[td[2]='3' and td[4]='1' and td[6]='5']").await;
        check(&browser, "the stock").await;
        browser.fill("Low below", "").await;
        browser.press("Save the threshold").await;
        browser.find("//tbody/tr[td[2]='3' and td[6]='–']//span[text()='In stock']").await;
        browser.press("Void vouchers").await;
        browser.fill("Reference numbers", "VCH-1\nVCH-9").await;
        browser.fill("Reason", "stolen").await;
        check(&browser, "voiding vouchers").await;
        browser.press("Void these vouchers").await;
        browser.find("//h2[text()='Refused vouchers']").await;
        check(&browser, "voided vouchers").await;
        browser.press("To the stock").await;
        browser.press("Move vouchers").await;
        browser.fill("Reference numbers", "VCH-1\nVCH-6").await;
        browser.fill("Number of the other product", &successor.to_string()).await;
        browser.fill("Reason", "a new design").await;
        check(&browser, "moving vouchers").await;
        browser.press("Move these vouchers").await;
        browser.find("//div[@class='figure'][span='Moved'][strong='1']").await;
        browser.find("//td[text()='is voided']").await;
        check(&browser, "moved vouchers").await;
        let stock = node.operator("GET", &format!("/products/{successor}/stock"), Value::Null).await.data(200);
        assert_eq!(stock["stock"][0]["available"], 1);
        browser.press("To the stock").await;
        browser.press("Expire vouchers").await;
        browser.fill("Reference numbers", "VCH-1\nVCH-2").await;
        browser.press("Set the last day").await;
        browser.sees("Last day (UTC) is required").await;
        browser.logs_refusal(400).await;
        check(&browser, "expiring vouchers without a day").await;
        // A field for a date takes the keys in the order of the browser's language.
        browser.run("document.querySelector('main input[name=expires_on]').value = '2026-01-31'").await;
        browser.press("Set the last day").await;
        browser.sees("With a new last day").await;
        browser.find("//td[text()='is voided']").await;
        check(&browser, "expired vouchers").await;

        browser.press("To the stock").await;
        // None is available, two have expired.
        browser.find("//tbody/tr[td[2]='0' and td[4]='2' and td[5]='1']").await;
        browser.press("Back to the product").await;
        browser.press("Discounts").await;
        check(&browser, "the accounts of discounts").await;
        browser.press(&format!("Account {account}")).await;
        browser.sees("pays the face value").await;
        browser.fill("Discount in percent", "2.5").await;
        browser.press("Set the discount").await;
        browser.sees("2.50 %").await;
        check(&browser, "a discount").await;
        browser.press("Back to the product").await;
        browser.press("Edit").await;
        browser.fill("Units per order", "7").await;
        browser.press("Save the changes").await;
        browser.sees("up to 7").await;
        browser.press("Deactivate this product").await;
        browser.press("Deactivate the product").await;
        browser.sees("Inactive").await;
        browser.press("Activate this product").await;
        browser.press("Activate the product").await;
        browser.find("//dd//span[text()='Active']").await;
        browser.press("Products").await;
        browser.press("Acme Card").await;
        add_product_with_a_range(&browser).await;

        load_in_parts(&browser, node, directory, (successor, "Acme Card II"), "LOT").await;
    })
    .await;
    let other = node.operator("POST", "/products", product("Acme Card III")).await.data(201)["id"].as_i64().unwrap();
    in_browser((1440, 2_000), false, |browser| async move {
        enter(node, &browser, Role::Admin).await;
        load_in_parts(&browser, node, directory, (other, "Acme Card III"), "BOX").await;
    })
    .await;
}
