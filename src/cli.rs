//! The command-line interface. Results go to stdout, everything else to stderr. An error is a single line on stderr and
//! a non-zero exit status.

mod admin;
mod audit;
mod call;
mod client;
mod clock;
mod demo;
mod erase;
mod escape;
mod events;
mod export;
mod groups;
mod keys;
mod listen;
mod log;
mod logging;
mod login;
mod lost;
mod manual;
mod offline;
mod openapi;
mod output;
mod private;
mod profiles;
mod quorum;
mod receipt;
mod receiver;
mod reconcile;
mod replay;
mod serve;
mod settings;
mod shard;
mod show;
mod starter;
mod tokens;
mod trigger;
mod writing;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{self, ConfigError, FILE_VARIABLE};
use output::{Format, Output};

/// Exit status for a wrong command line or configuration, as is conventional.
const WRONG_USE: u8 = 2;
/// Exit status of a comparison that could not run. A comparison that found differences exits with
/// [`ExitCode::FAILURE`], so that a script can tell the two apart.
const NOT_COMPARED: u8 = 3;
const STATUSES: &str = "Exit status: 0 if nothing differs, 1 if something differs, 2 if the command line is wrong, 3 if the \
    comparison could not run (no database, no such account, an unreadable file)";

/// A command line that the parser accepts, but whose arguments contradict each other.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WrongUse(String);

