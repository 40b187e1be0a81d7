//! The files of a data directory: their paths, permissions, and contents.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::socket::Address;
use super::{During, Error};

/// Timeout to take the owner lock. A command that reads the lock holds it briefly, and so does a program that is ending.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Size in bytes above which the server log is rotated at startup.
const LOG_LIMIT: u64 = 16 * 1024 * 1024;

/// A data directory, as an absolute path.
#[derive(Debug, Clone)]
pub(super) struct DataDir(PathBuf);

impl DataDir {
    /// Creates the directory if it does not exist. It is private, unless `enterable`: then other users can enter it but not
    /// list it, because root's server runs as one of them.
    pub fn create(path: &Path, enterable: bool) -> Result<DataDir, Error> {
        if !path.exists() {
            let mode = if enterable { 0o711 } else { 0o700 };
            DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(path)
                // The umask may have removed permissions.
                .and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(mode)))
                .during(|| format!("create the data directory {}", path.display()))?;
        }
        DataDir::find(path)
    }

    /// Opens the existing directory at `path`.
    pub fn find(path: &Path) -> Result<DataDir, Error> {
        path.canonicalize().map(DataDir).during(|| format!("open the data directory {}", path.display()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn pgdata(&self) -> PathBuf {
        self.0.join("postgres")
    }

    pub fn downloads(&self) -> PathBuf {
        self.0.join("programs")
    }

    pub fn log(&self) -> PathBuf {
        self.0.join("postgres.log")
    }

    /// Authentication rules (`hba_file`).
    pub fn hba(&self) -> PathBuf {
        self.0.join("postgres.hba")
    }

    /// Mapping from operating system users to roles (`ident_file`).
    pub fn ident(&self) -> PathBuf {
        self.0.join("postgres.ident")
    }

    fn lock_file(&self) -> PathBuf {
        self.0.join("postgres.lock")
    }

    /// Returns the major version of the cluster, if there is one.
    pub fn cluster_major(&self) -> Option<u32> {
        let version = std::fs::read_to_string(self.pgdata().join("PG_VERSION")).ok()?;
        version.trim().parse().ok()
    }

    /// Returns the file that makes a server of the cluster start in recovery, if there is one.
    pub fn recovery_signal(&self) -> Option<PathBuf> {
        ["standby.signal", "recovery.signal"].map(|name| self.pgdata().join(name)).into_iter().find(|file| file.exists())
    }

    /// Removes the password file that an earlier release kept for the owner role, which no longer has a password.
    pub fn forget_password(&self) -> Result<(), Error> {
        let path = self.0.join("postgres.password");
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).during(|| format!("remove {}", path.display())),
            _ => Ok(()),
        }
    }

    /// Opens the server log for appending. Rotates it first if it exceeds [`LOG_LIMIT`].
    pub fn open_log(&self) -> Result<File, Error> {
        let path = self.log();
        if path.metadata().is_ok_and(|data| data.len() > LOG_LIMIT) {
            let aside = path.with_extension("log.1");
            std::fs::rename(&path, aside).during(|| format!("rename {}", path.display()))?;
        }
        OpenOptions::new().create(true).append(true).mode(0o600).open(&path).during(|| format!("open {}", path.display()))
    }
}

/// Exclusive lock on a data directory. It is held until the value is dropped or the process ends. The lock file holds the
/// owner's process id and, once the server accepts connections, the directory of its socket.
#[derive(Debug)]
pub(super) struct OwnerLock {
    file: File,
    path: PathBuf,
    /// Socket of the last run.
    pub last: Option<Address>,
}

