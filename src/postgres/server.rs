//! Starting, using and stopping an embedded server.

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
use super::{DATABASE, Error, Settings, default_data_dir};

/// A running embedded Postgres. It needs no async runtime to live in: it is started anew when it
/// dies, and ended in the background when this value is dropped (also when the process is
/// killed). Only [`Server::stop`] waits for its end.
pub struct Server {
    address: Address,
    shared: Arc<Shared>,
    supervisor: Option<JoinHandle<Result<(), Error>>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Server").field("address", &self.address).field("pid", &self.pid()).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts the server: makes the cluster if there is none, recovers it if need be, waits until
    /// it answers and creates the ledger's database and the service's login if they are absent. A
    /// cluster of a release that served on a port, with a password, is changed in place.
    ///
    /// # Errors
    /// When another process owns the data directory, no server programs are found or can be
    /// downloaded, the server's user cannot reach the directory, or Postgres does not start.
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
        login::prepare_roles(&server.url_of("postgres")).await?;
        data_dir.forget_password()?;
        lock.announce(&server.address)?;
        Ok(server)
    }

    /// Where it is reached.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The owner role's URL of the ledger's database.
    pub fn url(&self) -> String {
        self.url_of(DATABASE)
    }

    /// The owner role's URL of another database of this server.
    pub fn url_of(&self, database: &str) -> String {
        self.address.owner_url(database)
    }

    /// The postmaster's process id; 0 while it is being started anew.
    pub fn pid(&self) -> u32 {
        self.shared.pid()
    }

    /// Ends the server in order (a fast shutdown, which rolls back open transactions) and waits
    /// for its end.
    ///
    /// # Errors
    /// When its processes do not end.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.shared.stop();
        match self.supervisor.take() {
            Some(supervisor) => blocking(move || joined(supervisor.join())).await,
            None => Ok(()),
        }
    }
}

impl Drop for Server {
    /// The supervising thread ends the server, or the watchdog if the process ends before that.
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// A data directory that is ours, before the server runs.
#[derive(Debug)]
struct Prepared {
    settings: Settings,
    account: Account,
    data_dir: DataDir,
    address: Address,
    /// Started first, so that also an unfinished start leaves nothing.
    watchdog: Watchdog,
    lock: OwnerLock,
}

impl Prepared {
    fn new(settings: Settings) -> Result<Prepared, Error> {
        let account = Account::choose(settings.account.as_deref(), &settings.data_dir.join("postgres"))?;
        // Asked before anything is made, too.
        if let Some(existing) = settings.data_dir.ancestors().find(|path| path.exists()) {
            account.check_reach(DataDir::find(existing)?.path())?;
        }
        let data_dir = DataDir::create(&settings.data_dir, account.is_switched())?;
        account.check_reach(data_dir.path())?;
        let lock = OwnerLock::take(&data_dir)?;
        let socket = SocketDirectory::prepare(data_dir.path(), lock.last.as_ref(), &account)?;
        let remove_data = settings.remove_at_end.then(|| data_dir.path().to_owned());
        let remove_socket = socket.is_temporary.then(|| socket.address.directory().to_owned());
        let watchdog = Watchdog::start(Duty {
            account: account.clone(),
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

    /// Downloads are kept, so not in a directory that is removed.
    fn downloads(&self) -> PathBuf {
        if self.settings.remove_at_end { default_data_dir().join("programs") } else { self.data_dir.downloads() }
    }

    async fn download(&self, not_found: NotFound) -> Result<Programs, Error> {
        let downloads = self.downloads();
        let downloaded = match Source::public() {
            Ok(source) => source.download(&downloads, self.data_dir.cluster_major(), self.settings.release.as_ref()).await,
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
            }),
        }
    }

    /// The running server, and the lock for announcing it once its database exists.
    fn start(mut self, programs: Programs) -> Result<(Server, OwnerLock), Error> {
        let cluster = Cluster {
            programs,
            account: self.account,
            data_dir: self.data_dir,
            address: self.address.clone(),
            durable: self.settings.durable,
            extra: self.settings.extra,
        };
        cluster.ensure(&mut self.watchdog)?;
        let child = cluster.launch(&mut self.watchdog, &|| false)?;
        let announcing = self.lock.share();
        tracing::debug!(pid = child.id(), "the embedded Postgres answers");
        let shared = Arc::new(Shared::default());
        let running = Running { cluster, child, watchdog: self.watchdog, lock: self.lock, shared: Arc::clone(&shared) };
        let server = Server { address: self.address, shared, supervisor: Some(running.supervise()?) };
        Ok((server, announcing?))
    }
}

/// Runs blocking work beside the async runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    joined(tokio::task::spawn_blocking(work).await)
}

fn joined<T, E: fmt::Debug>(outcome: Result<Result<T, Error>, E>) -> Result<T, Error> {
    outcome.unwrap_or_else(|panic| {
        Err(Error::Io { action: "run the embedded Postgres".to_owned(), source: std::io::Error::other(format!("{panic:?}")) })
    })
}
