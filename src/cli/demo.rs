//! `demo`: a guided tour of the service on an embedded Postgres. It uses the same HTTP APIs as clients and operators, and
//! needs no settings.

mod printer;
mod stage;
mod statement;
mod story;
mod tour;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use embedded_postgres::PinnedRelease;

use super::output::Output;
use super::serve::StopSignals;
use crate::embedded::default_data_dir;
use printer::Printer;
use stage::Stage;

#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Exit after the tour, and delete its temporary database
    #[arg(long)]
    exit: bool,
    /// Address on which the API listens [default: 127.0.0.1:8080, or a free port if that is taken]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Data directory; the demo uses its subdirectory `demo`
    #[arg(long, env = "LEDGER_DATA_DIR", value_name = "DIRECTORY", default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
    /// Directory with `postgres` and `initdb` [default: looked for, else downloaded]
    #[arg(long, env = "LEDGER_POSTGRES_PROGRAMS", value_name = "DIRECTORY")]
    postgres_programs: Option<PathBuf>,
    /// Postgres release to download if none is installed, with the SHA-256 digest of its archive [default: 17.11.0, for
    /// Linux with glibc and macOS]
    #[arg(long, env = "LEDGER_POSTGRES_RELEASE", value_name = "VERSION:DIGEST")]
    postgres_release: Option<PinnedRelease>,
    /// User that runs the embedded Postgres if this program runs as root [default: the cluster's owner, else postgres, else
    /// nobody]
    #[arg(long, env = "LEDGER_POSTGRES_ACCOUNT", value_name = "USER")]
    postgres_account: Option<String>,
}

/// Runs the tour and checks each step. Afterwards keeps serving until a signal arrives, unless `--exit` is given.
///
/// # Errors
/// If a step times out, a signature does not verify, or the statement does not reconcile. Returns the first error.
pub async fn run(args: DemoArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let mut signals = StopSignals::listen()?;
    let mut printer = Printer::new(*output);
    let mut stage = tokio::select! {
        stage = Stage::start(&args, &mut printer) => stage?,
        status = signals.next() => return Ok(ExitCode::from(status)),
    };
    let tour = async {
        let account = tour::run(&mut stage, &mut printer).await?;
        if !args.exit {
            story::tell(&account, &mut stage, &mut printer).await?;
            account.invite(&stage, &mut printer)?;
            stage.follow(&printer).await?;
        }
        anyhow::Ok(ExitCode::SUCCESS)
    };
    let outcome = tokio::select! {
        outcome = tour => outcome,
        // Only a signal during the tour is a failure. After the tour, it is how the user ends the demo.
        status = signals.next() => Ok(if printer.is_finished() { ExitCode::SUCCESS } else { ExitCode::from(status) }),
    };
    let stopped = stage.stop(&mut signals).await;
    let status = outcome?;
    stopped?;
    Ok(status)
}
