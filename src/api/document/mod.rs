//! Finishing the OpenAPI document that poem-openapi generates: what it cannot say is said here.

mod examples;
mod operations;
mod refusals;
mod rules;
mod schemas;
mod webhooks;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

pub use webhooks::describe_webhooks;

/// The document as it is published, in OpenAPI 3.1, whose schemas are JSON Schema.
///
/// - Every object in a request body gets `additionalProperties: false`, which is what is enforced.
/// - What is optional in a request may be null; in an answer it is there, and may be null.
/// - The API key and its secret are needed together, not one or the other.
/// - Every operation has the error answers that it can give and no other.
/// - Every error answer names its codes, every answer its headers, and every body has an example.
///
/// Finishing a finished document changes nothing.
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

/// The published text: keys sorted, indented, with a newline at the end, so that a change in it is
/// a change in the interface.
pub fn text(document: &Value) -> String {
    format!("{document:#}\n")
}

/// OpenAPI has no parameter of several segments: the rest of a path, `*place`, becomes `{place}`, and
/// its description says so.
fn name_rests(paths: &mut Value) {
    let Some(items) = paths.as_object_mut() else { return };
    let rests: Vec<String> = items.keys().filter(|path| path.contains("/*")).cloned().collect();
    for path in rests {
        let Some((before, name)) = path.split_once("/*") else { continue };
        let mut item = items.remove(&path).unwrap_or_default();
        let description =
            "A tile's index and width, slashes and all, as C2SP `tlog-tiles` has them; of hashes with the level before it.";
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

/// Path, method and operation, in the order of the paths.
fn each_operation(paths: &mut Value) -> impl Iterator<Item = (&String, &String, &mut Value)> {
    let paths = paths.as_object_mut().into_iter().flatten();
    paths.flat_map(|(path, item)| {
        let operations = item.as_object_mut().into_iter().flatten();
        operations.map(move |(method, operation)| (path, method, operation))
    })
}

/// The media types of a request body, or of an answer.
fn contents(body: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    let content = body.and_then(|body| body.get_mut("content")).and_then(Value::as_object_mut);
    content.into_iter().flatten().map(|(_, media_type)| media_type)
}

/// The name of a schema that is referred to.
fn schema_name(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/components/schemas/")
}

/// A field may be called `properties` or `type`; a schema has both, and `type` is text.
fn is_object_schema(parts: &Map<String, Value>) -> bool {
    parts.contains_key("properties") && parts.get("type").is_some_and(|kind| is_of_type(kind, "object"))
}

/// Whether `type`, one name or a list of them, has this name.
fn is_of_type(kind: &Value, name: &str) -> bool {
    kind == name || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == name))
}
