//! The real parts, each on a machine of its own: etcd, two Postgres with Patroni, HAProxy, and three nodes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::network::{Machine, address};
use crate::support::ledger::{LOG_KEY, MASTER_KEY};
use crate::support::node::AMPLE_LIMITS;
use crate::support::program::{OPERATOR_TOKEN, program, write_private};
use crate::support::replicas::server_directory;
use crate::support::wait::{until, until_within};
use crate::support::{postgres, repository};

const SERVERS: [u8; 2] = [11, 12];
const ETCD: u8 = 20;
const PROXY: u8 = 30;
const NODES: [u8; 3] = [41, 42, 43];
/// Longest time for all parts to be well again after a fault.
const RECOVERY: Duration = Duration::from_secs(150);

/// All parts. They end with this value.
#[derive(Debug)]
pub struct Cluster {
    pub servers: [Machine; 2],
    pub etcd: Machine,
    pub proxy: Machine,
    pub nodes: [Machine; 3],
    programs: PathBuf,
    ca_pem: String,
    http: reqwest::Client,
    running: Vec<(u8, Child)>,
    home: tempfile::TempDir,
}

impl Cluster {
    /// Starts everything and waits until it is well. The nodes trust this certificate authority of webhook receivers.
    pub async fn start(ca_pem: &str) -> Cluster {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let http = reqwest::Client::builder().timeout(Duration::from_secs(2)).pool_max_idle_per_host(0).build().unwrap();
        let mut cluster = Cluster {
            servers: SERVERS.map(Machine::new),
            etcd: Machine::new(ETCD),
            proxy: Machine::new(PROXY),
            nodes: NODES.map(Machine::new),
            programs: postgres::programs().await,
            ca_pem: ca_pem.to_owned(),
            http,
            running: vec![],
            home,
        };
        cluster.configure();
        cluster.start_etcd();
        cluster.start_patroni(0);
        until_within(RECOVERY, "there is a primary", async || cluster.primary().await == Some(0)).await;
        cluster.start_patroni(1);
        cluster.start_proxy();
        until_within(RECOVERY, "there is a synchronous standby", async || cluster.is_replicated().await).await;
        cluster.create_ledger().await;
        for index in 0..NODES.len() {
            cluster.start_node(index);
        }
        cluster.recover().await;
        cluster
    }

    /// Returns the URL for the database: of both servers, or of the proxy that finds the primary.
    pub fn database_url(&self, role: &str, is_through_proxy: bool) -> String {
        match is_through_proxy {
            true => format!("postgres://{role}@{}:5000/ledger", address(PROXY)),
            false => {
                let [a, b] = SERVERS.map(address);
                format!("postgres://{role}@{a}:5432,{b}:5432/ledger?target_session_attrs=read-write")
            }
        }
    }

    /// Returns the URLs at which clients reach the service: the proxy's and each node's.
    pub fn urls() -> Vec<String> {
        [PROXY].into_iter().chain(NODES).map(|number| format!("http://{}:8080", address(number))).collect()
    }

    pub fn node_url(index: usize) -> String {
        format!("http://{}:8080", address(NODES[index]))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn configure(&self) {
        for number in SERVERS {
            server_directory(&self.path(&format!("server{number}")));
            std::fs::write(self.path(&format!("patroni{number}.yml")), self.patroni(number)).unwrap();
        }
        server_directory(&self.path("etcd"));
        std::fs::write(self.path("haproxy.cfg"), haproxy()).unwrap();
        std::fs::write(self.path("ca.pem"), &self.ca_pem).unwrap();
        write_private(&self.path("master.key"), MASTER_KEY);
        write_private(&self.path("log.key"), LOG_KEY);
    }

    /// Returns the published sample, for this machine and with short times.
    fn patroni(&self, number: u8) -> String {
        let sample = std::fs::read_to_string(repository("deploy/ha/patroni.yml")).unwrap();
        let home = self.path(&format!("server{number}"));
        let changes = [
            ("db-1.example.com", address(number)),
            ("db-1", format!("db-{number}")),
            ("etcd-1.example.com:2379,etcd-2.example.com:2379,etcd-3.example.com:2379", format!("{}:2379", address(ETCD))),
            // Patroni before 3.0.3, which Debian 12 has, needs this: deploy/high-availability.md.
            ("etcd3:", "etcd:".to_owned()),
            ("/var/lib/postgresql/15/main", home.join("data").display().to_string()),
            ("/var/lib/postgresql/.pgpass-patroni", home.join("pgpass").display().to_string()),
            ("/usr/lib/postgresql/15/bin", self.programs.display().to_string()),
            ("ttl: 20", "ttl: 6".to_owned()),
            ("loop_wait: 5", "loop_wait: 1".to_owned()),
            ("retry_timeout: 5", "retry_timeout: 2".to_owned()),
            ("hostssl replication replicator 10.0.0.0/8 scram-sha-256", "host replication all 10.90.0.0/24 trust".to_owned()),
            ("hostssl all all 10.0.0.0/8 scram-sha-256", "host all all 10.90.0.0/24 trust".to_owned()),
            (
                "parameters: {}",
                format!("parameters: {{fsync: \"off\", shared_buffers: 64MB, unix_socket_directories: \"{}\"}}", home.display()),
            ),
        ];
        changes.into_iter().fold(sample, |text, (from, to)| {
            assert!(text.contains(from), "deploy/ha/patroni.yml has no `{from}`");
            text.replace(from, &to)
        })
    }

    fn spawn(&mut self, number: u8, mut command: Command) {
        let log = File::options().create(true).append(true).open(self.path(&format!("{number}.log"))).unwrap();
        command.current_dir("/").stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let started = command.spawn().unwrap();
        // Reap the one before, if it has ended.
        self.running.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
        self.running.push((number, started));
    }

    fn is_running(&mut self, number: u8) -> bool {
        self.running.iter_mut().any(|(of, child)| *of == number && matches!(child.try_wait(), Ok(None)))
    }

    pub fn start_etcd(&mut self) {
        let mut command = self.etcd.server_command("etcd");
        let (clients, peers) = (format!("http://{}:2379", address(ETCD)), format!("http://{}:2380", address(ETCD)));
        command.arg("--data-dir").arg(self.path("etcd")).args(["--unsafe-no-fsync", "--enable-v2"]);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}")]);
        self.spawn(ETCD, command);
    }

