//! Examples of every body, composed of examples of its fields. A test validates each example against its schema.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{contents, is_of_type, schema_name};

/// Example values by field name, or by `Schema.field` if a name has several meanings.
static FIELDS: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(include_str!("examples.json")).unwrap_or_default());

/// Adds examples to the request body, the successful responses, and the path parameters.
pub fn add(operation: &mut Value, components: &Value) {
    let schemas = &components["schemas"];
    for media_type in contents(operation.get_mut("requestBody")) {
        add_to(media_type, schemas);
    }
    for (_, response) in operation.get_mut("responses").and_then(Value::as_object_mut).into_iter().flatten() {
        for media_type in contents(Some(response)) {
            add_to(media_type, schemas);
        }
    }
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        if parameter["in"] == "path"
            && let Some(value) = parameter["name"].as_str().and_then(|name| FIELDS.get(name))
        {
            parameter["example"] = value.clone();
        }
    }
}

fn add_to(media_type: &mut Value, schemas: &Value) {
    if media_type.get("examples").is_none()
        && let Some(example) = of_schema("", &media_type["schema"], schemas)
    {
        media_type["example"] = example;
    }
}

/// Builds an example of a schema. `name` is the schema's name, or empty.
fn of_schema(name: &str, schema: &Value, schemas: &Value) -> Option<Value> {
    if let Some(name) = schema_name(schema) {
        return of_schema(name, &schemas[name], schemas);
    }
    if let Some(value) = schema.get("enum").and_then(|values| values.get(0)) {
        return Some(value.clone());
    }
    if let Some(value) = schema.get("examples").and_then(|values| values.get(0)) {
        return Some(value.clone());
    }
    // Next to `properties`, these keywords are rules about fields, not alternatives.
    if schema.get("properties").is_none()
        && let Some(options) = ["anyOf", "oneOf", "allOf"].iter().find_map(|key| schema.get(*key))
    {
        return of_schema(name, options.get(0)?, schemas);
    }
    let kind = schema.get("type")?;
    let is = |expected| is_of_type(kind, expected);
    Some(match () {
        () if is("object") => {
            let mut object = json!({});
            for (field, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                object[field] = of_field(name, field, property, schemas);
            }
            object
        }
        () if is("array") => json!([of_schema("", schema.get("items")?, schemas)?]),
        () if is("boolean") => json!(true),
        () if is("integer") || is("number") => json!(schema["minimum"].as_i64().unwrap_or(1).max(1)),
        () if is("string") => json!(match schema["format"].as_str() {
            Some("date-time") => "2026-01-31T12:00:00.000Z",
            Some("date") => "2026-01-31",
            Some("uri") => "https://example.com/",
            Some("uuid") => "019c13e2-6f00-7abc-8def-0123456789ab",
            Some("binary") => return None,
            _ => "text",
        }),
        () => Value::Null,
    })
}

fn of_field(schema: &str, field: &str, property: &Value, schemas: &Value) -> Value {
    let own = FIELDS.get(format!("{schema}.{field}"));
    // A field name says nothing about a value with a schema of its own.
    let refers = |schema: &Value| schema.get("$ref").is_some();
    let has_own_schema = refers(property)
        || property.get("items").is_some_and(refers)
        || property.get("anyOf").and_then(|options| options.get(0)).is_some_and(refers);
    let fits = |value: &&Value| property.get("type").is_none_or(|kind| is_of_type(kind, kind_of(value)));
    let named = own.or_else(|| FIELDS.get(field).filter(|_| !has_own_schema).filter(fits));
    named.cloned().or_else(|| of_schema("", property, schemas)).unwrap_or_default()
}

/// Returns the name of a value's type in a schema.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
