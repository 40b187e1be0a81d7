//! Starts and stops an embedded server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::account::Account;
use super::cluster::Cluster;
use super::download::Source;
use super::files::{DataDir, OwnerLock};
use super::login;
use super::programs::{NotFound, Programs, Search};
use super::socket::{Address, SocketDirectory};
use super::supervisor::{Running, Shared};
use super::watchdog::{Duty, Watchdog};
use super::{Error, Names, Settings, default_data_dir};

/// A running embedded Postgres. It is restarted if it dies, and needs no async runtime to keep running. It is ended in
/// the background when this value is dropped or the process is killed. Only [`Server::stop`] waits for its end.
pub struct Server {
    address: Address,
    names: Names,
    shared: Arc<Shared>,
    supervisor: Option<JoinHandle<Result<(), Error>>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Server").field("address", &self.address).field("pid", &self.pid()).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts the server and waits until it accepts connections. Creates the cluster, the database, and the
    /// service's login if they do not exist. Upgrades a cluster of a release that served on a port with a password.
    ///
    /// # Errors
    /// Fails if a name is invalid, another process owns the data directory, the server's user cannot reach it, or the cluster
    /// is in recovery. Also fails if the server's programs are neither found nor downloaded, or Postgres does not start.
    pub async fn start(settings: Settings) -> Result<Server, Error> {
        let prepared = blocking(move || Prepared::new(settings)).await?;
        let (prepared, found) = blocking(move || {
            let found = prepared.find(prepared.settings.programs.as_deref())?;
            Ok((prepared, found))
        })
        .await?;
        let programs = match found {
            Ok(programs) => programs,
            Err(not_found) => prepared.download(not_found).await?,
        };
        let data_dir = prepared.data_dir.clone();
        let (server, mut lock) = blocking(move || prepared.start(programs)).await?;
        login::prepare_roles(&server.url_of("postgres"), &server.names).await?;
        data_dir.forget_password()?;
        lock.announce(&server.address)?;
        Ok(server)
    }

    /// Returns the address of the server's socket.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the URL of the database for the owner role.
    pub fn url(&self) -> String {
        self.url_of(&self.names.database)
    }

    /// Returns the URL of another database of this server for the owner role.
    pub fn url_of(&self, database: &str) -> String {
        self.address.url(&self.names.owner, database)
    }

    /// Returns the URL of the database for the service's login.
    pub fn service_url(&self) -> String {
        self.address.url(&self.names.service, &self.names.database)
    }

    /// Returns the postmaster's process id, or 0 while it restarts.
    pub fn pid(&self) -> u32 {
        self.shared.pid()
    }

    /// Stops the server with a fast shutdown, which rolls back open transactions, and waits until it has ended.
    ///
    /// # Errors
    /// If its processes do not end.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.shared.stop();
        match self.supervisor.take() {
            Some(supervisor) => blocking(move || joined(supervisor.join())).await,
            None => Ok(()),
        }
    }
}

