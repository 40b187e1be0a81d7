//! A Postgres server that archives its WAL, and a second one that is restored from a base backup and that archive.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::process::{Child, Command};

use crate::support::postgres;
use crate::support::replicas::{as_server_user, server_directory};
use crate::support::wait::until;

const OWNER: &str = "ledger_owner";
/// Port in the name of each server's socket. The sockets are in different directories.
const PORT: &str = "5432";
/// Name of the restore point.
const MOMENT: &str = "before_the_loss";

/// Both servers, one of which runs. It ends when this value is dropped.
#[derive(Debug)]
pub struct Servers {
    programs: PathBuf,
    process: Option<Child>,
    /// Directory of the server that runs, with its data and its socket.
    running: PathBuf,
    restored: PathBuf,
    archive: PathBuf,
    _home: tempfile::TempDir,
}

impl Servers {
    /// Starts the first server with an empty database `ledger`.
    pub async fn start() -> Servers {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let [running, restored, archive] = ["first", "second", "archive"].map(|name| home.path().join(name));
        for directory in [&running, &restored, &archive] {
            server_directory(directory);
        }
        let programs = postgres::programs().await;
        let mut servers = Servers { programs, process: None, running, restored, archive, _home: home };
        let data = data(&servers.running);
        let arguments = ["--username", OWNER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--pgdata"];
        servers.run("initdb", &arguments, &data).await;
        let archive = servers.archive.display();
        let settings = format!(
            "listen_addresses = ''
            unix_socket_directories = '{}'
            fsync = off
            max_connections = 200
            shared_buffers = 32MB
            archive_mode = on
            archive_command = 'test ! -f {archive}/%f && cp %p {archive}/%f.new && mv {archive}/%f.new {archive}/%f'",
            servers.running.display()
        );
        configure(&data, &settings);
        servers.start_server().await;
        servers.execute("postgres", "CREATE DATABASE ledger").await;
        servers
    }

    /// Returns the URL of the ledger on the server that runs.
    pub fn url(&self) -> String {
        self.url_of("ledger")
    }

    /// Takes a base backup, from which the second server is restored.
    pub async fn back_up(&self) {
        let socket = self.running.to_str().unwrap();
        let arguments = ["--host", socket, "--port", PORT, "--username", OWNER, "--no-sync", "--checkpoint", "fast", "--pgdata"];
        self.run("pg_basebackup", &arguments, &data(&self.restored)).await;
    }

    /// Names the present moment. Returns the WAL segment that [`Servers::archived`] takes.
    pub async fn name_moment(&self) -> String {
        let mut admin = PgConnection::connect(&self.url()).await.unwrap();
        let named = "SELECT pg_walfile_name(pg_create_restore_point($1))";
        sqlx::query_scalar(named).bind(MOMENT).fetch_one(&mut admin).await.unwrap()
    }

    /// Waits until a segment is in the archive.
    pub async fn archived(&self, segment: &str) {
        self.execute("ledger", "SELECT pg_switch_wal()").await;
        until("the segment is archived", async || self.archive.join(segment).exists()).await;
    }

    /// Kills the server as a crash does. Nothing uses its data again.
    pub async fn lose(&mut self) {
        let mut process = self.process.take().unwrap();
        let id = Pid::from_raw(process.id().unwrap().cast_signed());
        kill(id, Signal::SIGQUIT).unwrap(); // an immediate shutdown: its backends end, too
        process.wait().await.unwrap();
        std::fs::remove_dir_all(&self.running).unwrap();
    }

    /// Restores the base backup to the named moment, and starts it as the second server.
    pub async fn restore(&mut self) {
        self.running = self.restored.clone();
        let data = data(&self.running);
        let settings = format!(
            "unix_socket_directories = '{}'
            archive_mode = off
            restore_command = 'cp {}/%f %p'
            recovery_target_name = '{MOMENT}'
            recovery_target_action = promote",
            self.running.display(),
            self.archive.display()
        );
        configure(&data, &settings);
        std::fs::write(data.join("recovery.signal"), "").unwrap();
        self.start_server().await;
        until("the recovery has ended", async || {
            let Ok(mut admin) = PgConnection::connect(&self.url()).await else { return false };
            sqlx::query_scalar("SELECT NOT pg_is_in_recovery()").fetch_one(&mut admin).await.unwrap()
        })
        .await;
    }

    async fn start_server(&mut self) {
        let log = std::fs::File::create(self.running.join("log")).unwrap();
        let mut command = Command::new(self.programs.join("postgres"));
        command.arg("-D").arg(data(&self.running)).args(["-p", PORT]).current_dir("/").kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(as_server_user(&mut command).spawn().unwrap());
        let url = self.url_of("postgres");
        until("the server accepts connections", async || PgConnection::connect(&url).await.is_ok()).await;
    }

    async fn run(&self, program: &str, arguments: &[&str], data: &Path) {
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).arg(data).current_dir("/").stdin(Stdio::null());
        let done = as_server_user(&mut command).output().await.unwrap();
        assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn url_of(&self, database: &str) -> String {
        let socket = self.running.to_str().unwrap().replace('/', "%2F");
        format!("postgres://{OWNER}@{socket}:{PORT}/{database}?sslmode=disable")
    }

    async fn execute(&self, database: &str, statement: &str) {
        let mut admin = PgConnection::connect(&self.url_of(database)).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut admin).await.unwrap();
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // `kill_on_drop` would leave the server's other processes to find out by themselves.
        if let Some(id) = self.process.as_ref().and_then(Child::id) {
            _ = kill(Pid::from_raw(id.cast_signed()), Signal::SIGQUIT); // it may have ended already
        }
    }
}

fn data(directory: &Path) -> PathBuf {
    directory.join("data")
}

/// Appends settings, which take precedence over those before them.
fn configure(data: &Path, settings: &str) {
    let file = data.join("postgresql.conf");
    std::fs::write(&file, format!("{}\n{settings}\n", std::fs::read_to_string(&file).unwrap())).unwrap();
}
