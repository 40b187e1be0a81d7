//! Helpers for the tests of the embedded Postgres.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::super::{Names, Settings, account};

/// Environment variable that turns the helper test into an owner process of this data directory.
pub const OWNED: &str = "EMBEDDED_POSTGRES_TEST_OWNED";
/// Environment variable that makes the helper test download programs into this directory.
pub const DOWNLOADING: &str = "EMBEDDED_POSTGRES_TEST_DOWNLOADS";

/// Names of the tests' servers.
pub fn names() -> Names {
    Names::new("shop")
}

/// A data directory that the server's user can reach; removed at the end of the test.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new() -> Directory {
        Directory(account::temporary_directory(true, &names()).unwrap())
    }

    pub fn settings(&self) -> Settings {
        Settings::new(&self.0, names())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub async fn execute(url: &str, statement: &str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await?;
    connection.close().await
}

pub async fn ask(url: &str, question: &str) -> String {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(question.to_owned())).fetch_one(&mut connection).await.unwrap()
}

pub fn lives(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A process that owns a server, and that a test can kill.
pub struct Owner {
    pub process: Child,
    pub postmaster: u32,
}

impl Owner {
    pub fn start(directory: &str) -> Owner {
        let mut process = helper().env(OWNED, directory).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let postmaster = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("postmaster is ")?.1.parse().unwrap()))
            .expect("the owner process starts its server");
        Owner { process, postmaster }
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub fn watchdog(&self) -> u32 {
        let parent = format!("/proc/{0}/task", self.process.id());
        let children: Vec<u32> = std::fs::read_dir(parent)
            .unwrap()
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
            .flat_map(|pids| pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
            .collect();
        let is_watchdog = |pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|command| command.contains("shop-watchdog"))
        };
        children.into_iter().find(is_watchdog).unwrap()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a command that runs this test binary again, with only the test [`owner_process`].
pub fn helper() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", &test_name("owner_process")]).stdout(Stdio::piped());
    command
}

pub fn test_name(name: &str) -> String {
    let (_, module) = module_path!().split_once("::").unwrap();
    let module = module.strip_suffix("::helpers").unwrap();
    format!("{module}::{name}")
}
