//! `openapi`: generates the published OpenAPI documents, checks the committed ones for drift, and compares them with the
//! promised baseline.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;

use crate::api::compatibility::{Breaking, breaking_changes, lost_vectors};
use crate::api::{VECTORS, documents};

/// Document under the stability contract.
const CLIENT: &str = "client-v1.json";
/// Subdirectory of the documents that holds the promised baseline.
const BASELINE: &str = "baseline";
/// File of excused differences: stricter validation of input that was always refused. The specification calls such changes
/// additive.
const ALREADY_REFUSED: &str = "already-refused.txt";

#[derive(Args, Debug)]
pub struct OpenapiArgs {
    /// Write nothing; fail, with one line per reason, if a document is not current or breaks the baseline
    #[arg(long)]
    check: bool,
    /// Make the generated documents the new baseline, unless they break the old one
    #[arg(long, conflicts_with = "check")]
    freeze: bool,
    /// Directory of the documents
    #[arg(long, value_name = "DIRECTORY", default_value = "openapi")]
    directory: PathBuf,
}

/// Writes the documents, or checks them with `--check`.
pub fn run(args: &OpenapiArgs) -> anyhow::Result<ExitCode> {
    let mut problems = Vec::new();
    for (name, text) in documents() {
        // Document names are paths in the repository (openapi/…).
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
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Describes how a committed file differs from the generated text. Returns none if it is current.
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

/// Compares a promised file with its baseline (`--check`), or makes it the new baseline (`--freeze`).
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
        // There is no baseline yet.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && args.freeze => vec![],
        Err(error) => return Ok(vec![format!("{}: cannot be read: {error}", path.display())]),
    };
    if args.freeze && broken.is_empty() {
        write(&path, text)?;
    }
    Ok(broken.into_iter().map(|problem| format!("{}: {problem}", path.display())).collect())
}

/// Lists the test vectors of the baseline that are missing from `vectors` or changed.
fn lost(baseline: &str, vectors: &str) -> anyhow::Result<Vec<String>> {
    let (old, new) = (serde_json::from_str(baseline).context("the baseline is not JSON")?, serde_json::from_str(vectors)?);
    Ok(lost_vectors(&old, &new)
        .into_iter()
        .map(|vector| format!("breaking: the vector {vector} was removed or changed"))
        .collect())
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
    fn a_baseline_is_frozen_checked_and_never_broken() {
        let directory = tempfile::tempdir().unwrap();
        let at = |check, freeze| args(directory.path(), check, freeze);
        assert!(succeeds(&at(false, false)));
        assert!(!succeeds(&at(true, false)), "there is no baseline yet");
        assert!(succeeds(&at(false, true)) && succeeds(&at(true, false)));

        // The baseline has an endpoint that was removed since.
        let path = directory.path().join("baseline/client-v1.json");
        let mut baseline: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        baseline["paths"]["/api/v1/former"] = serde_json::json!({"get": {"responses": {"200": {}}}});
        std::fs::write(&path, baseline.to_string()).unwrap();
        assert!(!succeeds(&at(true, false)), "the check fails");
        assert!(!succeeds(&at(false, true)), "a broken baseline is not replaced");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), baseline.to_string());

        // The baseline lacks endpoints that were added since, which is not breaking.
        baseline["paths"].as_object_mut().unwrap().retain(|path, _| path == "/api/v1/orders");
        std::fs::write(&path, baseline.to_string()).unwrap();
        assert!(succeeds(&at(true, false)));
    }

    #[test]
    fn signature_vectors_are_frozen_too() {
        for (name, text) in VECTORS {
            let directory = tempfile::tempdir().unwrap();
            let at = |check, freeze| args(directory.path(), check, freeze);
            assert!(succeeds(&at(false, true)) && succeeds(&at(true, false)));
            let path = directory.path().join(format!("baseline/{name}.json"));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);

            // One vector of the baseline is different.
            let mut baseline: Value = serde_json::from_str(text).unwrap();
            baseline["sign"][0]["secret"] = "another".into();
            std::fs::write(&path, baseline.to_string()).unwrap();
            assert!(!succeeds(&at(true, false)), "the check fails");
            assert!(!succeeds(&at(false, true)), "a broken baseline is not replaced");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), baseline.to_string());

            baseline["sign"].as_array_mut().unwrap().remove(0);
            std::fs::write(&path, baseline.to_string()).unwrap();
            assert!(succeeds(&at(true, false)), "an added vector is not breaking");
            std::fs::remove_file(&path).unwrap();
            assert!(!succeeds(&at(true, false)), "there is no baseline");
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
