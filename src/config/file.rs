//! The TOML configuration file. Its values become the defaults of the flags with the same names.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Command;
use toml::{Table, Value};

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

/// Returns the line and the column of a byte in a text, both from 1.
pub(crate) fn place(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Makes the file's values the defaults of a command and its subcommands. A key is the name of a flag with underscores. A
/// list or table is equivalent to a flag's comma-separated value.
///
/// # Errors
/// If the file cannot be read, a key is not a setting, or a value has the wrong type.
pub fn apply_file(command: Command, path: &Path) -> Result<Command, ConfigError> {
    let wrong = |text: String| ConfigError(format!("the configuration file {}: {text}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        // The error's own text would show the line, which may hold a password.
        let (line, column) = place(&text, error.span().map_or(0, |span| span.start));
        wrong(format!("line {line}, column {column} is not TOML: {}", error.message()))
    })?;
    let known = known_keys();
    let mut values = BTreeMap::new();
    for (key, value) in &table {
        if !known.contains(key) {
            return Err(wrong(format!("the key `{key}` is not a setting")));
        }
        let value = text_of(value).ok_or_else(|| wrong(format!("`{key}` has a value of a type that no setting takes")))?;
        values.insert(key.clone(), value);
    }
    // Environment variables take precedence over the file, including this one, which belongs to no flag.
    if std::env::var_os(OPERATOR_TOKEN_VARIABLE).is_some() {
        values.remove("operator_token_file");
    }
    Ok(with_defaults(command, &values))
}

/// Returns every key that the file may have: the settings of a node.
fn known_keys() -> Vec<String> {
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

fn text_of(value: &Value) -> Option<String> {
    let parts = match value {
        Value::String(text) => return Some(text.clone()),
        Value::Integer(number) => return Some(number.to_string()),
        Value::Boolean(is_on) => return Some(is_on.to_string()),
        Value::Datetime(date) => return Some(date.to_string()),
        Value::Float(_) => return None,
        Value::Array(items) => items.iter().map(text_of).collect::<Option<Vec<_>>>()?,
        Value::Table(rules) => {
            rules.iter().map(|(name, rule)| Some(format!("{name}={}", text_of(rule)?))).collect::<Option<Vec<_>>>()?
        }
    };
    Some(parts.join(","))
}
