//! Help, invalid values, and the precedence of flag, variable and file.

use super::{directory, err, out, program, run};
use crate::support::program::write_private;
use crate::support::repository;

/// Every setting of the contract's table, with its variable and default as `--help` shows them.
const SETTINGS: &[(&str, &str, &str)] = &[
    ("--listen", "LEDGER_LISTEN", "[default: 127.0.0.1:8080]"),
    ("--operator-listen", "LEDGER_OPERATOR_LISTEN", "[default: none: at --listen]"),
    ("--node-listen", "LEDGER_NODE_LISTEN", "[default: none: this node writes its commands itself]"),
    ("--node-url", "LEDGER_NODE_URL", "[default: that address; required if it stands for all addresses]"),
    ("--pages", "LEDGER_PAGES", "[default: on]"),
    ("--tls-cert", "LEDGER_TLS_CERT", "[default: none: the listeners speak plain HTTP]"),
    ("--tls-key", "LEDGER_TLS_KEY", "[default: none; required with --tls-cert]"),
    ("--connections-per-address", "LEDGER_CONNECTIONS_PER_ADDRESS", "[default: 512]"),
    ("--shutdown-delay", "LEDGER_SHUTDOWN_DELAY", "[default: none: it accepts no connection from then on]"),
    ("--database-url", "DATABASE_URL", "[default: an embedded Postgres in the data directory]"),
    ("--read-url", "READ_DATABASE_URL", "[default: none: the database URL]"),
    ("--allow-plain-database", "LEDGER_ALLOW_PLAIN_DATABASE", "[default: false]"),
    ("--data-dir", "LEDGER_DATA_DIR", "[default: "),
    ("--sandbox", "LEDGER_SANDBOX", "[default: false]"),
    ("--suppliers-file", "LEDGER_SUPPLIERS_FILE", "[default: none: orders wait for stock]"),
    ("--operator-token-file", "LEDGER_OPERATOR_TOKEN_FILE", "[default: none; more tokens through `admin token`]"),
    ("--console-url", "LEDGER_CONSOLE_URL", "[default: with --operator-listen http://<operator-listen>, else the public URL]"),
    ("--oidc-issuer", "LEDGER_OIDC_ISSUER", "[default: none: with passwords only]"),
    ("--oidc-client-id", "LEDGER_OIDC_CLIENT_ID", "[default: none]"),
    ("--oidc-client-secret-file", "LEDGER_OIDC_CLIENT_SECRET_FILE", "[default: none: a public client]"),
    ("--oidc-role-claim", "LEDGER_OIDC_ROLE_CLAIM", "[default: rewards_ledger_role]"),
    ("--oidc-ca-file", "LEDGER_OIDC_CA_FILE", "[default: none]"),
    ("--migration-url", "LEDGER_MIGRATION_URL", "[default: the database URL]"),
    ("--log-key-file", "LEDGER_LOG_KEY_FILE", "[default: made with the embedded server, else required]"),
    ("--log-state-file", "LEDGER_LOG_STATE_FILE", "[default: log-state.json in the data directory]"),
    ("--log-origin", "LEDGER_LOG_ORIGIN", "[default: the public URL without its scheme, and /log]"),
    ("--log-witnesses", "LEDGER_LOG_WITNESSES", "[default: none]"),
    ("--log-witness-urls", "LEDGER_LOG_WITNESS_URLS", "[default: none]"),
    (
        "--master-key-file",
        "LEDGER_MASTER_KEY_FILE",
        "[default: made with the embedded server in the data directory, else required]",
    ),
    ("--smtp-url", "LEDGER_SMTP_URL", "[default: none: mails become files in the directory outbox of the data directory]"),
    (
        "--portal-url",
        "LEDGER_PORTAL_URL",
        "[default: the public URL; required with --smtp-url on nodes that send mails with --pages off]",
    ),
    ("--mail-from", "LEDGER_MAIL_FROM", "[default: none; required with --smtp-url]"),
    ("--public-url", "LEDGER_PUBLIC_URL", "[default: http://<listen>, or https with --tls-cert]"),
    ("--service-name", "LEDGER_SERVICE_NAME", "[default: SERVICE]"),
    ("--roles", "LEDGER_ROLES", "[default: api,projector,fulfilment,delivery]"),
    ("--trusted-proxies", "LEDGER_TRUSTED_PROXIES", "[default: none]"),
    ("--webhook-ca-file", "LEDGER_WEBHOOK_CA_FILE", "[default: none]"),
    ("--webhook-allow-nets", "LEDGER_WEBHOOK_ALLOW_NETS", "[default: none]"),
    ("--delivery-timeout", "LEDGER_DELIVERY_TIMEOUT", "[default: 30s]"),
    ("--retry-base", "LEDGER_RETRY_BASE", "[default: 60s]"),
    ("--database-connections", "LEDGER_DATABASE_CONNECTIONS", "[default: 40]"),
    ("--delivery-in-flight", "LEDGER_DELIVERY_IN_FLIGHT", "[default: 256]"),
    ("--delivery-in-flight-per-webhook", "LEDGER_DELIVERY_IN_FLIGHT_PER_WEBHOOK", "[default: 64]"),
    (
        "--rate-limits",
        "LEDGER_RATE_LIMITS",
        "[default: orders=100/60s,images=100/60s,general=1000/1h,login=5/60s,refresh=20/60s,password-reset=10/1h,security=10/1h,portal=20/1h,user-login=20/1h,reset-mail=3/1h,operator=20/60s,openid=20/60s,notices=600/60s]",
    ),
    ("--max-clock-jump", "LEDGER_MAX_CLOCK_JUMP", "[default: 1d]"),
    ("--deactivate-webhooks-after", "LEDGER_DEACTIVATE_WEBHOOKS_AFTER", "[default: none: no webhook is deactivated]"),
    ("--attempt-retention", "LEDGER_ATTEMPT_RETENTION", "[default: 90d]"),
    ("--payload-retention", "LEDGER_PAYLOAD_RETENTION", "[default: 30d]"),
    ("--response-body-quota", "LEDGER_RESPONSE_BODY_QUOTA", "[default: 16MiB]"),
    ("--approval-above", "LEDGER_APPROVAL_ABOVE", "[default: none: no approvals]"),
    ("--deprecation-date", "LEDGER_DEPRECATION_DATE", "[default: none]"),
    ("--sunset-date", "LEDGER_SUNSET_DATE", "[default: none]"),
    ("--emergency-sunset", "LEDGER_EMERGENCY_SUNSET", "[default: none]"),
    ("--otlp-endpoint", "LEDGER_OTLP_ENDPOINT", "[default: none: no traces]"),
    ("--otlp-ca-file", "LEDGER_OTLP_CA_FILE", "[default: none]"),
    ("--otlp-sample", "LEDGER_OTLP_SAMPLE", "[default: 1]"),
    ("--audit-log", "LEDGER_AUDIT_LOG", "[default: none]"),
    ("--log-format", "LEDGER_LOG_FORMAT", "[default: text on a terminal, else json]"),
    ("--postgres-programs", "LEDGER_POSTGRES_PROGRAMS", "[default: looked for, else downloaded]"),
    ("--postgres-release", "LEDGER_POSTGRES_RELEASE", "[default: 17.11.0, for Linux with glibc and macOS]"),
    ("--config", "LEDGER_CONFIG", "[default: none]"),
];

