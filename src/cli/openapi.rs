//! `openapi`: the published documents are generated, committed, checked for drift, and compared
//! with what was promised.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;

use crate::api::compatibility::{Breaking, breaking_changes, lost_vectors};
use crate::api::{VECTORS, documents};

/// The document that is under the stability contract.
const CLIENT: &str = "client-v1.json";
/// Where a directory of documents keeps what was promised.
const BASELINE: &str = "baseline";
/// Lines of the comparison that are stricter validation of what was refused all the time, which
/// the specification calls additive.
const ALREADY_REFUSED: &str = "already-refused.txt";

#[derive(Args, Debug)]
pub struct OpenapiArgs {
    /// Write nothing: fail, with a line for each reason, if a file is not what the program generates or breaks the baseline
    #[arg(long)]
    check: bool,
    /// Promise what the program generates: make it the baseline, unless it breaks the old one
    #[arg(long, conflicts_with = "check")]
    freeze: bool,
    /// Where the documents are
    #[arg(long, value_name = "DIRECTORY", default_value = "openapi")]
    directory: PathBuf,
}

/// Writes the documents, or compares them.
pub fn run(args: &OpenapiArgs) -> anyhow::Result<ExitCode> {
    let mut problems = Vec::new();
    for (name, text) in documents() {
        // The documents name themselves as the repository does: openapi/….
        let name = Path::new(name).file_name().unwrap_or_default();
        let path = args.directory.join(name);
        if args.check {
            problems.extend(drift(&path, &text));
        } else {
            write(&path, &text)?;
        }
        if name == CLIENT {
            let compare = |baseline: &str, directory: &Path| {
                let broken = broken(baseline, &text, &already_refused(directory)?)?;
                Ok(broken.iter().map(|change| format!("breaking: {change}")).collect())
            };
            problems.extend(promise(args, CLIENT, &text, compare)?);
        }
    }
    for (name, vectors) in VECTORS {
        problems.extend(promise(args, &format!("{name}.json"), vectors, |baseline, _| lost(baseline, vectors))?);
    }
    for problem in &problems {
        anstream::eprintln!("{problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// What is wrong with a file that should have this text.
fn drift(path: &Path, text: &str) -> Option<String> {
    let problem = match std::fs::read_to_string(path) {
        Ok(found) if found == text => return None,
        Ok(found) => {
            let same = found.lines().zip(text.lines()).take_while(|(found, made)| found == made).count();
            format!("differs from what the program generates, from line {}", same + 1)
        }
        Err(error) => format!("cannot be read: {error}"),
    };
    Some(format!("{}: {problem}; run `rewards-ledger openapi`", path.display()))
}

/// Compares a file that was promised with its baseline (`--check`), or makes it the baseline.
fn promise(
    args: &OpenapiArgs,
    name: &str,
    text: &str,
    compare: impl Fn(&str, &Path) -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<Vec<String>> {
    let directory = args.directory.join(BASELINE);
    let path = directory.join(name);
    if !args.check && !args.freeze {
        return Ok(vec![]);
    }
    let broken = match std::fs::read_to_string(&path) {
        Ok(baseline) => compare(&baseline, &directory)?,
        // The first baseline.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && args.freeze => vec![],
        Err(error) => return Ok(vec![format!("{}: cannot be read: {error}", path.display())]),
    };
    if args.freeze && broken.is_empty() {
        write(&path, text)?;
    }
    Ok(broken.into_iter().map(|problem| format!("{}: {problem}", path.display())).collect())
}

/// What is wrong with vectors that should have all of the baseline.
fn lost(baseline: &str, vectors: &str) -> anyhow::Result<Vec<String>> {
    let (old, new) = (serde_json::from_str(baseline).context("the baseline is not JSON")?, serde_json::from_str(vectors)?);
    Ok(lost_vectors(&old, &new).into_iter().map(|vector| format!("breaking: the vector {vector} is gone or changed")).collect())
}

fn broken(baseline: &str, text: &str, already_refused: &BTreeSet<String>) -> anyhow::Result<Vec<Breaking>> {
    let document = |text: &str| serde_json::from_str::<Value>(text);
    let (old, new) = (document(baseline).context("the baseline is not JSON")?, document(text)?);
    let mut found = breaking_changes(&old, &new);
    found.retain(|change| !(change.is_stricter_input && already_refused.contains(&change.to_string())));
    Ok(found)
}

fn already_refused(directory: &Path) -> anyhow::Result<BTreeSet<String>> {
    let path = directory.join(ALREADY_REFUSED);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => bail!("{} cannot be read: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn args(directory: &Path, check: bool, freeze: bool) -> OpenapiArgs {
        OpenapiArgs { check, freeze, directory: directory.to_owned() }
    }

    fn succeeds(args: &OpenapiArgs) -> bool {
        format!("{:?}", run(args).unwrap()) == format!("{:?}", ExitCode::SUCCESS)
    }

    #[test]
    fn a_baseline_is_frozen_kept_and_defended() {
        let directory = tempfile::tempdir().unwrap();
        let at = |check, freeze| args(directory.path(), check, freeze);
        assert!(succeeds(&at(false, false)));
        assert!(!succeeds(&at(true, false)), "there is none yet");
        assert!(succeeds(&at(false, true)) && succeeds(&at(true, false)));

        // A baseline with more than there is: its endpoint was removed since.
        let path = directory.path().join("baseline/client-v1.json");
        let mut baseline: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        baseline["paths"]["/api/v1/former"] = serde_json::json!({"get": {"responses": {"200": {}}}});
        std::fs::write(&path, baseline.to_string()).unwrap();
        assert!(!succeeds(&at(true, false)), "the check fails");
        assert!(!succeeds(&at(false, true)), "nor is it frozen over");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), baseline.to_string());

        // One with less: what was added since is no break.
        baseline["paths"].as_object_mut().unwrap().retain(|path, _| path == "/api/v1/orders");
        std::fs::write(&path, baseline.to_string()).unwrap();
        assert!(succeeds(&at(true, false)));
    }

    #[test]
    fn the_vectors_of_the_signatures_are_frozen_too() {
        for (name, text) in VECTORS {
            let directory = tempfile::tempdir().unwrap();
            let at = |check, freeze| args(directory.path(), check, freeze);
            assert!(succeeds(&at(false, true)) && succeeds(&at(true, false)));
            let path = directory.path().join(format!("baseline/{name}.json"));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);

            // A baseline in which one of them was another.
            let mut baseline: Value = serde_json::from_str(text).unwrap();
            baseline["sign"][0]["secret"] = "another".into();
            std::fs::write(&path, baseline.to_string()).unwrap();
            assert!(!succeeds(&at(true, false)), "the check fails");
            assert!(!succeeds(&at(false, true)), "nor is it frozen over");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), baseline.to_string());

            baseline["sign"].as_array_mut().unwrap().remove(0);
            std::fs::write(&path, baseline.to_string()).unwrap();
            assert!(succeeds(&at(true, false)), "what was added since is no break");
            std::fs::remove_file(&path).unwrap();
            assert!(!succeeds(&at(true, false)), "there is none");
        }
    }

    #[test]
    fn only_stricter_input_can_be_excused() {
        let (_, text) = documents().swap_remove(0);
        let mut baseline: Value = serde_json::from_str(&text).unwrap();
        let field = baseline.pointer_mut("/components/schemas/PlaceOrder/properties/client_reference").unwrap();
        field.as_object_mut().unwrap().remove("maxLength");
        baseline["paths"]["/api/v1/former"] = serde_json::json!({"get": {}});
        let lines = |excused: &[String]| {
            let excused = excused.iter().cloned().collect();
            broken(&baseline.to_string(), &text, &excused).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let all = lines(&[]);
        let stricter = "POST /api/v1/orders client_reference: its maxLength is 100".to_owned();
        assert!(all.contains(&stricter), "{all:?}");
        assert_eq!(lines(&all), ["GET /api/v1/former: the endpoint is gone"]);
    }
}
