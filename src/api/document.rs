//! Finishing the OpenAPI document that poem-openapi generates: what it cannot say is said here.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::auth::RATE_LIMIT_HEADERS;
use super::error::ERROR_DETAIL;
use super::principal::{API_KEY, API_SECRET};
use crate::access::limits::Rule;

/// The document as it is published.
///
/// - Every object in a request body gets `additionalProperties: false`, which is what is enforced.
/// - What is optional in a request may be null; in an answer it is there, and may be null.
/// - The API key and its secret are needed together, not one or the other.
/// - What a rate limit governs says how its caller stands with it.
/// - Where nobody has to say who they are, it says so.
/// - A read has no 402, 409 or 422, and what takes no body no 413 or 415.
pub fn finish(mut document: Value) -> Value {
    let mut inputs = BTreeSet::new();
    let schemas = document.pointer_mut("/components/schemas");
    let mut schemas = schemas.map(Value::take).unwrap_or_default();
    if let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) {
        let items = paths.iter_mut().flat_map(|(path, item)| {
            let operations = item.as_object_mut().into_iter().flatten();
            operations.map(move |(method, operation)| (path, method, operation))
        });
        for (path, method, operation) in items {
            finish_operation(method, operation);
            add_rate_limit(path, method, operation);
            let content = operation.get_mut("requestBody").and_then(|body| body.get_mut("content"));
            let types = content.and_then(Value::as_object_mut).into_iter().flatten();
            for schema in types.filter_map(|(_, media_type)| media_type.get_mut("schema")) {
                close(schema, &schemas, &mut inputs);
            }
        }
    }
    for (name, schema) in schemas.as_object_mut().into_iter().flatten() {
        if inputs.contains(name) {
            close_here(schema);
        }
        // The error's `messages` is the one thing that is left out rather than null.
        if name != ERROR_DETAIL {
            allow_null(schema, !inputs.contains(name));
        }
    }
    if let Some(place) = document.pointer_mut("/components/schemas") {
        *place = schemas;
    }
    document
}

/// The published text: keys sorted, indented, with a newline at the end, so that a change in it is
/// a change in the interface.
pub fn text(document: &Value) -> String {
    format!("{document:#}\n")
}

fn finish_operation(method: &str, operation: &mut Value) {
    match operation.get_mut("security").and_then(Value::as_array_mut) {
        Some(security) => require_together(security),
        None => operation["security"] = json!([]),
    }
    let has_body = operation.get("requestBody").is_some();
    if let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) {
        let absent: &[&str] = match (has_body, method) {
            (true, _) => &[],
            (false, "get") => &["402", "409", "413", "415", "422"],
            (false, _) => &["413", "415"],
        };
        for status in absent {
            responses.remove(*status);
        }
    }
}

/// Every answer of a governed operation carries the three headers, and every 429.
fn add_rate_limit(path: &str, method: &str, operation: &mut Value) {
    let is_governed = Rule::of(&method.to_uppercase(), path).is_some();
    let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
    for (status, response) in responses.into_iter().flatten() {
        if is_governed || status == "429" {
            for (name, description) in RATE_LIMIT_HEADERS {
                response["headers"][name] = json!({"description": description, "schema": {"type": "integer", "format": "int64"}});
            }
        }
    }
}

/// Entries of `security` are alternatives, names within an entry belong together.
fn require_together(security: &mut Vec<Value>) {
    if security.iter().any(|entry| entry.get(API_KEY).is_some()) {
        security.retain(|entry| entry.get(API_SECRET).is_none() || entry.get(API_KEY).is_some());
        for entry in security.iter_mut().filter(|entry| entry.get(API_KEY).is_some()) {
            entry[API_SECRET] = json!([]);
        }
    }
}

/// Closes the objects within a schema, and collects the names of the schemas it refers to, theirs
/// included.
fn close(schema: &mut Value, schemas: &Value, inputs: &mut BTreeSet<String>) {
    close_here(schema);
    collect(schema, schemas, inputs);
}

fn collect(schema: &Value, schemas: &Value, inputs: &mut BTreeSet<String>) {
    let reference = schema.get("$ref").and_then(Value::as_str);
    let name = reference.and_then(|path| path.strip_prefix("#/components/schemas/"));
    if let Some(name) = name
        && inputs.insert(name.to_owned())
    {
        collect(&schemas[name], schemas, inputs);
    }
    match schema {
        Value::Object(parts) => parts.values().for_each(|part| collect(part, schemas, inputs)),
        Value::Array(parts) => parts.iter().for_each(|part| collect(part, schemas, inputs)),
        _ => {}
    }
}

/// An object with fields takes no others. One without fields is free JSON and stays open.
fn close_here(schema: &mut Value) {
    match schema {
        Value::Object(parts) => {
            parts.values_mut().for_each(close_here);
            if is_object_schema(parts) {
                parts.entry("additionalProperties").or_insert(json!(false));
            }
        }
        Value::Array(parts) => parts.iter_mut().for_each(close_here),
        _ => {}
    }
}

/// A field may be called `properties` or `type`; a schema has both, and `type` is a string.
fn is_object_schema(parts: &Map<String, Value>) -> bool {
    parts.get("type").is_some_and(|kind| kind == "object") && parts.contains_key("properties")
}

/// poem-openapi leaves an `Option` out of `required` and says nothing of null.
fn allow_null(schema: &mut Value, is_output: bool) {
    let Some(parts) = schema.as_object_mut().filter(|parts| is_object_schema(parts)) else {
        return;
    };
    let mut required = parts.remove("required").unwrap_or(json!([]));
    let properties = parts.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        allow_null(property, is_output);
        let Some(required) = required.as_array_mut() else {
            continue;
        };
        if required.iter().any(|known| known == name) {
            continue;
        }
        // Beside a `$ref`, OpenAPI 3.0 reads nothing else.
        if property.get("$ref").is_some() {
            *property = json!({"allOf": [property.take()]});
        }
        property["nullable"] = json!(true);
        if is_output {
            required.push(json!(name));
        }
    }
    if required != json!([]) {
        parts.insert("required".to_owned(), required);
    }
}
