//! `config print` and `config check`: the configuration file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;

use super::output::Output;
use super::{WRONG_USE, WrongUse, escape};
use crate::config;

#[derive(Args, Debug)]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand, Debug)]
enum ConfigCommand {
    /// Print a configuration file with every setting, its default, unit and description
    Print,
    /// Check a configuration file; fails with the place of each fault, and shows no values
    Check {
        /// File to check [default: that of --config]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// Prints a sample of the configuration file, or checks a file.
///
/// # Errors
/// If there is no file to check, or it cannot be read.
pub fn run(args: ConfigArgs, named: Option<&Path>, command: &clap::Command, output: &Output) -> anyhow::Result<ExitCode> {
    match args.command {
        ConfigCommand::Print => {
            let serve = command.find_subcommand("serve").context("there is no command serve")?;
            output.verbatim(config::sample(serve).trim_end())?;
            Ok(ExitCode::SUCCESS)
        }
        ConfigCommand::Check { file } => {
            let file = file.as_deref().or(named);
            let file = file.ok_or_else(|| WrongUse("name the file to check: rewards-ledger config check FILE".to_owned()))?;
            check(file, output)
        }
    }
}

fn check(file: &Path, output: &Output) -> anyhow::Result<ExitCode> {
    let faults = config::check_file(file).map_err(|error| WrongUse(error.to_string()))?;
    if output.json {
        let faults: Vec<_> = faults
            .iter()
            .map(|fault| json!({"line": fault.place.map(|(line, _)| line), "column": fault.place.map(|(_, column)| column), "problem": fault.problem}))
            .collect();
        output.json_line(&json!({"file": file, "faults": faults}))?;
    } else if faults.is_empty() {
        output.line(format!("{}: no fault", file.display()))?;
    } else {
        for fault in &faults {
            let place = fault.place.map(|(line, column)| format!("{line}:{column}:")).unwrap_or_default();
            let line = format!("{}:{place} {}", file.display(), fault.problem);
            anstream::eprintln!("error: {}", escape::value(&line));
        }
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(WRONG_USE) })
}