#[tokio::test]
async fn help_shows_every_setting_with_its_variable_and_default() {
    let directory = directory();
    let help = run(program(directory.path()).args(["serve", "--help"]).env("DATABASE_URL", "postgres://u:hidden@h/d")).await;
    assert!(help.status.success());
    let help = out(&help);
    assert!(!help.contains("hidden"), "{help}");
    for &(flag, variable, default) in SETTINGS {
        let entry = help
            .split("\n      ")
            .skip_while(|line| !line.starts_with(&format!("{flag} ")) && !line.starts_with(&format!("{flag}[")))
            .nth(1);
        // Lines are wrapped, so only their words are compared.
        let entry = entry.unwrap_or_else(|| panic!("{flag} is not in {help}")).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(entry.contains(&format!("[env: {variable}]")), "{flag}: {entry}");
        assert!(entry.contains(default), "{flag}: {entry}");
    }
}

#[tokio::test]
async fn every_command_has_help() {
    let directory = directory();
    for command in [
        "demo",
        "serve",
        "migrate",
        "listen",
        "call",
        "admin",
        "shard",
        "events",
        "log",
        "receipt",
        "replay",
        "show",
        "clock",
        "erase",
        "keys",
        "verify",
        "rebuild",
        "reconcile",
        "openapi",
        "trigger",
        "login",
        "logout",
        "profiles",
        "config",
        "completions",
        "man",
    ] {
        let help = run(program(directory.path()).args([command, "--help"])).await;
        assert!(help.status.success() && out(&help).contains("--json"), "{command}: {}", out(&help));
    }
    let nothing = run(&mut program(directory.path())).await;
    assert_eq!(nothing.status.code(), Some(2));
}

