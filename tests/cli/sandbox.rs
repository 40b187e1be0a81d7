//! `serve --sandbox` on an embedded server: a new one prints everything that a client needs, once.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use ledger_events::webhook::WebhookEventType;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Child;

use super::{directory, err, out, outbox_shows, program, run};
use crate::support::mail::SmtpServer;
use crate::support::program::{DEADLINE, write_private};
use crate::support::wait::until;

/// A running sandbox, once it is ready.
struct Sandbox {
    process: Child,
    log: Arc<Mutex<String>>,
}

impl Sandbox {
    async fn start(directory: &Path, arguments: &[&str]) -> Sandbox {
        let mut command = program(directory);
        command.args(["serve", "--sandbox", "--listen", "127.0.0.1:0", "--log-format", "json"]).args(arguments);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let ready = tokio::time::timeout(DEADLINE, async {
            loop {
                let line = lines.next_line().await.unwrap().unwrap_or_else(|| panic!("it ended: {}", log.lock().unwrap()));
                log.lock().unwrap().push_str(&format!("{line}\n"));
                if line.contains("\"message\":\"ready\"") {
                    return;
                }
            }
        });
        ready.await.expect("ready in time");
        let kept = log.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                kept.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        Sandbox { process, log }
    }

    /// Stops the node. Returns everything that it printed, and its log.
    async fn stop(mut self) -> (String, String) {
        kill(Pid::from_raw(self.process.id().unwrap().try_into().unwrap()), Signal::SIGTERM).unwrap();
        let mut printed = String::new();
        self.process.stdout.take().unwrap().read_to_string(&mut printed).await.unwrap();
        let ended = tokio::time::timeout(DEADLINE, self.process.wait()).await.expect("in time").unwrap();
        assert!(ended.success(), "{}", self.log.lock().unwrap());
        let log = self.log.lock().unwrap().clone();
        (printed, log)
    }

    /// Returns the first line that it printed.
    async fn line(&mut self) -> String {
        let mut lines = BufReader::new(self.process.stdout.as_mut().unwrap()).lines();
        tokio::time::timeout(DEADLINE, lines.next_line()).await.expect("in time").unwrap().expect("a line")
    }

    /// Returns the text for people that it printed, with the command at its end.
    async fn text(&mut self) -> String {
        let mut lines = BufReader::new(self.process.stdout.as_mut().unwrap()).lines();
        let mut text = String::new();
        let printed = tokio::time::timeout(DEADLINE, async {
            while !text.contains("\nrewards-ledger login ") {
                text.push_str(&lines.next_line().await.unwrap().unwrap_or_else(|| panic!("it ended: {text}")));
                text.push('\n');
            }
        });
        printed.await.unwrap_or_else(|_| panic!("not printed in time: {text}"));
        text
    }
}

