//! A node in a separate process, which a test can signal, kill and restart.

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::ledger::{LOG_KEY, MASTER_KEY};
use super::node::AMPLE_LIMITS;
pub use super::node::Client;

pub const OPERATOR_TOKEN: &str = "operator-token-of-the-tests";

/// Log level of the nodes in the tests.
const LOG_LEVEL: &str = "warn,rewards_ledger=info,access=off,rustls_platform_verifier=off";

/// Arguments of a node that hands commands to the leader of a shard, or leads it.
pub const NODE_LISTEN: [&str; 2] = ["--node-listen", "127.0.0.1:0"];

/// Timeout for any command of these tests.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// `serve` with a configuration that stays the same at every start. It ends when this value is dropped.
#[derive(Debug)]
pub struct Program {
    process: Child,
    /// Address of its API, which changes at each start. `None` without the role `api`.
    address: Option<String>,
    pub database_url: String,
    directory: tempfile::TempDir,
    arguments: Vec<String>,
    log_level: String,
    log: Log,
    http: reqwest::Client,
}

/// Everything that a node has written to stderr, line by line.
type Log = Arc<Mutex<String>>;

/// Builds a command for the program, with only the environment variables that any program needs.
pub fn program(data_dir: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rewards-ledger"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("LEDGER_DATA_DIR", data_dir).env("HOME", data_dir).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Writes a file that only its owner can read, as key files require.
pub fn write_private(path: &std::path::Path, text: &str) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

/// Runs a command to its end.
pub async fn run(command: &mut Command) -> std::process::Output {
    tokio::time::timeout(DEADLINE, command.output()).await.expect("in time").expect("the program runs")
}

/// Returns the number of open descriptors of a process.
pub fn descriptors(id: u32) -> usize {
    std::fs::read_dir(format!("/proc/{id}/fd")).unwrap().count()
}

/// Returns the peak memory of a process so far, in KiB, or `None` once it has ended.
pub fn peak_memory(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().strip_suffix(" kB")?.parse().ok()
}

impl Program {
    /// Starts `serve` on a free port, unless the arguments name one, and waits until it is ready.
    pub async fn start(database_url: &str, arguments: &[&str]) -> Program {
        Program::logging(LOG_LEVEL, database_url, arguments).await
    }

    /// Starts `serve` with this value of `RUST_LOG`.
    pub async fn logging(log_level: &str, database_url: &str, arguments: &[&str]) -> Program {
        Program::starting(log_level, database_url, arguments, |command| command).await
    }

    /// Starts `serve` with this value of `RUST_LOG` and one more environment variable, which lasts until it is restarted.
    pub async fn with_variable(variable: (&str, &str), log_level: &str, database_url: &str, arguments: &[&str]) -> Program {
        let with = |mut command: Command| {
            command.env(variable.0, variable.1);
            command
        };
        Program::starting(log_level, database_url, arguments, with).await
    }

    /// Starts `serve` with a limit on descriptors, which lasts until it is restarted.
    pub async fn with_descriptors(most: usize, database_url: &str, arguments: &[&str]) -> Program {
        let limited = |command: Command| {
            let command = command.as_std();
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("ulimit -n {most} && exec \"$0\" \"$@\"")]).arg(command.get_program());
            shell.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            shell.stdin(Stdio::null()).kill_on_drop(true);
            shell
        };
        Program::starting(LOG_LEVEL, database_url, arguments, limited).await
    }

    /// Starts a node of another executable, such as an earlier release.
    pub async fn of(executable: &std::path::Path, database_url: &str, arguments: &[&str]) -> Program {
        let instead = |command: Command| {
            let mut other = Command::new(executable);
            other.env_clear().envs(command.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
            other.stdin(Stdio::null()).kill_on_drop(true);
            other
        };
        Program::starting(LOG_LEVEL, database_url, arguments, instead).await
    }

    async fn starting(
        log_level: &str,
        database_url: &str,
        arguments: &[&str],
        prepare: impl FnOnce(Command) -> Command,
    ) -> Program {
        let directory = tempfile::tempdir().unwrap();
        write_private(&directory.path().join("master.key"), MASTER_KEY);
        write_private(&directory.path().join("log.key"), LOG_KEY);
        let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        let (log_level, log) = (log_level.to_owned(), Log::default());
        let mut command = command(directory.path(), database_url);
        command.env("RUST_LOG", &log_level);
        let (process, address) = serve(prepare(command), &arguments, &log).await;
        let http = reqwest::Client::builder().timeout(Duration::from_secs(60)).build().unwrap();
        Program { process, address, database_url: database_url.to_owned(), directory, arguments, log_level, log, http }
    }

    /// Kills `serve` if it still runs, starts it again and waits until it is ready.
    pub async fn restart(&mut self) {
        if !self.has_ended() {
            self.process.kill().await.unwrap();
        }
        let mut command = self.command();
        command.env("RUST_LOG", &self.log_level);
        (self.process, self.address) = serve(command, &self.arguments, &self.log).await;
    }

    /// Replaces its master key file. The change takes effect at the next start.
    pub fn set_master_key(&self, text: &str) {
        write_private(&self.directory.path().join("master.key"), text);
    }

    /// Returns everything logged since the first start.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Builds a command of the program with the configuration of this node.
    pub fn command(&self) -> Command {
        command(self.directory.path(), &self.database_url)
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.process.id().expect("it runs")
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.id().try_into().unwrap()), signal).unwrap();
    }

    pub fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Waits until the process ends.
    pub async fn ended(&mut self) -> ExitStatus {
        tokio::time::timeout(DEADLINE, self.process.wait()).await.expect("in time").unwrap()
    }

    /// Returns the URL of its API.
    pub fn url(&self) -> String {
        format!("http://{}", self.address.as_deref().expect("the node has the role api"))
    }

    pub async fn operator(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.try_operator(path, &body).await.unwrap();
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    /// Sends an operator's request. Returns the status, and the body's `data` or else the whole body.
    pub async fn try_operator(&self, path: &str, body: &Value) -> Result<(u16, Value), reqwest::Error> {
        let request = self.http.post(format!("{}/admin/v1{path}", self.url())).bearer_auth(OPERATOR_TOKEN);
        answer(request.header("Content-Type", "application/json").body(body.to_string())).await
    }

    /// Sends a client's request. Returns the status, and the body's `data` or else the whole body.
    pub async fn call(
        &self,
        client: &Client,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: &Value,
    ) -> Result<(u16, Value), reqwest::Error> {
        let url = format!("{}/api/v1{path}", self.url());
        let mut request = self.http.request(method.parse().unwrap(), url);
        request = request.header("X-API-Key", &client.key).header("X-API-Secret", &client.secret);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if !body.is_null() {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        answer(request).await
    }

    /// Creates an account with a credential and a funded wallet.
    pub async fn client(&self, amount: &str) -> Client {
        let account_id = self.operator("/accounts", json!({"name": "Test"})).await["id"].as_i64().unwrap();
        let credential = self.operator(&format!("/accounts/{account_id}/credentials"), json!({"name": "test"})).await;
        let wallet = self.operator(&format!("/accounts/{account_id}/wallets"), json!({"currency": "EUR"})).await;
        let wallet_id = wallet["id"].as_i64().unwrap();
        let funding = json!({"amount": amount, "reference": format!("opening-{wallet_id}")});
        self.operator(&format!("/wallets/{wallet_id}/fund"), funding).await;
        let text = |name: &str| credential[name].as_str().unwrap().to_owned();
        Client { account_id, credential_id: credential["id"].as_i64().unwrap(), key: text("api_key"), secret: text("api_secret") }
    }

    /// Creates a product of 10.00 EUR with this many vouchers in stock.
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
            let (path, body) = (format!("/products/{product}/vouchers"), json!({"denomination": "10.00", "vouchers": cards}));
            // A machine that pauses interrupts an upload. It is sent again as a whole.
            let (status, answer) = loop {
                match self.try_operator(&path, &body).await.unwrap() {
                    (503 | 504, _) => {}
                    answered => break answered,
                }
            };
            assert!((200..300).contains(&status), "{path}: {status} {answer}");
        }
    }
}

