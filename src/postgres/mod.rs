//! The embedded Postgres: a server of the program's own, for use without `DATABASE_URL`.
//!
//! It runs installed server programs (or downloaded ones) over its own data directory. It listens
//! on a Unix socket alone, in a directory that is closed to other users, and asks the kernel who
//! connects (peer authentication): there is no port and no password. It ends with the program: by
//! [`Server::stop`], when the [`Server`] is dropped, and through a watchdog process even when the
//! program is killed.
//!
//! Files in the data directory:
//! - `postgres/`: Postgres's own (`PGDATA`);
//! - `socket/`: the directory of its socket, mode 0700; elsewhere if the path would be too long;
//! - `postgres.hba`, `postgres.ident`: who may log in, as which role;
//! - `postgres.lock`: locked while a program owns the server; holds its process id and where the
//!   socket is, mode 0600;
//! - `postgres.log`: what the server says;
//! - `programs/`: downloaded server programs, where none are installed.

mod account;
mod cluster;
mod download;
mod files;
mod login;
mod memory;
mod processes;
mod programs;
mod server;
mod socket;
mod supervisor;
mod watchdog;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use download::PinnedRelease;
pub use files::{has_cluster, running};
pub use server::Server;
pub use socket::Address;

/// The superuser role that owns the cluster and the ledger's database.
pub const OWNER_ROLE: &str = "ledger_owner";

/// The role that the service logs in as. It may become the runtime role, and nothing else.
pub const SERVICE_ROLE: &str = "ledger_service";

/// The database made for the ledger.
pub const DATABASE: &str = "ledger";

/// The oldest major version of Postgres that the ledger works with.
pub const OLDEST_MAJOR: u32 = 14;

/// How an embedded server is run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where everything of the server is kept; created if absent.
    pub data_dir: PathBuf,
    /// The directory of `postgres` and `initdb`; without it they are looked for.
    pub programs: Option<PathBuf>,
    /// The release to download where no programs are found; without it the one that is built in.
    pub release: Option<PinnedRelease>,
    /// As root only: the user as which Postgres runs. Without it the owner of an existing
    /// cluster, else `postgres`, else `nobody`.
    pub account: Option<String>,
    /// Whether what was committed survives a crash of the machine. Off only for tests.
    pub durable: bool,
    /// Remove the data directory when the server ends, however it ends.
    pub remove_at_end: bool,
    /// Further server settings (`-c name=value`), which win over the built-in ones.
    pub extra: Vec<(String, String)>,
}

impl Settings {
    /// A durable server in `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Settings {
        Settings {
            data_dir: data_dir.into(),
            programs: None,
            release: None,
            account: None,
            durable: true,
            remove_at_end: false,
            extra: Vec::new(),
        }
    }

    /// A server in a new temporary directory, which is removed at its end. Without durability
    /// it is kept in memory where the system has room, since files are what tests wait for; a
    /// durable one is on disk, so that measurements of it are true.
    ///
    /// # Errors
    /// When no temporary directory can be made that the server's user reaches.
    pub fn temporary(durable: bool) -> Result<Settings, Error> {
        Ok(Settings { durable, remove_at_end: true, ..Settings::new(account::temporary_directory(!durable)?) })
    }
}

/// Starts a server without durability in a temporary directory, for tests; see
/// [`Settings::temporary`].
///
/// # Errors
/// As [`Server::start`].
pub async fn start_throwaway(programs: Option<PathBuf>) -> Result<Server, Error> {
    Server::start(Settings { programs, ..Settings::temporary(false)? }).await
}

/// Where the program keeps its data unless told otherwise: the platform's place for an ordinary
/// user, `/var/lib/rewards-ledger` for root, whose home the server's user cannot enter.
pub fn default_data_dir() -> PathBuf {
    const NAME: &str = "rewards-ledger";
    if nix::unistd::geteuid().is_root() {
        return Path::new("/var/lib").join(NAME);
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(data_home) = absolute("XDG_DATA_HOME") {
        return data_home.join(NAME);
    }
    match absolute("HOME") {
        Some(home) if cfg!(target_os = "macos") => home.join("Library/Application Support").join(NAME),
        Some(home) => home.join(".local/share").join(NAME),
        None => std::env::temp_dir().join(NAME),
    }
}

/// Why an embedded server could not be started, found or stopped. Each reads as one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "no Postgres server programs found{}, and none could be downloaded ({download}): install \
         PostgreSQL {needed} (for example `apt-get install postgresql`, \
         `dnf install postgresql-server` or `brew install postgresql`), or set DATABASE_URL",
        rejected_text(rejected)
    )]
    NoPrograms { needed: String, rejected: Vec<String>, download: String },
    #[error("the Postgres programs given cannot be used: {0}")]
    UnusablePrograms(String),
    #[error(
        "the directory {directory} cannot be entered by the user `{account}`, as which the \
         embedded Postgres runs: choose a data directory elsewhere (for example \
         /var/lib/rewards-ledger) or allow it with `chmod a+x {directory}`"
    )]
    Unreachable { directory: String, account: String },
    #[error("no user `{0}` exists on this system to run the embedded Postgres as")]
    NoAccount(String),
    #[error(
        "running as root, and neither a user `postgres` nor `nobody` exists to run the embedded \
         Postgres as: run the program as an ordinary user"
    )]
    NoUnprivilegedAccount,
    #[error("the cluster in {path} belongs to the user `{owner}`, not to `{account}`: run as that user")]
    ForeignCluster { path: String, owner: String, account: String },
    #[error("the data directory {data_dir} is in use by process {process}")]
    InUse { data_dir: String, process: String },
    #[error(
        "process {process} runs the server in {data_dir} by an earlier release, on a port: stop it, and start it by this release"
    )]
    EarlierRelease { data_dir: String, process: String },
    #[error(
        "{0}, which the socket of the embedded Postgres goes into, is not a directory of the user as which it runs: remove it"
    )]
    ForeignSocketDirectory(String),
    #[error(
        "the path {0} is too long for a socket, and no safe directory with a short path was found (looked at /run as root, \
         XDG_RUNTIME_DIR, TMPDIR and /tmp): choose a data directory with a shorter path"
    )]
    NoSocketDirectory(String),
    #[error("initdb failed: {0}")]
    Initdb(String),
    #[error("Postgres did not start: {0}")]
    NotStarted(String),
    #[error("Postgres processes of an earlier run ({0}) do not end")]
    Leftovers(String),
    #[error("the start of Postgres was given up, as it was told to stop")]
    Stopped,
    #[error("cannot {action}: {source}")]
    Io { action: String, source: std::io::Error },
    #[error("the embedded Postgres answers with an error: {0}")]
    Database(#[from] sqlx::Error),
}

fn rejected_text(rejected: &[String]) -> String {
    if rejected.is_empty() {
        return String::new();
    }
    format!(" that can be used ({})", rejected.join("; "))
}

/// Says what was attempted when an i/o call fails.
trait During<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> During<T> for std::io::Result<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Io { action: action(), source })
    }
}