#[tokio::test]
async fn the_help_lists_the_commands_in_groups() {
    let directory = directory();
    let help = out(&run(program(directory.path()).arg("--help")).await);
    let groups: Vec<&str> = help.lines().filter(|line| !line.starts_with(' ') && line.ends_with(':')).collect();
    assert_eq!(groups, ["Client:", "Operator:", "Audit:", "Service:", "Options:"], "{help}");
    assert!(help.contains("\n  trigger      Send a test delivery"), "{help}");
    let coloured = run(program(directory.path()).arg("--help").env("CLICOLOR_FORCE", "1")).await;
    assert!(out(&coloured).contains("\u{1b}["));
    let plain = run(program(directory.path()).arg("--help").env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1")).await;
    assert_eq!(out(&plain), help);
}

#[tokio::test]
async fn completions_and_manual_pages_cover_every_command() {
    let directory = directory();
    for (shell, mark) in [("bash", "complete -F"), ("zsh", "#compdef rewards-ledger"), ("fish", "complete -c rewards-ledger")] {
        let script = run(program(directory.path()).args(["completions", shell])).await;
        assert!(script.status.success() && out(&script).contains(mark) && out(&script).contains("forward-to"), "{shell}");
        let file = directory.path().join(shell);
        std::fs::write(&file, out(&script)).unwrap();
        // With -n, each of these shells only parses the script.
        let parsed = std::process::Command::new(shell).arg("-n").arg(&file).env("HOME", directory.path()).output();
        let Ok(parsed) = parsed else {
            assert!(std::env::var_os("CI").is_none(), "{shell} is needed");
            eprintln!("SKIPPED: the completions of {shell} were not parsed, for there is no {shell} here");
            continue;
        };
        assert!(parsed.status.success(), "{shell}: {}", String::from_utf8_lossy(&parsed.stderr));
    }
    let pages = directory.path().join("man1");
    let written = run(program(directory.path()).arg("man").arg(&pages)).await;
    assert!(written.status.success(), "{}", err(&written));
    for (page, words) in [
        ("rewards-ledger", "trigger"),
        ("rewards-ledger-listen", "forward"),
        ("rewards-ledger-admin-account-create", "organisation"),
    ] {
        let text = std::fs::read_to_string(pages.join(format!("{page}.1"))).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.starts_with(".ie") && text.contains(words), "{page}: {text}");
    }
}

#[tokio::test]
async fn csv_is_for_lists_alone() {
    let directory = directory();
    for arguments in [
        &["show", "order", "1"][..],
        &["events", "show", "1"],
        &["events", "export"],
        &["verify", "--receipt", "nowhere.json", "--key", "nowhere.pub"],
    ] {
        let refused = run(program(directory.path()).args(arguments).args(["--output", "csv"])).await;
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert_eq!(err(&refused), "error: --output csv is for commands that print a list; use --output json\n", "{arguments:?}");
    }
    let both = run(program(directory.path()).args(["profiles", "--json", "--output", "csv"])).await;
    assert_eq!(both.status.code(), Some(2), "{}", err(&both));
}

#[tokio::test]
async fn a_wrong_value_stops_the_start_with_one_line() {
    let directory = directory();
    let file = directory.path().join("settings.toml");
    write_private(&file, "retry_base = \"soon\"\n");
    let variables = |name: &str, value: &str| {
        let mut command = program(directory.path());
        command.arg("serve").env(name, value);
        command
    };
    let mut flag = variables("LEDGER_LISTEN", "127.0.0.1:0");
    flag.args(["--listen", "here"]);
    let mut variable_over_file = variables("LEDGER_RETRY_BASE", "later");
    variable_over_file.arg("--config").arg(&file);
    let mut master_key = variables("DATABASE_URL", "postgres://nobody:hidden@127.0.0.1:1/none");
    master_key.args(["--roles", "projector"]);
    let key_file = directory.path().join("master.key");
    write_private(&key_file, crate::support::ledger::MASTER_KEY);
    let with_key = |roles: &str| {
        let mut command = variables("DATABASE_URL", "postgres://nobody:hidden@127.0.0.1:1/none");
        command.env("LEDGER_MASTER_KEY_FILE", &key_file).args(["--roles", roles]);
        command
    };
    let mut wrong_log_key = with_key("projector");
    wrong_log_key.env("LEDGER_LOG_KEY_FILE", &file);
    let wrong_log_key_line =
        format!("error: --log-key-file (LEDGER_LOG_KEY_FILE): {}: line 1 is not 32 bytes in base64", file.display());
    for (mut command, status, expected) in [
        (
            with_key("projector"),
            1,
            "error: --log-key-file (LEDGER_LOG_KEY_FILE) is required with --database-url and the role projector: a file of 32 random bytes in base64 (openssl rand -base64 32)",
        ),
        (wrong_log_key, 1, wrong_log_key_line.as_str()),
        (flag, 2, "error: --listen cannot be \"here\": invalid socket address syntax"),
        (variable_over_file, 2, "error: --retry-base cannot be \"later\": a duration looks like 500ms, 30s, 5m, 1h or 1d"),
        (
            variables("LEDGER_ROLES", "cook"),
            2,
            "error: --roles cannot be \"cook\": \"cook\" is not one of api, projector, fulfilment, delivery",
        ),
        (
            variables("LEDGER_CONFIG", file.to_str().unwrap()),
            2,
            "error: --retry-base cannot be \"soon\": a duration looks like 500ms, 30s, 5m, 1h or 1d",
        ),
        (
            variables("DATABASE_URL", "mysql://u:hidden@h/d"),
            2,
            "error: --database-url (DATABASE_URL) is not a URL such as postgres://user:password@host:5432/database",
        ),
        (
            master_key,
            1,
            "error: --master-key-file (LEDGER_MASTER_KEY_FILE) is required with --database-url: a file of 32 random bytes in base64 (openssl rand -base64 32)",
        ),
    ] {
        let refused = run(&mut command).await;
        assert_eq!(refused.status.code(), Some(status), "{}", err(&refused));
        assert_eq!(err(&refused), format!("{expected}\n"));
    }
}

