//! Reads key files. Anyone who can read a key file can do everything that its owner can.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Uid, User, geteuid};

use super::seal::Secret;

/// A key file that cannot be read, or that others can read or replace. The message shows nothing of its content.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KeyFileError(String);

/// Reads a small text file that holds a key.
///
/// The file must belong to the user of this process, with no rights for others, or to root. If it belongs to root, a group
/// may read it, because only root can have granted that (as Kubernetes does with `fsGroup`). libpq has the same rule for its
/// key files.
///
/// # Errors
/// If the file cannot be read, or others can read or replace it. The message starts with `name`, the setting of the file.
pub fn read_private(path: &Path, name: &str) -> Result<Secret, KeyFileError> {
    let unreadable = |error| KeyFileError(format!("{name}: {} cannot be read: {error}", path.display()));
    let mut file = File::open(path).map_err(unreadable)?;
    // The metadata of the open file, not of a file that may have replaced it since.
    let found = file.metadata().map_err(unreadable)?;
    check(&found, path).map_err(|problem| KeyFileError(format!("{name}: {problem}")))?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(unreadable)?;
    Ok(Secret::new(text))
}

fn check(found: &Metadata, path: &Path) -> Result<(), String> {
    const READ_BY_GROUP: u32 = 0o040;
    let (shown, mode) = (path.display(), found.mode() & 0o777);
    let is_roots = found.uid() == 0;
    if !is_roots && found.uid() != geteuid().as_raw() {
        let owner = User::from_uid(Uid::from_raw(found.uid())).ok().flatten();
        let owner = owner.map_or_else(|| found.uid().to_string(), |user| user.name);
        return Err(format!(
            "{shown} belongs to the user {owner}, who can replace the key: give it to the user that runs this program, or to root"
        ));
    }
    let allowed = if is_roots { READ_BY_GROUP } else { 0 };
    if mode & 0o077 & !allowed != 0 {
        return Err(format!("{shown} is open to other users (mode {mode:04o}): chmod 600 {shown}"));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::Permissions;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn a_key_file_that_others_can_read_or_replace_is_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"the key").unwrap();
        let path = file.path();
        let read = |mode: u32| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            read_private(path, "--key")
        };
        for mode in [0o600, 0o400] {
            assert_eq!(read(mode).unwrap().expose(), "the key", "{mode:o}");
        }
        for mode in [0o644, 0o604, 0o602, 0o620, 0o660, 0o666, 0o601] {
            let refused = read(mode).unwrap_err().to_string();
            let expected = format!("--key: {0} is open to other users (mode {mode:04o}): chmod 600 {0}", path.display());
            assert_eq!(refused, expected);
        }
        if !geteuid().is_root() {
            assert!(read(0o640).is_err(), "only root hands a key to a group");
            return;
        }
        for mode in [0o640, 0o440] {
            assert!(read(mode).is_ok(), "root has handed it to the group: {mode:o}");
        }
        chown(path, Some(65_534), None).unwrap();
        let refused = read(0o600).unwrap_err().to_string();
        assert!(refused.contains("belongs to the user ") && refused.contains("who can replace the key"), "{refused}");
    }
}
