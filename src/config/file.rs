//! The TOML configuration file. Its values become the defaults of the flags with the same names.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Command;
use toml::de::{DeTable, DeValue};

use super::{Config, ConfigError, OPERATOR_TOKEN_VARIABLE};

/// Environment variable that names the file if `--config` is not given.
pub const FILE_VARIABLE: &str = "LEDGER_CONFIG";

/// Returns the file that the arguments or the environment variable name. It must be known before the arguments are parsed,
/// because its contents set their defaults.
pub fn file_named(arguments: &[OsString], variable: Option<OsString>) -> Option<PathBuf> {
    let mut arguments = arguments.iter().skip(1).take_while(|argument| *argument != "--");
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        if text == "--config" {
            return arguments.next().map(PathBuf::from);
        }
        if let Some(path) = text.strip_prefix("--config=") {
            return Some(PathBuf::from(path));
        }
    }
    variable.filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// A fault in the file. It repeats no value, because any value may be a secret in the wrong place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line and column, both from 1. None for a fault of the whole file.
    pub place: Option<(usize, usize)>,
    pub problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some((line, column)) => write!(f, "line {line}, column {column}: {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

/// A setting in the file.
#[derive(Clone)]
pub(super) struct Entry {
    pub key: String,
    /// The flag's value that is equivalent to the file's.
    pub value: String,
    /// Bytes of the value in the file.
    pub span: Range<usize>,
}

/// Returns the line and the column of a byte in a text, both from 1.
pub(crate) fn place(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Reads the settings in the text of a file, with all faults that show without parsing their values. A key is the name of a
/// flag with underscores. A list or table is equivalent to a flag's comma-separated value.
pub(super) fn entries(text: &str) -> (Vec<Entry>, Vec<Fault>) {
    let fault = |byte, problem| Fault { place: Some(place(text, byte)), problem };
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // The error's own text would show the line, which may hold a password.
        let faults = errors.iter().map(|error| {
            let start = error.span().map_or(0, |span| span.start);
            fault(start, format!("not TOML: {}", error.message()))
        });
        return (vec![], faults.collect());
    }
    let known = known_keys();
    let (mut entries, mut faults) = (vec![], vec![]);
    for (key, value) in table.get_ref() {
        let name = key.get_ref().to_string();
        if !known.contains(&name) {
            faults.push(fault(key.span().start, format!("the key `{name}` is not a setting")));
            continue;
        }
        match text_of(value.get_ref()) {
            Some(text) => entries.push(Entry { key: name, value: text, span: value.span() }),
            None => faults.push(fault(value.span().start, format!("`{name}` has a value of a type that no setting takes"))),
        }
    }
    entries.sort_by_key(|entry| entry.span.start);
    (entries, faults)
}

/// Makes the file's values the defaults of a command and its subcommands.
///
/// # Errors
/// If the file cannot be read, a key is not a setting, or a value has the wrong type.
pub fn apply_file(command: Command, path: &Path) -> Result<Command, ConfigError> {
    let (entries, faults) = entries(&read(path)?);
    match faults.into_iter().min_by_key(|fault| fault.place) {
        Some(fault) => Err(wrong(path, &fault)),
        None => Ok(with_entries(command, entries)),
    }
}

pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| wrong(path, &error))
}

fn wrong(path: &Path, problem: &dyn fmt::Display) -> ConfigError {
    ConfigError(format!("the configuration file {}: {problem}", path.display()))
}

/// Makes the entries the defaults of a command and its subcommands.
pub(super) fn with_entries(command: Command, entries: Vec<Entry>) -> Command {
    let mut values: BTreeMap<String, String> = entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
    // Environment variables take precedence over the file, including this one, which belongs to no flag.
    if std::env::var_os(OPERATOR_TOKEN_VARIABLE).is_some() {
        values.remove("operator_token_file");
    }
    with_defaults(command, &values)
}

/// Returns every key that the file may have: the settings of a node.
pub(super) fn known_keys() -> Vec<String> {
    use clap::Args;
    let command = Config::augment_args(Command::new("node"));
    command.get_arguments().filter_map(|arg| arg.get_long()).map(|name| name.replace('-', "_")).collect()
}

fn with_defaults(mut command: Command, values: &BTreeMap<String, String>) -> Command {
    command = command.mut_args(|arg| {
        let value = arg.get_long().and_then(|name| values.get(&name.replace('-', "_")));
        match value.cloned() {
            Some(value) => arg.default_value(value),
            None => arg,
        }
    });
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, |sub| with_defaults(sub, values)))
}

fn text_of(value: &DeValue<'_>) -> Option<String> {
    let parts = match value {
        DeValue::String(text) => return Some(text.to_string()),
        DeValue::Integer(number) => return i128::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n.to_string()),
        DeValue::Boolean(is_on) => return Some(is_on.to_string()),
        DeValue::Datetime(date) => return Some(date.to_string()),
        DeValue::Float(number) => return Some(number.as_str().to_owned()),
        DeValue::Array(items) => items.iter().map(|item| text_of(item.get_ref())).collect::<Option<Vec<_>>>()?,
        DeValue::Table(rules) => rules
            .iter()
            .map(|(name, rule)| Some(format!("{}={}", name.get_ref(), text_of(rule.get_ref())?)))
            .collect::<Option<Vec<_>>>()?,
    };
    Some(parts.join(","))
}
