//! The published contract: examples, envelopes, signatures, guides, pages, and the wording of errors.

mod advisories;
mod browser;
mod differential;
mod documents;
mod examples;
mod fuzz;
mod guides;
mod snippets;
mod strict;
mod vectors;
mod walkthroughs;
mod words;

use serde_json::Value;

/// Returns the published OpenAPI documents.
fn documents() -> Vec<(&'static str, Value)> {
    let parsed = |(path, text): (_, String)| (path, serde_json::from_str(&text).unwrap());
    rewards_ledger::api::documents().into_iter().map(parsed).collect()
}

/// Returns the violations of a value against a schema of the document.
fn problems(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut root = schema.clone();
    root["components"] = document["components"].clone();
    let validator = jsonschema::options().should_validate_formats(true).build(&root).unwrap();
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}
