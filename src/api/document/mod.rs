//! Completion of the OpenAPI document that poem-openapi generates. It adds everything that poem-openapi cannot express.

mod examples;
mod operations;
mod refusals;
mod rules;
mod schemas;
mod webhooks;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

pub use webhooks::{describe_webhooks, webhook_examples};

/// Turns a generated document into the published one: OpenAPI 3.1, whose schemas are JSON Schema.
///
/// - Every object in a request body gets `additionalProperties: false`, which is what the readers enforce.
/// - An optional field may be null in a request. In a response it is always present, and may be null.
/// - The API key and its secret are required together, not as alternatives.
/// - Every operation lists exactly the error responses that it can return.
/// - Every error response names its codes, every response its headers, and every body has an example.
///
/// Idempotent: finishing a finished document changes nothing.
pub fn finish(mut document: Value) -> Value {
    let mut schemas = take(&mut document, "/components/schemas");
    let mut paths = take(&mut document, "/paths");
    name_rests(&mut paths);
    let mut inputs = BTreeSet::new();
    for (_, _, operation) in each_operation(&mut paths) {
        for media_type in contents(operation.get_mut("requestBody")) {
            if let Some(schema) = media_type.get_mut("schema") {
                schemas::close(schema, &schemas, &mut inputs);
            }
        }
    }
    for (name, schema) in schemas.as_object_mut().into_iter().flatten() {
        schemas::finish(name, schema, inputs.contains(name));
    }
    let mut shared = operations::Shared::default();
    for (path, method, operation) in each_operation(&mut paths) {
        operations::finish(path, method, operation, &mut shared);
    }
    document["openapi"] = json!("3.1.0");
    if !schemas.is_null() {
        document["components"]["schemas"] = schemas;
    }
    shared.add_to(&mut document["components"]);
    for (_, _, operation) in each_operation(&mut paths) {
        examples::add(operation, &document["components"]);
    }
    document["paths"] = paths;
    document
}

/// Formats the published text: sorted keys, indentation and a final newline, so that every difference in the text is a
/// difference in the interface.
pub fn text(document: &Value) -> String {
    format!("{document:#}\n")
}

/// Replaces `*place`, which stands for the rest of a path, by `{place}` with an explanation. OpenAPI has no parameter
/// that spans several segments.
fn name_rests(paths: &mut Value) {
    let Some(items) = paths.as_object_mut() else { return };
    let rests: Vec<String> = items.keys().filter(|path| path.contains("/*")).cloned().collect();
    for path in rests {
        let Some((before, name)) = path.split_once("/*") else { continue };
        let mut item = items.remove(&path).unwrap_or_default();
        let description =
            "Index and width of the tile, slashes included, as defined in C2SP `tlog-tiles`. A hash tile begins with the level.";
        let parameter =
            json!({"name": name, "in": "path", "required": true, "description": description, "schema": {"type": "string"}});
        for operation in item.as_object_mut().into_iter().flatten().map(|(_, operation)| operation) {
            if let Some(parameters) =
                operation.as_object_mut().map(|operation| operation.entry("parameters").or_insert(json!([])))
            {
                parameters.as_array_mut().into_iter().for_each(|parameters| parameters.push(parameter.clone()));
            }
        }
        items.insert(format!("{before}/{{{name}}}"), item);
    }
}

fn take(document: &mut Value, place: &str) -> Value {
    document.pointer_mut(place).map(Value::take).unwrap_or_default()
}

/// Iterates over path, method and operation, in the order of the paths.
fn each_operation(paths: &mut Value) -> impl Iterator<Item = (&String, &String, &mut Value)> {
    let paths = paths.as_object_mut().into_iter().flatten();
    paths.flat_map(|(path, item)| {
        let operations = item.as_object_mut().into_iter().flatten();
        operations.map(move |(method, operation)| (path, method, operation))
    })
}

/// Iterates over the media types of a request body or a response.
fn contents(body: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    let content = body.and_then(|body| body.get_mut("content")).and_then(Value::as_object_mut);
    content.into_iter().flatten().map(|(_, media_type)| media_type)
}

/// Returns the name of the schema that a reference points to.
fn schema_name(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/components/schemas/")
}

/// Returns whether this is the schema of an object. A field may be named `properties` or `type`, but only a schema has
/// both, with `type` as text.
fn is_object_schema(parts: &Map<String, Value>) -> bool {
    parts.contains_key("properties") && parts.get("type").is_some_and(|kind| is_of_type(kind, "object"))
}

/// Returns whether `type`, which is one name or a list of names, includes this name.
fn is_of_type(kind: &Value, name: &str) -> bool {
    kind == name || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == name))
}