/// An event-sourced order ledger for digital rewards, on Postgres
#[derive(Parser, Debug)]
#[command(name = "rewards-ledger", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args, Debug)]
struct Global {
    /// Read settings from this TOML file; flags and environment variables take precedence [default: none]
    #[arg(long, global = true, env = FILE_VARIABLE, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print results as JSON; short for --output json
    #[arg(long, global = true, conflicts_with = "output")]
    json: bool,
    /// Format of the results: table for people, json for programs, csv for lists, events and differences [default: table]
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

impl Global {
    fn format(&self) -> Format {
        self.output.unwrap_or(if self.json { Format::Json } else { Format::Table })
    }
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a guided tour of the service on an embedded Postgres; needs no settings
    Demo(demo::DemoArgs),
    /// Run a node: the API, the projector, fulfilment, and webhook deliveries
    Serve(Box<config::Config>),
    /// Migrate the database schema to this release
    Migrate(serve::MigrateArgs),
    /// Receive webhooks on this machine, verify and print them, or forward the events of a service to a local URL
    Listen(Box<listen::ListenArgs>),
    /// Call the client API; the request is signed if you give a signing secret
    Call(call::CallArgs),
    /// Send a test delivery with sample data of one event type to a webhook
    Trigger(trigger::TriggerArgs),
    /// Keep an API key for the client commands, as a profile
    Login(login::LoginArgs),
    /// Forget a profile
    Logout(login::LogoutArgs),
    /// List the profiles, or choose one
    Profiles(login::ProfilesArgs),
    /// Manage accounts, users, wallets, products, orders, and payouts through the operator API
    Admin(admin::AdminArgs),
    /// Add shards to the ledger, list them with their load, or drain one
    Shard(shard::ShardArgs),
    /// Read, export, or import the event log
    Events(events::EventsArgs),
    /// Read and verify the published transparency log: checkpoints, keys, and proofs
    Log(log::LogArgs),
    /// Get a receipt that anyone can verify without access to the service
    Receipt(receipt::ReceiptArgs),
    /// Deliver events to a webhook again, or deliver the events that it missed
    Replay(replay::ReplayArgs),
    /// Show an order with its history, or a wallet, in its current or a past state
    Show(show::ShowArgs),
    /// Show the database clock, or confirm it after a jump
    Clock(clock::ClockArgs),
    /// Erase personal data; the events in the log stay as they are
    Erase(erase::EraseArgs),
    /// Rotate the master key while the service runs, and show how many values are sealed under each key
    Keys(keys::KeysArgs),
    /// Verify every derived row against the log, or an export against signed checkpoints; fails if anything differs
    #[command(after_help = STATUSES)]
    Verify(Box<audit::VerifyArgs>),
    /// Rebuild projections from the log while the service runs; fails if the replaced rows differed from the log
    #[command(after_help = STATUSES)]
    Rebuild(audit::RebuildArgs),
    /// Add up the movements of a period and report every discrepancy; fails if there is one
    #[command(after_help = STATUSES)]
    Reconcile(Box<reconcile::ReconcileArgs>),
    /// Write the OpenAPI documents to openapi/, or check that they are current
    Openapi(openapi::OpenapiArgs),
    /// Print a sample of the configuration file, or check a file
    Config(settings::ConfigArgs),
    /// Print the completion script of a shell
    Completions(manual::CompletionsArgs),
    /// Write the manual pages of all commands
    Man(manual::ManArgs),
}

impl Command {
    /// Returns whether the command prints a list or differences, which CSV can hold.
    fn prints_lists(&self) -> bool {
        match self {
            Command::Events(args) => args.prints_list(),
            Command::Verify(args) => args.prints_list(),
            Command::Admin(_)
            | Command::Shard(_)
            | Command::Replay(_)
            | Command::Log(_)
            | Command::Keys(_)
            | Command::Profiles(_)
            | Command::Rebuild(_)
            | Command::Reconcile(_) => true,
            _ => false,
        }
    }
}

/// Parses the arguments, runs the command, and prints its error, if any. Returns the exit status of the process.
pub fn main() -> ExitCode {
    // A second call fails because a provider is already installed, which is just as good.
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
    // A DNS lookup or a read from the terminal may block a thread. The process does not wait for those.
    runtime.shutdown_background();
    match outcome {
        Ok(status) => status,
        Err(error) => failed(&error, ExitCode::FAILURE),
    }
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let output = Output::new(cli.global.format());
    if output.format() == Format::Csv && !cli.command.prints_lists() {
        return Err(WrongUse("--output csv is for commands that print a list; use --output json".to_owned()).into());
    }
    match &cli.command {
        Command::Serve(config) => logging::start(logging::SERVICE, config.log_format, config.audit_log.as_deref())?,
        Command::Demo(_) => logging::start(logging::DEMO, None, None)?,
        _ => logging::start(logging::TOOL, None, None)?,
    }
    let done = match cli.command {
        Command::Demo(args) => return demo::run(args, &output).await,
        Command::Serve(config) => return serve::run(*config, &output).await,
        Command::Migrate(args) => serve::migrate(&args, &output).await,
        Command::Listen(args) => listen::run(*args, &output).await,
        Command::Call(args) => return call::run(args, &output).await,
        Command::Trigger(args) => return trigger::run(args, &output).await,
        Command::Login(args) => login::login(args, &output).await,
        Command::Logout(args) => login::logout(&args, &output),
        Command::Profiles(args) => login::profiles(&args, &output),
        Command::Admin(args) => admin::run(args, &output).await,
        Command::Shard(args) => shard::run(args, &output).await,
        Command::Events(args) if args.is_comparison() => return Ok(compared(events::run(args, &output).await)),
        Command::Events(args) => return events::run(args, &output).await,
        Command::Log(args) => log::run(args, &output).await,
        Command::Receipt(args) => receipt::run(args, &output).await,
        Command::Replay(args) => replay::run(args, &output).await,
        Command::Show(args) => show::run(args, &output).await,
        Command::Clock(args) => clock::run(args, &output).await,
        Command::Keys(args) => keys::run(args, &output).await,
        Command::Erase(args) => erase::run(args, &output).await,
        Command::Verify(args) => return Ok(compared(audit::verify(&args, &output).await)),
        Command::Rebuild(args) => return Ok(compared(audit::rebuild(&args, &output).await)),
        Command::Reconcile(args) => return Ok(compared(reconcile::run(*args, &output).await)),
        Command::Openapi(args) => return openapi::run(&args),
        Command::Config(args) => return settings::run(args, cli.global.config.as_deref(), &command(), &output),
        Command::Completions(args) => manual::completions(&args, command()),
        Command::Man(args) => manual::man(&args, command(), &output),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn parse(arguments: &[OsString]) -> Result<Cli, ExitCode> {
    let wrong = |error: ConfigError| {
        anstream::eprintln!("error: {}", escape::value(&error.to_string()));
        ExitCode::from(WRONG_USE)
    };
    let file = config::file_named(arguments, std::env::var_os(FILE_VARIABLE));
    // This command reports faults of the file itself.
    let is_about_file = || {
        let parsed = command().try_get_matches_from(arguments);
        parsed.is_ok_and(|matches| matches.subcommand_name() == Some("config"))
    };
    let command = match file {
        Some(path) if !is_about_file() => config::apply_file(command(), &path).map_err(wrong)?,
        _ => command(),
    };
    let parsed = command.try_get_matches_from(arguments).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = parsed.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            _ = error.print(); // nowhere to report a failure
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
    groups::grouped(hide_values(
        ["events", "replay", "shard", "log", "receipt", "erase", "keys"]
            .into_iter()
            .fold(Cli::command().mut_subcommand("admin", admin), |command, name| command.mut_subcommand(name, everywhere))
            .mut_subcommand("reconcile", |reconcile| reconcile.mut_subcommand("statement", everywhere)),
    ))
}

/// Hides the values of environment variables in the help of every command, because some hold secrets.
fn hide_values(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| arg.hide_env_values(true));
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, hide_values))
}

/// Maps the result of a comparison to its exit status. An error is not a difference.
fn compared(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| failed(&error, ExitCode::from(NOT_COMPARED)))
}

/// Prints the error in one line and returns `status`, or [`WRONG_USE`] for a [`WrongUse`]. Prints nothing after a broken
/// pipe: the reader that closed our output wants no more lines. A connection that broke is the cause of another error, and is
/// printed.
fn failed(error: &anyhow::Error, status: ExitCode) -> ExitCode {
    if !is_closed_output(error) {
        anstream::eprintln!("error: {}", escape::value(&output::error_line(error)));
    }
    if error.is::<WrongUse>() { ExitCode::from(WRONG_USE) } else { status }
}

/// Returns whether writing to stdout failed because its reader closed it.
fn is_closed_output(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(|io: &std::io::Error| io.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    #[test]
    fn only_an_error_of_the_output_is_silent() {
        let broken = || Error::from(ErrorKind::BrokenPipe);
        assert!(super::is_closed_output(&broken().into()));
        assert!(super::is_closed_output(&anyhow::Error::from(broken()).context("cannot print")));
        assert!(!super::is_closed_output(&sqlx::Error::from(broken()).into()));
    }

    #[test]
    fn the_command_definitions_are_valid() {
        super::command().debug_assert();
    }
}
