//! Groups of the commands in the help of the program, and of the settings in the help of `serve`.

use std::fmt::Write;

use clap::Command;
use clap::builder::Styles;

/// Commands by the people who use them.
const COMMANDS: [(&str, &[&str]); 4] = [
    ("Client", &["call", "listen", "trigger", "login", "logout", "profiles"]),
    ("Operator", &["admin", "shard", "replay", "show", "reconcile", "erase", "clock"]),
    ("Audit", &["verify", "log", "receipt", "events"]),
    ("Service", &["demo", "serve", "migrate", "keys", "rebuild", "config", "openapi", "completions", "man", "help"]),
];

/// Settings of a node by what they are about. The others stand under "Options".
const SETTINGS: [(&str, &[&str]); 7] = [
    (
        "Addresses",
        &[
            "listen",
            "operator_listen",
            "node_listen",
            "node_url",
            "public_url",
            "console_url",
            "portal_url",
            "pages",
            "tls_cert",
            "tls_key",
            "trusted_proxies",
            "connections_per_address",
            "shutdown_delay",
        ],
    ),
    (
        "Database",
        &[
            "database_url",
            "read_url",
            "allow_plain_database",
            "migration_url",
            "direct_url",
            "data_dir",
            "postgres_programs",
            "postgres_release",
            "postgres_account",
            "database_connections",
            "max_clock_jump",
        ],
    ),
    (
        "Keys, operators and mail",
        &[
            "master_key_file",
            "operator_token_file",
            "approval_above",
            "oidc_issuer",
            "oidc_client_id",
            "oidc_client_secret_file",
            "oidc_role_claim",
            "oidc_ca_file",
            "smtp_url",
            "mail_from",
        ],
    ),
    ("Transparency log", &["log_key_file", "log_state_file", "log_origin", "log_witnesses", "log_witness_urls"]),
    (
        "Webhooks",
        &[
            "service_name",
            "webhook_ca_file",
            "webhook_allow_nets",
            "delivery_timeout",
            "retry_base",
            "delivery_in_flight",
            "delivery_in_flight_per_webhook",
            "deactivate_webhooks_after",
            "attempt_retention",
            "payload_retention",
            "response_body_quota",
        ],
    ),
    ("Traces", &["otlp_endpoint", "otlp_ca_file", "otlp_sample"]),
    ("Version of the API", &["deprecation_date", "sunset_date", "emergency_sunset"]),
];

/// Puts the commands into groups, in the help of the program and of `serve`.
pub fn grouped(command: Command) -> Command {
    let template = template(&command);
    command.help_template(template).mut_subcommand("serve", |serve| {
        // Every group has the layout of the longest setting.
        let serve = serve.next_line_help(true);
        SETTINGS
            .iter()
            .flat_map(|(heading, ids)| ids.iter().map(move |id| (*heading, *id)))
            .fold(serve, |serve, (heading, id)| serve.mut_arg(id, |arg| arg.help_heading(heading)))
    })
}

/// Returns the help of the program: clap's own, with the list of commands in groups.
fn template(command: &Command) -> String {
    let (styles, mut listed) = (Styles::styled(), String::new());
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let width = COMMANDS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or_default();
    for (group, names) in COMMANDS {
        _ = writeln!(listed, "{header}{group}:{header:#}"); // a string takes everything
        for name in names {
            let about = match command.find_subcommand(name).and_then(Command::get_about) {
                Some(about) => about.to_string(),
                None => "Print this message or the help of a command".to_owned(),
            };
            _ = writeln!(listed, "  {literal}{name:<width$}{literal:#}  {about}");
        }
        listed.push('\n');
    }
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listed}{header}Options:{header:#}\n{{options}}{{after-help}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_stands_in_one_group_and_every_group_has_only_commands() {
        let command = crate::cli::command();
        let mut grouped: Vec<&str> = COMMANDS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let mut defined: Vec<&str> = command.get_subcommands().map(Command::get_name).chain(["help"]).collect();
        defined.sort_unstable();
        defined.dedup();
        assert_eq!(grouped, defined);
    }

    #[test]
    fn every_command_and_every_argument_is_described() {
        let (mut missing, mut arguments) = (vec![], 0);
        let mut open = vec![(String::new(), crate::cli::command())];
        while let Some((path, command)) = open.pop() {
            let path = format!("{path} {}", command.get_name());
            if command.get_about().is_none() {
                missing.push(path.clone());
            }
            for arg in command.get_arguments() {
                arguments += 1;
                if arg.get_help().is_none_or(|help| help.to_string().trim().is_empty()) {
                    missing.push(format!("{path} {}", arg.get_id()));
                }
            }
            open.extend(command.get_subcommands().map(|command| (path.clone(), command.clone())));
        }
        assert!(missing.is_empty(), "{missing:#?}");
        assert!(arguments > 200, "{arguments}");
    }
}
