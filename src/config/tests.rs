#![allow(clippy::unwrap_used)]

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use clap::{Command, FromArgMatches};
use transparency_log::note::Algorithm;

use super::*;
use crate::access::rate_limits::RateLimit;

fn command() -> Command {
    // The test's environment does not apply. Tests that run the program cover the variables.
    Config::augment_args(Command::new("serve").no_binary_name(true)).mut_args(|arg| arg.env(None))
}

fn parse(command: Command, arguments: &[&str]) -> Result<Config, ConfigError> {
    let matches = command.try_get_matches_from(arguments).map_err(|error| one_line(&error))?;
    let config = Config::from_arg_matches(&matches).map_err(|error| one_line(&error))?;
    config.check()?;
    Ok(config)
}

fn with_file(text: &str, arguments: &[&str]) -> Result<Config, ConfigError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    parse(apply_file(command(), file.path())?, arguments)
}

#[test]
fn the_defaults_match_the_specification() {
    let config = parse(command(), &[]).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.service_name, "SERVICE");
    assert_eq!(config.roles.to_string(), "api, projector, fulfilment, delivery");
    assert_eq!((config.delivery_timeout, config.retry_base), (Duration::from_secs(30), Duration::from_secs(60)));
    assert_eq!(
        config.rate_limits.to_string(),
        "orders=100/60s,images=100/60s,general=1000/1h,login=5/60s,refresh=20/60s,password-reset=10/1h,security=10/1h,portal=20/1h,user-login=20/1h,reset-mail=3/1h,operator=20/60s,openid=20/60s,notices=600/60s"
    );
    assert!(!config.sandbox && config.trusted_proxies.is_empty() && config.webhook_allow_nets.is_empty());
    assert!(
        config.database.database_url.is_none()
            && config.master_key.master_key_file.is_none()
            && config.lifecycle.sunset_date.is_none()
    );
}

#[test]
fn a_flag_overrides_the_file_and_the_file_overrides_the_default() {
    let file = "listen = \"127.0.0.1:1\"\nservice_name = \"FILE\"\nsandbox = true\nroles = [\"api\", \"delivery\"]\n\
                delivery_in_flight = 128\ndeprecation_date = 2030-01-02\nsunset_date = 2031-01-02\n[rate_limits]\nlogin = \"7/1m\"\n";
    let config = with_file(file, &["--listen", "127.0.0.1:2", "--sandbox=false"]).unwrap();
    assert_eq!(config.listen.port(), 2);
    assert!(!config.sandbox);
    assert_eq!(config.service_name, "FILE");
    assert_eq!(config.roles.to_string(), "api, delivery");
    assert_eq!(config.delivery_in_flight, 128);
    assert_eq!(config.lifecycle.sunset_date.unwrap().to_string(), "2031-01-02");
    assert_eq!(config.rate_limits.login, RateLimit { requests: 7, window: Duration::from_secs(60) });
    assert_eq!(config.rate_limits.orders, RateLimits::default().orders);
    assert!(with_file(file, &["--sandbox"]).unwrap().sandbox);
}

#[test]
fn file_values_are_checked_like_flags_and_unknown_keys_are_reported() {
    let refused = |text: &str| with_file(text, &[]).unwrap_err().to_string();
    assert!(refused("listne = \"x\"").ends_with(": line 1, column 1: the key `listne` is not a setting"));
    assert!(refused("config = \"x\"").ends_with("the key `config` is not a setting"));
    assert!(refused("listen = \"x\"").starts_with("--listen cannot be \"x\": "));
    assert!(refused("listen = 1.5").starts_with("--listen cannot be \"1.5\": "));
    let line = refused("listen = \"127.0.0.1:1\"\ndatabase_url = \"postgres://u:hidden@h/d");
    assert!(line.contains("line 2, column ") && line.contains("not TOML") && !line.contains("hidden"), "{line}");
}