#[tokio::test]
async fn the_sample_of_the_configuration_file_is_current() {
    let directory = directory();
    let printed = run(program(directory.path()).args(["config", "print"])).await;
    assert!(printed.status.success(), "{}", err(&printed));
    let kept = std::fs::read_to_string(repository("deploy/rewards-ledger.toml")).unwrap();
    assert!(out(&printed) == kept, "write it again: rewards-ledger config print > deploy/rewards-ledger.toml");
    for &(flag, variable, _) in SETTINGS.iter().filter(|(flag, ..)| *flag != "--config") {
        let key = flag.trim_start_matches('-').replace('-', "_");
        assert!(kept.contains(&format!("\n#{key} = ")) && kept.contains(&format!("Variable {variable}.")), "{flag}");
    }
}

#[tokio::test]
async fn a_configuration_file_is_checked_without_showing_its_values() {
    let directory = directory();
    let file = directory.path().join("node.toml");
    write_private(&file, "listen = \"127.0.0.1:0\"\n\nlistne = \"secret\"\nretry_base = \"secret\"\n");
    let shown = file.to_str().unwrap();
    let named = run(program(directory.path()).args(["config", "check", shown])).await;
    let by_variable = run(program(directory.path()).args(["config", "check"]).env("LEDGER_CONFIG", shown)).await;
    let expected = format!(
        "error: {shown}:3:1: the key `listne` is not a setting\nerror: {shown}:4:14: `retry_base` has a wrong value: a duration \
         looks like 500ms, 30s, 5m, 1h or 1d\n"
    );
    for checked in [named, by_variable] {
        assert_eq!((checked.status.code(), err(&checked)), (Some(2), expected.clone()));
    }
    let json = run(program(directory.path()).args(["config", "check", shown, "--json"])).await;
    let json: serde_json::Value = serde_json::from_str(&out(&json)).unwrap();
    assert_eq!((&json["faults"][0]["line"], json["faults"].as_array().unwrap().len()), (&serde_json::json!(3), 2));

    write_private(&file, "listen = \"127.0.0.1:0\"\n");
    let right = run(program(directory.path()).args(["config", "check", shown])).await;
    assert_eq!((right.status.code(), out(&right)), (Some(0), format!("{shown}: no fault\n")));
    let missing = run(program(directory.path()).args(["config", "check", "/nowhere"])).await;
    assert_eq!(missing.status.code(), Some(2), "{}", err(&missing));
    assert_eq!(run(program(directory.path()).args(["config", "check"])).await.status.code(), Some(2));
}

#[tokio::test]
async fn the_published_documents_are_current() {
    let directory = directory();
    let published = repository("openapi");
    let check = run(program(directory.path()).args(["openapi", "--check", "--directory"]).arg(published)).await;
    assert!(check.status.success(), "{}", err(&check));

    let copy = directory.path().join("openapi");
    let written = run(program(directory.path()).args(["openapi", "--freeze"]).arg("--directory").arg(&copy)).await;
    assert!(written.status.success(), "{}", err(&written));
    let mut documents: Vec<_> = std::fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().path()).collect();
    documents.retain(|path| path.is_file());
    assert!(!documents.is_empty());
    std::fs::write(&documents[0], "{}\n").unwrap();
    let drifted = run(program(directory.path()).args(["openapi", "--check"]).arg("--directory").arg(&copy)).await;
    assert_eq!(drifted.status.code(), Some(1));
    assert_eq!(err(&drifted).lines().count(), 1, "{}", err(&drifted));
    assert!(err(&drifted).contains(documents[0].to_str().unwrap()));
}