/// Returns the fact of this name in a text for people.
fn fact<'a>(text: &'a str, name: &str) -> &'a str {
    let begin = format!("  {name:<10}  ");
    let found = text.lines().find_map(|line| line.strip_prefix(begin.as_str()));
    found.unwrap_or_else(|| panic!("{name} is not in {text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_sandbox_prints_one_object_whose_credentials_work() {
    let directory = directory();
    let mut sandbox = Sandbox::start(directory.path(), &["--json"]).await;
    let kit: Value = serde_json::from_str(&sandbox.line().await).unwrap();
    let text = |name: &str| kit[name].as_str().unwrap_or_else(|| panic!("{name} is not in {kit:#}")).to_owned();
    assert_eq!((&kit["is_new"], &kit["balance"]), (&json!(true), &json!("1000.00")));

    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let client = |method: reqwest::Method, path: &str| {
        let request = http.request(method, format!("{}/api/v1{path}", text("url")));
        request.header("X-API-Key", text("api_key")).header("X-API-Secret", text("api_secret"))
    };
    let wallets: Value = client(reqwest::Method::GET, "/wallets").send().await.unwrap().json().await.unwrap();
    assert_eq!(wallets["data"]["wallets"][0]["id"], kit["wallet_id"]);
    let webhooks: Value = client(reqwest::Method::GET, "/webhooks").send().await.unwrap().json().await.unwrap();
    assert_eq!(webhooks["data"]["webhooks"][0]["url"], kit["webhook_url"]);
    let images: Value = client(reqwest::Method::GET, "/products/images").send().await.unwrap().json().await.unwrap();
    assert_eq!(images["data"]["images"].as_array().unwrap().len(), 4, "each product has a picture: {images}");
    assert_eq!(http.get(text("docs_url")).send().await.unwrap().status(), 200);
    for link in ["portal_link", "console_link"] {
        let entered = http.get(text(link)).send().await.unwrap();
        assert!(entered.status().is_redirection() && entered.headers().contains_key("set-cookie"), "{link}: {entered:?}");
    }
    let login = json!({"email": text("portal_email"), "password": text("portal_password")});
    let login = http.post(format!("{}/auth/login", text("url"))).json(&login).send().await.unwrap();
    assert_eq!(login.status(), 200);
    let login = json!({"email": text("console_email"), "password": text("console_password")});
    let login = http.post(format!("{}/admin/auth/login", text("url"))).json(&login).send().await.unwrap();
    assert_eq!(login.status(), 200);

    // The printed command places an order, once.
    for _ in 0..2 {
        let done = tokio::process::Command::new("sh").args(["-c", &text("curl")]).output().await.unwrap();
        let placed: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", err(&done)));
        assert_eq!(placed["data"]["id"], 1, "{placed}");
    }
    let (_, log) = sandbox.stop().await;
    for secret in ["api_secret", "webhook_token", "portal_password", "console_password", "api_key"] {
        assert!(!log.contains(&text(secret)), "{secret} is in the log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_sandbox_prints_a_text_for_people_whose_links_and_commands_work() {
    let directory = directory();
    let mut sandbox = Sandbox::start(directory.path(), &[]).await;
    let text = sandbox.text().await;
    assert!(!text.contains('\u{1b}'), "no colours in a pipe: {text:?}");
    let (key, secret) = (fact(&text, "API key"), fact(&text, "API secret"));
    let (token, _) = fact(&text, "token").split_once("  ").unwrap();
    let docs = fact(&text, "API page");
    let url = docs.strip_suffix("/docs").unwrap();

    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    assert_eq!(http.get(docs).send().await.unwrap().status(), 200);
    let get = async |path: &str| -> Value {
        let request = http.get(format!("{url}/api/v1{path}")).header("X-API-Key", key).header("X-API-Secret", secret);
        request.send().await.unwrap().json().await.unwrap()
    };
    let (wallets, webhooks) = (get("/wallets").await, get("/webhooks").await);
    let (wallet, webhook) = (&wallets["data"]["wallets"][0], &webhooks["data"]["webhooks"][0]);
    let (balance, currency) = (wallet["balance"].as_str().unwrap(), wallet["currency"].as_str().unwrap());
    assert_eq!(fact(&text, "account"), format!("id 1, with wallet {}: {balance} {currency}", wallet["id"]));
    let (id, to) = (&webhook["id"], webhook["url"].as_str().unwrap());
    assert_eq!(fact(&text, "webhook"), format!("id {id}, to {to}: received and verified by this program"));

    let mut secrets = vec![key, secret, token];
    for (pages, login) in [("portal", "/auth/login"), ("console", "/admin/auth/login")] {
        let (link, _) = fact(&text, pages).split_once("  ").unwrap();
        let entered = http.get(link).send().await.unwrap();
        assert!(entered.status().is_redirection() && entered.headers().contains_key("set-cookie"), "{pages}: {entered:?}");
        let below = text.lines().skip_while(|line| !line.contains(link)).nth(1).unwrap();
        let (email, password) = below.trim().split_once("  ").unwrap();
        let user = json!({"email": email, "password": password});
        let logged_in = http.post(format!("{url}{login}")).json(&user).send().await.unwrap();
        assert_eq!(logged_in.status(), 200, "{pages}");
        secrets.extend([link.split_once("token=").unwrap().1, password]);
    }

    let curl = text.split("\n\n").find(|part| part.starts_with("curl '")).unwrap_or_else(|| panic!("no curl in {text}"));
    let done = tokio::process::Command::new("sh").args(["-c", curl]).output().await.unwrap();
    let placed: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", err(&done)));
    assert_eq!(placed["data"]["id"], 1, "{placed}");
    let login = text.lines().find(|line| line.starts_with("rewards-ledger login ")).unwrap();
    let mut command = program(directory.path());
    let logged_in = run(command.args(login.split(' ').skip(1)).env("LEDGER_API_SECRET", secret)).await;
    assert!(logged_in.status.success(), "{}", err(&logged_in));
    let ordered = run(program(directory.path()).args(["call", "GET", "/api/v1/orders/1", "--profile", "sandbox"])).await;
    assert!(ordered.status.success(), "{}{}", out(&ordered), err(&ordered));

    let (_, log) = sandbox.stop().await;
    let shown: Vec<&str> = secrets.into_iter().filter(|secret| log.contains(secret)).collect();
    assert!(shown.is_empty(), "in the log: {shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_sandbox_shows_no_secret_and_still_verifies_webhooks() {
    let directory = directory();
    let (first, _) = Sandbox::start(directory.path(), &["--json"]).await.stop().await;
    assert_eq!(first.lines().count(), 1, "{first}");
    let kit: Value = serde_json::from_str(&first).unwrap();
    let sandbox = Sandbox::start(directory.path(), &[]).await;
    let command = |arguments: &[&str], url: &str| {
        let mut command = program(directory.path());
        command.args(arguments).args(["--url", url]);
        for (variable, name) in [("LEDGER_API_KEY", "api_key"), ("LEDGER_API_SECRET", "api_secret")] {
            command.env(variable, kit[name].as_str().unwrap());
        }
        command
    };
    let ready = sandbox.log.lock().unwrap().lines().last().unwrap().to_owned();
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let url = format!("http://{}", ready["address"].as_str().unwrap());
    let types = WebhookEventType::ALL.map(WebhookEventType::as_str);
    for event_type in types {
        let triggered = run(&mut command(&["trigger", event_type, "--json"], &url)).await;
        assert!(triggered.status.success(), "{event_type}: {}{}", out(&triggered), err(&triggered));
        let delivery: Value = serde_json::from_str(&out(&triggered)).unwrap();
        assert_eq!((&delivery["event_type"], &delivery["response_status"]), (&json!(event_type), &json!(200)));
        let data = &delivery["payload"]["data"];
        let (name, sample) = match event_type.split_once('.').unwrap().0 {
            "order" => ("reference_code", json!("TEST")),
            "payout" => ("client_reference", json!("TEST")),
            _ => ("wallet_id", json!(0)),
        };
        assert_eq!(data[name], sample, "{event_type}: {data}");
        let items = data["order_items"].as_array().map(Vec::len);
        assert_eq!(items, event_type.ends_with("delivered").then_some(1), "{event_type}: {data}");
    }

    let (again, log) = sandbox.stop().await;
    for event_type in types {
        let part = format!("\"event_type\":\"{event_type}\"");
        let is_received = |line: &&str| line.contains("webhook received") && line.contains(&part);
        let received = log.lines().find(is_received).unwrap_or_else(|| panic!("{event_type}: {log}"));
        assert!(received.contains("\"signature\":\"verified\""), "{received}");
    }
    assert!(again.contains("made by an earlier start") && again.contains("admin credential issue 1"), "{again}");
    for (name, value) in kit.as_object().unwrap() {
        let is_secret = ["api_key", "secret", "token", "password", "link", "curl"].iter().any(|part| name.contains(part));
        if is_secret && name != "operator_token_file" {
            let value = value.as_str().unwrap();
            assert!(!again.contains(value) && !log.contains(value), "{name}");
        }
    }
}

/// A start that is interrupted while it creates the account leaves a file behind. Nobody has seen the secrets.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_after_an_interrupted_one_creates_another_account_and_prints_its_secrets() {
    let directory = directory();
    let attempt = directory.path().join("sandbox.attempt");
    let (first, _) = Sandbox::start(directory.path(), &["--json"]).await.stop().await;
    assert!(!attempt.exists(), "the first start was not interrupted");
    write_private(&attempt, "1");
    let mut sandbox = Sandbox::start(directory.path(), &["--json"]).await;
    let kit: Value = serde_json::from_str(&sandbox.line().await).unwrap();
    let first: Value = serde_json::from_str(&first).unwrap();
    assert_eq!((&kit["is_new"], &kit["account_id"], &first["account_id"]), (&json!(true), &json!(2), &json!(1)));
    assert!(!attempt.exists(), "it is complete");

    let client = async |arguments: &[&str]| {
        let mut command = program(directory.path());
        command.args(arguments).args(["--json", "--url", kit["url"].as_str().unwrap()]);
        for (variable, name) in [("LEDGER_API_KEY", "api_key"), ("LEDGER_API_SECRET", "api_secret")] {
            command.env(variable, kit[name].as_str().unwrap());
        }
        run(&mut command).await
    };
    let triggered = client(&["trigger", "order.delivered"]).await;
    assert!(triggered.status.success(), "{}{}", out(&triggered), err(&triggered));
    let login = json!({"email": kit["portal_email"], "password": kit["portal_password"]});
    let login = reqwest::Client::new().post(format!("{}/auth/login", kit["url"].as_str().unwrap())).json(&login).send().await;
    assert_eq!(login.unwrap().status(), 200);

    // The receiver's is the only address of this machine that gets webhooks.
    let other = r#"{"name": "other", "url": "https://127.0.0.2/hook", "events": ["order.delivered"]}"#;
    let registered = client(&["call", "POST", "/api/v1/webhooks", other]).await;
    let registered: Value = serde_json::from_str(&out(&registered)).unwrap();
    let refused = client(&["trigger", "order.delivered", "--webhook", &registered["body"]["id"].to_string()]).await;
    assert!(!refused.status.success(), "{}", out(&refused));
    let refused: Value = serde_json::from_str(&out(&refused)).unwrap();
    let attempts = client(&["call", "GET", &format!("/api/v1/webhooks/deliveries/{}", refused["id"])]).await;
    assert!(out(&attempts).contains("the host's address is not allowed"), "{}", out(&attempts));
    sandbox.stop().await;
}

/// Requests the reset of the password of a sandbox's portal user. Returns what the sandbox has printed.
async fn request_reset(sandbox: &mut Sandbox) -> Value {
    let kit: Value = serde_json::from_str(&sandbox.line().await).unwrap();
    let request = reqwest::Client::new().post(format!("{}/auth/password-reset", kit["url"].as_str().unwrap()));
    assert_eq!(request.json(&json!({"email": kit["portal_email"]})).send().await.unwrap().status(), 200);
    kit
}

#[tokio::test(flavor = "multi_thread")]
async fn mails_of_a_node_without_a_server_become_files_in_its_data_directory_and_stand_in_its_outbox() {
    let directory = directory();
    let mut sandbox = Sandbox::start(directory.path(), &["--json"]).await;
    let kit = request_reset(&mut sandbox).await;
    let text = |name: &str| kit[name].as_str().unwrap();
    let email = text("portal_email");
    let mails = || -> Vec<String> {
        let Ok(files) = std::fs::read_dir(directory.path().join("outbox")) else { return vec![] };
        let paths = files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "eml"));
        paths.map(|path| std::fs::read_to_string(path).unwrap()).collect()
    };
    until("the mail is a file", async || !mails().is_empty()).await;
    let mails = mails();
    assert!(mails.len() == 1 && mails[0].contains(email) && mails[0].contains("/portal/reset-password?token="), "{mails:?}");

    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let entered = http.get(text("portal_link")).send().await.unwrap();
    let cookie = entered.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap();
    outbox_shows(text("url"), cookie, &[email, "Reset your password for ", "/portal/reset-password?token="]).await;
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mails_of_a_node_with_a_server_reach_the_server() {
    let directory = directory();
    let server = SmtpServer::start().await;
    let url = server.url();
    let arguments = ["--json", "--smtp-url", &url, "--mail-from", "Rewards <rewards@example.com>"];
    let mut sandbox = Sandbox::start(directory.path(), &arguments).await;
    let kit = request_reset(&mut sandbox).await;
    let email = kit["portal_email"].as_str().unwrap();
    let mut received = vec![];
    until("the mail has arrived", async || {
        received.extend(server.take());
        !received.is_empty()
    })
    .await;
    assert_eq!((received[0].to.as_str(), received[0].from.as_str()), (email, "rewards@example.com"));
    assert!(!received[0].token().is_empty());
    assert!(!directory.path().join("outbox").exists(), "no mail is a file");
    sandbox.stop().await;
}

/// An ordinary node has no accounts of its own, and neither has a sandbox on a database that others share.
#[tokio::test]
async fn only_a_sandbox_on_its_own_embedded_server_gets_an_account() {
    let database = crate::support::postgres::database().await;
    let node = crate::support::program::Program::start(&database.url, &["--sandbox"]).await;
    let listed = reqwest::Client::new().get(format!("{}/admin/v1/accounts", node.url()));
    let listed = listed.bearer_auth(crate::support::program::OPERATOR_TOKEN).send().await.unwrap();
    assert_eq!(listed.json::<Value>().await.unwrap()["data"], json!({"accounts": []}));
}
