//! Checks a configuration file without starting anything.

use std::path::Path;

use clap::{Args, Command, FromArgMatches};

use super::file::{Entry, Fault, entries, place, read, with_entries};
use super::{Config, ConfigError, one_line, reason_of};
use crate::fulfilment::supply;

/// Returns every fault of a configuration file, in the order of the file. Values are checked each by itself, and then against
/// each other, together with the environment, as `serve` does.
///
/// # Errors
/// If the file cannot be read.
pub fn check_file(path: &Path) -> Result<Vec<Fault>, ConfigError> {
    let text = read(path)?;
    let (entries, mut faults) = entries(&text);
    let at = |entry: &Entry, problem| Fault { place: Some(place(&text, entry.span.start)), problem };
    for entry in &entries {
        if let Some(problem) = problem(entry) {
            faults.push(at(entry, format!("`{}` {problem}", entry.key)));
        }
    }
    if faults.is_empty()
        && let Err(error) = whole(entries.clone())
    {
        let problem = error.to_string();
        // The message begins with the flag of a setting that it is about.
        let named = |entry: &&Entry| {
            let flag = format!("--{}", entry.key.replace('_', "-"));
            problem.split([' ', ':']).any(|word| word == flag)
        };
        let entry = entries.iter().find(named);
        faults.push(entry.map_or_else(|| Fault { place: None, problem: problem.clone() }, |entry| at(entry, problem.clone())));
    }
    faults.sort_by_key(|fault| fault.place);
    Ok(faults)
}

/// Returns why a setting cannot have its value, without the value.
fn problem(entry: &Entry) -> Option<String> {
    let command = Config::augment_args(Command::new("node").no_binary_name(true)).mut_args(|arg| arg.env(None));
    let argument = format!("--{}={}", entry.key.replace('_', "-"), entry.value);
    let error = command.try_get_matches_from([argument]).err()?;
    Some(match reason_of(&error) {
        Some(reason) => format!("has a wrong value: {reason}"),
        None => "has a wrong value".to_owned(),
    })
}

/// Checks the settings against each other, as a node that starts with them, and the file of suppliers.
fn whole(entries: Vec<Entry>) -> Result<(), ConfigError> {
    let command = with_entries(Config::augment_args(Command::new("node").no_binary_name(true)), entries);
    let matches = command.try_get_matches_from([""; 0]).map_err(|error| one_line(&error))?;
    let config = Config::from_arg_matches(&matches).map_err(|error| one_line(&error))?;
    config.check()?;
    config.suppliers_file.as_deref().map_or(Ok(()), supply::check).map_err(|error| ConfigError(error.to_string()))
}