#[test]
fn a_checked_file_has_its_faults_named_by_place_and_without_values() {
    let checked = |text: &str| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        check_file(file.path()).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(checked("listen = \"127.0.0.1:1\"\n[rate_limits]\nlogin = \"7/1m\"\n"), [""; 0]);
    let text = "# é\nlistne = \"hidden\"\nlisten =   \"hidden\"\nretry_base = 1.5\nroles = [\"api\", \"hidden-role\"]\npublic_url = \"https://u:hidden@h/?q\"\n";
    let faults = checked(text);
    let places =
        ["line 2, column 1: ", "line 3, column 12: ", "line 4, column 14: ", "line 5, column 9: ", "line 6, column 14: "];
    assert_eq!(faults.len(), places.len(), "{faults:#?}");
    for (fault, place) in faults.iter().zip(places) {
        assert!(fault.starts_with(place), "{fault}");
    }
    assert!(faults[1].contains("`listen` has a wrong value: invalid socket address syntax"), "{faults:#?}");
    assert!(!faults.iter().any(|fault| fault.contains("hidden@") || fault.contains("\"hidden\"")), "{faults:#?}");
    // Two lines that are not TOML, and settings that contradict each other.
    let faults = checked("a = \nlisten = hidden\n");
    assert!(faults.len() == 2 && !faults.concat().contains("hidden"), "{faults:#?}");
    let faults = checked("pages = \"on\"\nsmtp_url = \"smtps://u:hidden@h\"\n");
    assert_eq!(faults, ["line 2, column 12: --smtp-url (LEDGER_SMTP_URL) needs --mail-from (LEDGER_MAIL_FROM)"]);
    let faults = checked("database_url = \"hidden\"");
    assert!(
        faults.len() == 1 && faults[0].starts_with("line 1, column 16: --database-url") && !faults[0].contains("hidden"),
        "{faults:#?}"
    );
    assert_eq!(checked("tls_cert = \"a\"").len(), 1);
}

