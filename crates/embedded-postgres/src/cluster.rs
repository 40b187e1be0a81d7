//! A Postgres cluster on disk: creates it with initdb and launches its postmaster.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::account::Account;
use super::files::DataDir;
use super::login;
use super::memory;
use super::processes::{ProcessCriteria, end_leftovers, is_ready, send};
use super::programs::Programs;
use super::socket::{Address, PORT};
use super::watchdog::Watchdog;
use super::{During, Error, Names};

/// Timeout for the postmaster to accept connections. Crash recovery may replay several gigabytes of write-ahead log.
const READY_PATIENCE: Duration = Duration::from_secs(600);
const READY_POLL: Duration = Duration::from_millis(10);

/// Server settings for production. [`memory`] computes `shared_buffers`.
const DURABLE: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "on"),
    ("max_connections", "100"),
    ("wal_level", "replica"),
    ("wal_compression", "on"),
    ("max_wal_size", "4GB"),
    ("checkpoint_timeout", "15min"),
    // Vacuum often: small tables change with every order.
    ("autovacuum", "on"),
    ("autovacuum_naptime", "10s"),
    ("autovacuum_vacuum_scale_factor", "0.1"),
    ("autovacuum_vacuum_cost_limit", "1000"),
];

/// Server settings for tests. A crash of the machine may lose all data.
const THROWAWAY: &[(&str, &str)] = &[
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("max_connections", "300"),
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
    // The data directory may be in memory.
    ("max_wal_size", "256MB"),
    // A vacuum would interfere with copying the template database.
    ("autovacuum", "off"),
];

const COMMON: &[(&str, &str)] = &[
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("lc_messages", "C"),
    ("jit", "off"),
    ("huge_pages", "try"),
    ("logging_collector", "off"),
    ("log_destination", "stderr"),
    ("log_line_prefix", "%m [%p] "),
    // Statements and row values hold personal data, which must not get into the server log.
    ("log_error_verbosity", "terse"),
    ("log_min_error_statement", "panic"),
];

#[derive(Debug, Clone)]
pub(super) struct Cluster {
    pub programs: Programs,
    pub account: Account,
    pub data_dir: DataDir,
    pub address: Address,
    pub names: Names,
    pub durable: bool,
    pub extra: Vec<(String, String)>,
}

impl Cluster {
    /// Creates the cluster if there is none, and writes the authentication rules.
    pub fn ensure(&self, watchdog: &mut Watchdog) -> Result<(), Error> {
        if self.data_dir.cluster_major().is_none() {
            self.initdb(watchdog)?;
        }
        login::write_rules(&self.data_dir.hba(), &self.data_dir.ident(), &self.account, &self.names)
    }

