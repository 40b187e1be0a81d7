//! Schemas of the document: closed for requests, nullable where a value can be absent, and in the vocabulary of JSON
//! Schema. OpenAPI 3.1 uses that vocabulary; poem-openapi writes OpenAPI 3.0.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{is_object_schema, is_of_type, rules, schema_name};
use crate::api::error::ERROR_DETAIL;

/// Fields whose text may have several lines, or is compared unchanged. All other text from people is a single line
/// without control characters.
const OF_LINES: [&str; 9] =
    ["current_password", "description", "email", "new_password", "note", "password", "reason", "refresh_token", "terms"];
/// Text without NUL. Postgres cannot store NUL, so every field refuses it.
const NO_NUL: &str = r"^[^\u0000]*$";
/// An amount above 0.00 that a wallet can hold.
pub const AMOUNT: &str = r"^0*([1-9][0-9]{0,15}(\.[0-9]{1,2})?|0\.(0[1-9]|[1-9][0-9]?))$";
/// An amount of 0.00 or more that a wallet can hold.
pub const MONEY: &str = r"^[0-9]{1,16}(\.[0-9]{1,2})?$";
const MAX_AMOUNT: i64 = 9_999_999_999_999_999;
/// A percentage from 0.00 to 99.99.
const PERCENT: &str = r"^0*[0-9]{1,2}(\.[0-9]{1,2})?$";
const ONE_LINE: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";

/// Closes the objects within a schema, and collects the names of all schemas that it refers to, directly or indirectly.
pub fn close(schema: &mut Value, schemas: &Value, inputs: &mut BTreeSet<String>) {
    close_here(schema);
    collect(schema, schemas, inputs);
}

fn collect(schema: &Value, schemas: &Value, inputs: &mut BTreeSet<String>) {
    if let Some(name) = schema_name(schema)
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

/// Finishes a named schema. `is_input` is true if a request body can contain it.
pub fn finish(name: &str, schema: &mut Value, is_input: bool) {
    if is_input {
        close_here(schema);
    }
    upgrade(schema);
    if is_input {
        accept(schema);
    }
    rules::add(name, schema);
    // The error's `messages` is the only field that is omitted rather than null.
    if name != ERROR_DETAIL {
        allow_null(schema, !is_input);
    }
}

/// Finishes the schema of a parameter, and excludes text that cannot be stored.
pub fn finish_parameter(schema: &mut Value) {
    upgrade(schema);
    let is_string = schema.get("type").is_some_and(|kind| kind == "string");
    if let Some(parts) = schema.as_object_mut().filter(|parts| is_string && is_free_text(parts)) {
        parts.insert("pattern".to_owned(), json!(NO_NUL));
    }
    bound(schema);
}

/// Closes objects that have fields. An object without fields is free-form JSON and stays open.
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

/// Returns the direct subschemas of a schema.
fn parts_of(schema: &mut Value) -> Vec<&mut Value> {
    let mut found = Vec::new();
    for (key, part) in schema.as_object_mut().into_iter().flatten() {
        match key.as_str() {
            "properties" => found.extend(part.as_object_mut().into_iter().flatten().map(|(_, property)| property)),
            "items" | "additionalProperties" if part.is_object() => found.push(part),
            "allOf" | "anyOf" | "oneOf" => found.extend(part.as_array_mut().into_iter().flatten()),
            _ => {}
        }
    }
    found
}

/// Converts a schema from the dialect of OpenAPI 3.0 to JSON Schema.
pub fn upgrade(schema: &mut Value) {
    parts_of(schema).into_iter().for_each(upgrade);
    let Some(parts) = schema.as_object_mut() else { return };
    if let Some(example) = parts.remove("example") {
        parts.insert("examples".to_owned(), json!([example]));
    }
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if parts.get(exclusive).is_some_and(Value::is_boolean) {
            let is_exclusive = parts.remove(exclusive) == Some(json!(true));
            if let Some(bound) = parts.remove(bound).filter(|_| is_exclusive) {
                parts.insert(exclusive.to_owned(), bound);
            }
        }
    }
    // poem-openapi writes bounds as floating-point numbers. Whole numbers become integers.
    for bound in ["minimum", "maximum"] {
        if let Some(whole) =
            parts.get(bound).and_then(Value::as_f64).filter(|number| number.fract() == 0.0 && number.abs() < 1e15)
        {
            parts.insert(bound.to_owned(), json!(whole as i64));
        }
    }
    // OpenAPI 3.0 needs `allOf` for a reference with a description. OpenAPI 3.1 does not.
    if let Some([reference, described]) = parts.get("allOf").and_then(Value::as_array).map(Vec::as_slice)
        && reference.get("$ref").is_some()
        && described.as_object().is_some_and(|described| described.keys().eq(["description"]))
    {
        let reference = reference["$ref"].clone();
        parts.remove("allOf");
        parts.insert("$ref".to_owned(), reference);
    }
}