#[test]
fn a_checked_file_has_the_faults_of_the_suppliers() {
    let directory = tempfile::tempdir().unwrap();
    let (settings, suppliers) = (directory.path().join("node.toml"), directory.path().join("suppliers.toml"));
    std::fs::write(&settings, format!("listen = \"127.0.0.1:1\"\nsuppliers_file = {suppliers:?}\n")).unwrap();
    let (client, open) = (directory.path().join("client"), directory.path().join("open"));
    for (path, mode) in [(&client, 0o600), (&open, 0o644)] {
        std::fs::write(path, "hidden").unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let good = "[[supplier]]\nname = \"acme\"\norder_url = \"https://supplier.example/orders\"\n\
        status_url = \"https://supplier.example/orders/{key}\"\ntoken_url = \"https://supplier.example/token\"\n\
        client_id = \"ledger\"\nclient_secret_file = \"client\"\n";
    let checked = |text: String| {
        std::fs::write(&suppliers, text).unwrap();
        check_file(&settings).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(checked(good.to_owned()), [""; 0]);
    let missing = |field: &str| format!("{field}: {} cannot be read", directory.path().join("nowhere").display());
    let is_open = format!("client_secret_file: {0} is open to other users (mode 0644): chmod 600 {0}", open.display());
    for (text, fault) in [
        (good.replace("https://supplier.example/orders\"", "http://supplier.example/orders\""), "order_url ".to_owned()),
        (good.replace("\"client\"", "\"nowhere\""), missing("client_secret_file")),
        (good.replace("\"client\"", "\"open\""), is_open),
        (format!("{good}ca_file = \"client\"\n"), "ca_file has no certificate".to_owned()),
        (format!("{good}notice_secret_file = \"nowhere\"\n"), missing("notice_secret_file")),
    ] {
        let faults = checked(text);
        assert_eq!(faults.len(), 1, "{faults:#?}");
        let place = "line 2, column 18: --suppliers-file (LEDGER_SUPPLIERS_FILE): supplier acme: ";
        assert!(faults[0].starts_with(&format!("{place}{fault}")) && !faults[0].contains("hidden"), "{faults:#?}");
    }
}

#[test]
fn an_invalid_value_is_reported_in_one_line_with_its_setting() {
    for (arguments, expected) in [
        (&["--listen", "nowhere"][..], "--listen cannot be \"nowhere\": invalid socket address syntax"),
        (
            &["--database-url", "mysql://u:hidden@h/d"],
            "--database-url (DATABASE_URL) is not a URL such as postgres://user:password@host:5432/database",
        ),
        (
            &["--migration-url", "hidden"],
            "--migration-url (LEDGER_MIGRATION_URL) is not a URL such as postgres://user:password@host:5432/database",
        ),
        (
            &["--sandbox", "--suppliers-file=suppliers.toml"],
            "--suppliers-file is not for a sandbox: its orders are no real ones, and vouchers cost money",
        ),
        (&["--sandbox=maybe"], "--sandbox cannot be \"maybe\": value was not a boolean"),
        (&["--public-url", "ftp://x"], "--public-url cannot be \"ftp://x\": expected an http or https URL without a query"),
        (
            &["--response-body-quota", "1GB"],
            "--response-body-quota cannot be \"1GB\": a size looks like 65536, 64KiB, 16MiB or 1GiB",
        ),
        (
            &["--deactivate-webhooks-after", "23h"],
            "--deactivate-webhooks-after cannot be \"23h\": the minimum is 1d, and the maximum 365d",
        ),
        (
            &["--deactivate-webhooks-after", "366d"],
            "--deactivate-webhooks-after cannot be \"366d\": the minimum is 1d, and the maximum 365d",
        ),
        (&["--attempt-retention", "0s"], "--attempt-retention cannot be \"0s\": a duration must be above zero"),
        (&["--service-name", "A B"], "--service-name cannot be \"A B\": expected 1 to 40 letters, digits and inner hyphens"),
        (&["--roles", "api,cook"], "--roles cannot be \"api,cook\": \"cook\" is not one of api, projector, fulfilment, delivery"),
        (
            &["--trusted-proxies", "10.0.0.1,x"],
            "--trusted-proxies cannot be \"x\": expected an address or a network such as 10.0.0.0/8",
        ),
        (
            &["--webhook-allow-nets", "10.0.0.0/99"],
            "--webhook-allow-nets cannot be \"10.0.0.0/99\": expected an address or a network such as 10.0.0.0/8",
        ),
        (&["--delivery-timeout", "30"], "--delivery-timeout cannot be \"30\": a duration looks like 500ms, 30s, 5m, 1h or 1d"),
        (&["--retry-base", "0s"], "--retry-base cannot be \"0s\": a duration must be above zero"),
        (&["--retry-base", "61m"], "--retry-base cannot be \"61m\": the maximum is 1h"),
        (&["--delivery-timeout", "2h"], "--delivery-timeout cannot be \"2h\": the maximum is 1h"),
        (&["--delivery-in-flight", "0"], "--delivery-in-flight cannot be \"0\": 0 is not in 1..=10000"),
        (&["--delivery-in-flight", "8"], "--delivery-in-flight-per-webhook must not be above --delivery-in-flight"),
        (&["--rate-limits", "orders=100"], "--rate-limits cannot be \"orders=100\": orders: a limit looks like 100/60s"),
        (
            &["--rate-limits", "order=1/1s"],
            "--rate-limits cannot be \"order=1/1s\": \"order\" is not one of orders, images, general, login, refresh, password-reset, security, portal, user-login, reset-mail, operator, openid, notices",
        ),
        (
            &["--rate-limits", "login=0/1s"],
            "--rate-limits cannot be \"login=0/1s\": login: \"0\" is not a count from 1 to 1000000000",
        ),
        (&["--deprecation-date", "soon"], "--deprecation-date cannot be \"soon\": a date looks like 2030-12-31"),
        (
            &["--deprecation-date", "2031-01-01", "--sunset-date", "2030-01-01"],
            "--sunset-date must not be before --deprecation-date",
        ),
        (&["--log-format", "xml"], "--log-format cannot be \"xml\": expected text or json"),
        (&["--listne", "x"], "unexpected argument '--listne' found tip: a similar argument exists: '--listen'"),
    ] {
        let refused = parse(command(), arguments).unwrap_err().to_string();
        assert_eq!(refused, expected, "{arguments:?}");
    }
}

#[test]
fn a_sunset_that_breaks_a_promise_needs_a_reason() {
    let with = |deprecation: &str, sunset: &str, reason: Option<&str>| {
        let mut arguments = vec!["--sunset-date", sunset];
        arguments.extend([deprecation].into_iter().filter(|date| !date.is_empty()).flat_map(|date| ["--deprecation-date", date]));
        arguments.extend(reason.into_iter().flat_map(|reason| ["--emergency-sunset", reason]));
        parse(command(), &arguments)
            .map(|config| config.lifecycle.emergency_sunset().is_some())
            .map_err(|error| error.to_string())
    };
    for (deprecation, sunset) in [("2027-07-01", "2028-07-01"), ("2028-02-29", "2029-02-28"), ("2030-01-01", "2035-01-01")] {
        assert_eq!(with(deprecation, sunset, None), Ok(false), "{sunset}");
        let refused = with(deprecation, sunset, Some("leaked")).unwrap_err();
        assert_eq!(refused, "--emergency-sunset is not needed: the sunset breaks no promise");
    }
    for (deprecation, sunset, why) in [
        ("2026-01-01", "2028-06-30", "--sunset-date is 2028-06-30, but clients were promised /api/v1 until 2028-07-01"),
        ("", "2028-06-30", "--sunset-date is 2028-06-30, but clients were promised /api/v1 until 2028-07-01"),
        ("2028-01-02", "2029-01-01", "--sunset-date is 2029-01-01, which is not 12 months or more after a --deprecation-date"),
        ("", "2029-01-01", "--sunset-date is 2029-01-01, which is not 12 months or more after a --deprecation-date"),
    ] {
        let refused = with(deprecation, sunset, None).unwrap_err();
        assert_eq!(refused, format!("{why}: only --emergency-sunset REASON allows that"));
        assert_eq!(with(deprecation, sunset, Some("the signing keys leaked")), Ok(true), "{sunset}");
    }
    let before = with("2027-01-02", "2027-01-01", Some("leaked")).unwrap_err();
    assert_eq!(before, "--sunset-date must not be before --deprecation-date");
    let alone = parse(command(), &["--emergency-sunset", "leaked"]).unwrap_err().to_string();
    assert_eq!(alone, "--emergency-sunset needs --sunset-date");
    for reason in ["", " ", "two\nlines", &"x".repeat(501)] {
        let refused = with("", "2027-01-01", Some(reason)).unwrap_err();
        assert!(refused.ends_with("a reason is one line of 1 to 500 characters"), "{refused}");
    }
}

#[test]
fn durations_and_networks_are_parsed() {
    use super::values::network;
    use crate::duration::duration;
    for (text, milliseconds) in [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("2d", 172_800_000)] {
        assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
    }
    for text in ["", "s", "1.5s", "-1s", "1 s", "367d", "99999999999999999999s"] {
        assert!(duration(text).is_err(), "{text}");
    }
    assert_eq!(network("192.0.2.1").unwrap().to_string(), "192.0.2.1/32");
    assert_eq!(network(" 2001:db8::/32").unwrap().to_string(), "2001:db8::/32");
}

#[test]
fn a_remote_database_requires_verified_tls() {
    let check = |arguments: &[&str]| parse(command(), arguments).map(drop);
    for flag in ["--database-url", "--migration-url"] {
        for (url, is_taken) in [
            ("postgres://u:hidden@db.example.com/d", false),
            ("postgres://u:hidden@db.example.com/d?sslmode=disable", false),
            ("postgres://u:hidden@db.example.com/d?sslmode=prefer", false),
            ("postgres://u:hidden@db.example.com/d?sslmode=require", false),
            ("postgres://u:hidden@db.example.com/d?sslmode=verify-ca", false),
            ("postgres://u:hidden@db.example.com/d?sslmode=verify-full", true),
            ("postgres://u:hidden@db.example.com/d?ssl-mode=verify-full", true),
            // The last sslmode applies.
            ("postgres://u:hidden@db.example.com/d?sslmode=verify-full&sslmode=disable", false),
            ("postgres://u:hidden@localhost/d?host=db.example.com", false),
            ("postgres://u:hidden@localhost/d?hostaddr=192.0.2.1", false),
            ("postgres://u:hidden@localhost.example.com/d", false),
            ("postgres://u:hidden@127.0.0.1.example.com/d", false),
            ("postgres://u:hidden@192.0.2.1/d", false),
            ("postgres://u:hidden@10.0.0.1/d", false),
            ("postgres://u:hidden@[2001:db8::1]/d", false),
            ("postgres://u:hidden@0.0.0.0/d", false),
            ("postgres://u:hidden@localhost/d", true),
            ("postgres://u:hidden@LOCALHOST:5433/d", true),
            ("postgres://u:hidden@127.0.0.1/d?sslmode=disable", true),
            ("postgres://u:hidden@127.1.2.3/d", true),
            ("postgres://u:hidden@[::1]:5433/d", true),
            ("postgres://u:hidden@[::ffff:127.0.0.1]/d", true),
            ("postgres://u:hidden@%2Frun%2Fpostgresql/d", true),
            ("postgres://u:hidden@db.example.com/d?host=/run/postgresql", true),
        ] {
            let checked = check(&[flag, url]);
            assert_eq!(checked.is_ok(), is_taken, "{flag} {url}: {checked:?}");
            if let Err(refused) = checked {
                let refused = refused.to_string();
                assert!(refused.starts_with(flag) && refused.contains("without sslmode=verify-full"), "{refused}");
                assert!(!refused.contains("hidden"), "{refused}");
            }
            assert!(check(&[flag, url, "--allow-plain-database"]).is_ok(), "{url}");
            assert_eq!(check(&[flag, url, "--allow-plain-database=false"]).is_ok(), is_taken, "{url}");
        }
    }
}

#[test]
fn no_secret_is_shown() {
    let config = parse(command(), &["--database-url", "postgres://u:hidden@localhost/d"]).unwrap();
    assert!(!format!("{config:?}").contains("hidden"));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"database_url = \"postgres://u:hidden@h/d\"").unwrap();
    let help = apply_file(command(), file.path()).unwrap().render_long_help().to_string();
    assert!(!help.contains("hidden"), "{help}");
}

#[test]
fn the_operator_token_is_read_from_its_file() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let settings = OperatorTokenSettings { operator_token_file: Some(file.path().to_owned()) };
    assert!(settings.read().is_err());
    file.write_all(b"0123456789abcdef\n").unwrap();
    assert_eq!(settings.read().unwrap().unwrap().expose(), "0123456789abcdef");
    let missing = OperatorTokenSettings { operator_token_file: Some("/nowhere".into()) }.read().unwrap_err();
    assert!(missing.to_string().starts_with("--operator-token-file (LEDGER_OPERATOR_TOKEN_FILE): /nowhere cannot be read"));
}

