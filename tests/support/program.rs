//! The program as a process of its own, to be killed and started again.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub const OPERATOR_TOKEN: &str = "operator-token-of-the-tests";

/// What `serve` runs with, the same at every start.
#[derive(Debug)]
pub struct Program {
    process: Option<Child>,
    pub address: String,
    pub database_url: String,
    directory: tempfile::TempDir,
    arguments: Vec<String>,
    http: reqwest::Client,
}

#[derive(Clone, Debug)]
pub struct Client {
    pub account_id: i64,
    pub wallet_id: i64,
    pub api_key: String,
    pub api_secret: String,
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Program {
    /// Starts `serve` on a free port and waits until it is ready.
    pub async fn start(database_url: &str, arguments: &[&str]) -> Program {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("master.key"), "dGhlIG1hc3RlciBrZXkgb2YgZXZlcnkgdGVzdCBrZXk=").unwrap();
        std::fs::write(directory.path().join("log.key"), "dGhlIG1hc3RlciBrZXkgb2YgZXZlcnkgdGVzdCBrZXk=").unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut program = Program {
            process: None,
            address: format!("127.0.0.1:{port}"),
            database_url: database_url.to_owned(),
            directory,
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
            http: reqwest::Client::builder().timeout(Duration::from_secs(20)).build().unwrap(),
        };
        program.restart().await;
        program
    }

    /// A command of the program, with this one's configuration.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rewards-ledger"));
        let file = |name: &str| self.directory.path().join(name);
        command
            .args(arguments)
            .env("DATABASE_URL", &self.database_url)
            .env("LEDGER_MASTER_KEY_FILE", file("master.key"))
            .env("LEDGER_LOG_KEY_FILE", file("log.key"))
            .env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN)
            .env("LEDGER_DATA_DIR", file("data"))
            .env("RUST_LOG", std::env::var("TEST_LOG").unwrap_or("error,rustls_platform_verifier=off".into()))
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts `serve` (again) and waits until it is ready.
    pub async fn restart(&mut self) {
        self.kill();
        let mut arguments = vec!["serve", "--listen", &self.address];
        arguments.extend(self.arguments.iter().map(String::as_str));
        self.process = Some(self.command(&arguments).spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            let ready = self.http.get(format!("http://{}/readyz", self.address)).send().await;
            if ready.is_ok_and(|r| r.status().is_success()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the program did not become ready");
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    pub async fn operator(&self, path: &str, body: Value) -> Value {
        let request = self.http.post(format!("http://{}/admin/v1{path}", self.address)).bearer_auth(OPERATOR_TOKEN);
        let answer = request.header("Content-Type", "application/json").body(body.to_string()).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str::<Value>(&text).unwrap()["data"].take()
    }

    /// A client call: the status and the body's `data` (or the whole body).
    pub async fn call(
        &self,
        client: &Client,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: &Value,
    ) -> Result<(u16, Value), reqwest::Error> {
        let url = format!("http://{}/api/v1{path}", self.address);
        let mut request = self.http.request(method.parse().unwrap(), url);
        request = request.header("X-API-Key", &client.api_key).header("X-API-Secret", &client.api_secret);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if !body.is_null() {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        let mut value: Value = serde_json::from_str(&answer.text().await?).unwrap_or_default();
        Ok((status, if value.get("data").is_some() { value["data"].take() } else { value }))
    }

    /// An account with a credential and a funded wallet.
    pub async fn client(&self, amount: &str) -> Client {
        let account_id = self.operator("/accounts", json!({"name": "Test"})).await["id"].as_i64().unwrap();
        let credential = self.operator(&format!("/accounts/{account_id}/credentials"), json!({"name": "test"})).await;
        let wallet = self.operator(&format!("/accounts/{account_id}/wallets"), json!({"currency": "EUR"})).await;
        let wallet_id = wallet["id"].as_i64().unwrap();
        let funding = json!({"amount": amount, "reference": format!("opening-{wallet_id}")});
        self.operator(&format!("/wallets/{wallet_id}/fund"), funding).await;
        let text = |name: &str| credential[name].as_str().unwrap().to_owned();
        Client { account_id, wallet_id, api_key: text("api_key"), api_secret: text("api_secret") }
    }

    /// A product of 10.00 EUR with so many vouchers in stock.
    pub async fn product(&self, stock: usize) -> i64 {
        let product = json!({"name": "Voucher", "brand": "Test", "country": "DE", "currency": "EUR", "denomination_type": "FIXED",
            "denominations": ["10.00"], "max_quantity": 100, "description": "", "terms": "", "is_active": true});
        let id = self.operator("/products", product).await["id"].as_i64().unwrap();
        self.stock(id, 0, stock).await;
        id
    }

    /// Adds the vouchers `from..to` to a product's stock.
    pub async fn stock(&self, product: i64, from: usize, to: usize) {
        for start in (from..to).step_by(5_000) {
            let cards: Vec<_> = (start..to.min(start + 5_000))
                .map(|n| json!({"card_number": format!("{product}-{n:09}"), "pin": "1234"}))
                .collect();
            self.operator(&format!("/products/{product}/vouchers"), json!({"denomination": "10.00", "vouchers": cards})).await;
        }
    }

    /// Where files of this program's can be put.
    pub fn path(&self, name: &str) -> PathBuf {
        Path::new(self.directory.path()).join(name)
    }
}