/// Adds the constraints that the readers of request bodies enforce beyond the type.
fn accept(schema: &mut Value) {
    for (name, property) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        accept_value(name, property);
    }
    parts_of(schema).into_iter().for_each(accept);
}

fn accept_value(name: &str, schema: &mut Value) {
    bound(schema);
    let Some(parts) = schema.as_object_mut() else { return };
    let has = |parts: &Map<String, Value>, key: &str, value: &str| parts.get(key).is_some_and(|found| found == value);
    let is_money = has(parts, "type", "string") && has(parts, "format", "decimal");
    if is_money {
        // Money is a string or a number, with at most two decimals in both cases.
        parts.insert("type".to_owned(), json!(["string", "number"]));
        let (pattern, example) = if name == "discount" { (PERCENT, "2.50") } else { (AMOUNT, "100.00") };
        parts.insert("pattern".to_owned(), json!(pattern));
        parts.insert("examples".to_owned(), json!([example]));
    }
    if is_money || has(parts, "type", "number") && has(parts, "format", "decimal") {
        let (least, most) = if name == "discount" { (json!(0), json!(99.99)) } else { (json!(0.01), json!(MAX_AMOUNT)) };
        parts.insert("multipleOf".to_owned(), json!(0.01));
        parts.insert("minimum".to_owned(), least);
        parts.insert("maximum".to_owned(), most);
    } else if has(parts, "type", "string") && ["url", "claim_url"].contains(&name) {
        parts.insert("format".to_owned(), json!("uri"));
        parts.insert("pattern".to_owned(), json!("^https://"));
    } else if has(parts, "type", "string") && is_free_text(parts) {
        let pattern = if OF_LINES.contains(&name) { NO_NUL } else { ONE_LINE };
        parts.insert("pattern".to_owned(), json!(pattern));
    } else if has(parts, "type", "array")
        && let Some(items) = parts.get_mut("items")
    {
        accept_value(name, items);
    }
}

fn is_free_text(parts: &Map<String, Value>) -> bool {
    !["pattern", "format", "enum"].iter().any(|key| parts.contains_key(*key))
}

/// Adds the bounds that an integer's format implies, unless the schema has its own.
fn bound(schema: &mut Value) {
    let bounds = match schema.get("format").and_then(Value::as_str) {
        Some("int64") => (i64::MIN, i64::MAX),
        Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => return,
    };
    if let Some(parts) = schema.as_object_mut() {
        parts.entry("minimum").or_insert(json!(bounds.0));
        parts.entry("maximum").or_insert(json!(bounds.1));
    }
}

/// Makes optional fields nullable. poem-openapi omits an `Option` from `required` but does not allow null.
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
        or_null(property);
        if is_output {
            required.push(json!(name));
        }
    }
    if required != json!([]) {
        parts.insert("required".to_owned(), required);
    }
}

fn or_null(schema: &mut Value) {
    let Some(parts) = schema.as_object_mut() else { return };
    if let Some(reference) = parts.remove("$ref") {
        parts.insert("anyOf".to_owned(), json!([{"$ref": reference}, {"type": "null"}]));
        return;
    }
    match parts.get_mut("type") {
        Some(kind) if is_of_type(kind, "null") => {}
        Some(Value::Array(kinds)) => kinds.push(json!("null")),
        Some(kind) => *kind = json!([kind.take(), "null"]),
        None => {}
    }
}
