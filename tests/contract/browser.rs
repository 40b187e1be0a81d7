//! The interactive pages in a real browser: they show the whole contract, load nothing from other sites, and call the
//! API.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::process::Stdio;

use futures::FutureExt;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::node::Node;
use crate::support::program::DEADLINE;

/// A process that is killed together with its children when this value is dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let Some(id) = self.0.id() else { return };
        _ = killpg(Pid::from_raw(i32::try_from(id).unwrap()), Signal::SIGKILL); // the process may already have ended
    }
}

/// Headless Chromium, driven by WebDriver (W3C). It ends with [`Browser::quit`], at the latest when this value is
/// dropped.
struct Browser {
    http: reqwest::Client,
    session: String,
    _driver: Group,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts the browser. Returns `None` if no browser is installed.
    async fn start() -> Option<Browser> {
        let mut driver = Command::new("chromedriver");
        driver.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let Ok(mut driver) = driver.spawn() else {
            assert!(std::env::var_os("CI").is_none(), "chromedriver is needed");
            eprintln!("SKIPPED: the pages were not opened, for there is no chromedriver here");
            return None;
        };
        let mut said = BufReader::new(driver.stdout.take().unwrap()).lines();
        let driver = Group(driver);
        let port = loop {
            let line = tokio::time::timeout(DEADLINE, said.next_line()).await.expect("in time");
            let line = line.unwrap().expect("chromedriver prints its port");
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
        };
        tokio::spawn(async move { while let Ok(Some(_)) = said.next_line().await {} });

        let profile = tempfile::tempdir().unwrap();
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            // The window shows the whole page, so that nothing scrolls away under a click.
            "--window-size=1400,20000",
            &format!("--user-data-dir={}", profile.path().display()),
        ];
        let options = json!({"browserName": "chrome", "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"}, "timeouts": {"implicit": 30_000}});
        let http = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap();
        let mut browser =
            Browser { http, session: format!("http://127.0.0.1:{port}/session"), _driver: driver, _profile: profile };
        let begun = browser.ask("", json!({"capabilities": {"alwaysMatch": options}})).await;
        browser.session = format!("{}/{}", browser.session, begun["sessionId"].as_str().unwrap());
        Some(browser)
    }

    async fn ask(&self, command: &str, body: Value) -> Value {
        let answer = self.http.post(format!("{}{command}", self.session)).json(&body).send().await.unwrap();
        let status = answer.status();
        let mut answer: Value = answer.json().await.unwrap();
        assert!(status.is_success(), "{command} {body}: {answer}");
        answer["value"].take()
    }

    /// Returns the path of the first element that matches an XPath, once there is one.
    async fn find(&self, xpath: &str) -> String {
        let found = self.ask("/element", json!({"using": "xpath", "value": xpath})).await;
        let id = found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        format!("/element/{id}")
    }

    async fn click(&self, xpath: &str) {
        let element = self.find(xpath).await;
        self.ask(&format!("{element}/click"), json!({})).await;
    }

    async fn type_into(&self, xpath: &str, text: &str) {
        let element = self.find(xpath).await;
        self.ask(&format!("{element}/value"), json!({"text": text})).await;
    }

    async fn text(&self, xpath: &str) -> String {
        let element = self.find(xpath).await;
        let answer = self.http.get(format!("{}{element}/text", self.session)).send().await.unwrap();
        answer.json::<Value>().await.unwrap()["value"].as_str().unwrap().to_owned()
    }

    async fn open(&self, url: &str) {
        self.ask("/url", json!({"url": url})).await;
    }

    async fn run(&self, script: &str) -> Value {
        self.ask("/execute/sync", json!({"script": script, "args": []})).await
    }

    /// Returns the browser's console messages since the last call: errors, and violations of a page's policy at any
    /// level.
    async fn complaints(&self) -> Vec<Value> {
        let said = self.ask("/se/log", json!({"type": "browser"})).await;
        let is_bad = |line: &&Value| {
            line["level"] == "SEVERE" || line["message"].as_str().is_some_and(|text| text.contains("Content Security Policy"))
        };
        said.as_array().unwrap().iter().filter(is_bad).cloned().collect()
    }

    /// Ends the session, and with it the browser.
    async fn quit(self) {
        self.http.delete(&self.session).send().await.unwrap();
    }
}

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
    let outcome = AssertUnwindSafe(pages_work(&browser)).catch_unwind().await;
    browser.quit().await;
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
}
