//! Headless Chromium, driven by WebDriver (W3C), with axe's rules of accessibility.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, oneshot};

use super::program::DEADLINE;

/// Release of axe-core, which the tests install from the registry of Node packages.
const AXE: &str = "axe-core@4.14.1";

/// Name under which WebDriver passes the id of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Width and height of a window, in CSS pixels.
pub type Size = (u32, u32);

/// A browser that a test uses.
#[derive(Debug)]
pub struct Browser {
    http: reqwest::Client,
    running: Running,
    /// Size of the window at first.
    pub size: Size,
}

/// A running browser, with its driver. It ends when this value is dropped or the tests end, however they do.
#[derive(Debug)]
struct Running {
    /// URL of its session of WebDriver.
    session: String,
    /// Whether pages may run scripts.
    scripts: bool,
    /// Input of the shell of [`WATCHED`].
    _watch: ChildStdin,
}

/// Browsers that no test uses at the moment. The start of one takes four seconds of processor time.
static IDLE: Mutex<Vec<Running>> = Mutex::new(vec![]);

/// Runs chromedriver. Kills it with its browser, and removes the profile, once the input of the shell ends.
const WATCHED: &str = "setsid chromedriver --port=0 & exec >/dev/null; read -r _; kill -KILL -$!; wait; rm -rf \"$0\"";

/// Number of times that chromedriver is started until it serves.
const STARTS: usize = 10;

/// Starts chromedriver on a free port. Returns `None` if it is not installed.
///
/// It takes a port that is free on IPv6 and needs the same one on IPv4, and ends if another program has that, so it may have to be
/// started again.
async fn start_driver(profile: &Path) -> Option<(ChildStdin, String)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|directory| directory.join("chromedriver").exists()) {
        assert!(std::env::var_os("CI").is_none(), "chromedriver is needed");
        eprintln!("SKIPPED: the pages were not opened, for there is no chromedriver here");
        return None;
    }
    for _ in 0..STARTS {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", WATCHED])
            .arg(profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        // Pages show times, and choose days, in the zone of the browser.
        let mut shell = shell.env("TZ", "UTC").spawn().unwrap();
        let (watch, said) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        let (serves, served) = oneshot::channel();
        // The browser outlives the runtime of the test.
        std::thread::spawn(move || {
            let mut lines = said.lines().map_while(Result::ok);
            let port =
                lines.find_map(|line| Some(line.split_once("started successfully on port ")?.1.trim_end_matches('.').to_owned()));
            _ = serves.send(port);
            lines.for_each(drop);
            shell.wait()
        });
        if let Some(port) = tokio::time::timeout(DEADLINE, served).await.expect("in time").unwrap() {
            return Some((watch, port));
        }
    }
    panic!("chromedriver ended {STARTS} times before it served");
}

impl Browser {
    /// Starts the browser with a window that shows a whole page, so that nothing scrolls away under a click. Returns
    /// `None` if no browser is installed.
    pub async fn start() -> Option<Browser> {
        Browser::with((1400, 20_000), true).await
    }

