//! Sample configuration file, made from the definitions of the settings.

use std::fmt::Write;

use clap::{Arg, Command};
use transparency_log::note::{Algorithm, VerifierKey};

use super::file::known_keys;

/// Width of a comment, in characters.
const WIDTH: usize = 100;
/// Heading of the settings that have none in the help.
const OTHERS: &str = "Options";

const HEAD: &str = "\
# Settings of rewards-ledger. `rewards-ledger config print` writes this file.
#
# Name the file with --config or LEDGER_CONFIG, and check it with `rewards-ledger config check FILE`. If it holds a password, let
# only the service read it.
#
# Every setting is also a flag and an environment variable: `delivery_timeout` is --delivery-timeout. Order of precedence: flag,
# variable, this file, default. Remove the # before a setting to set it. Its value here is the default, or else an example.
";

/// Types of values, by the name that the help gives them, with their units.
const TYPES: [(&str, &str); 24] = [
    ("ADDRESS", "An IP address with a port."),
    ("AMOUNTS", "An amount, or amounts by currency."),
    ("BOOL", "true or false, without quotes."),
    ("BYTES", "A number of bytes, or with KiB, MiB or GiB."),
    ("CLAIM", "The name of a claim."),
    ("COUNT", "A whole number."),
    ("DATE", "A date."),
    ("DIRECTORY", "A path."),
    ("DURATION", "A number with its unit: ms, s, m, h or d."),
    ("FILE", "A path."),
    ("FORMAT", "A word."),
    ("ID", "A text."),
    ("KEYS", "A list of verifier keys."),
    ("LIMITS", "Requests for a window of time, with its unit: ms, s, m, h or d."),
    ("MAILBOX", "An email address, with or without a name."),
    ("NAME", "Letters, digits and inner hyphens."),
    ("NETWORKS", "A list of networks or addresses."),
    ("ORIGIN", "A name without a scheme."),
    ("RATIO", "A number from 0 to 1."),
    ("REASON", "A line of text."),
    ("ROLES", "A list of roles."),
    ("URL", "A URL."),
    ("URLS", "A list of URLs."),
    ("USER", "A user of this machine."),
];
/// Further types, whose names are no words.
const ODD_TYPES: [(&str, &str); 2] =
    [("on|off", "A word: on or off."), ("VERSION:DIGEST", "A version and the SHA-256 digest of its archive.")];

/// Values that the sample shows for settings without a default, and for those whose default depends on the user.
const EXAMPLES: [(&str, &str); 42] = [
    ("approval_above", "EUR=1000,USD=1000"),
    ("audit_log", "/var/log/rewards-ledger/audit.jsonl"),
    ("console_url", "https://console.example.com"),
    ("data_dir", "/var/lib/rewards-ledger"),
    ("database_url", "postgres://ledger_service@localhost/ledger"),
    ("deactivate_webhooks_after", "5d"),
    ("deprecation_date", "2030-01-02"),
    ("direct_url", "postgres://ledger_service@database.example.com:5432/ledger"),
    ("emergency_sunset", "The provider of all vouchers ends its service."),
    ("log_format", "json"),
    ("log_key_file", "/etc/rewards-ledger/log.key"),
    ("log_origin", "rewards.example.com/log"),
    ("log_state_file", "/var/lib/rewards-ledger/log-state.json"),
    ("log_witness_urls", "https://witness.example.com"),
    ("mail_from", "Acme Rewards <rewards@example.com>"),
    ("master_key_file", "/etc/rewards-ledger/master.key"),
    ("migration_url", "postgres://ledger_owner@localhost/ledger"),
    ("node_listen", "10.0.0.1:8082"),
    ("node_url", "http://10.0.0.1:8082"),
    ("oidc_ca_file", "/etc/rewards-ledger/oidc-ca.pem"),
    ("oidc_client_id", "rewards-ledger"),
    ("oidc_client_secret_file", "/etc/rewards-ledger/oidc.secret"),
    ("oidc_issuer", "https://login.example.com"),
    ("operator_listen", "127.0.0.1:8081"),
    ("operator_token_file", "/etc/rewards-ledger/operator.token"),
    ("otlp_ca_file", "/etc/rewards-ledger/otlp-ca.pem"),
    ("otlp_endpoint", "https://otel.example.com:4318"),
    ("portal_url", "https://rewards.example.com"),
    ("postgres_account", "postgres"),
    ("postgres_programs", "/usr/lib/postgresql/17/bin"),
    ("postgres_release", "16.15.0:0000000000000000000000000000000000000000000000000000000000000000"),
    ("public_url", "https://rewards.example.com"),
    ("read_url", "postgres://ledger_service@standby.example.com/ledger?sslmode=verify-full"),
    ("shutdown_delay", "5s"),
    ("smtp_url", "smtps://user:password@mail.example.com"),
    ("sunset_date", "2031-01-02"),
    ("suppliers_file", "/etc/rewards-ledger/suppliers.toml"),
    ("tls_cert", "/etc/rewards-ledger/tls.pem"),
    ("tls_key", "/etc/rewards-ledger/tls.key"),
    ("trusted_proxies", "10.0.0.0/8"),
    ("webhook_allow_nets", "10.1.0.0/16"),
    ("webhook_ca_file", "/etc/rewards-ledger/webhook-ca.pem"),
];

