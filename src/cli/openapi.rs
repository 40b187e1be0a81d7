//! `openapi`: the published documents are generated, committed and checked for drift.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use crate::api::documents;

#[derive(Args, Debug)]
pub struct OpenapiArgs {
    /// Write nothing: fail, with a line for each, if a file is not what the program generates
    #[arg(long)]
    check: bool,
    /// Where the documents are
    #[arg(long, value_name = "DIRECTORY", default_value = "openapi")]
    directory: PathBuf,
}

/// Writes the documents, or compares them.
pub fn run(args: &OpenapiArgs) -> anyhow::Result<ExitCode> {
    let mut is_current = true;
    for (name, text) in documents() {
        // The documents name themselves as the repository does: openapi/….
        let path = args.directory.join(Path::new(name).file_name().unwrap_or_default());
        if !args.check {
            std::fs::create_dir_all(&args.directory).with_context(|| format!("cannot make {}", args.directory.display()))?;
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            continue;
        }
        let problem = match std::fs::read_to_string(&path) {
            Ok(found) if found == text => continue,
            Ok(found) => {
                let same = found.lines().zip(text.lines()).take_while(|(found, made)| found == made).count();
                format!("differs from what the program generates, from line {}", same + 1)
            }
            Err(error) => format!("cannot be read: {error}"),
        };
        is_current = false;
        anstream::eprintln!("{}: {problem}; run `rewards-ledger openapi`", path.display());
    }
    Ok(if is_current { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
