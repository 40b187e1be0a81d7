//! `completions` and `man`: the completion scripts of shells, and the manual pages. Both are made from the definitions of the
//! commands. The Debian package installs both.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap_complete::Shell;

use super::output::Output;

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// Shell that loads the script
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// Directory to write the pages into; created if it does not exist
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// Prints the completion script of a shell.
pub fn completions(args: &CompletionsArgs, mut command: clap::Command) -> anyhow::Result<()> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    std::io::Write::write_all(&mut std::io::stdout().lock(), &script).context("cannot print the script")
}

/// Writes a page in section 1 for each command.
pub fn man(args: &ManArgs, command: clap::Command, output: &Output) -> anyhow::Result<()> {
    let written = std::fs::create_dir_all(&args.directory).and_then(|()| clap_mangen::generate_to(command, &args.directory));
    written.with_context(|| format!("cannot write to {}", args.directory.display()))?;
    let pages = std::fs::read_dir(&args.directory)?.count();
    output.line(format!("{pages} pages in {}", args.directory.display()))?;
    Ok(())
}
