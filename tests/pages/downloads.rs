//! Files that pages of money, the audit and orders offer, downloaded by a click.

use std::path::Path;

use chrono::Utc;
use rewards_ledger::access::Role;
use serde_json::{Value, json};

use super::console::enter;
use super::in_browser;
use super::portal_orders::{self, downloaded, downloaded_bytes};
use crate::support::node::Node;
use crate::support::wait::until;
use crate::support::workbook;

/// Waits until a directory has a downloaded file with a name that begins and ends like this. Returns its content.
async fn downloaded_as(directory: &Path, (begin, end): (&str, &str)) -> Vec<u8> {
    let named = || {
        let mut files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        files.find(|name| name.starts_with(begin) && name.ends_with(end))
    };
    until(&format!("{begin}…{end} is downloaded"), async || named().is_some()).await;
    downloaded_bytes(&directory.join(named().unwrap())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_auditor_downloads_the_files_of_the_console() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].clone();
    let today = Utc::now().date_naive();
    let csv = format!("date,amount,currency,reference\n{today},1000.00,EUR,opening of {}\n", setup.wallet_id);
    let import = node.by_operator("POST", "/reconciliation/statements").header("Content-Type", "text/csv").body(csv);
    let statement = node.send(import).await.data(201)["id"].clone();
    node.publish().await;
    let directory = tempfile::tempdir().unwrap();
    in_browser((1440, 2_000), true, |browser| async move {
        browser.save_files_in(directory.path()).await;
        let file = |name: &str| directory.path().join(name);
        enter(&node, &browser, Role::Auditor).await;
        browser.press("Reconciliation").await;
        browser.press_for_file("Download as a spreadsheet").await;
        let workbook = downloaded_as(directory.path(), ("reconciliation-", ".xlsx")).await;
        let sheets = workbook::sheets(&workbook);
        assert_eq!(sheets[1].column("currency"), ["EUR"], "{sheets:?}");
        browser.press_for_file("Download as CSV").await;
        let csv = String::from_utf8(downloaded_as(directory.path(), ("reconciliation-", ".csv")).await).unwrap();
        assert!(csv.contains("EUR") && csv.lines().count() > 1, "{csv}");

        browser.open(&format!("{}/console/bank-statements/{statement}", node.url())).await;
        browser.press_for_file("Download as a spreadsheet").await;
        let sheets = workbook::sheets(&downloaded_bytes(&file(&format!("matches-{statement}.xlsx"))).await);
        assert_eq!((sheets[0].column("status"), &*sheets[1].name), (vec!["MATCHED"], "Not in the statement"), "{sheets:?}");
        browser.press_for_file("Download as CSV").await;
        let csv = downloaded(&file(&format!("matches-{statement}.csv"))).await;
        assert!(csv.contains("MATCHED") && csv.contains("opening of"), "{csv}");

        browser.open(&format!("{}/console/wallets/{}", node.url(), setup.wallet_id)).await;
        browser.press_for_file("Statement as CSV").await;
        let csv = downloaded(&file(&format!("statement-{}.csv", setup.wallet_id))).await;
        assert!(csv.contains("CLOSING_BALANCE") && csv.contains("990.00"), "{csv}");

        browser.open(&format!("{}/console/audit?type=OrderPlaced", node.url())).await;
        browser.press_for_file("Download as CSV").await;
        let csv = downloaded(&file("audit.csv")).await;
        assert!(csv.lines().count() == 2 && csv.contains(",OrderPlaced,"), "{csv}");

        browser.open(&format!("{}/console/orders/{order}", node.url())).await;
        browser.click("//summary[text()='Receipt']").await;
        browser.press_for_file("Download the receipt").await;
        let receipt: Value = serde_json::from_str(&downloaded(&file(&format!("receipt-{order}.json"))).await).unwrap();
        assert!(receipt["checkpoint"].is_string() && receipt["events"][0]["type"] == "OrderPlaced", "{receipt}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_downloads_a_statement() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let directory = tempfile::tempdir().unwrap();
    in_browser((390, 2_000), true, |browser| async move {
        browser.save_files_in(directory.path()).await;
        let path = format!("/portal/wallets/{}/statement", setup.wallet_id);
        portal_orders::enter(&browser, &node, &viewer, &path).await;
        browser.press_for_file("Download as CSV").await;
        let csv = downloaded(&directory.path().join(format!("statement-{}.csv", setup.wallet_id))).await;
        assert!(csv.contains("CLOSING_BALANCE") && csv.contains("1000.00"), "{csv}");
    })
    .await;
}