    /// Takes a browser that is idle, or starts one, with a window of this width and height, with or without scripts.
    pub async fn with(size: Size, scripts: bool) -> Option<Browser> {
        let http = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap();
        while let Some(running) = take_idle(scripts) {
            let browser = Browser { http: http.clone(), running, size };
            // Takes what the last test has logged. The driver of a browser that has ended does not answer.
            if browser.try_to_ask("/se/log", &json!({"type": "browser"})).await.is_ok() {
                browser.resize(size).await;
                return Some(browser);
            }
        }
        let profile = tempfile::tempdir().unwrap();
        let (watch, port) = start_driver(profile.path()).await?;
        let profile = profile.keep();
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            &format!("--user-data-dir={}", profile.display()),
        ];
        // 2 forbids scripts, 1 allows them.
        let preferences = json!({"profile.managed_default_content_settings.javascript": if scripts { 1 } else { 2 }});
        let options = json!({"browserName": "chrome",
            "goog:chromeOptions": {"args": arguments, "prefs": preferences},
            "goog:loggingPrefs": {"browser": "ALL"}, "timeouts": {"implicit": 60_000}});
        let session = format!("http://127.0.0.1:{port}/session");
        let running = Running { session, scripts, _watch: watch };
        let mut browser = Browser { http, running, size };
        let begun = browser.ask("", json!({"capabilities": {"alwaysMatch": options}})).await;
        browser.running.session = format!("{}/{}", browser.running.session, begun["sessionId"].as_str().unwrap());
        browser.resize(size).await;
        Some(browser)
    }

    /// Leaves the browser to the next test.
    pub async fn put_back(self) {
        if self.renew().await.is_ok() {
            IDLE.lock().unwrap().push(self.running);
        }
    }

    /// Brings the browser into the state of a new one: with one empty window, and nothing that a page has stored.
    async fn renew(&self) -> Result<(), Value> {
        let used = self.request(Method::GET, "/window/handles", None).await?;
        let window = self.try_to_ask("/window/new", &json!({"type": "window"})).await?["handle"].take();
        for handle in used.as_array().into_iter().flatten() {
            self.try_to_ask("/window", &json!({"handle": handle})).await?;
            self.request(Method::DELETE, "/window", None).await?;
        }
        self.try_to_ask("/window", &json!({"handle": window})).await?;
        let commands = [
            ("Network.clearBrowserCookies", json!({})),
            ("Network.clearBrowserCache", json!({})),
            ("Browser.resetPermissions", json!({})),
            ("Browser.setDownloadBehavior", json!({"behavior": "default"})),
        ];
        for (command, parameters) in commands {
            self.try_to_ask("/goog/cdp/execute", &json!({"cmd": command, "params": parameters})).await?;
        }
        Ok(())
    }

    async fn ask(&self, command: &str, body: Value) -> Value {
        self.try_to_ask(command, &body).await.unwrap_or_else(|answer| panic!("{command} {body}: {answer}"))
    }

    /// Sends a command of WebDriver. Returns the answer of a refused one, or the problem of the connection, as the error.
    async fn try_to_ask(&self, command: &str, body: &Value) -> Result<Value, Value> {
        self.request(Method::POST, command, Some(body)).await
    }

    /// Sends a request to the driver. Returns the answer of a refused one, or the problem of the connection, as the error.
    async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Value> {
        let request = self.http.request(method, format!("{}{path}", self.running.session));
        let request = if let Some(body) = body { request.json(body) } else { request };
        let lost = |error: reqwest::Error| json!(error.to_string());
        let answer = request.send().await.map_err(lost)?;
        let status = answer.status();
        let mut answer: Value = answer.json().await.map_err(lost)?;
        if status.is_success() { Ok(answer["value"].take()) } else { Err(answer) }
    }

    /// Sends a command of the Chrome DevTools Protocol.
    async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.ask("/goog/cdp/execute", json!({"cmd": command, "params": parameters})).await
    }

    /// Gives the page a window of this size. A real window is never narrower than 500 px.
    pub async fn resize(&self, (width, height): Size) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
        assert_eq!(self.run("return innerWidth").await, width);
    }

    /// Shows the page as with this preference of the person, such as `prefers-color-scheme: dark`; none with an empty value.
    pub async fn prefer(&self, feature: &str, value: &str) {
        let preference = json!({"features": [{"name": feature, "value": value}]});
        self.devtools("Emulation.setEmulatedMedia", preference).await;
    }

    /// Shows the page as on this medium, such as `print`; on the screen with an empty name.
    pub async fn show_on(&self, medium: &str) {
        self.devtools("Emulation.setEmulatedMedia", json!({"media": medium})).await;
    }

    /// Moves the person to a time zone, for pages that are opened from now on.
    pub async fn move_to(&self, time_zone: &str) {
        self.devtools("Emulation.setTimezoneOverride", json!({"timezoneId": time_zone})).await;
    }

    /// Runs a script in every page that is opened from now on, before the page's own scripts.
    pub async fn run_before_scripts(&self, script: &str) {
        self.devtools("Page.addScriptToEvaluateOnNewDocument", json!({"source": script})).await;
    }

    /// Lets pages read and write the clipboard.
    pub async fn allow_clipboard(&self) {
        let permissions = json!({"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]});
        self.devtools("Browser.grantPermissions", permissions).await;
    }

    /// Saves files that pages send in this directory.
    pub async fn save_files_in(&self, directory: &Path) {
        let behaviour = json!({"behavior": "allow", "downloadPath": directory});
        self.devtools("Browser.setDownloadBehavior", behaviour).await;
    }

    /// Presses the tabulator key.
    pub async fn tab(&self) {
        self.press_keys("\u{e004}").await;
    }

    /// Presses keys, one after the other. WebDriver has its own characters for keys such as the tabulator, U+E004.
    pub async fn press_keys(&self, keys: &str) {
        let key = |kind: &str, value: char| json!({"type": kind, "value": value});
        let actions: Vec<Value> = keys.chars().flat_map(|value| [key("keyDown", value), key("keyUp", value)]).collect();
        self.ask("/actions", json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})).await;
    }

    /// Returns the path of the first element that matches an XPath, once there is one. A failure shows the page.
    pub async fn find(&self, xpath: &str) -> String {
        let found = match self.try_to_ask("/element", &json!({"using": "xpath", "value": xpath})).await {
            Ok(found) => found,
            Err(answer) => {
                let page = self.run("return location.href + '\\n' + document.body.innerText").await;
                panic!("{xpath}: {}\n{}", answer["value"]["error"], page.as_str().unwrap())
            }
        };
        format!("/element/{}", found[ELEMENT].as_str().unwrap())
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
        let text = self.request(Method::GET, &format!("{element}/text"), None).await.unwrap();
        text.as_str().unwrap().to_owned()
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

    /// Presses a button or follows a link, by its text, and waits for the page that it leads to, if it leads to one. Without
    /// scripts it does not wait: the caller looks for something that the next page alone shows.
    pub async fn press(&self, text: &str) {
        self.press_once_painted(text).await;
        if self.running.scripts {
            let left = async {
                while self.run("return Boolean(window.isLeft)").await == true {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(DEADLINE, left).await.unwrap_or_else(|_| panic!("{text} leads to no page"));
        }
    }

    /// Presses a button or follows a link, by its text, whose answer is a file, so that the page stays.
    pub async fn press_for_file(&self, text: &str) {
        self.press_once_painted(text).await;
    }

    /// Clicks a button or a link. If its page is then about to be left, `window.isLeft` is set.
    ///
    /// The browser drops a click while a page has not been painted yet. As a person would, this function repeats a click
    /// that had no effect: the page is still the same one, and the element received no event.
    async fn press_once_painted(&self, text: &str) {
        let control = format!("//*[self::button or self::a or self::summary][normalize-space()=\"{text}\"]");
        if !self.running.scripts {
            return self.click(&control).await;
        }
        let listen = "window.isClicked = window.isLeft = false;
            arguments[0].addEventListener('click', () => { window.isClicked = true; }, {capture: true, once: true});
            const here = (url) => url.split('#')[0] === location.href.split('#')[0] && url.includes('#');
            window.addEventListener('submit', (event) => { window.isLeft = !event.defaultPrevented; }, {once: true});
            window.addEventListener('click', (event) => {
                const link = event.target.closest('a[href]');
                window.isLeft = Boolean(link) && !event.defaultPrevented && !link.target && !here(link.href);
            }, {once: true})";
        loop {
            let element = self.find(&control).await;
            let reference = json!({ELEMENT: element.trim_start_matches("/element/")});
            self.ask("/execute/sync", json!({"script": listen, "args": [reference]})).await;
            self.ask(&format!("{element}/click"), json!({})).await;
            if self.run("return window.isClicked").await != false {
                return;
            }
        }
    }

    /// Waits until the page shows a text.
    pub async fn sees(&self, text: &str) {
        self.find(&format!("//main//*[contains(normalize-space(), \"{text}\")]")).await;
    }

    /// Returns a picture of the window, as PNG.
    pub async fn picture(&self) -> Vec<u8> {
        let encoded = self.request(Method::GET, "/screenshot", None).await.unwrap();
        STANDARD.decode(encoded.as_str().unwrap()).unwrap()
    }

    /// Returns the rules of WCAG 2.2 AA that the page breaks, with the elements.
    pub async fn barriers(&self) -> Vec<String> {
        let tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
        self.broken(json!({"type": "tag", "values": tags})).await
    }

    /// Returns the elements whose text differs too little from its background.
    pub async fn faint_texts(&self) -> Vec<String> {
        self.broken(json!({"type": "rule", "values": ["color-contrast"]})).await
    }

    /// Returns those of axe's rules that the page breaks, with the elements.
    async fn broken(&self, rules: Value) -> Vec<String> {
        if self.run("return window.axe === undefined").await == true {
            self.run(axe().await).await;
        }
        let script = "const [rules, done] = arguments; axe.run(document, {runOnly: rules, resultTypes: ['violations']}).then(
            (found) => done(found.violations.map((one) => one.id + ': ' + one.nodes.map((node) => node.html).join(' | '))),
            (error) => done(['axe failed: ' + error]))";
        let found = self.ask("/execute/async", json!({"script": script, "args": [rules]})).await;
        found.as_array().unwrap().iter().map(|rule| rule.as_str().unwrap().to_owned()).collect()
    }
}

/// Returns a browser that no test uses.
fn take_idle(scripts: bool) -> Option<Running> {
    let mut idle = IDLE.lock().unwrap();
    let index = idle.iter().position(|running| running.scripts == scripts)?;
    Some(idle.swap_remove(index))
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
                let mut npm = tokio::process::Command::new("npm");
                npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]).arg(&cache).arg(AXE);
                assert!(npm.status().await.expect("npm installs axe-core").success(), "npm cannot install {AXE}");
            }
            tokio::fs::read_to_string(script).await.unwrap()
        })
        .await
}
