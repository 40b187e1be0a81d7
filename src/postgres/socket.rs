//! The socket of a running server: its directory, which only the server's user can enter, and the
//! URLs that lead to it. There is no other way in.

use std::fs::{DirBuilder, Metadata, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::account::{Account, TEMPORARY_PREFIX, temporary_directory_in};
use super::{DATABASE, During, Error, OWNER_ROLE, SERVICE_ROLE};

/// The number in the socket's name. Nothing listens on a port.
pub(super) const PORT: u16 = 5432;

/// A socket's path has 107 bytes on Linux, 103 on macOS and the BSDs.
const LONGEST_PATH: usize = 103;

/// Where a running server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    directory: String,
}

impl Address {
    /// An address by the directory of its socket; none where that is no absolute path, is not
    /// UTF-8 or is too long for a socket.
    pub(super) fn new(directory: &Path) -> Option<Address> {
        let text = directory.to_str().filter(|text| text.starts_with('/') && !text.contains('\n'))?;
        let address = Address { directory: text.to_owned() };
        (address.socket().as_os_str().len() <= LONGEST_PATH).then_some(address)
    }

    /// The directory of the socket, as `psql --host` takes it.
    pub fn directory(&self) -> &Path {
        Path::new(&self.directory)
    }

    /// The socket itself.
    pub fn socket(&self) -> PathBuf {
        self.directory().join(format!(".s.PGSQL.{PORT}"))
    }

    /// The URL of a database under the owner role, a superuser.
    pub fn owner_url(&self, database: &str) -> String {
        self.url(OWNER_ROLE, database)
    }

    /// The URL of the ledger's database under the service's login.
    pub fn service_url(&self) -> String {
        self.url(SERVICE_ROLE, DATABASE)
    }

    fn url(&self, role: &str, database: &str) -> String {
        let encoded = |text: &str| {
            let text: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
            text.replace('+', "%20")
        };
        format!("postgres://{role}@{}:{PORT}/{}?sslmode=disable", encoded(&self.directory), encoded(database))
    }

    /// Removes the socket that a killed server left. Its number may belong to another process now,
    /// and then Postgres would refuse to start.
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

/// The directory that a server is about to put its socket into.
#[derive(Debug)]
pub(super) struct SocketDirectory {
    pub address: Address,
    /// Whether it goes when the server ends: it is not in the data directory.
    pub is_temporary: bool,
}

impl SocketDirectory {
    /// Makes the directory `socket` in the data directory. Where that path is too long for a socket,
    /// makes a new one with a random name in a short place, and removes the one of a last run that was killed. That one
    /// cannot be used again: the last run's watchdog may be about to remove it.
    pub fn prepare(data_dir: &Path, last: Option<&Address>, account: &Account) -> Result<SocketDirectory, Error> {
        let inside = data_dir.join("socket");
        if let Some(address) = Address::new(&inside) {
            make_private(&inside, account)?;
            return Ok(SocketDirectory { address, is_temporary: false });
        }
        let is_temporary = |directory: &Path| {
            directory.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(TEMPORARY_PREFIX))
        };
        if let Some(last) = last.map(Address::directory).filter(|last| is_temporary(last) && is_private(last, account)) {
            _ = std::fs::remove_dir_all(last); // the watchdog may be faster
        }
        for place in short_places() {
            // As long as the name that a directory in it gets.
            let fits = Address::new(&place.join(format!("{TEMPORARY_PREFIX}123456"))).is_some();
            if !fits || !is_safe(&place) {
                continue;
            }
            // The next place may do where this one is closed to the server's user.
            let Ok(directory) = temporary_directory_in(&place, account) else { continue };
            if let Some(address) = Address::new(&directory) {
                return Ok(SocketDirectory { address, is_temporary: true });
            }
            std::fs::remove_dir(&directory).during(|| format!("remove {}", directory.display()))?;
        }
        Err(Error::NoSocketDirectory(inside.display().to_string()))
    }
}

/// Creates a directory of the server's user that nobody else can enter, or makes it such a one.
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

/// Whether nobody but root and us can put another directory in the place of one of ours.
fn is_safe(place: &Path) -> bool {
    let is_sticky = |found: &Metadata| found.mode() & 0o1000 != 0;
    let is_closed = |found: &Metadata| found.mode() & 0o022 == 0;
    place.metadata().is_ok_and(|found| {
        [0, geteuid().as_raw()].contains(&found.uid()) && found.is_dir() && (is_closed(&found) || is_sticky(&found))
    })
}

/// Places with short paths, the best first.
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
    fn a_url_leads_to_the_socket() {
        let address = Address::new(Path::new("/tmp/a b/ü%+@:#[x].y")).unwrap();
        let options: PgConnectOptions = address.owner_url("a b/c").parse().unwrap();
        assert_eq!(options.get_socket().map(PathBuf::as_path), Some(address.directory()));
        assert_eq!((options.get_port(), options.get_username(), options.get_database()), (PORT, OWNER_ROLE, Some("a b/c")));
        let again: PgConnectOptions = sqlx::ConnectOptions::to_url_lossy(&options).as_str().parse().unwrap();
        assert_eq!(again.get_socket(), options.get_socket());
    }

    #[test]
    fn a_path_that_no_socket_can_have_is_no_address() {
        let of = |length: usize| Address::new(Path::new(&format!("/{}", "d".repeat(length - 1))));
        // And the socket's name, which has 14 bytes with its slash.
        assert!(of(LONGEST_PATH - 14).is_some());
        assert!(of(LONGEST_PATH - 13).is_none());
        assert!(Address::new(Path::new("relative")).is_none());
    }
}
