//! Two Postgres servers in synchronous streaming replication, which a test kills and promotes.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::process::{Child, Command};

use super::postgres;
use super::wait::until;

const OWNER: &str = "ledger_owner";
const SETTINGS: &str = "
    listen_addresses = '127.0.0.1'
    unix_socket_directories = ''
    fsync = off
    max_connections = 200
    shared_buffers = 32MB
    wal_keep_size = 256MB
    hot_standby = on
";

/// Makes a command run as a user as whom Postgres agrees to run. It refuses to run as root.
pub fn as_server_user(command: &mut Command) -> &mut Command {
    if let Some(user) = server_user() {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command
}

/// Returns that user if this process runs as root.
pub fn server_user() -> Option<User> {
    let named = |name| User::from_name(name).ok().flatten();
    geteuid().is_root().then(|| named("postgres").or_else(|| named("nobody")).expect("a user for Postgres"))
}

/// Makes a directory that belongs to the servers' user.
pub fn server_directory(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(path).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
    if let Some(user) = server_user() {
        nix::unistd::chown(path, Some(user.uid), Some(user.gid)).unwrap();
    }
}

#[derive(Debug)]
struct Replica {
    data: PathBuf,
    port: u16,
    process: Option<Child>,
}

/// A primary and its synchronous standby. Both end when this value is dropped.
#[derive(Debug)]
pub struct Pair {
    programs: PathBuf,
    servers: [Replica; 2],
    primary: usize,
    _home: tempfile::TempDir,
}

impl Pair {
    /// Starts both servers with an empty database `ledger`.
    pub async fn start() -> Pair {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let servers = ["a", "b"].map(|name| {
            server_directory(&home.path().join(name));
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            Replica { data: home.path().join(name).join("data"), port, process: None }
        });
        let mut pair = Pair { programs: postgres::programs().await, servers, primary: 0, _home: home };
        let data = pair.servers[0].data.clone();
        let arguments = ["--username", OWNER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--pgdata"];
        pair.run("initdb", &arguments, &data).await;
        let settings = data.join("postgresql.conf");
        std::fs::write(&settings, std::fs::read_to_string(&settings).unwrap() + SETTINGS).unwrap();
        pair.start_server(0).await;
        pair.execute(0, "CREATE DATABASE ledger").await;
        pair.join(1).await;
        pair
    }

    /// Returns the URL of both servers. The one that was the standby at first comes first.
    pub fn url(&self, target: &str) -> String {
        let [a, b] = self.servers.each_ref().map(|server| server.port);
        format!("postgres://{OWNER}@127.0.0.1:{b},127.0.0.1:{a}/ledger?target_session_attrs={target}")
    }

    /// Returns the URL of the primary alone.
    pub fn primary_url(&self) -> String {
        self.ledger_url(self.primary)
    }

    /// Returns the URL of the standby alone.
    pub fn standby_url(&self) -> String {
        self.ledger_url(1 - self.primary)
    }

    fn ledger_url(&self, index: usize) -> String {
        format!("postgres://{OWNER}@127.0.0.1:{}/ledger", self.servers[index].port)
    }

    /// Makes the standby fall behind from now on, or catch up again. Commits do not wait for it to catch up.
    pub async fn hold_back(&self, is_held: bool) {
        let standby = 1 - self.primary;
        let statement = if is_held { "SELECT pg_wal_replay_pause()" } else { "SELECT pg_wal_replay_resume()" };
        self.execute(standby, statement).await;
        let mut admin = self.admin(standby).await;
        let wanted = if is_held { "paused" } else { "not paused" };
        until("the standby is held back or not", async || {
            let state: String = sqlx::query_scalar("SELECT pg_get_wal_replay_pause_state()").fetch_one(&mut admin).await.unwrap();
            state == wanted
        })
        .await;
    }

    /// Kills the standby. The primary does not wait for it any more.
    pub async fn lose_standby(&mut self) {
        self.execute(self.primary, "ALTER SYSTEM SET synchronous_standby_names = ''").await;
        self.execute(self.primary, "SELECT pg_reload_conf()").await;
        self.kill(1 - self.primary).await;
    }

    /// Returns the port of the primary.
    pub fn primary_port(&self) -> u16 {
        self.servers[self.primary].port
    }

    /// Returns the port of the standby.
    pub fn standby_port(&self) -> u16 {
        self.servers[1 - self.primary].port
    }

    /// Kills the primary and promotes the standby. Returns when the standby is promoted.
    pub async fn fail_over(&mut self) {
        let old = self.primary;
        self.kill(old).await;
        self.primary = 1 - old;
        // The promoted server must not wait for the dead one.
        self.execute(self.primary, "ALTER SYSTEM SET synchronous_standby_names = ''").await;
        self.execute(self.primary, "SELECT pg_reload_conf()").await;
        self.execute(self.primary, "SELECT pg_promote()").await;
    }

    /// Makes the dead server a synchronous standby of the other one.
    pub async fn rejoin(&mut self) {
        let dead = 1 - self.primary;
        std::fs::remove_dir_all(&self.servers[dead].data).unwrap();
        self.join(dead).await;
    }

    async fn join(&mut self, index: usize) {
        let (data, port) = (self.servers[index].data.clone(), self.primary_port().to_string());
        let arguments = [
            "--host",
            "127.0.0.1",
            "--port",
            &port,
            "--username",
            OWNER,
            "--write-recovery-conf",
            "--no-sync",
            "--checkpoint",
            "fast",
            "--pgdata",
        ];
        self.run("pg_basebackup", &arguments, &data).await;
        self.start_server(index).await;
        self.execute(self.primary, "ALTER SYSTEM SET synchronous_standby_names = '*'").await;
        self.execute(self.primary, "SELECT pg_reload_conf()").await;
        let mut admin = self.admin(self.primary).await;
        until("the standby is synchronous", async || {
            let is_there = "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'";
            sqlx::query_scalar::<_, bool>(is_there).fetch_one(&mut admin).await.unwrap()
        })
        .await;
    }

    async fn run(&self, program: &str, arguments: &[&str], data: &Path) {
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).arg(data).current_dir("/").stdin(Stdio::null());
        let done = as_server_user(&mut command).output().await.unwrap();
        assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    }

    async fn start_server(&mut self, index: usize) {
        let server = &mut self.servers[index];
        let log = std::fs::File::create(server.data.with_extension("log")).unwrap();
        let mut command = Command::new(self.programs.join("postgres"));
        command.arg("-D").arg(&server.data).args(["-p", &server.port.to_string()]).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        server.process = Some(as_server_user(&mut command).spawn().unwrap());
        let url = self.url_of(index);
        until("the server accepts connections", async || PgConnection::connect(&url).await.is_ok()).await;
    }

    /// Kills a server as a crash does.
    async fn kill(&mut self, index: usize) {
        let mut process = self.servers[index].process.take().unwrap();
        let id = Pid::from_raw(process.id().unwrap().cast_signed());
        kill(id, Signal::SIGQUIT).unwrap(); // an immediate shutdown: its backends end, too
        process.wait().await.unwrap();
    }

    fn url_of(&self, index: usize) -> String {
        format!("postgres://{OWNER}@127.0.0.1:{}/postgres", self.servers[index].port)
    }

    async fn admin(&self, index: usize) -> PgConnection {
        PgConnection::connect(&self.url_of(index)).await.unwrap()
    }

    async fn execute(&self, index: usize, statement: &str) {
        let mut admin = self.admin(index).await;
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut admin).await.unwrap();
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for server in &self.servers {
            // `kill_on_drop` would leave the server's other processes to find out by themselves.
            if let Some(id) = server.process.as_ref().and_then(Child::id) {
                _ = kill(Pid::from_raw(id.cast_signed()), Signal::SIGQUIT); // it may have ended already
            }
        }
    }
}
