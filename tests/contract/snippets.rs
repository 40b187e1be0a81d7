//! The code snippets in the guides work, in every language that is installed.

use std::path::Path;
use std::process::Command;

use super::vectors::{self, REQUESTS, WEBHOOKS};
use crate::support::repository;

/// The guides' Rust snippets, compiled.
#[path = "snippets/signing.rs"]
pub mod signing;
#[path = "snippets/webhooks.rs"]
mod webhooks;

const GUIDES: [(&str, &str); 2] =
    [("signing", include_str!("../../docs/signing.md")), ("webhooks", include_str!("../../docs/webhooks.md"))];

/// Returns the code blocks of a language in a guide.
pub fn blocks<'a>(guide: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("\n```{language}\n");
    guide.split(&fence).skip(1).map(|block| block.split_once("```").unwrap().0).collect()
}

/// Returns the only code block of a language in a guide.
fn block<'a>(guide: &'a str, language: &str) -> &'a str {
    let blocks = blocks(guide, language);
    assert_eq!(blocks.len(), 1, "blocks of {language}");
    blocks[0]
}

fn file(name: &str) -> String {
    std::fs::read_to_string(repository("tests/contract").join(name)).unwrap()
}

/// Copies the guides' snippets of a language into a directory with its driver, and runs them over the vectors.
/// Returns true if the language is installed.
fn run(program: &str, version: &str, language: &str, extension: &str, arguments: &[&str], arrange: impl Fn(&Path)) -> bool {
    if Command::new(program).arg(version).output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "{program} is needed");
        eprintln!("SKIPPED: the {language} of the guides was not run, for there is no {program} here");
        return false;
    }
    let directory = tempfile::tempdir().unwrap();
    for (guide, text) in GUIDES {
        std::fs::write(directory.path().join(format!("{guide}.{extension}")), block(text, language)).unwrap();
    }
    std::fs::write(directory.path().join(format!("run.{extension}")), file(&format!("drivers/run.{extension}"))).unwrap();
    arrange(directory.path());
    let mut command = Command::new(program);
    command.current_dir(directory.path()).args(arguments).args([REQUESTS, WEBHOOKS].map(repository));
    let done = command.env("HOME", directory.path()).env("GOFLAGS", "-mod=mod").output().unwrap();
    assert!(done.status.success(), "{language}: {}", String::from_utf8_lossy(&done.stderr));
    let count: usize = String::from_utf8(done.stdout).unwrap().trim().parse().unwrap();
    let (requests, deliveries) = (vectors::requests(), vectors::deliveries());
    assert_eq!(count, 2 * requests.sign.len() + deliveries.sign.len() + deliveries.verify.len(), "{language} saw every vector");
    true
}

#[test]
fn python_does() {
    run("python3", "--version", "python", "py", &["run.py"], |_| ());
}

#[test]
fn javascript_does() {
    run("node", "--version", "javascript", "mjs", &["run.mjs"], |_| ());
}

#[test]
fn go_does() {
    run("go", "version", "go", "go", &["run", "run.go"], |directory| {
        let client = directory.join("client");
        std::fs::create_dir(&client).unwrap();
        for (guide, _) in GUIDES {
            std::fs::rename(directory.join(format!("{guide}.go")), client.join(format!("{guide}.go"))).unwrap();
        }
        std::fs::write(directory.join("go.mod"), "module guides\n\ngo 1.19\n").unwrap();
    });
}

#[test]
fn rust_does() {
    for (guide, text) in GUIDES {
        assert_eq!(block(text, "rust"), file(&format!("snippets/{guide}.rs")), "the compiled code is the code in the guide");
    }
    for vector in vectors::requests().sign {
        let (method, path, query, body) = (&vector.method, &vector.path, &vector.query, &vector.body_base64.0);
        assert_eq!(signing::canonical_string(method, path, query, body, vector.timestamp), vector.canonical, "{}", vector.name);
        let header = signing::x_signature(&vector.secret, method, path, query, body, vector.timestamp);
        assert_eq!(header, vector.header, "{}", vector.name);
    }
    let vectors = vectors::deliveries();
    for vector in vectors.sign {
        let now = vector.timestamp.parse().unwrap();
        assert!(webhooks::is_genuine(&vector.token, &vector.timestamp, &vector.body_base64.0, &vector.signature, now));
    }
    for vector in vectors.verify {
        let genuine =
            webhooks::is_genuine(&vector.token, &vector.timestamp, &vector.body_base64.0, &vector.signature, vector.now);
        assert_eq!(genuine, vector.genuine, "{}", vector.name);
    }
}
