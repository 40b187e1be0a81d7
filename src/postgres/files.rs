//! The files of a data directory: where they are, who owns them, what they say.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::socket::Address;
use super::{During, Error};

/// A command that looks at the lock holds it for a moment, and so does a program that ends.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// A log larger than this is put aside at start.
const LOG_LIMIT: u64 = 16 * 1024 * 1024;

/// A data directory by its absolute path.
#[derive(Debug, Clone)]
pub(super) struct DataDir(PathBuf);

impl DataDir {
    /// Creates the directory where it is absent: private to an ordinary user; root's can be
    /// entered (not listed) by others, since the server runs as one of them.
    pub fn create(path: &Path, enterable: bool) -> Result<DataDir, Error> {
        if !path.exists() {
            let mode = if enterable { 0o711 } else { 0o700 };
            DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(path)
                // The umask may have taken rights away.
                .and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(mode)))
                .during(|| format!("create the data directory {}", path.display()))?;
        }
        DataDir::find(path)
    }

    /// The directory at `path`, which must exist.
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

    /// The rules of authentication, and the mapping from users of the system to roles.
    pub fn hba(&self) -> PathBuf {
        self.0.join("postgres.hba")
    }

    pub fn ident(&self) -> PathBuf {
        self.0.join("postgres.ident")
    }

    fn lock_file(&self) -> PathBuf {
        self.0.join("postgres.lock")
    }

    /// The major version of the cluster, if there is one.
    pub fn cluster_major(&self) -> Option<u32> {
        let version = std::fs::read_to_string(self.pgdata().join("PG_VERSION")).ok()?;
        version.trim().parse().ok()
    }

    /// Removes the owner's password that an earlier release kept. The role has none any more.
    pub fn forget_password(&self) -> Result<(), Error> {
        let path = self.0.join("postgres.password");
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).during(|| format!("remove {}", path.display())),
            _ => Ok(()),
        }
    }

    /// Opens the server's log for appending, and puts an overgrown one aside first.
    pub fn open_log(&self) -> Result<File, Error> {
        let path = self.log();
        if path.metadata().is_ok_and(|data| data.len() > LOG_LIMIT) {
            let aside = path.with_extension("log.1");
            std::fs::rename(&path, aside).during(|| format!("rename {}", path.display()))?;
        }
        OpenOptions::new().create(true).append(true).mode(0o600).open(&path).during(|| format!("open {}", path.display()))
    }
}

/// The lock of a data directory. It is held as long as the value lives, at most as long as the
/// process, and says whose it is and, once the server answers, where its socket is.
#[derive(Debug)]
pub(super) struct OwnerLock {
    file: File,
    path: PathBuf,
    /// Where the socket of the last run was.
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
        // An earlier release let everybody read it.
        file.set_permissions(Permissions::from_mode(0o600)).during(|| format!("close {} to others", path.display()))?;
        let last = read_lock(&mut file, &path)?.place.and_then(|place| Address::new(Path::new(&place)));
        let mut lock = OwnerLock { file, path, last };
        lock.write(None)?;
        Ok(lock)
    }

    /// Another handle of the same lock, which is held until both are gone.
    pub fn share(&self) -> Result<OwnerLock, Error> {
        let file = self.file.try_clone().during(|| format!("open {} again", self.path.display()))?;
        Ok(OwnerLock { file, path: self.path.clone(), last: self.last.clone() })
    }

    /// Tells other commands that the server answers at `address`.
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

/// What a lock file says.
struct LockText {
    process: Option<String>,
    /// The directory of the socket; of an earlier release, the port.
    place: Option<String>,
}

fn read_lock(file: &mut File, path: &Path) -> Result<LockText, Error> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text)).during(|| format!("read {}", path.display()))?;
    let line = text.lines().next().unwrap_or_default();
    let (process, place) = line.split_once(' ').map_or((line, None), |(process, place)| (process, Some(place.to_owned())));
    Ok(LockText { process: Some(process.to_owned()).filter(|process| !process.is_empty()), place })
}

/// The address of the server that another process runs in `data_dir`, if one does and it answers:
/// a command beside a running embedded server uses that server.
///
/// # Errors
/// When the files of the data directory cannot be read, for example because they belong to
/// another user; when the process is of a release that served on a port.
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

/// Whether a ledger was made in `data_dir`.
///
/// # Errors
/// When that cannot be looked at, for example because it belongs to another user.
pub fn has_cluster(data_dir: &Path) -> Result<bool, Error> {
    let version = data_dir.join("postgres/PG_VERSION");
    match version.metadata() {
        Ok(_) => Ok(true),
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => Ok(false),
        Err(error) => Err(error).during(|| format!("look at {}", version.display())),
    }
}
