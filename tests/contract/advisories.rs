//! Exceptions from the check for security advisories.

use chrono::NaiveDate;
use toml::{Table, Value};

use crate::support::repository;

#[test]
fn ignored_advisories_have_a_reason_and_a_date() {
    let settings: Table = std::fs::read_to_string(repository("deny.toml")).unwrap().parse().unwrap();
    let ignored = settings["advisories"]["ignore"].as_array().unwrap();
    for entry in ignored {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("{entry:?} has no {name}"));
        assert!(text("id").starts_with("RUSTSEC-"), "{entry:?}");
        let (date, reason) = text("reason").split_once(": ").unwrap_or_else(|| panic!("{entry:?} has no date"));
        assert!(NaiveDate::parse_from_str(date, "%Y-%m-%d").is_ok() && reason.len() > 20, "{entry:?}");
    }
    let ci = std::fs::read_to_string(repository(".ci/run")).unwrap();
    assert!(ci.contains(".ci/advisories"), "the step starts");
}

/// If the advisory database cannot be reached, the step prints one line and passes. If it can be reached and not fetched, or
/// if there is an advisory, the step fails.
#[test]
fn the_check_is_skipped_only_if_the_advisory_database_is_unreachable() {
    let directory = tempfile::tempdir().unwrap();
    let script = repository(".ci/advisories");
    // Stand-ins for the tools: the test is about how the step handles their outcome.
    let stand_in = |name: &str, cases: String| {
        let tool = directory.path().join(name);
        std::fs::write(&tool, format!("#!/bin/sh\ncase \"$*\" in *--version) exit 0;; {cases} esac\n")).unwrap();
        std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    let shell = |reach: u8, fetch: u8, check: u8| {
        stand_in("git", format!("*ls-remote*) echo 'no route to host' >&2; exit {reach};;"));
        stand_in("cargo", format!("*fetch*) exit {fetch};; *) exit {check};;"));
        let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
        std::process::Command::new("bash").arg(&script).env("PATH", path).output().unwrap()
    };
    let skipped = shell(128, 0, 1);
    let said = String::from_utf8(skipped.stdout).unwrap();
    assert!(skipped.status.success());
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("skipped: the advisory database cannot be reached") && said.contains("no route to host"), "{said}");
    assert!(!shell(0, 1, 0).status.success(), "a failed fetch fails");
    assert!(!shell(0, 0, 1).status.success(), "an advisory fails");
    assert!(shell(0, 0, 0).status.success());
}