#[test]
fn the_file_is_found_before_the_arguments_are_parsed() {
    let named = |arguments: &[&str], variable: Option<&str>| {
        let arguments: Vec<_> = arguments.iter().map(Into::into).collect();
        file_named(&arguments, variable.map(Into::into))
    };
    assert_eq!(named(&["x", "serve", "--config", "a"], Some("b")), Some("a".into()));
    assert_eq!(named(&["x", "--config=a", "serve"], None), Some("a".into()));
    assert_eq!(named(&["x", "serve"], Some("b")), Some("b".into()));
    assert_eq!(named(&["x", "call", "--", "--config", "a"], None), None);
}

#[test]
fn an_origin_has_no_scheme_and_witnesses_are_cosigner_keys() {
    let config = parse(command(), &["--log-origin", "ledger.example.com/log"]).unwrap();
    assert_eq!((config.log_origin.as_deref(), config.log_witnesses.len()), (Some("ledger.example.com/log"), 0));
    for wrong in ["https://ledger.example.com/log", "a b", "a+b", "a/", ""] {
        assert!(parse(command(), &["--log-origin", wrong]).is_err(), "{wrong:?}");
    }
    let key = |algorithm| VerifierKey::new("w.example.com", algorithm, [7; 32]).unwrap().to_string();
    let (witness, log) = (key(Algorithm::CosignatureV1), key(Algorithm::Ed25519));
    let both = format!("{witness},{}", VerifierKey::new("x.example.com", Algorithm::CosignatureV1, [8; 32]).unwrap());
    assert_eq!(parse(command(), &["--log-witnesses", &both]).unwrap().log_witnesses.len(), 2);
    assert!(parse(command(), &["--log-witnesses", &log]).is_err());
    let url = ["--log-witness-urls", "https://w.example.com/log"];
    assert!(parse(command(), &url).is_err());
    assert_eq!(parse(command(), &[&url[..], &["--log-witnesses", &witness]].concat()).unwrap().log_witness_urls, url[1..]);
}