    /// Creates the cluster under a temporary name first, so that an interrupted initdb leaves nothing that looks like a
    /// cluster.
    fn initdb(&self, watchdog: &mut Watchdog) -> Result<(), Error> {
        const UNFINISHED: &str = "postgres.new.";
        let data_dir = self.data_dir.path();
        let shown = data_dir.display();
        for entry in std::fs::read_dir(data_dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                let _ = std::fs::remove_dir_all(entry.path()).or_else(|_| std::fs::remove_file(entry.path()));
            }
        }
        let unfinished = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(data_dir)
            .during(|| format!("create a directory in {shown}"))?;
        self.account.give(unfinished.path())?;
        let mut command = self.account.command(&self.programs.initdb());
        command
            .arg("--pgdata")
            .arg(unfinished.path())
            .args(["--username", &self.names.owner])
            // These rules of the cluster itself are not used: see `login`.
            .args(["--auth-local", "peer", "--auth-host", "reject"])
            .args(["--locale", "C", "--encoding", "UTF8"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if !self.durable {
            command.arg("--no-sync");
        }
        let running = command.spawn().during(|| "run initdb".to_owned())?;
        watchdog.watch(running.id())?;
        let output = running.wait_with_output().during(|| "run initdb".to_owned())?;
        watchdog.watch(0)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Initdb(one_line(&said, &output.status.to_string())));
        }
        std::fs::rename(unfinished.keep(), self.data_dir.pgdata())
            .during(|| format!("put the new cluster in place in {shown}"))?;
        if self.durable {
            std::fs::File::open(data_dir).and_then(|directory| directory.sync_all()).during(|| format!("sync {shown}"))?;
        }
        Ok(())
    }

    /// Returns the criteria that identify the cluster's processes.
    pub fn criteria(&self) -> Result<ProcessCriteria, Error> {
        let pgdata = self.data_dir.pgdata();
        let data = std::fs::metadata(&pgdata).during(|| format!("look at {}", pgdata.display()))?;
        Ok(ProcessCriteria {
            // Stable for this directory across runs, and different for every other directory.
            cluster_name: format!("{}-{:x}.{:x}", self.names.database, data.dev(), data.ino()),
            pgdata: pgdata.display().to_string(),
            uid: self.account.uid,
        })
    }

    /// Ends leftover processes of an earlier run, starts the postmaster, and waits until it accepts connections or
    /// `given_up` returns true.
    pub fn launch(&self, watchdog: &mut Watchdog, given_up: &dyn Fn() -> bool) -> Result<Child, Error> {
        let criteria = self.criteria()?;
        end_leftovers(&criteria, &self.data_dir.pgdata())?;
        self.address.clear()?;
        let log = self.data_dir.open_log()?;
        let said_before = log.metadata().map_or(0, |data| data.len());
        let mut command = self.account.command(&self.programs.postgres());
        command
            .arg("-D")
            .arg(self.data_dir.pgdata())
            .args(self.arguments(&criteria.cluster_name))
            .stdout(Stdio::null())
            .stderr(log);
        let mut child = command.spawn().during(|| "run postgres".to_owned())?;
        let told = watchdog.watch(child.id());
        let outcome = match told {
            Ok(()) => self.wait_ready(&mut child, given_up),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(None) => Ok(child),
            Ok(Some(status)) => {
                watchdog.watch(0)?;
                let said = self.log_since(said_before);
                Err(Error::NotStarted(one_line(&said, &status)))
            }
            Err(error) => {
                send(child.id(), Signal::SIGQUIT);
                let _ = child.wait();
                let _ = watchdog.watch(0);
                Err(error)
            }
        }
    }

    /// Waits for the postmaster. Returns `None` when it accepts connections, or its exit status if it has ended.
    fn wait_ready(&self, child: &mut Child, given_up: &dyn Fn() -> bool) -> Result<Option<String>, Error> {
        let pgdata = self.data_dir.pgdata();
        let begun = Instant::now();
        let mut reported = false;
        loop {
            if let Some(status) = child.try_wait().during(|| "wait for postgres".to_owned())? {
                return Ok(Some(status.to_string()));
            }
            if is_ready(&pgdata, child.id()) {
                return Ok(None);
            }
            if given_up() {
                return Err(Error::Stopped);
            }
            if begun.elapsed() > READY_PATIENCE {
                let seconds = READY_PATIENCE.as_secs();
                return Err(Error::NotStarted(format!("it did not accept connections within {seconds} s")));
            }
            if !reported && begun.elapsed() > Duration::from_secs(10) {
                reported = true;
                tracing::info!("Postgres is still starting, probably recovering from a crash");
            }
            std::thread::sleep(READY_POLL);
        }
    }

    fn arguments(&self, cluster_name: &str) -> Vec<OsString> {
        let (kind, shared_buffers) =
            if self.durable { (DURABLE, memory::shared_buffers()) } else { (THROWAWAY, "128MB".to_owned()) };
        let sized = [("shared_buffers".to_owned(), OsString::from(shared_buffers))];
        let socket_directory = self.address.directory().display().to_string().replace('"', "\"\"");
        // These settings come last, so that nothing overrides them, including the cluster's own configuration files.
        let fixed = [
            ("listen_addresses", OsString::new()),
            // The setting is a list. The quotes allow a comma in the path.
            ("unix_socket_directories", format!("\"{socket_directory}\"").into()),
            ("unix_socket_permissions", "0700".into()),
            ("unix_socket_group", OsString::new()),
            ("port", PORT.to_string().into()),
            ("hba_file", self.data_dir.hba().into()),
            ("ident_file", self.data_dir.ident().into()),
            ("cluster_name", cluster_name.into()),
        ];
        let built_in = COMMON.iter().chain(kind).map(|(name, value)| ((*name).to_owned(), OsString::from(value)));
        let extra = self.extra.iter().map(|(name, value)| (name.clone(), value.into()));
        let fixed = fixed.into_iter().map(|(name, value)| (name.to_owned(), value));
        built_in
            .chain(sized)
            .chain(extra)
            .chain(fixed)
            .flat_map(|(name, value)| {
                let mut setting = OsString::from(format!("{name}="));
                setting.push(value);
                [OsString::from("-c"), setting]
            })
            .collect()
    }

    /// Reads the server log from `offset`, at most 64 KiB.
    fn log_since(&self, offset: u64) -> String {
        let mut said = Vec::new();
        let read = std::fs::File::open(self.data_dir.log()).and_then(|mut log| {
            log.seek(SeekFrom::Start(offset))?;
            log.take(64 * 1024).read_to_end(&mut said)
        });
        match read {
            Ok(_) => String::from_utf8_lossy(&said).into_owned(),
            Err(error) => format!("cannot read its log: {error}"),
        }
    }

    /// Returns the path of the server log, for messages.
    pub fn log(&self) -> PathBuf {
        self.data_dir.log()
    }
}

/// Extracts the lines that explain why a program failed, or else its last line and exit status.
fn one_line(said: &str, status: &str) -> String {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let telling: Vec<&str> =
        lines().filter(|line| ["FATAL:", "PANIC:", "error:", "HINT:"].iter().any(|mark| line.contains(mark))).collect();
    if !telling.is_empty() {
        return telling.join(" ");
    }
    match lines().next_back() {
        Some(last) => format!("{last} ({status})"),
        None => status.to_owned(),
    }
}