impl OwnerLock {
    pub fn take(data_dir: &DataDir) -> Result<OwnerLock, Error> {
        let path = data_dir.lock_file();
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .during(|| format!("open {}", path.display()))?;
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(std::fs::TryLockError::Error(error)) => {
                    return Err(error).during(|| format!("lock {}", path.display()));
                }
                Err(std::fs::TryLockError::WouldBlock) if Instant::now() > deadline => {
                    return Err(Error::InUse {
                        data_dir: data_dir.path().display().to_string(),
                        process: read_lock(&mut file, &path)?.process.unwrap_or_else(|| "unknown".to_owned()),
                    });
                }
                Err(std::fs::TryLockError::WouldBlock) => {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
        // An earlier release made it readable for everyone.
        file.set_permissions(Permissions::from_mode(0o600)).during(|| format!("close {} to others", path.display()))?;
        let last = read_lock(&mut file, &path)?.place.and_then(|place| Address::new(Path::new(&place)));
        let mut lock = OwnerLock { file, path, last };
        lock.write(None)?;
        Ok(lock)
    }

    /// Returns another handle to the same lock. The lock is held until both are dropped.
    pub fn share(&self) -> Result<OwnerLock, Error> {
        let file = self.file.try_clone().during(|| format!("open {} again", self.path.display()))?;
        Ok(OwnerLock { file, path: self.path.clone(), last: self.last.clone() })
    }

    /// Writes the server's address into the lock file, for other commands.
    pub fn announce(&mut self, address: &Address) -> Result<(), Error> {
        self.write(Some(address))
    }

    fn write(&mut self, address: Option<&Address>) -> Result<(), Error> {
        let process = std::process::id();
        let text = match address {
            Some(address) => format!("{process} {}\n", address.directory().display()),
            None => format!("{process}\n"),
        };
        self.file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .and_then(|_| self.file.write_all(text.as_bytes()))
            .during(|| format!("write {}", self.path.display()))
    }
}

/// Contents of a lock file.
struct LockText {
    process: Option<String>,
    /// Directory of the socket. Earlier releases wrote a port.
    place: Option<String>,
}

fn read_lock(file: &mut File, path: &Path) -> Result<LockText, Error> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text)).during(|| format!("read {}", path.display()))?;
    let line = text.lines().next().unwrap_or_default();
    let (process, place) = line.split_once(' ').map_or((line, None), |(process, place)| (process, Some(place.to_owned())));
    Ok(LockText { process: Some(process.to_owned()).filter(|process| !process.is_empty()), place })
}

/// Returns the address of the server that another process runs in `data_dir`, if it accepts connections. A command uses
/// that server instead of starting its own.
///
/// # Errors
/// If the files of the data directory cannot be read, for example because they belong to another user. Also if the process
/// is of a release that served on a port.
pub fn running(data_dir: &Path) -> Result<Option<Address>, Error> {
    if !data_dir.join("postgres.lock").exists() {
        return Ok(None);
    }
    let data_dir = DataDir::find(data_dir)?;
    let path = data_dir.lock_file();
    let mut file = File::open(&path).during(|| format!("open {}", path.display()))?;
    match file.try_lock_shared() {
        Ok(()) => return Ok(None),
        Err(std::fs::TryLockError::WouldBlock) => {}
        Err(std::fs::TryLockError::Error(error)) => {
            return Err(error).during(|| format!("lock {}", path.display()));
        }
    }
    let said = read_lock(&mut file, &path)?;
    let Some(place) = said.place else { return Ok(None) };
    let address = Address::new(Path::new(&place)).ok_or_else(|| Error::EarlierRelease {
        data_dir: data_dir.path().display().to_string(),
        process: said.process.unwrap_or_else(|| "unknown".to_owned()),
    })?;
    Ok(Some(address))
}

/// Returns whether `data_dir` has a cluster.
///
/// # Errors
/// If the directory cannot be read, for example because it belongs to another user.
pub fn has_cluster(data_dir: &Path) -> Result<bool, Error> {
    let version = data_dir.join("postgres/PG_VERSION");
    match version.metadata() {
        Ok(_) => Ok(true),
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => Ok(false),
        Err(error) => Err(error).during(|| format!("look at {}", version.display())),
    }
}
