//! The interactive pages in a real browser: they show the whole contract, load nothing from other sites, and call the
//! API.

use serde_json::{Value, json};

use crate::support::browser::Browser;
use crate::support::node::Node;

/// Builds an XPath for an element of this class.
fn of_class(class: &str) -> String {
    format!("*[contains(concat(' ', @class, ' '), ' {class} ')]")
}

/// Enters a credential into the page's dialog.
async fn authorize(browser: &Browser, scheme: &str, value: &str) {
    let form = format!("//div[@class='auth-container'][.//code[text()='{scheme}']]");
    browser.type_into(&format!("{form}//input"), value).await;
    browser.click(&format!("{form}//button[text()='Authorize']")).await;
    browser.find(&format!("{form}//button[text()='Logout']")).await;
}

/// Sends an operation's example with the page's button. Returns the status and the body that the page shows.
async fn try_out(browser: &Browser, operation: &str) -> (String, String) {
    let block = format!("//div[starts-with(@id, 'operations-') and contains(@id, '-{operation}')]");
    browser.click(&format!("{block}//{}", of_class("opblock-summary-control"))).await;
    browser.click(&format!("{block}//{}", of_class("try-out__btn"))).await;
    browser.click(&format!("{block}//{}", of_class("execute"))).await;
    let answer = format!("{block}//{}//tbody", of_class("live-responses-table"));
    let status = browser.text(&format!("{answer}//{}", of_class("response-col_status"))).await;
    let body = browser.text(&format!("{answer}//{}", of_class("microlight"))).await;
    (status, body)
}

/// Opens a page and waits until it shows every operation of its document.
async fn open(browser: &Browser, node: &Node, page: &str, document: &str) {
    let document = node.send(node.request("GET", document)).await.json();
    let methods = |path: &Value| path.as_object().unwrap().keys().filter(|key| *key != "parameters").count();
    let of = |part: &str| document[part].as_object().map_or(0, |paths| paths.values().map(methods).sum());
    let operations = of("paths") + of("webhooks");
    browser.open(&format!("{}{page}", node.url())).await;
    browser.find(&format!("(//{})[{operations}]", of_class("opblock"))).await;
    let shown = browser.run("return document.querySelectorAll('.opblock').length").await;
    assert_eq!(shown, json!(operations), "{page}");
    assert_eq!(browser.run("return document.title").await, document["info"]["title"]);
    let loaded = browser.run("return performance.getEntriesByType('resource').map(entry => entry.name)").await;
    let elsewhere: Vec<&Value> =
        loaded.as_array().unwrap().iter().filter(|url| !url.as_str().unwrap().starts_with("data:")).collect();
    assert!(elsewhere.is_empty(), "{page} loads {elsewhere:?}");
    assert_eq!(browser.complaints().await, Vec::<Value>::new(), "{page}");
}

async fn pages_work(browser: &Browser) {
    let node = Node::start().await;
    let setup = node.setup().await;

    open(browser, &node, "/docs", "/openapi.json").await;
    browser.click(&format!("//{}", of_class("authorize"))).await;
    authorize(browser, "ApiKey", &setup.client.key).await;
    authorize(browser, "ApiSecret", &setup.client.secret).await;
    browser.click(&format!("//{}", of_class("btn-done"))).await;
    let (status, body) = try_out(browser, "list_wallets").await;
    assert_eq!(status, "200", "{body}");
    assert_eq!(browser.complaints().await, Vec::<Value>::new(), "calling the API violates no policy");
    let wallets: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(wallets["data"]["wallets"][0]["id"], setup.wallet_id, "{wallets}");

    open(browser, &node, "/admin/docs", "/admin/openapi.json").await;
    let (status, body) = try_out(browser, "list_accounts").await;
    assert!(status.starts_with("401") && body.contains("E_"), "{status} {body}");
    let said = browser.complaints().await;
    assert!(said.len() == 1 && said[0]["source"] == "network", "the 401 alone: {said:?}");

    browser.open(&format!("{}/docs/guides", node.url())).await;
    browser.click("//a[text()='Receiving webhooks']").await;
    assert_eq!(browser.run("return document.title").await, "Receiving webhooks");
    assert_eq!(browser.run("return getComputedStyle(document.body).maxWidth").await, "832px", "the page is styled");
    assert_eq!(browser.complaints().await, Vec::<Value>::new(), "the guides");

    // The page's policy blocks an injected script, and the browser reports it. So the test would notice a violation.
    browser.open(&format!("{}/docs", node.url())).await;
    let script = "const script = document.createElement('script'); script.textContent = 'window.injected = true';
        document.body.append(script); document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.injected = true\">');
        return window.injected === undefined";
    assert_eq!(browser.run(script).await, true);
    let said = browser.complaints().await;
    assert!(said.iter().any(|line| line["message"].as_str().unwrap().contains("Content Security Policy")), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_interactive_pages_show_the_contract_and_call_it() {
    let Some(browser) = Browser::start().await else { return };
    pages_work(&browser).await;
    browser.put_back().await;
}
