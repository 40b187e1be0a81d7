//! The operating system user that runs the server. Postgres refuses to run as root. If this program runs as root, the
//! server runs as an unprivileged user, who must be able to reach the data directory.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Uid, User, geteuid};

use super::{During, Error, Names};

/// Operating system user that runs the server's processes.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub name: String,
    pub uid: u32,
    gid: u32,
    /// Whether this is a different user than that of this process.
    switched: bool,
}

impl Account {
    /// Chooses the user for the cluster in `pgdata`, which need not exist yet.
    pub fn choose(wanted: Option<&str>, pgdata: &Path) -> Result<Account, Error> {
        // An empty directory, such as a mount point, is not a cluster yet.
        let empty = std::fs::read_dir(pgdata).is_ok_and(|mut entries| entries.next().is_none());
        let owner = std::fs::metadata(pgdata).ok().filter(|_| !empty).map(|data| data.uid());
        let account = if geteuid().is_root() { Account::for_root(wanted, owner)? } else { Account::own() };
        match owner {
            Some(owner) if owner != account.uid => {
                Err(Error::ForeignCluster { path: pgdata.display().to_string(), owner: name_of(owner), account: account.name })
            }
            _ => Ok(account),
        }
    }

    fn own() -> Account {
        let uid = geteuid().as_raw();
        Account { name: name_of(uid), uid, gid: nix::unistd::getegid().as_raw(), switched: false }
    }

    fn for_root(wanted: Option<&str>, owner: Option<u32>) -> Result<Account, Error> {
        if let Some(wanted) = wanted {
            return Account::named(wanted)?.ok_or_else(|| Error::NoAccount(wanted.to_owned()));
        }
        if let Some(uid) = owner.filter(|uid| *uid != 0) {
            let gid = user(uid).map_or(uid, |user| user.gid.as_raw());
            return Ok(Account { name: name_of(uid), uid, gid, switched: true });
        }
        for name in ["postgres", "nobody"] {
            if let Some(account) = Account::named(name)? {
                return Ok(account);
            }
        }
        Err(Error::NoUnprivilegedAccount)
    }

    fn named(name: &str) -> Result<Option<Account>, Error> {
        let found = User::from_name(name).map_err(std::io::Error::from).during(|| format!("look up the user `{name}`"))?;
        Ok(found.filter(|user| !user.uid.is_root()).map(|user| Account {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            switched: true,
        }))
    }

    /// Returns a command that runs as this user. It has a process group of its own, so that Ctrl-C reaches only this
    /// program, which then stops the server gracefully. It does not inherit our environment, which holds secrets.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(["PATH", "LD_LIBRARY_PATH"].iter().filter_map(|name| std::env::var_os(name).map(|value| (*name, value))))
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null());
        if self.switched {
            // As root, the standard library also drops the supplementary groups.
            command.uid(self.uid).gid(self.gid);
        }
        command
    }

    /// Changes the owner of a file or directory to this user.
    pub fn give(&self, path: &Path) -> Result<(), Error> {
        if self.switched {
            chown(path, Some(self.uid), Some(self.gid))
                .during(|| format!("give {} to the user `{}`", path.display(), self.name))?;
        }
        Ok(())
    }

    /// Returns whether this is a different user than that of this process.
    pub fn is_switched(&self) -> bool {
        self.switched
    }

    /// Checks that this user can enter `directory` and all its parents. Fails with the first one that it cannot enter.
    pub fn check_reach(&self, directory: &Path) -> Result<(), Error> {
        if !self.switched {
            return Ok(());
        }
        // Run a check as that user, because access control lists and the like also apply.
        let mut way: Vec<&Path> = directory.ancestors().collect();
        way.reverse();
        let output = self
            .command(Path::new("/bin/sh"))
            .arg("-c")
            .arg(r#"for d; do test -x "$d" || { printf %s "$d"; exit 1; }; done"#)
            .arg("sh")
            .args(way)
            .output()
            .during(|| format!("run /bin/sh as the user `{}`", self.name))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::Unreachable { directory: String::from_utf8_lossy(&output.stdout).into_owned(), account: self.name.clone() })
    }
}

/// Creates a directory for the server's user in the first temporary directory that the user can reach. With `in_memory`,
/// prefers shared memory unless `TMPDIR` is set.
pub(super) fn temporary_directory(in_memory: bool, names: &Names) -> Result<PathBuf, Error> {
    let account = Account::choose(None, Path::new("/nonexistent"))?;
    let mut places: Vec<PathBuf> = Vec::new();
    if in_memory && std::env::var_os("TMPDIR").is_none() {
        places.extend(memory_with_room());
    }
    places.extend([std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()]);
    let mut refused = None;
    for place in places {
        match temporary_directory_in(&place, &account, names) {
            Ok(directory) => return Ok(directory),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or(Error::NoUnprivilegedAccount))
}

/// Returns Linux's shared memory directory if it has enough room. In containers it is often too small.
#[cfg(target_os = "linux")]
fn memory_with_room() -> Option<PathBuf> {
    const ROOM: u64 = 2 * 1024 * 1024 * 1024;
    let place = PathBuf::from("/dev/shm");
    let space = nix::sys::statvfs::statvfs(&place).ok()?;
    let free = space.blocks_available() as u64 * space.fragment_size() as u64;
    (free >= ROOM).then_some(place)
}

#[cfg(not(target_os = "linux"))]
fn memory_with_room() -> Option<PathBuf> {
    None
}

pub(super) fn temporary_directory_in(place: &Path, account: &Account, names: &Names) -> Result<PathBuf, Error> {
    let place = place.canonicalize().during(|| format!("find {}", place.display()))?;
    account.check_reach(&place)?;
    let directory = tempfile::Builder::new()
        .prefix(&names.temporary_prefix())
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(&place)
        .during(|| format!("create a directory in {}", place.display()))?;
    // The watchdog removes the directory and runs as that user.
    account.give(directory.path())?;
    Ok(directory.keep())
}

fn user(uid: u32) -> Option<User> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten()
}

/// Returns the user name of this process.
pub(super) fn own_name() -> String {
    name_of(geteuid().as_raw())
}

pub(super) fn name_of(uid: u32) -> String {
    user(uid).map_or_else(|| uid.to_string(), |user| user.name)
}
