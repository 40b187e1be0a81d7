//! `demo`: the whole tour on an embedded server, over the same HTTP interfaces that clients and
//! operators use, without any settings.

mod printer;
mod stage;
mod statement;
mod story;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::output::Output;
use super::serve::StopSignals;
use crate::postgres::{PinnedRelease, default_data_dir};
use printer::Printer;
use stage::Stage;

#[derive(Args, Debug)]
pub struct DemoArgs {
    /// End after the tour; its database is a temporary one
    #[arg(long)]
    exit: bool,
    /// Where the API listens [default: 127.0.0.1:8080, or a free port if that is taken]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The demo's data is in its subdirectory `demo`
    #[arg(long, env = "LEDGER_DATA_DIR", value_name = "DIRECTORY", default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
    /// The directory of `postgres` and `initdb` [default: looked for, else downloaded]
    #[arg(long, env = "LEDGER_POSTGRES_PROGRAMS", value_name = "DIRECTORY")]
    postgres_programs: Option<PathBuf>,
    /// The release to download where none are installed, and its archive's SHA-256 [default: 17.11.0, for Linux with glibc and macOS]
    #[arg(long, env = "LEDGER_POSTGRES_RELEASE", value_name = "VERSION:DIGEST")]
    postgres_release: Option<PinnedRelease>,
    /// As root: the user as which the embedded Postgres runs [default: the cluster's owner, else postgres, else nobody]
    #[arg(long, env = "LEDGER_POSTGRES_ACCOUNT", value_name = "USER")]
    postgres_account: Option<String>,
}

/// Tells the story, checks every step of it, and goes on serving unless told to end.
///
/// # Errors
/// When a step does not happen in time, a signature does not verify or the statement does not
/// reconcile: with the first of these.
pub async fn run(args: DemoArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let mut signals = StopSignals::listen()?;
    let mut printer = Printer::new(*output);
    let mut stage = tokio::select! {
        stage = Stage::start(&args, &mut printer) => stage?,
        status = signals.next() => return Ok(ExitCode::from(status)),
    };
    let tour = async {
        let account = story::tell(&mut stage, &mut printer).await?;
        if !args.exit {
            account.invite(&stage, &mut printer)?;
            stage.follow(&printer).await?;
        }
        anyhow::Ok(ExitCode::SUCCESS)
    };
    let outcome = tokio::select! {
        outcome = tour => outcome,
        // The tour was interrupted, or ended by who watched it: only the first is a failure.
        status = signals.next() => Ok(if printer.is_told() { ExitCode::SUCCESS } else { ExitCode::from(status) }),
    };
    let stopped = stage.stop(&mut signals).await;
    let status = outcome?;
    stopped?;
    Ok(status)
}
