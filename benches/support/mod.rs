//! Code shared by the benchmarks. It starts a durable Postgres and the program under test as a separate process, and
//! sets up data through the operator API.

#![allow(dead_code)] // each benchmark uses only some of it

pub mod arrivals;
pub mod baseline;
pub mod callgrind;
pub mod costs;
pub mod latency;
pub mod load;
pub mod long_lists;
pub mod plot;
pub mod report;
pub mod section;
pub mod table;
pub mod traffic;

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use embedded_postgres::Server;
use futures::StreamExt;
use ledger_database::PgConnectOptions;
use rewards_ledger::embedded;
use rewards_ledger::secrets::seal::Keyring;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgExecutor};

/// Limits that are counted like any others but never reached.
pub const RATE_LIMITS: &str = "orders=1000000000/60s,general=1000000000/1h";
const OPERATOR_TOKEN: &str = "operator-token-of-the-benchmarks-9f3c2a";

/// Starts a Postgres with full durability, which is removed at the end.
pub async fn postgres() -> Result<Server> {
    _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Ok(Server::start(embedded::temporary(true)?).await?)
}

/// Longest time that one scenario may take beyond its period.
pub const PATIENCE: Duration = Duration::from_secs(900);

/// Returns the fields of a `/proc/PID/stat` after the name, which may contain anything. A field that is no number is 0.
/// The parent is field 1, `utime` and `stime` are 11 and 12, and those of ended children 13 and 14.
fn stat_fields(stat: &str) -> Vec<u64> {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect()
}

/// Converts the kernel's ticks of 10 ms.
fn time_of(ticks: u64) -> Duration {
    Duration::from_millis(10 * ticks)
}

pub async fn count(pool: impl PgExecutor<'_>, sql: &'static str) -> Result<u64> {
    Ok(u64::try_from(sqlx::query_scalar::<_, i64>(sql).fetch_one(pool).await?)?)
}

/// Waits until the projector has made this many deliveries.
pub async fn until_made(pool: impl PgExecutor<'_> + Copy, deliveries: u64) -> Result<()> {
    let started = Instant::now();
    while count(pool, "SELECT count(*) FROM delivery_state").await? < deliveries {
        ensure!(started.elapsed() < PATIENCE, "the backlog was not projected in time");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Waits until the projector has added the whole log to `daily_totals`.
pub async fn until_totalled(options: &PgConnectOptions) -> Result<()> {
    let (mut conn, started) = (options.connect().await?, Instant::now());
    let behind = "SELECT count(*) FROM log_head h WHERE NOT EXISTS (SELECT FROM projection_checkpoints c
         WHERE c.shard_id = h.shard_id AND c.projection = 'daily_totals' AND c.position >= h.position)";
    while count(&mut conn, behind).await? > 0 {
        ensure!(started.elapsed() < PATIENCE, "the totals of the days were not projected in time");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Creates and migrates a database.
pub async fn database(server: &Server, name: &str) -> Result<PgConnectOptions> {
    let admin: PgConnectOptions = server.url_of("postgres").parse()?;
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin.connect().await?).await?;
    let options: PgConnectOptions = server.url_of(name).parse()?;
    rewards_ledger::ledger::migrate(&options).await?;
    Ok(options)
}

/// Makes a database a new copy of another one, to which nobody is connected, and flushes it to the disk.
pub async fn copy_database(server: &Server, template: &str, name: &str) -> Result<()> {
    let admin: PgConnectOptions = server.url_of("postgres").parse()?;
    let mut admin = admin.connect().await?;
    for statement in [
        format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
        format!("CREATE DATABASE {name} TEMPLATE {template}"),
        "CHECKPOINT".to_owned(),
    ] {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut admin).await.with_context(|| format!("a copy of {template}"))?;
    }
    Ok(())
}

/// Writes a file that only its owner can read, as key files require.
fn write_private(path: &std::path::Path, text: &str) -> Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

/// The program under test as a separate process, which ends when this value is dropped.
pub struct Serve {
    process: Child,
    pub address: String,
    http: reqwest::Client,
    directory: PathBuf,
}

/// Resources held by a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holdings {
    pub memory_bytes: u64,
    pub descriptors: usize,
}

