//! The program itself, run as its users run it.

mod demo;
mod help;
mod serve;

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

/// No command of these tests takes longer.
const DEADLINE: Duration = Duration::from_secs(120);

/// The program, with nothing of the surroundings but what programs need to run.
fn program(data_dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rewards-ledger"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("LEDGER_DATA_DIR", data_dir).env("HOME", data_dir).stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn run(command: &mut Command) -> Output {
    tokio::time::timeout(DEADLINE, command.output()).await.expect("in time").expect("the program runs")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory that also the embedded server's user can enter.
fn directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    directory
}
