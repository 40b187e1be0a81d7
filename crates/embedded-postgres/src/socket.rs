//! The socket of a running server: its directory, which only the server's user can enter, and its URLs. The server can be
//! reached in no other way.

use std::fs::{DirBuilder, Metadata, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::account::{Account, temporary_directory_in};
use super::{During, Error, Names};

/// Port number, which is only part of the socket's name. Nothing listens on a port.
pub(super) const PORT: u16 = 5432;

/// Maximum length of a socket's path in bytes. Linux allows 107, macOS and the BSDs 103.
const MAX_PATH: usize = 103;

/// Address of a running server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    directory: String,
}

impl Address {
    /// Creates an address from the directory of its socket. Returns none if the path is not absolute, not UTF-8, or too
    /// long for a socket.
    pub(super) fn new(directory: &Path) -> Option<Address> {
        let text = directory.to_str().filter(|text| text.starts_with('/') && !text.contains('\n'))?;
        let address = Address { directory: text.to_owned() };
        (address.socket().as_os_str().len() <= MAX_PATH).then_some(address)
    }

    /// Returns the directory of the socket, as `psql --host` takes it.
    pub fn directory(&self) -> &Path {
        Path::new(&self.directory)
    }

    /// Returns the path of the socket itself.
    pub fn socket(&self) -> PathBuf {
        self.directory().join(format!(".s.PGSQL.{PORT}"))
    }

    /// Returns the URL of a database for a role.
    pub fn url(&self, role: &str, database: &str) -> String {
        let encoded = |text: &str| {
            let text: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
            text.replace('+', "%20")
        };
        format!("postgres://{}@{}:{PORT}/{}?sslmode=disable", encoded(role), encoded(&self.directory), encoded(database))
    }

    /// Removes the socket and lock file that a killed server left. The process id in the lock file may belong to another
    /// process by now, and then Postgres would refuse to start.
    pub(super) fn clear(&self) -> Result<(), Error> {
        let socket = self.socket();
        let lock = socket.with_file_name(format!(".s.PGSQL.{PORT}.lock"));
        for path in [socket, lock] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).during(|| format!("remove {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Directory in which a server is about to create its socket.
#[derive(Debug)]
pub(super) struct SocketDirectory {
    pub address: Address,
    /// Whether to remove the directory when the server ends, because it is not in the data directory.
    pub is_temporary: bool,
}

impl SocketDirectory {
    /// Creates the directory `socket` in the data directory. If that path is too long for a socket, creates a directory with
    /// a random name in a place with a short path instead.
    ///
    /// It also removes the temporary directory of a last run that was killed. That directory cannot be reused, because the
    /// last run's watchdog may be about to remove it.
    pub fn prepare(data_dir: &Path, last: Option<&Address>, account: &Account, names: &Names) -> Result<SocketDirectory, Error> {
        let inside = data_dir.join("socket");
        if let Some(address) = Address::new(&inside) {
            make_private(&inside, account)?;
            return Ok(SocketDirectory { address, is_temporary: false });
        }
        let prefix = names.temporary_prefix();
        let is_temporary =
            |directory: &Path| directory.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix));
        if let Some(last) = last.map(Address::directory).filter(|last| is_temporary(last) && is_private(last, account)) {
            _ = std::fs::remove_dir_all(last); // the watchdog may have removed it already
        }
        for place in short_places() {
            // The placeholder is as long as the random name.
            let fits = Address::new(&place.join(format!("{prefix}123456"))).is_some();
            if !fits || !is_safe(&place) {
                continue;
            }
            // If the server's user cannot enter this place, try the next one.
            let Ok(directory) = temporary_directory_in(&place, account, names) else { continue };
            if let Some(address) = Address::new(&directory) {
                return Ok(SocketDirectory { address, is_temporary: true });
            }
            std::fs::remove_dir(&directory).during(|| format!("remove {}", directory.display()))?;
        }
        Err(Error::NoSocketDirectory(inside.display().to_string()))
    }
}

/// Creates a directory that only the server's user can enter, or restricts an existing one.
fn make_private(directory: &Path, account: &Account) -> Result<(), Error> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).during(|| format!("create {}", directory.display()));
        }
        _ => {}
    }
    let found = directory.symlink_metadata().during(|| format!("look at {}", directory.display()))?;
    if !found.is_dir() || ![account.uid, geteuid().as_raw()].contains(&found.uid()) {
        return Err(Error::ForeignSocketDirectory(directory.display().to_string()));
    }
    account.give(directory)?;
    std::fs::set_permissions(directory, Permissions::from_mode(0o700))
        .during(|| format!("close {} to others", directory.display()))
}

fn is_private(directory: &Path, account: &Account) -> bool {
    let is_ours = |found: Metadata| found.is_dir() && found.uid() == account.uid && found.mode() & 0o077 == 0;
    directory.symlink_metadata().is_ok_and(is_ours)
}

/// Returns whether only root and this user can replace a directory of ours in `place`.
fn is_safe(place: &Path) -> bool {
    let is_sticky = |found: &Metadata| found.mode() & 0o1000 != 0;
    let is_closed = |found: &Metadata| found.mode() & 0o022 == 0;
    place.metadata().is_ok_and(|found| {
        [0, geteuid().as_raw()].contains(&found.uid()) && found.is_dir() && (is_closed(&found) || is_sticky(&found))
    })
}

/// Returns directories with short paths, best first.
fn short_places() -> Vec<PathBuf> {
    let runtime = match geteuid().is_root() {
        true => Some(PathBuf::from("/run")),
        false => std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute()),
    };
    runtime.into_iter().chain([std::env::temp_dir(), "/tmp".into()]).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sqlx::postgres::PgConnectOptions;

    use super::*;

    #[test]
    fn the_url_names_the_socket() {
        let address = Address::new(Path::new("/tmp/a b/ü%+@:#[x].y")).unwrap();
        let options: PgConnectOptions = address.url("me", "a b/c").parse().unwrap();
        assert_eq!(options.get_socket().map(PathBuf::as_path), Some(address.directory()));
        assert_eq!((options.get_port(), options.get_username(), options.get_database()), (PORT, "me", Some("a b/c")));
        let again: PgConnectOptions = sqlx::ConnectOptions::to_url_lossy(&options).as_str().parse().unwrap();
        assert_eq!(again.get_socket(), options.get_socket());
    }

    #[test]
    fn a_path_that_is_too_long_or_relative_is_not_an_address() {
        let of = |length: usize| Address::new(Path::new(&format!("/{}", "d".repeat(length - 1))));
        // The socket's name adds 14 bytes, including its slash.
        assert!(of(MAX_PATH - 14).is_some());
        assert!(of(MAX_PATH - 13).is_none());
        assert!(Address::new(Path::new("relative")).is_none());
    }
}
