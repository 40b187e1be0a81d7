//! The files of a data directory: where they are, who owns them, what they say.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{DATABASE, During, Error, OWNER_ROLE};

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

    fn password_file(&self) -> PathBuf {
        self.0.join("postgres.password")
    }

    fn lock_file(&self) -> PathBuf {
        self.0.join("postgres.lock")
    }

    /// The major version of the cluster, if there is one.
    pub fn cluster_major(&self) -> Option<u32> {
        let version = std::fs::read_to_string(self.pgdata().join("PG_VERSION")).ok()?;
        version.trim().parse().ok()
    }

    /// The owner role's password of an existing cluster.
    pub fn password(&self) -> Result<String, Error> {
        let path = self.password_file();
        match std::fs::read_to_string(&path) {
            Ok(password) if !password.trim().is_empty() => Ok(password.trim().to_owned()),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).during(|| format!("read {}", path.display()))
            }
            _ => Err(Error::NoPassword(path.display().to_string())),
        }
    }

    /// Makes a password for a new cluster and stores it where it survives a crash.
    pub fn new_password(&self) -> Result<String, Error> {
        let path = self.password_file();
        let bytes: [u8; 32] = rand::random();
        let password = hex::encode(bytes);
        write_private(&path, &password).during(|| format!("write {}", path.display()))?;
        Ok(password)
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

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

/// The lock of a data directory. It is held as long as the value lives, at most as long as the
/// process, and says whose it is and, once the server answers, at which port.
#[derive(Debug)]
pub(super) struct OwnerLock {
    file: File,
    path: PathBuf,
    /// The port of the last run, for keeping it.
    pub last_port: Option<u16>,
}

impl OwnerLock {
    pub fn take(data_dir: &DataDir) -> Result<OwnerLock, Error> {
        let path = data_dir.lock_file();
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .mode(0o644)
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
                    let (process, _) = read_lock(&mut file, &path)?;
                    return Err(Error::InUse {
                        data_dir: data_dir.path().display().to_string(),
                        process: process.unwrap_or_else(|| "unknown".to_owned()),
                    });
                }
                Err(std::fs::TryLockError::WouldBlock) => {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
        let (_, last_port) = read_lock(&mut file, &path)?;
        let mut lock = OwnerLock { file, path, last_port };
        lock.write(None)?;
        Ok(lock)
    }

    /// Another handle of the same lock, which is held until both are gone.
    pub fn share(&self) -> Result<OwnerLock, Error> {
        let file = self.file.try_clone().during(|| format!("open {} again", self.path.display()))?;
        Ok(OwnerLock { file, path: self.path.clone(), last_port: self.last_port })
    }

    /// Tells other commands that the server answers at `port`.
    pub fn announce(&mut self, port: u16) -> Result<(), Error> {
        self.write(Some(port))
    }

    fn write(&mut self, port: Option<u16>) -> Result<(), Error> {
        let process = std::process::id();
        let text = match port {
            Some(port) => format!("{process} {port}\n"),
            None => format!("{process}\n"),
        };
        self.file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .and_then(|_| self.file.write_all(text.as_bytes()))
            .during(|| format!("write {}", self.path.display()))
    }
}

/// Process id and port of a lock file.
fn read_lock(file: &mut File, path: &Path) -> Result<(Option<String>, Option<u16>), Error> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text)).during(|| format!("read {}", path.display()))?;
    let mut words = text.split_whitespace();
    let process = words.next().map(str::to_owned);
    let port = words.next().and_then(|word| word.parse().ok());
    Ok((process, port))
}

/// The URL of the server that another process runs in `data_dir`, if one does and it answers:
/// a command beside a running embedded server uses that server.
///
/// # Errors
/// When the files of the data directory cannot be read, for example because they belong to
/// another user.
pub fn running_url(data_dir: &Path) -> Result<Option<String>, Error> {
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
    let (_, port) = read_lock(&mut file, &path)?;
    match port {
        Some(port) => Ok(Some(url(&data_dir.password()?, port, DATABASE))),
        None => Ok(None),
    }
}

/// The owner's URL of a database. The connection stays on this machine: no TLS is tried.
pub(super) fn url(password: &str, port: u16, database: &str) -> String {
    let database: String = url::form_urlencoded::byte_serialize(database.as_bytes()).collect();
    let database = database.replace('+', "%20");
    format!("postgres://{OWNER_ROLE}:{password}@127.0.0.1:{port}/{database}?sslmode=disable")
}