    pub fn start_patroni(&mut self, index: usize) {
        let number = SERVERS[index];
        let mut command = self.servers[index].server_command("patroni");
        command.arg(self.path(&format!("patroni{number}.yml"))).env("HOME", self.path(&format!("server{number}")));
        self.spawn(number, command);
    }

    pub fn start_proxy(&mut self) {
        let mut command = self.proxy.server_command("haproxy");
        let path = std::env::var_os("PATH").unwrap_or_default().into_string().unwrap();
        command.arg("-db").arg("-f").arg(self.path("haproxy.cfg")).env("PATH", format!("{path}:/usr/sbin"));
        self.spawn(PROXY, command);
    }

    /// Starts a node. The first one knows both servers, the others reach the primary through the proxy. One node leads, and the
    /// others hand their orders to it.
    pub fn start_node(&mut self, index: usize) {
        let number = NODES[index];
        let data = self.path(&format!("node{number}"));
        let wanted = program(&data);
        let mut command = self.nodes[index].command(wanted.as_std().get_program());
        command.env_clear().envs(wanted.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
        self.configure_node(&mut command, &self.database_url("ledger_service", index > 0));
        command.args(["serve", "--listen", &format!("{}:8080", address(number)), "--log-format", "json"]);
        command.args(["--public-url", &format!("http://{}:8080", address(PROXY)), "--rate-limits", AMPLE_LIMITS]);
        command.args(["--node-listen", &format!("{}:8082", address(number))]);
        command.arg("--webhook-ca-file").arg(self.path("ca.pem")).args(["--webhook-allow-nets", "10.90.0.0/24"]);
        command.args(["--delivery-timeout", "5s", "--retry-base", "3s", "--trusted-proxies", &address(PROXY)]);
        self.spawn(number, command);
    }

    fn configure_node(&self, command: &mut Command, database_url: &str) {
        command.env("DATABASE_URL", database_url).env("LEDGER_ALLOW_PLAIN_DATABASE", "true");
        command.env("LEDGER_MASTER_KEY_FILE", self.path("master.key")).env("LEDGER_LOG_KEY_FILE", self.path("log.key"));
        command.env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN).env("RUST_LOG", "warn,rewards_ledger=info,access=off");
    }

    /// Runs a command of the program against the cluster.
    pub async fn command(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = program(&self.path("command"));
        self.configure_node(command.as_std_mut(), &self.database_url("ledger_service", false));
        crate::support::program::run(command.args(arguments)).await
    }

