//! Checks every HTTP response of the tests against the published OpenAPI documents. The operation must describe the
//! status, an error's code, every header and every field.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, OnceLock};

use jsonschema::Validator;
use serde_json::Value;

use super::node::TestResponse;

/// Method and path of an operation, and its responses by status.
struct Operation {
    method: String,
    path: String,
    answers: BTreeMap<u16, Described>,
}

/// Description of a response.
struct Described {
    /// Codes that an error with this status may have.
    codes: BTreeSet<String>,
    /// Header names in lower case, each with true if the header is always present.
    headers: BTreeMap<String, bool>,
    /// Schema of a JSON body, with the document that it refers to. It is compiled on first use.
    schema: Option<(Value, &'static Value)>,
    validator: OnceLock<Validator>,
}

/// Headers of the body and of HTTP itself.
const OF_HTTP: [&str; 5] = ["connection", "content-length", "content-type", "date", "transfer-encoding"];

static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
    let documents = [include_str!("../../openapi/client-v1.json"), include_str!("../../openapi/operator-v1.json")];
    documents.iter().flat_map(|text| operations(Box::leak(serde_json::from_str(text).unwrap()))).collect()
});

fn operations(document: &'static Value) -> Vec<Operation> {
    let mut found = vec![];
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap().iter();
            let answers = responses.map(|(status, response)| (status.parse().unwrap(), described(document, response))).collect();
            found.push(Operation { method: method.to_uppercase(), path: path.clone(), answers });
        }
    }
    found
}

fn described(document: &'static Value, response: &Value) -> Described {
    let response = resolved(document, response);
    let examples = response["content"]["application/json"]["examples"].as_object();
    let headers = response["headers"].as_object().into_iter().flatten();
    let header = |(name, header): (&String, &Value)| (name.to_lowercase(), resolved(document, header)["required"] == true);
    Described {
        codes: examples.into_iter().flat_map(|all| all.keys().cloned()).collect(),
        headers: headers.map(header).collect(),
        schema: response.pointer("/content/application~1json/schema").map(|schema| (schema.clone(), document)),
        validator: OnceLock::new(),
    }
}

impl Described {
    /// Returns the violations of a JSON body.
    fn problems(&self, body: &Value) -> Vec<String> {
        let Some((schema, document)) = &self.schema else { return vec![] };
        let validator = self.validator.get_or_init(|| {
            let mut root = schema.clone();
            root["components"] = document["components"].clone();
            jsonschema::options().should_validate_formats(true).build(&root).unwrap()
        });
        validator.iter_errors(body).map(|error| format!("{}: {error}", error.instance_path())).collect()
    }
}

fn resolved<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    let place = part["$ref"].as_str().map(|reference| document.pointer(reference.trim_start_matches('#')).unwrap());
    place.unwrap_or(part)
}

impl Operation {
    /// Returns how many segments match literally, or `None` if the path does not match this operation.
    fn likeness(&self, path: &str) -> Option<usize> {
        let (own, asked): (Vec<_>, Vec<_>) = (self.path.split('/').collect(), path.split('/').collect());
        let is_variable = |segment: &str| segment.starts_with('{');
        // The last parameter may stand for the rest of a path.
        let is_rest = own.len() < asked.len() && own.last() == Some(&"{place}");
        let fits =
            (own.len() == asked.len() || is_rest) && own.iter().zip(&asked).all(|(own, asked)| is_variable(own) || own == asked);
        fits.then(|| own.iter().filter(|segment| !is_variable(segment)).count())
    }
}

/// # Panics
/// If the operation's document does not describe the response.
#[track_caller]
pub fn check(method: &str, path: &str, answer: &TestResponse) {
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    let likeness = |operation: &&Operation| operation.likeness(path);
    // Find the path first: a missing method is not a response of any operation.
    let Some(likest) = OPERATIONS.iter().max_by_key(likeness).filter(|likest| likest.likeness(path).is_some()) else { return };
    let mut of_path = OPERATIONS.iter().filter(|operation| operation.path == likest.path);
    let Some(operation) = of_path.find(|operation| operation.method == method) else { return };
    let status = answer.status;
    // Refusals of the HTTP layer are not responses of an operation either.
    let is_of_http =
        ["E_MALFORMED_REQUEST", "E_URI_TOO_LONG", "E_HEADERS_TOO_LARGE"].iter().any(|code| answer.text.contains(code));
    if is_of_http {
        return;
    }
    let said = format!("{method} {} answers {status}", operation.path);
    let described =
        operation.answers.get(&status).unwrap_or_else(|| panic!("{said}, which is missing from its OpenAPI document"));
    if status >= 400 {
        let body: Value = serde_json::from_str(&answer.text).unwrap_or_default();
        // The error body of a rate limit is flat.
        let code = body.pointer("/error/code").or(body.get("error")).and_then(Value::as_str).unwrap_or_default();
        assert!(described.codes.contains(code), "{said} {code}, which is missing from its OpenAPI document");
    }
    for name in answer.headers.keys().map(|name| name.as_str()).filter(|name| !OF_HTTP.contains(name)) {
        assert!(described.headers.contains_key(name), "{said} with {name}, which is missing from its OpenAPI document");
    }
    let missing =
        described.headers.iter().find(|(name, is_required)| **is_required && !answer.headers.contains_key(name.as_str()));
    assert!(missing.is_none(), "{said} without {missing:?}, which its OpenAPI document requires");
    let is_json = answer.headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if is_json && !answer.text.is_empty() {
        let body: Value = serde_json::from_str(&answer.text).unwrap_or_else(|error| panic!("{said}: {error}"));
        let problems = described.problems(&body);
        assert!(problems.is_empty(), "{said} with a body that contradicts its OpenAPI document: {problems:#?}\n{body:#}");
    }
}
