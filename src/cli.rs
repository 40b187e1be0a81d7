//! The commands. Facts go to stdout, everything else to stderr; an error is one line and a status
//! other than zero.

mod admin;
mod audit;
mod call;
mod client;
mod demo;
mod erase;
mod events;
mod export;
mod keys;
mod listen;
mod log;
mod logging;
mod offline;
mod openapi;
mod output;
mod quorum;
mod receipt;
mod reconcile;
mod replay;
mod serve;
mod show;
mod tokens;
mod writing;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{self, ConfigError, FILE_VARIABLE};
use output::Output;

/// The status of a wrong command line or configuration, as is the custom.
const WRONG_USE: u8 = 2;
/// Of what was to be compared and could not be: differences are told by a status of their own, [`ExitCode::FAILURE`].
const NOT_COMPARED: u8 = 3;
const STATUSES: &str = "Exit status: 0 if nothing differs, 1 if something does, 2 for a wrong command line, 3 if it could not be \
    compared (no database, no such account, a file that is none)";

/// A wrong command line that the parser does not know from a right one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WrongUse(String);

/// An event-sourced order ledger for digital rewards, on Postgres
#[derive(Parser, Debug)]
#[command(name = "rewards-ledger", version, max_term_width = 110, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args, Debug)]
struct Global {
    /// A TOML file of settings, weaker than flags and variables [default: none]
    #[arg(long, global = true, env = FILE_VARIABLE, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print facts as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// The whole tour on an embedded server, without any settings
    Demo(demo::DemoArgs),
    /// Run a node: the API, projector, fulfilment and webhook deliveries
    Serve(Box<config::Config>),
    /// Bring the database's schema up to this program's
    Migrate(serve::MigrateArgs),
    /// Receive webhooks over HTTPS on this machine, verify and print them
    Listen(listen::ListenArgs),
    /// Call the client API, signed if a signing secret is given
    Call(call::CallArgs),
    /// The operator API's operations
    Admin(admin::AdminArgs),
    /// Read the log, write it to a file, and bring one in
    Events(events::EventsArgs),
    /// Read the published transparency log: checkpoints, keys, proofs
    Log(log::LogArgs),
    /// Get a receipt that anyone can check
    Receipt(receipt::ReceiptArgs),
    /// Deliver events to a webhook again, or what it missed
    Replay(replay::ReplayArgs),
    /// Show an order with its story, or a wallet, as it is or as it was
    Show(show::ShowArgs),
    /// Destroy personal data that stands outside the log
    Erase(erase::EraseArgs),
    /// Rotate the master key while the service runs, and show what is sealed under which key
    Keys(keys::KeysArgs),
    /// Prove that every derived row is what the log says, or an export what was signed; fails when anything differs
    #[command(after_help = STATUSES)]
    Verify(Box<audit::VerifyArgs>),
    /// Derive projections again from the log, while the service runs; fails when what they replace differed
    #[command(after_help = STATUSES)]
    Rebuild(audit::RebuildArgs),
    /// Add up what moved in a period, and name everything that does not add up; fails when anything does not
    #[command(after_help = STATUSES)]
    Reconcile(Box<reconcile::ReconcileArgs>),
    /// Write the API's documents to openapi/, or check that they are current
    Openapi(openapi::OpenapiArgs),
}

/// Runs the program: parses the arguments, runs the command, says what went wrong.
pub fn main() -> ExitCode {
    // A second call would find the provider installed, which is as good.
    _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cli = match parse(&std::env::args_os().collect::<Vec<_>>()) {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into(), ExitCode::FAILURE),
    };
    let outcome = runtime.block_on(run(cli));
    // A look-up or a read of the terminal may block a thread: nobody waits for those.
    runtime.shutdown_background();
    match outcome {
        Ok(status) => status,
        Err(error) => failed(&error, ExitCode::FAILURE),
    }
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let output = Output::new(cli.global.json);
    match &cli.command {
        Command::Serve(config) => logging::start(logging::SERVICE, config.log_format)?,
        Command::Demo(_) => logging::start(logging::DEMO, None)?,
        _ => logging::start(logging::TOOL, None)?,
    }
    let done = match cli.command {
        Command::Demo(args) => return demo::run(args, &output).await,
        Command::Serve(config) => return serve::run(&config).await,
        Command::Migrate(args) => serve::migrate(&args, &output).await,
        Command::Listen(args) => listen::run(args, &output).await,
        Command::Call(args) => return call::run(args, &output).await,
        Command::Admin(args) => admin::run(args, &output).await,
        Command::Events(args) => events::run(args, &output).await,
        Command::Log(args) => log::run(args, &output).await,
        Command::Receipt(args) => receipt::run(args, &output).await,
        Command::Replay(args) => replay::run(args, &output).await,
        Command::Show(args) => show::run(args, &output).await,
        Command::Keys(args) => keys::run(args, &output).await,
        Command::Erase(args) => erase::run(args, &output).await,
        Command::Verify(args) => return Ok(compared(audit::verify(&args, &output).await)),
        Command::Rebuild(args) => return Ok(compared(audit::rebuild(&args, &output).await)),
        Command::Reconcile(args) => return Ok(compared(reconcile::run(*args, &output).await)),
        Command::Openapi(args) => return openapi::run(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn parse(arguments: &[OsString]) -> Result<Cli, ExitCode> {
    let wrong = |error: ConfigError| {
        anstream::eprintln!("error: {error}");
        ExitCode::from(WRONG_USE)
    };
    let file = config::file_named(arguments, std::env::var_os(FILE_VARIABLE));
    let command = match file {
        Some(path) => config::apply_file(command(), &path).map_err(wrong)?,
        None => command(),
    };
    let parsed = command.try_get_matches_from(arguments).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = parsed.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            _ = error.print(); // there is nobody to tell
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            _ = error.print();
            ExitCode::from(WRONG_USE)
        }
        _ => wrong(config::one_line(&error)),
    })?;
    if let Command::Serve(config) = &cli.command {
        config.check().map_err(wrong)?;
    }
    Ok(cli)
}

fn command() -> clap::Command {
    let everywhere = |command: clap::Command| command.mut_args(|arg| arg.global(true));
    let admin = |admin: clap::Command| everywhere(admin.mut_subcommand("token", everywhere));
    hide_values(
        ["events", "replay", "log", "receipt", "erase", "keys"]
            .into_iter()
            .fold(Cli::command().mut_subcommand("admin", admin), |command, name| command.mut_subcommand(name, everywhere))
            .mut_subcommand("reconcile", |reconcile| reconcile.mut_subcommand("statement", everywhere)),
    )
}

/// Help names the variables, never what is in them: some hold secrets.
fn hide_values(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| arg.hide_env_values(true));
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, hide_values))
}

/// The status of what compares: an error is no difference.
fn compared(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| failed(&error, ExitCode::from(NOT_COMPARED)))
}

/// Says in one line what went wrong; the status is this one, but for wrong use. Who closed our output wants no more lines.
fn failed(error: &anyhow::Error, status: ExitCode) -> ExitCode {
    let is_closed = |io: &std::io::Error| io.kind() == std::io::ErrorKind::BrokenPipe;
    if !error.chain().any(|cause| cause.downcast_ref().is_some_and(is_closed)) {
        anstream::eprintln!("error: {}", output::error_line(error));
    }
    if error.is::<WrongUse>() { ExitCode::from(WRONG_USE) } else { status }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_commands_are_well_formed() {
        super::command().debug_assert();
    }
}