impl Drop for Server {
    /// Tells the supervisor thread to end the server. If the process ends first, the watchdog ends it.
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// A data directory that this process has locked, before the server runs.
#[derive(Debug)]
struct Prepared {
    settings: Settings,
    account: Account,
    data_dir: DataDir,
    address: Address,
    /// Started first, so that even an unfinished start leaves nothing behind.
    watchdog: Watchdog,
    lock: OwnerLock,
}

impl Prepared {
    fn new(settings: Settings) -> Result<Prepared, Error> {
        settings.names.check()?;
        let account = Account::choose(settings.account.as_deref(), &settings.data_dir.join("postgres"))?;
        // Check before creating anything, too.
        if let Some(existing) = settings.data_dir.ancestors().find(|path| path.exists()) {
            account.check_reach(DataDir::find(existing)?.path())?;
        }
        let data_dir = DataDir::create(&settings.data_dir, account.is_switched())?;
        account.check_reach(data_dir.path())?;
        let lock = OwnerLock::take(&data_dir)?;
        // Before anything could end a server that is in the middle of the recovery.
        if let Some(signal) = data_dir.recovery_signal() {
            return Err(Error::InRecovery(signal.display().to_string()));
        }
        let socket = SocketDirectory::prepare(data_dir.path(), lock.last.as_ref(), &account, &settings.names)?;
        let remove_data = settings.remove_at_end.then(|| data_dir.path().to_owned());
        let remove_socket = socket.is_temporary.then(|| socket.address.directory().to_owned());
        let watchdog = Watchdog::start(Duty {
            account: account.clone(),
            name: settings.names.watchdog(),
            immediate: !settings.durable,
            remove: remove_data.into_iter().chain(remove_socket).collect(),
            pid_file: data_dir.pgdata().join("postmaster.pid"),
        })?;
        Ok(Prepared { settings, account, data_dir, address: socket.address, watchdog, lock })
    }

    fn search<'a>(&'a self, explicit: Option<&'a Path>, downloads: &'a Path) -> Search<'a> {
        Search { explicit, downloads, major: self.data_dir.cluster_major(), account: &self.account }
    }

    fn find(&self, explicit: Option<&Path>) -> Result<Result<Programs, NotFound>, Error> {
        self.search(explicit, &self.downloads()).run()
    }

    /// Returns the directory for downloads. They are kept, so it is never a directory that is removed at the end.
    fn downloads(&self) -> PathBuf {
        if self.settings.remove_at_end {
            default_data_dir(&self.settings.names.program).join("programs")
        } else {
            self.data_dir.downloads()
        }
    }

    async fn download(&self, not_found: NotFound) -> Result<Programs, Error> {
        let downloads = self.downloads();
        let downloaded = match Source::public() {
            Ok(source) => {
                let Settings { release, hints, .. } = &self.settings;
                source.download(&downloads, self.data_dir.cluster_major(), release.as_ref(), hints.release.as_deref()).await
            }
            Err(error) => Err(error),
        };
        match downloaded {
            Ok(directory) => {
                self.find(Some(&directory.join("bin")))?.map_err(|_| Error::UnusablePrograms(directory.display().to_string()))
            }
            Err(reason) => Err(Error::NoPrograms {
                needed: self.search(None, &downloads).needed(),
                rejected: not_found.rejected,
                download: reason,
                alternative: self.settings.hints.alternative.clone(),
            }),
        }
    }

    /// Starts the server. Returns it with the lock, in which the caller announces it once its database exists.
    fn start(mut self, programs: Programs) -> Result<(Server, OwnerLock), Error> {
        let cluster = Cluster {
            programs,
            account: self.account,
            data_dir: self.data_dir,
            address: self.address.clone(),
            names: self.settings.names.clone(),
            durable: self.settings.durable,
            extra: self.settings.extra,
        };
        cluster.ensure(&mut self.watchdog)?;
        let child = cluster.launch(&mut self.watchdog, &|| false)?;
        let announcing = self.lock.share();
        tracing::debug!(pid = child.id(), "the embedded Postgres accepts connections");
        let shared = Arc::new(Shared::default());
        let running = Running { cluster, child, watchdog: self.watchdog, lock: self.lock, shared: Arc::clone(&shared) };
        let server = Server { address: self.address, names: self.settings.names, shared, supervisor: Some(running.supervise()?) };
        Ok((server, announcing?))
    }
}

/// Runs blocking work outside the async runtime's threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    joined(tokio::task::spawn_blocking(work).await)
}

fn joined<T, E: fmt::Debug>(outcome: Result<Result<T, Error>, E>) -> Result<T, Error> {
    outcome.unwrap_or_else(|panic| {
        Err(Error::Io { action: "run the embedded Postgres".to_owned(), source: std::io::Error::other(format!("{panic:?}")) })
    })
}
