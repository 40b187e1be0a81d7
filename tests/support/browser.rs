//! Headless Chromium, driven by WebDriver (W3C), with axe's rules of accessibility.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;

use super::program::DEADLINE;

/// Release of axe-core, which the tests install from the registry of Node packages.
const AXE: &str = "axe-core@4.14.1";

/// A process that is killed together with its children when this value is dropped.
#[derive(Debug)]
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let Some(id) = self.0.id() else { return };
        _ = killpg(Pid::from_raw(i32::try_from(id).unwrap()), Signal::SIGKILL); // the process may already have ended
    }
}

/// A running browser. It ends with [`Browser::quit`], at the latest when this value is
/// dropped.
#[derive(Debug)]
pub struct Browser {
    http: reqwest::Client,
    session: String,
    _driver: Group,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts the browser with a window that shows a whole page, so that nothing scrolls away under a click. Returns
    /// `None` if no browser is installed.
    pub async fn start() -> Option<Browser> {
        Browser::with((1400, 20_000), true).await
    }

    /// Starts the browser with a window of this width and height, with or without scripts.
    pub async fn with(size: (u32, u32), scripts: bool) -> Option<Browser> {
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
            &format!("--window-size={},{}", size.0, size.1),
            &format!("--user-data-dir={}", profile.path().display()),
        ];
        // 2 forbids scripts, 1 allows them.
        let preferences = json!({"profile.managed_default_content_settings.javascript": if scripts { 1 } else { 2 }});
        let options = json!({"browserName": "chrome",
            "goog:chromeOptions": {"args": arguments, "prefs": preferences},
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
    pub async fn find(&self, xpath: &str) -> String {
        let found = self.ask("/element", json!({"using": "xpath", "value": xpath})).await;
        let id = found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        format!("/element/{id}")
    }

    pub async fn click(&self, xpath: &str) {
        let element = self.find(xpath).await;
        self.ask(&format!("{element}/click"), json!({})).await;
    }

    pub async fn type_into(&self, xpath: &str, text: &str) {
        let element = self.find(xpath).await;
        self.ask(&format!("{element}/value"), json!({"text": text})).await;
    }

    pub async fn text(&self, xpath: &str) -> String {
        let element = self.find(xpath).await;
        let answer = self.http.get(format!("{}{element}/text", self.session)).send().await.unwrap();
        answer.json::<Value>().await.unwrap()["value"].as_str().unwrap().to_owned()
    }

    pub async fn open(&self, url: &str) {
        self.ask("/url", json!({"url": url})).await;
    }

    pub async fn run(&self, script: &str) -> Value {
        self.ask("/execute/sync", json!({"script": script, "args": []})).await
    }

    /// Runs a script that calls its last argument with the result.
    pub async fn run_until_done(&self, script: &str) -> Value {
        self.ask("/execute/async", json!({"script": script, "args": []})).await
    }

    /// Returns the browser's console messages since the last call: errors, and violations of a page's policy at any
    /// level.
    pub async fn complaints(&self) -> Vec<Value> {
        let said = self.ask("/se/log", json!({"type": "browser"})).await;
        let is_bad = |line: &&Value| {
            line["level"] == "SEVERE" || line["message"].as_str().is_some_and(|text| text.contains("Content Security Policy"))
        };
        said.as_array().unwrap().iter().filter(is_bad).cloned().collect()
    }

    /// Waits until the browser has logged an answer of this status, which a page that is refused brings, and nothing
    /// else.
    pub async fn logs_refusal(&self, status: u16) {
        let expected = format!("the server responded with a status of {status}");
        let waiting = async {
            loop {
                let said = self.complaints().await;
                let is_expected = |line: &Value| line["message"].as_str().is_some_and(|text| text.contains(&expected));
                assert!(said.iter().all(is_expected), "{said:?}");
                if !said.is_empty() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(DEADLINE, waiting).await.unwrap_or_else(|_| panic!("the browser logs no {status}"));
    }

    /// Fills a field of a form, by its label.
    pub async fn fill(&self, label: &str, text: &str) {
        let field = format!("//*[@id=//label[normalize-space()='{label}']/@for]");
        let element = self.find(&field).await;
        self.ask(&format!("{element}/clear"), json!({})).await;
        self.ask(&format!("{element}/value"), json!({"text": text})).await;
    }

    /// Presses a button or follows a link, by its text.
    pub async fn press(&self, text: &str) {
        self.click(&format!("//*[self::button or self::a or self::summary][normalize-space()=\"{text}\"]")).await;
    }

    /// Waits until the page shows a text.
    pub async fn sees(&self, text: &str) {
        self.find(&format!("//main//*[contains(normalize-space(), \"{text}\")]")).await;
    }

    /// Returns a picture of the window, as PNG.
    pub async fn picture(&self) -> Vec<u8> {
        let answer = self.http.get(format!("{}/screenshot", self.session)).send().await.unwrap();
        let encoded: Value = answer.json().await.unwrap();
        STANDARD.decode(encoded["value"].as_str().unwrap()).unwrap()
    }

    /// Returns the rules of WCAG 2.2 AA that the page breaks, with the elements.
    pub async fn barriers(&self) -> Vec<String> {
        let axe = axe().await;
        self.ask("/execute/sync", json!({"script": axe, "args": []})).await;
        let tags = json!(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]);
        let script = "const [tags, done] = arguments; axe.run(document, {runOnly: tags}).then(
            (found) => done(found.violations.map((one) => one.id + ': ' + one.nodes.map((node) => node.html).join(' | '))),
            (error) => done(['axe failed: ' + error]))";
        let found = self.ask("/execute/async", json!({"script": script, "args": [tags]})).await;
        found.as_array().unwrap().iter().map(|rule| rule.as_str().unwrap().to_owned()).collect()
    }

    /// Ends the session, and with it the browser.
    pub async fn quit(self) {
        self.http.delete(&self.session).send().await.unwrap();
    }
}

/// Returns axe's script, installed once per machine.
async fn axe() -> &'static str {
    static SCRIPT: OnceCell<String> = OnceCell::const_new();
    SCRIPT
        .get_or_init(|| async {
            let home = || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache");
            let cache =
                std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("rewards-ledger/tools").join(AXE);
            let script = cache.join("node_modules/axe-core/axe.min.js");
            if !script.exists() {
                let mut npm = Command::new("npm");
                npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]).arg(&cache).arg(AXE);
                assert!(npm.status().await.expect("npm installs axe-core").success(), "npm cannot install {AXE}");
            }
            tokio::fs::read_to_string(script).await.unwrap()
        })
        .await
}
