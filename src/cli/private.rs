//! Files that only their owner may read.

use std::io::Write;
use std::path::Path;

use anyhow::Context;

/// Writes a file that only its owner can read, and replaces an earlier one at once. Creates its directory, for the owner
/// alone, if it does not exist.
///
/// # Errors
/// If the directory or the file cannot be written.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let replace = || -> std::io::Result<()> {
        let directory = path.parent().unwrap_or(Path::new("."));
        if !directory.is_dir() {
            use std::os::unix::fs::DirBuilderExt;
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        // A temporary file has the mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map(|_| ()).map_err(|error| error.error)
    };
    replace().with_context(|| format!("cannot write {}", path.display()))
}