    /// Creates the roles and the database, and migrates.
    async fn create_ledger(&self) {
        let primary = self.primary().await.unwrap();
        let url = format!("postgres://postgres@{}:5432/postgres", address(SERVERS[primary]));
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let script = std::fs::read_to_string(repository("deploy/roles.sql")).unwrap();
        let script: String = script.lines().filter(|line| !line.starts_with("--")).collect();
        for statement in script.split_terminator(';') {
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut admin).await.unwrap();
        }
        let owner = self.database_url("ledger_owner", false);
        rewards_ledger::ledger::migrate(&owner.parse().unwrap()).await.unwrap();
    }

    async fn get(&self, url: &str) -> Option<(u16, String)> {
        let answer = self.http.get(url).send().await.ok()?;
        Some((answer.status().as_u16(), answer.text().await.ok()?))
    }

    /// Returns the server that Patroni says is the primary.
    pub async fn primary(&self) -> Option<usize> {
        for (index, number) in SERVERS.into_iter().enumerate() {
            if matches!(self.get(&format!("http://{}:8008/primary", address(number))).await, Some((200, _))) {
                return Some(index);
            }
        }
        None
    }

    /// Waits until there is a primary, and returns it. On a busy machine Patroni may replace one that is well.
    pub async fn until_primary(&self) -> usize {
        let mut found = None;
        until("there is a primary", async || {
            found = self.primary().await;
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    /// Returns whether there is a primary with a synchronous standby.
    async fn is_replicated(&self) -> bool {
        let Some(primary) = self.primary().await else { return false };
        let url = format!("http://{}:8008/cluster", address(SERVERS[primary]));
        let Some((200, text)) = self.get(&url).await else { return false };
        let cluster: Value = serde_json::from_str(&text).unwrap_or_default();
        let has = |role: &str| {
            let members = cluster["members"].as_array().into_iter().flatten();
            members
                .filter(|member| member["role"] == role && matches!(member["state"].as_str(), Some("running" | "streaming")))
                .count()
                == 1
        };
        let url = format!("http://{}:8008/sync", address(SERVERS[1 - primary]));
        has("leader") && has("sync_standby") && matches!(self.get(&url).await, Some((200, _)))
    }

    /// Waits until every part is well. Starts those that have ended.
    pub async fn recover(&mut self) {
        let mut missing = String::new();
        let well = tokio::time::timeout(RECOVERY, async {
            loop {
                missing = self.missing().await;
                if missing.is_empty() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        if well.await.is_err() {
            let logs = NODES.map(|number| tail(&self.path(&format!("{number}.log")), 15)).join("\n");
            let servers = SERVERS.map(|number| tail(&self.path(&format!("{number}.log")), 30)).join("\n");
            panic!("not well within {RECOVERY:?}: {missing}\n{logs}\n{servers}");
        }
    }

    async fn missing(&mut self) -> String {
        if !self.is_running(ETCD) {
            self.start_etcd();
        }
        for (index, number) in SERVERS.into_iter().enumerate() {
            if !self.is_running(number) {
                self.start_patroni(index);
            }
        }
        if !self.is_running(PROXY) {
            self.start_proxy();
        }
        for (index, number) in NODES.into_iter().enumerate() {
            if !self.is_running(number) {
                self.start_node(index);
            }
        }
        if !self.is_replicated().await {
            return "a primary with a synchronous standby".to_owned();
        }
        for url in Cluster::urls() {
            if !matches!(self.get(&format!("{url}/readyz")).await, Some((200, _))) {
                return url;
            }
        }
        String::new()
    }

    /// Kills the server program of Postgres, as a crash does.
    pub fn crash_postgres(&self, index: usize) {
        let file = self.path(&format!("server{}", SERVERS[index])).join("data/postmaster.pid");
        let id = std::fs::read_to_string(file).ok().and_then(|text| text.lines().next()?.parse().ok());
        if let Some(id) = id {
            _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), Signal::SIGKILL); // it may have ended
        }
    }

    /// Waits until a server other than this one is the primary.
    pub async fn until_other_primary(&self, index: usize) {
        until("the standby is promoted", async || {
            let url = format!("http://{}:8008/primary", address(SERVERS[1 - index]));
            matches!(self.get(&url).await, Some((200, _)))
        })
        .await;
    }

    /// Keeps the logs of all parts, for a person who looks for the cause of a failure.
    pub fn keep_logs(&self, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(self.home.path()).unwrap().filter_map(Result::ok) {
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(to) = std::env::var_os("LEDGER_FAULT_LOGS")
        {
            self.keep_logs(Path::new(&to));
        }
        let machines = self.servers.iter().chain(&self.nodes).chain([&self.etcd, &self.proxy]);
        for machine in machines {
            machine.signal(Signal::SIGKILL);
        }
        for (_, child) in &mut self.running {
            _ = child.wait();
        }
    }
}

/// Returns the published sample for this network.
fn haproxy() -> String {
    let sample = std::fs::read_to_string(repository("deploy/ha/haproxy.cfg")).unwrap();
    let mut changes = vec![("bind :5000", format!("bind {}:5000", address(PROXY)))];
    for (name, number) in [("db-1.example.com", SERVERS[0]), ("db-2.example.com", SERVERS[1])] {
        changes.push((name, address(number)));
    }
    let text = changes.into_iter().fold(sample, |text, (from, to)| {
        assert!(text.contains(from), "deploy/ha/haproxy.cfg has no `{from}`");
        text.replace(from, &to)
    });
    let nodes: String = NODES.map(|number| format!("    server node{number} {}:8080\n", address(number))).concat();
    let check = "    option httpchk GET /readyz\n    default-server check inter 500ms fall 2 rise 1\n";
    format!(
        "{text}\nlisten nodes\n    mode http\n    bind {}:8080\n    timeout connect 1s\n    timeout client 20s\n    timeout server 20s\n    \
         retry-on conn-failure\n{check}{nodes}",
        address(PROXY)
    )
}

fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    format!("{}:\n{}\n", path.display(), all[all.len().saturating_sub(lines)..].join("\n"))
}