async fn answer(request: reqwest::RequestBuilder) -> Result<(u16, Value), reqwest::Error> {
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    let mut value: Value = serde_json::from_str(&answer.text().await?).unwrap_or_default();
    Ok((status, if value.get("data").is_some() { value["data"].take() } else { value }))
}

fn command(directory: &std::path::Path, database_url: &str) -> Command {
    let mut command = program(&directory.join("data"));
    command
        .env("DATABASE_URL", database_url)
        .env("LEDGER_MASTER_KEY_FILE", directory.join("master.key"))
        .env("LEDGER_LOG_KEY_FILE", directory.join("log.key"))
        .env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN)
        .env("RUST_LOG", LOG_LEVEL);
    command
}

/// Starts `serve`. Returns the process, and the address of its API once it is ready.
async fn serve(mut command: Command, arguments: &[String], log: &Log) -> (Child, Option<String>) {
    command.args(["serve", "--log-format", "json"]);
    if !arguments.iter().any(|argument| argument == "--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    if !arguments.iter().any(|argument| argument == "--rate-limits") {
        command.args(["--rate-limits", AMPLE_LIMITS]);
    }
    command.args(arguments);
    let mut process = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let is_shown = std::env::var_os("TEST_LOG").is_some();
    let log = log.clone();
    let keep = move |line: &str| {
        let mut log = log.lock().unwrap();
        log.push_str(line);
        log.push('\n');
        if is_shown {
            eprintln!("{line}");
        }
    };
    let ready = tokio::time::timeout(DEADLINE, async {
        while let Some(line) = lines.next_line().await.unwrap() {
            keep(&line);
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not a JSON line: {line}"));
            if line["message"] == "ready" {
                return line["address"].as_str().map(str::to_owned);
            }
        }
        panic!("the node ended before it was ready");
    });
    let address = ready.await.expect("ready in time");
    // Keep reading, because a full pipe would block the node.
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            keep(&line);
        }
    });
    (process, address)
}