/// Returns a configuration file with every setting, its type and unit, its default and its description, in the groups of the
/// help of `serve`. All settings are commented out.
pub fn sample(serve: &Command) -> String {
    let known = known_keys();
    let settings: Vec<&Arg> = serve.get_arguments().filter(|arg| known.contains(&key(arg))).collect();
    let mut headings: Vec<&str> = vec![];
    for setting in &settings {
        let heading = setting.get_help_heading().unwrap_or(OTHERS);
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    let mut text = HEAD.to_owned();
    for heading in headings {
        _ = write!(text, "\n# {heading}\n# {}\n", "-".repeat(heading.len())); // a string takes everything
        for setting in settings.iter().filter(|setting| setting.get_help_heading().unwrap_or(OTHERS) == heading) {
            text.push('\n');
            describe(setting, &mut text);
        }
    }
    text
}

fn key(arg: &Arg) -> String {
    arg.get_long().unwrap_or_default().replace('-', "_")
}

fn describe(setting: &Arg, text: &mut String) {
    let help = setting.get_help().map(ToString::to_string).unwrap_or_default();
    // The help of a setting without a value says so at its end.
    let (description, told) = match help.split_once(" [default: ") {
        Some((description, told)) => (description.to_owned(), Some(told.trim_end_matches(']').to_owned())),
        None => (help.clone(), None),
    };
    let (key, kind) = (key(setting), kind(setting));
    let default = setting.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
    let shown = match (key.as_str(), &told, &default) {
        ("data_dir", ..) => "rewards-ledger in the user's directory for data".to_owned(),
        (_, Some(told), _) => told.clone(),
        (.., Some(default)) if default.chars().count() > WIDTH => "as shown".to_owned(),
        (.., default) => default.clone().unwrap_or_else(|| "none".to_owned()),
    };
    let variable = setting.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    comment(&format!("{description}."), text);
    comment(&format!("{kind} Default: {shown}."), text);
    comment(&format!("Variable {variable}."), text);
    let value = match example(&key) {
        Some(example) => example,
        None => default.unwrap_or_default(),
    };
    _ = writeln!(text, "#{key} = {}", literal(setting, &value)); // a string takes everything
}

fn value_name(setting: &Arg) -> &str {
    setting.get_value_names().and_then(|names| names.first()).map(|name| name.as_str()).unwrap_or_default()
}

fn kind(setting: &Arg) -> &'static str {
    let name = value_name(setting);
    TYPES.iter().chain(&ODD_TYPES).find(|(known, _)| *known == name).map(|(_, kind)| *kind).unwrap_or_default()
}

fn example(key: &str) -> Option<String> {
    if key == "log_witnesses" {
        return VerifierKey::new("witness.example.com", Algorithm::CosignatureV1, [0; 32]).ok().map(|key| key.to_string());
    }
    EXAMPLES.iter().find(|(known, _)| *known == key).map(|(_, example)| (*example).to_owned())
}

/// Writes a flag's value as TOML.
fn literal(setting: &Arg, value: &str) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    match value_name(setting) {
        "COUNT" | "BOOL" | "DATE" | "RATIO" => value.to_owned(),
        "ROLES" | "NETWORKS" | "KEYS" | "URLS" => {
            let items: Vec<String> = value.split(',').filter(|item| !item.is_empty()).map(quoted).collect();
            format!("[{}]", items.join(", "))
        }
        _ => quoted(value),
    }
}

/// Adds a comment in lines of at most [`WIDTH`] characters.
fn comment(paragraph: &str, text: &mut String) {
    let mut line = "#".to_owned();
    for word in paragraph.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = "#".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Args;

    use super::super::{Config, apply_file};
    use super::*;

    fn serve() -> Command {
        Config::augment_args(Command::new("serve").no_binary_name(true)).mut_args(|arg| arg.env(None))
    }

    /// Returns the settings of the sample, each as a line of a file that sets it.
    fn lines() -> Vec<String> {
        let is_setting =
            |line: &&str| line.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
        sample(&Config::augment_args(Command::new("serve"))).lines().filter(is_setting).map(|line| line[1..].to_owned()).collect()
    }

    #[test]
    fn the_sample_has_every_setting_with_a_type_and_a_value_that_is_accepted() {
        let keys: Vec<String> = lines().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
        let mut known = known_keys();
        known.retain(|key| !keys.contains(key));
        assert!(known.is_empty(), "{known:?}");
        for line in lines() {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &line).unwrap();
            let command = apply_file(serve(), file.path()).unwrap();
            assert!(command.try_get_matches_from([""; 0]).is_ok(), "{line}");
            assert!(!line.ends_with("= \"\"") && !line.ends_with("= []"), "{line} needs an example");
        }
        for setting in serve().get_arguments() {
            assert!(!kind(setting).is_empty(), "{} has the unknown type {}", key(setting), value_name(setting));
        }
    }

    #[test]
    fn the_sample_changes_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), sample(&Config::augment_args(Command::new("serve")))).unwrap();
        let read = |command: Command| format!("{:?}", command.try_get_matches_from([""; 0]).unwrap());
        assert_eq!(read(apply_file(serve(), file.path()).unwrap()), read(serve()));
    }
}
