#![doc = include_str!("../README.md")]

mod account;
mod cluster;
mod download;
mod files;
mod login;
mod memory;
mod names;
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
pub use names::Names;
pub use server::Server;
pub use socket::Address;

/// Oldest supported major version of Postgres.
pub const OLDEST_MAJOR: u32 = 14;

/// Settings of an embedded server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory for all files of the server; created if it does not exist.
    pub data_dir: PathBuf,
    /// Names of the program, its database and its roles.
    pub names: Names,
    /// Directory with `postgres` and `initdb`. If not set, the usual places are searched.
    pub programs: Option<PathBuf>,
    /// Release to download if no programs are found. If not set, the built-in one.
    pub release: Option<PinnedRelease>,
    /// User that runs Postgres if this program runs as root. If not set: the owner of an existing cluster, else
    /// `postgres`, else `nobody`.
    pub account: Option<String>,
    /// Whether committed transactions survive a crash of the machine. False only in tests.
    pub durable: bool,
    /// Whether to remove the data directory when the server ends, however it ends.
    pub remove_at_end: bool,
    /// Additional server settings (`-c name=value`); they override the built-in ones.
    pub extra: Vec<(String, String)>,
    /// Advice in error messages.
    pub hints: Hints,
}

/// Advice that error messages give to the program's users.
#[derive(Debug, Clone, Default)]
pub struct Hints {
    /// Alternative to an embedded server, as an instruction such as `set DATABASE_URL`.
    pub alternative: Option<String>,
    /// Option that sets [`Settings::release`], such as `--postgres-release VERSION:DIGEST`.
    pub release: Option<String>,
}

impl Settings {
    /// Returns the settings of a durable server in `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>, names: Names) -> Settings {
        Settings {
            data_dir: data_dir.into(),
            names,
            programs: None,
            release: None,
            account: None,
            durable: true,
            remove_at_end: false,
            extra: Vec::new(),
            hints: Hints::default(),
        }
    }

    /// Returns the settings of a server in a new temporary directory, which is removed when the server ends. Without
    /// durability, the directory is in memory if there is room, because tests mostly wait for files. A durable server is on
    /// disk, so that measurements are realistic.
    ///
    /// # Errors
    /// If a name is invalid, or no temporary directory can be created that the server's user can reach.
    pub fn temporary(durable: bool, names: Names) -> Result<Settings, Error> {
        names.check()?;
        let data_dir = account::temporary_directory(!durable, &names)?;
        Ok(Settings { durable, remove_at_end: true, ..Settings::new(data_dir, names) })
    }
}

/// Returns the default data directory of a program: the platform's usual place, or `/var/lib/<program>` for root, because the
/// server's user cannot enter root's home.
pub fn default_data_dir(program: &str) -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return Path::new("/var/lib").join(program);
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(data_home) = absolute("XDG_DATA_HOME") {
        return data_home.join(program);
    }
    match absolute("HOME") {
        Some(home) if cfg!(target_os = "macos") => home.join("Library/Application Support").join(program),
        Some(home) => home.join(".local/share").join(program),
        None => std::env::temp_dir().join(program),
    }
}

/// Error of starting, finding, or stopping an embedded server. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the name {0:?} cannot be used: names have at most 28 lower-case letters, digits and underscores (a program's: hyphens), \
         and begin with a letter"
    )]
    InvalidName(String),
    #[error("the owner, the service and the runtime role must be different roles")]
    SameRole,
    #[error(
        "no Postgres server programs found{}, and none could be downloaded ({download}): install \
         PostgreSQL {needed} (for example `apt-get install postgresql`, \
         `dnf install postgresql-server` or `brew install postgresql`){}",
        rejected_text(rejected), alternative.as_ref().map(|text| format!(", or {text}")).unwrap_or_default()
    )]
    NoPrograms { needed: String, rejected: Vec<String>, download: String, alternative: Option<String> },
    #[error("cannot use the given Postgres programs: {0}")]
    UnusablePrograms(String),
    #[error(
        "the user `{account}`, who runs the embedded Postgres, cannot enter the directory {directory}: choose another data \
         directory (for example below /var/lib), or allow access with `chmod a+x {directory}`"
    )]
    Unreachable { directory: String, account: String },
    #[error("the user `{0}`, who is to run the embedded Postgres, does not exist on this system")]
    NoAccount(String),
    #[error(
        "running as root, but neither the user `postgres` nor `nobody` exists to run the embedded Postgres: run the program \
         as an ordinary user"
    )]
    NoUnprivilegedAccount,
    #[error("the cluster in {path} belongs to the user `{owner}`, not to `{account}`: run as that user")]
    ForeignCluster { path: String, owner: String, account: String },
    #[error(
        "the server would not take writes, because the file {0} makes it start in recovery: complete the recovery, or promote \
         the standby, with `pg_ctl`; the file is then gone"
    )]
    InRecovery(String),
    #[error("the data directory {data_dir} is in use by process {process}")]
    InUse { data_dir: String, process: String },
    #[error(
        "process {process}, of an earlier release, runs the server in {data_dir} on a port: stop it and start it with this release"
    )]
    EarlierRelease { data_dir: String, process: String },
    #[error("{0}, the socket directory of the embedded Postgres, is not a directory of the user who runs it: remove it")]
    ForeignSocketDirectory(String),
    #[error(
        "the path {0} is too long for a socket, and no safe directory with a short path was found (tried /run as root, \
         XDG_RUNTIME_DIR, TMPDIR and /tmp): choose a data directory with a shorter path"
    )]
    NoSocketDirectory(String),
    #[error("initdb failed: {0}")]
    Initdb(String),
    #[error("Postgres did not start: {0}")]
    NotStarted(String),
    #[error("Postgres processes of an earlier run ({0}) do not end")]
    Leftovers(String),
    #[error("the start of Postgres was aborted because a stop was requested")]
    Stopped,
    #[error("cannot {action}: {source}")]
    Io { action: String, source: std::io::Error },
    #[error("the embedded Postgres returned an error: {0}")]
    Database(#[from] sqlx::Error),
}

fn rejected_text(rejected: &[String]) -> String {
    if rejected.is_empty() {
        return String::new();
    }
    format!(" that can be used ({})", rejected.join("; "))
}

/// Adds the attempted action to an I/O error.
trait During<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> During<T> for std::io::Result<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Io { action: action(), source })
    }
}
