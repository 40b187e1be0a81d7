//! Holds every answer that the tests get over HTTP to the published documents: an error's status and
//! code have to stand at the operation that gave it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::Value;

/// An operation's method and path, and the codes that each of its statuses stands for.
struct Operation {
    method: String,
    path: String,
    errors: BTreeMap<u16, BTreeSet<String>>,
}

static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
    let documents = [include_str!("../../openapi/client-v1.json"), include_str!("../../openapi/operator-v1.json")];
    documents.iter().flat_map(|text| operations(&serde_json::from_str(text).unwrap())).collect()
});

fn operations(document: &Value) -> Vec<Operation> {
    let mut found = vec![];
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap().iter();
            let errors = responses.filter_map(|(status, response)| {
                let pointer = response["$ref"].as_str()?.strip_prefix('#')?;
                let examples = document.pointer(pointer)?["content"]["application/json"]["examples"].as_object()?;
                Some((status.parse().ok()?, examples.keys().cloned().collect()))
            });
            found.push(Operation { method: method.to_uppercase(), path: path.clone(), errors: errors.collect() });
        }
    }
    found
}

impl Operation {
    /// How many of its segments are the path's own, if it is this operation's path.
    fn likeness(&self, path: &str) -> Option<usize> {
        let (own, asked): (Vec<_>, Vec<_>) = (self.path.split('/').collect(), path.split('/').collect());
        let is_variable = |segment: &str| segment.starts_with('{');
        // The last may be the rest of a path.
        let is_rest = own.len() < asked.len() && own.last() == Some(&"{place}");
        let fits =
            (own.len() == asked.len() || is_rest) && own.iter().zip(&asked).all(|(own, asked)| is_variable(own) || own == asked);
        fits.then(|| own.iter().filter(|segment| !is_variable(segment)).count())
    }
}

/// # Panics
/// If the operation's document does not have the error.
#[track_caller]
pub fn check(method: &str, path: &str, status: u16, text: &str) {
    let path = path.split('?').next().unwrap_or_default();
    let likeness = |operation: &&Operation| operation.likeness(path);
    // The path first: that it does not have the method is no answer of an operation.
    let Some(likest) = OPERATIONS.iter().max_by_key(likeness).filter(|likest| likest.likeness(path).is_some()) else { return };
    let mut of_path = OPERATIONS.iter().filter(|operation| operation.path == likest.path);
    let Some(operation) = of_path.find(|operation| operation.method == method).filter(|_| status >= 400) else { return };
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    // The limit's body is flat.
    let code = body.pointer("/error/code").or(body.get("error")).and_then(Value::as_str).unwrap_or_default();
    let is_documented = operation.errors.get(&status).is_some_and(|codes| codes.contains(code));
    assert!(is_documented, "{method} {} answers {status} {code}, which its document does not have", operation.path);
}