impl Holdings {
    /// Returns the maximum of each resource.
    pub fn max(self, other: Holdings) -> Holdings {
        Holdings { memory_bytes: self.memory_bytes.max(other.memory_bytes), descriptors: self.descriptors.max(other.descriptors) }
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
        _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Master key shared by all nodes, so that one node can open data that another one sealed.
pub static MASTER_KEY: LazyLock<String> = LazyLock::new(|| Keyring::generate().to_string());

impl Serve {
    /// Starts `serve` with these roles and additional arguments, and waits until it is ready.
    pub async fn start(database_url: &str, roles: &str, more: &[&str]) -> Result<Serve> {
        Serve::start_under(&[], database_url, roles, more).await
    }

    /// Starts `serve` under another program, such as `valgrind` with its arguments.
    pub async fn start_under(wrapper: &[&str], database_url: &str, roles: &str, more: &[&str]) -> Result<Serve> {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("rewards-ledger-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let master_key = directory.join("master.key");
        write_private(&master_key, &MASTER_KEY)?;
        let log_key = directory.join("log.key");
        write_private(&log_key, &MASTER_KEY)?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let mut words = wrapper.iter().copied().chain([env!("CARGO_BIN_EXE_rewards-ledger")]);
        let process = Command::new(words.next().context("a program")?)
            .args(words)
            .args(["serve", "--listen", &address, "--roles", roles, "--rate-limits", RATE_LIMITS])
            .args(more)
            .env("DATABASE_URL", database_url)
            .env("LEDGER_MASTER_KEY_FILE", &master_key)
            .env("LEDGER_LOG_KEY_FILE", &log_key)
            .env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN)
            .env("LEDGER_DATA_DIR", &directory)
            .env("RUST_LOG", "warn,access=off,rustls_platform_verifier=off")
            .stdin(Stdio::null())
            .spawn()?;
        let serve = Serve { process, address, http: reqwest::Client::new(), directory };
        let deadline = Instant::now() + if wrapper.is_empty() { Duration::from_secs(30) } else { PATIENCE };
        while Instant::now() < deadline {
            let url = format!("http://{}/readyz", serve.address);
            if serve.http.get(url).send().await.is_ok_and(|r| r.status().is_success()) {
                return Ok(serve);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("the program did not become ready")
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns the processor time used so far.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap_or_default();
        time_of(stat_fields(&stat).iter().skip(11).take(2).sum())
    }

    /// Returns the peak memory so far, in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        let kibibytes: u64 = peak.context("no VmHWM")?.parse()?;
        Ok(kibibytes * 1024)
    }

    /// Returns the resources currently held.
    pub fn holdings(&self) -> Result<Holdings> {
        let process = format!("/proc/{}", self.process.id());
        let status = std::fs::read_to_string(format!("{process}/status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let kibibytes: u64 = resident.context("no VmRSS")?.parse()?;
        Ok(Holdings { memory_bytes: kibibytes * 1024, descriptors: std::fs::read_dir(format!("{process}/fd"))?.count() })
    }

    pub async fn operator(&self, path: &str, body: Value) -> Result<Value> {
        let request = self.http.post(format!("http://{}/admin/v1{path}", self.address)).bearer_auth(OPERATOR_TOKEN);
        self.data(request, body).await.with_context(|| format!("POST /admin/v1{path}"))
    }

    /// Sets a discount rule for an account.
    pub async fn discount(&self, account: i64, rule: Value) -> Result<Value> {
        let request = self.http.put(format!("http://{}/admin/v1/accounts/{account}/discounts", self.address));
        self.data(request.bearer_auth(OPERATOR_TOKEN), rule).await.context("a discount")
    }

    pub async fn client(&self, client: &load::Client, path: &str, body: Value) -> Result<Value> {
        let request = self.http.post(format!("http://{}/api/v1{path}", self.address));
        let request = request.header("X-API-Key", &client.api_key).header("X-API-Secret", &client.api_secret);
        self.data(request, body).await.with_context(|| format!("POST /api/v1{path}"))
    }

    /// Registers a webhook for each of these clients, subscribed to this event.
    pub async fn listen(&self, clients: &[load::Client], url: impl Fn(usize) -> String, event: &str) -> Result<()> {
        for (n, client) in clients.iter().enumerate() {
            self.client(client, "/webhooks", json!({"name": "bench", "url": url(n), "events": [event]})).await?;
        }
        Ok(())
    }

    /// Reads a page of a list. Returns the time that it took, and the total in `X-Total-Count`.
    pub async fn page(&self, client: &load::Client, path: &str) -> Result<(Duration, u64)> {
        let request = self.http.get(format!("http://{}/api/v1{path}", self.address));
        let request = request.header("X-API-Key", &client.api_key).header("X-API-Secret", &client.api_secret);
        let started = Instant::now();
        let answer = request.send().await?;
        let status = answer.status();
        let total = answer.headers().get("X-Total-Count").and_then(|total| total.to_str().ok()?.parse().ok());
        let text = answer.text().await?;
        let took = started.elapsed();
        if !status.is_success() {
            bail!("GET {path}: {status}: {text}");
        }
        Ok((took, total.context("a list's X-Total-Count")?))
    }

    /// Reads a response body. Returns the time to its first bytes, the time to its end, and its length in bytes.
    pub async fn stream(&self, client: &load::Client, path: &str, accept: &str) -> Result<(Duration, Duration, u64)> {
        let request = self.http.get(format!("http://{}{path}", self.address)).header("Accept", accept);
        let request = request.header("X-API-Key", &client.api_key).header("X-API-Secret", &client.api_secret);
        let started = Instant::now();
        let mut answer = request.send().await?;
        let (mut first, mut bytes) = (None, 0);
        while let Some(chunk) = answer.chunk().await? {
            first.get_or_insert_with(|| started.elapsed());
            bytes += chunk.len() as u64;
        }
        let took = started.elapsed();
        if !answer.status().is_success() {
            bail!("GET {path}: {}", answer.status());
        }
        Ok((first.context("a body")?, took, bytes))
    }

    /// Performs a read as this client, or as an operator if there is none. Returns the time for the whole response,
    /// and its text.
    pub async fn get(&self, client: Option<&load::Client>, path: &str, accept: &str) -> Result<(Duration, String)> {
        let request = self.http.get(format!("http://{}{path}", self.address)).header("Accept", accept);
        let request = match client {
            Some(client) => request.header("X-API-Key", &client.api_key).header("X-API-Secret", &client.api_secret),
            None => request.bearer_auth(OPERATOR_TOKEN),
        };
        let started = Instant::now();
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        let took = started.elapsed();
        if !status.is_success() {
            bail!("GET {path}: {status}: {text}");
        }
        Ok((took, text))
    }

    /// Signs a user or an operator in. Returns the session's cookie as a browser sends it.
    pub async fn sign_in(&self, path: &str, email: &str, password: &str) -> Result<String> {
        let request =
            self.http.post(format!("http://{}{path}", self.address)).json(&json!({"email": email, "password": password}));
        let response = request.send().await?.error_for_status()?;
        let cookie = response.headers().get("set-cookie").context("a cookie")?.to_str()?;
        Ok(cookie.split(';').next().unwrap_or_default().to_owned())
    }

    /// Imports a bank statement from a CSV. Returns its id.
    pub async fn import(&self, csv: &str) -> Result<i64> {
        let request = self.http.post(format!("http://{}/admin/v1/reconciliation/statements", self.address));
        let response = request.bearer_auth(OPERATOR_TOKEN).header("Content-Type", "text/csv").body(csv.to_owned()).send().await?;
        let answer: Value = serde_json::from_str(&response.error_for_status()?.text().await?)?;
        answer["data"]["id"].as_i64().context("a statement's id")
    }

    /// Reads a page for people, or something that it shows. Returns the time, and the content.
    pub async fn look_at(&self, cookie: &str, path: &str) -> Result<(Duration, Vec<u8>)> {
        let started = Instant::now();
        let response = self.http.get(format!("http://{}{path}", self.address)).header("cookie", cookie).send().await?;
        ensure!(response.status() == 200, "{path} answers {}", response.status());
        let page = response.bytes().await?.to_vec();
        Ok((started.elapsed(), page))
    }

    /// Sends a form of a page for people, with its encoded fields. Returns the time, and the page that answers.
    pub async fn send_form(&self, cookie: &str, path: &str, fields: &str) -> Result<(Duration, Vec<u8>)> {
        let url = format!("http://{}{path}", self.address);
        let form = self.http.post(url).header("cookie", cookie).header("origin", format!("http://{}", self.address));
        let form = form.header("content-type", "application/x-www-form-urlencoded").body(fields.to_owned());
        let started = Instant::now();
        let response = form.send().await?;
        ensure!(response.status() == 200, "the form {path} answers {}", response.status());
        let page = response.bytes().await?.to_vec();
        Ok((started.elapsed(), page))
    }

    async fn data(&self, request: reqwest::RequestBuilder, body: Value) -> Result<Value> {
        let answer = request.header("Content-Type", "application/json").body(body.to_string()).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        if !status.is_success() {
            bail!("{status}: {text}");
        }
        let mut value: Value = serde_json::from_str(&text)?;
        Ok(if value.get("success").is_some() { value["data"].take() } else { value })
    }

    /// Creates a product of 10.00 EUR, without stock.
    pub async fn product(&self) -> Result<i64> {
        let product = self
            .operator(
                "/products",
                json!({"name": "Voucher", "brand": "Bench", "country": "DE", "currency": "EUR", "denomination_type": "FIXED",
                       "denominations": ["10.00", "25.00", "50.00"], "max_quantity": 100, "description": "Spend it in any shop. ".repeat(15),
                       "terms": "Valid for three years; not exchanged for cash. ".repeat(15), "is_active": true}),
            )
            .await?;
        product["id"].as_i64().context("a product's id")
    }

    /// Adds this many vouchers to a product's stock.
    pub async fn stock(&self, product: i64, count: u64) -> Result<()> {
        const CHUNK: u64 = 20_000;
        for from in (0..count).step_by(CHUNK as usize) {
            let vouchers: Vec<_> =
                (from..count.min(from + CHUNK)).map(|n| json!({"card_number": format!("card-{n:012}")})).collect();
            self.operator(&format!("/products/{product}/vouchers"), json!({"denomination": "10.00", "vouchers": vouchers}))
                .await?;
        }
        Ok(())
    }

    /// Creates accounts, each with a credential and a well-funded wallet.
    pub async fn clients(&self, count: usize) -> Result<Arc<Vec<load::Client>>> {
        let clients: Vec<Result<load::Client>> =
            futures::stream::iter(0..count).map(|n| self.one_client(n)).buffer_unordered(64).collect().await;
        Ok(Arc::new(clients.into_iter().collect::<Result<_>>()?))
    }

    async fn one_client(&self, n: usize) -> Result<load::Client> {
        let account = self.operator("/accounts", json!({"name": format!("Account {n}")})).await?;
        let id = account["id"].as_i64().context("an account's id")?;
        let wallet = self.operator(&format!("/accounts/{id}/wallets"), json!({"currency": "EUR"})).await?;
        let wallet_id = wallet["id"].as_i64().context("a wallet's id")?;
        let reference = format!("{}-{n}-{wallet_id}", std::process::id());
        self.operator(&format!("/wallets/{wallet_id}/fund"), json!({"amount": "1000000000.00", "reference": reference})).await?;
        self.credential(id).await
    }

    /// Issues an API key to an account.
    pub async fn credential(&self, account: i64) -> Result<load::Client> {
        let credential = self.operator(&format!("/accounts/{account}/credentials"), json!({"name": "bench"})).await?;
        let text = |name: &str| credential[name].as_str().map(str::to_owned).with_context(|| format!("a credential's {name}"));
        Ok(load::Client { api_key: text("api_key")?, api_secret: text("api_secret")? })
    }
}

/// Returns the arguments after `--`, without the flag that cargo adds.
pub fn arguments() -> Vec<String> {
    std::env::args().skip(1).filter(|argument| argument != "--bench").collect()
}

/// Describes the machine of the measurement in one line.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: String, name: &str| {
        text.lines().find_map(|l| l.strip_prefix(name).map(|v| v.trim_start_matches([':', '\t', ' ']).to_owned()))
    };
    let model = field(read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let memory = field(read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let kibibytes: f64 = memory.trim_end_matches(" kB").parse().unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{cores} cores ({model}), {:.1} GiB of memory, Linux {}", kibibytes / f64::from(1 << 20), kernel.trim_end())
}

/// Share of the processors' time that a hypervisor gave to others. It explains why two runs may differ.
#[derive(Debug)]
pub struct Stolen {
    at_start: Option<(u64, u64)>,
}

impl Stolen {
    pub fn since() -> Stolen {
        Stolen { at_start: ticks() }
    }
}

impl std::fmt::Display for Stolen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(((stolen, all), (stolen_now, all_now))) = self.at_start.zip(ticks()) else {
            return write!(f, "Stolen processor time: unknown");
        };
        let share = 100.0 * (stolen_now - stolen) as f64 / (all_now - all).max(1) as f64;
        write!(f, "Stolen processor time: {share:.1} %")
    }
}

/// Returns the stolen ticks and all ticks, of all processors since the machine started.
fn ticks() -> Option<(u64, u64)> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<u64> = stat.lines().next()?.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
    Some((*ticks.get(7)?, ticks.iter().sum()))
}
