//! Finds the installed server programs.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::account::Account;
use super::{Error, OLDEST_MAJOR};

/// A directory with usable `postgres` and `initdb`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Programs {
    pub directory: PathBuf,
    pub major: u32,
}

impl Programs {
    pub fn postgres(&self) -> PathBuf {
        self.directory.join("postgres")
    }

    pub fn initdb(&self) -> PathBuf {
        self.directory.join("initdb")
    }
}

/// Parameters of a search for server programs.
#[derive(Debug)]
pub(super) struct Search<'a> {
    pub explicit: Option<&'a Path>,
    /// Directory of downloaded programs.
    pub downloads: &'a Path,
    /// Major version that created an existing cluster; only this version can run it.
    pub major: Option<u32>,
    pub account: &'a Account,
}

/// Result of a search without usable programs.
#[derive(Debug)]
pub(super) struct NotFound {
    /// Reason for each set of programs that exists but cannot be used.
    pub rejected: Vec<String>,
}

impl Search<'_> {
    /// Returns the programs of the explicit directory, or else the first usable ones.
    pub fn run(&self) -> Result<Result<Programs, NotFound>, Error> {
        if let Some(directory) = self.explicit {
            return match self.usable(directory) {
                Ok(programs) => Ok(Ok(programs)),
                Err(reason) => Err(Error::UnusablePrograms(
                    reason.unwrap_or_else(|| format!("{} has no postgres and initdb", directory.display())),
                )),
            };
        }
        let mut rejected = Vec::new();
        let mut seen = HashSet::new();
        for directory in self.candidates() {
            // `postgres` in PATH may be a link. The other programs are next to its target.
            let Ok(postgres) = directory.join("postgres").canonicalize() else {
                continue;
            };
            let directory = postgres.parent().unwrap_or(&directory);
            if !seen.insert(directory.to_owned()) {
                continue;
            }
            match self.usable(directory) {
                Ok(programs) => return Ok(Ok(programs)),
                Err(reason) => rejected.extend(reason),
            }
        }
        Ok(Err(NotFound { rejected }))
    }

    /// Describes the required version for error messages.
    pub fn needed(&self) -> String {
        match self.major {
            Some(major) => format!("{major} (which created this data directory)"),
            None => format!("{OLDEST_MAJOR} or newer"),
        }
    }

    /// Checks the programs in a directory. `Err(None)` means that there are none, `Err(reason)` that they cannot be used.
    fn usable(&self, directory: &Path) -> Result<Programs, Option<String>> {
        let postgres = directory.join("postgres");
        if !is_executable(&postgres) {
            return Err(None);
        }
        let shown = directory.display();
        if !is_executable(&directory.join("initdb")) {
            return Err(Some(format!("{shown} has postgres but no initdb")));
        }
        // Run as the server's user, so that a directory that this user cannot enter does not count as found.
        let output = self.account.command(&postgres).arg("--version").stderr(Stdio::null()).output().map_err(|error| {
            let name = &self.account.name;
            Some(format!("the user `{name}` cannot run {shown}/postgres: {error}"))
        })?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let major = major_of(&version).ok_or_else(|| Some(format!("{shown}/postgres does not print its version")))?;
        let fits = match self.major {
            Some(needed) => major == needed,
            None => major >= OLDEST_MAJOR,
        };
        if !fits {
            let needed = self.needed();
            return Err(Some(format!("{shown} is version {major}, but {needed} is needed")));
        }
        Ok(Programs { directory: directory.to_owned(), major })
    }

    fn candidates(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = pg_config_directory().into_iter().collect();
        if let Some(path) = std::env::var_os("PATH") {
            found.extend(std::env::split_paths(&path).filter(|entry| entry.is_absolute()));
        }
        found.extend(usual_places());
        found.extend(newest_first(self.downloads, "", "bin"));
        found
    }
}

/// Parses the major version: 15 from `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`, 17 from `17beta1`.
fn major_of(version: &str) -> Option<u32> {
    let number = version.strip_prefix("postgres (PostgreSQL) ")?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Returns the directory that `pg_config` reports. It may have no server programs, because `pg_config` comes with the
/// client library's headers.
fn pg_config_directory() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").stdin(Stdio::null()).output().ok()?;
    let directory = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(directory.trim())).filter(|path| path.is_absolute())
}

fn usual_places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    // (parent, start of the name before the version, rest of the path)
    for (parent, prefix, rest) in [
        ("/usr/lib/postgresql", "", "bin"),
        ("/usr", "pgsql-", "bin"),
        ("/usr/libexec", "postgresql", ""),
        ("/opt/homebrew/opt", "postgresql@", "bin"),
        ("/usr/local/opt", "postgresql@", "bin"),
        ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
        ("/Library/PostgreSQL", "", "bin"),
    ] {
        places.extend(newest_first(Path::new(parent), prefix, rest));
    }
    places.extend(["/usr/local/pgsql/bin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from));
    places
}

/// Returns the directories `parent/prefix<version>/rest`, newest version first.
fn newest_first(parent: &Path, prefix: &str, rest: &str) -> Vec<PathBuf> {
    let mut versions: Vec<(Vec<u32>, PathBuf)> = std::fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let version: Option<Vec<u32>> =
                name.to_str()?.strip_prefix(prefix)?.split('.').map(|part| part.parse().ok()).collect();
            Some((version?, entry.path().join(rest)))
        })
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, path)| path).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn version_lines_are_parsed() {
        let major = |text: &str| major_of(&format!("postgres (PostgreSQL) {text}"));
        assert_eq!(major("15.14 (Debian 15.14-0+deb12u1)"), Some(15));
        assert_eq!(major("18beta1"), Some(18));
        assert_eq!(major_of("something else 17"), None);
    }

    #[test]
    fn newer_directories_come_first() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["9.6", "14", "15", "100", "current", "15.2"] {
            std::fs::create_dir(parent.path().join(name)).unwrap();
        }
        let found = newest_first(parent.path(), "", "bin");
        let expected = ["100", "15.2", "15", "14", "9.6"].map(|name| parent.path().join(name).join("bin"));
        assert_eq!(found, expected);
    }
}
