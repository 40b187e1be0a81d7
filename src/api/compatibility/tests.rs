//! Breaking changes are reported and additive ones are not, for each sentence of the specification's "Versioning".

use serde_json::{Value, json};

use super::{Breaking, breaking_changes, lost_vectors};

/// An OpenAPI document that contains every construct under test.
fn document() -> Value {
    let error = json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}});
    json!({
        "openapi": "3.1.0",
        "paths": {
            "/api/v1/orders": {
                "get": {
                    "security": [{"Key": [], "Secret": []}, {"Token": []}],
                    "parameters": [
                        {"name": "page", "in": "query", "required": false, "schema": {"type": "integer", "minimum": 1}},
                        {"$ref": "#/components/parameters/X-Signature"}
                    ],
                    "responses": {
                        "200": {
                            "headers": {"X-Page": {"schema": {"type": "integer"}}},
                            "content": {"application/json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/Order"}}}}
                        },
                        "400": error
                    }
                },
                "post": {
                    "requestBody": {
                        "required": true,
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/PlaceOrder"}}}
                    },
                    "responses": {"201": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}}}}
                }
            },
            "/api/v1/orders/{id}/cancel": {
                "post": {
                    "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}}],
                    "requestBody": {
                        "required": false,
                        "content": {"application/json": {"schema": {"type": "object", "properties": {}}}}
                    },
                    "responses": {"200": {}}
                }
            }
        },
        "webhooks": {"order.created": {"post": {
            "parameters": [{"name": "X-Event-ID", "in": "header", "required": true, "schema": {"type": "string"}}],
            "requestBody": {"content": {"application/json": {"schema": {
                "type": "object", "required": ["event_id"], "properties": {"event_id": {"type": "string"}}
            }}}}
        }}},
        "components": {
            "parameters": {"X-Signature": {"name": "X-Signature", "in": "header", "required": false, "schema": {"type": "string"}}},
            "securitySchemes": {"Key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
            "schemas": {
                "PlaceOrder": {
                    "type": "object", "additionalProperties": false, "required": ["product_id"],
                    "properties": {
                        "product_id": {"type": "integer", "format": "int64", "minimum": 1},
                        "client_reference": {"type": ["string", "null"], "maxLength": 100},
                        "metadata": {"type": ["object", "null"]}
                    }
                },
                "Order": {
                    "type": "object", "required": ["id", "amount", "status", "reason", "parent"],
                    "properties": {
                        "id": {"type": "integer", "format": "int64"},
                        "amount": {"type": "string", "pattern": r"^\d+\.\d{2}$"},
                        "status": {"$ref": "#/components/schemas/Status"},
                        "reason": {"type": ["string", "null"]},
                        "parent": {"anyOf": [{"$ref": "#/components/schemas/Order"}, {"type": "null"}]},
                        "note": {"type": "string"}
                    }
                },
                "Status": {"type": "string", "enum": ["PENDING", "DELIVERED"]},
                "Error": {"type": "object", "required": ["code"], "properties": {
                    "code": {"type": "string", "enum": ["E_VALIDATION_FAILURE", "E_MALFORMED_JSON"]},
                    "message": {"type": "string"}
                }}
            }
        }
    })
}

/// Returns the changes after the value at a place is replaced; null removes the value.
fn after(place: &str, value: Value) -> Vec<Breaking> {
    let mut new = document();
    let (parent, name) = place.rsplit_once('/').unwrap();
    let name = name.replace("~1", "/");
    let parent = new.pointer_mut(parent).unwrap_or_else(|| panic!("nothing at {place}"));
    match (parent, value) {
        (Value::Object(parent), Value::Null) => assert!(parent.remove(&name).is_some(), "nothing at {place}"),
        (Value::Array(parent), Value::Null) => {
            parent.remove(name.parse().unwrap());
        }
        (Value::Array(parent), value) if name == "-" => parent.push(value),
        (parent, value) => parent[&name] = value,
    }
    breaking_changes(&document(), &new)
}

const LIST: &str = "/paths/~1api~1v1~1orders/get";
const PLACE: &str = "/paths/~1api~1v1~1orders/post";
const REQUEST: &str = "/components/schemas/PlaceOrder";
const ORDER: &str = "/components/schemas/Order";

#[test]
fn a_document_does_not_break_itself() {
    assert_eq!(breaking_changes(&document(), &document()), []);
    for (_, text) in crate::api::documents() {
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(breaking_changes(&document, &document), []);
        let gone = breaking_changes(&document, &json!({}));
        let operations: usize = document["paths"].as_object().unwrap().values().map(|item| item.as_object().unwrap().len()).sum();
        assert_eq!(gone.iter().filter(|change| change.what == "the endpoint is gone").count(), operations);
    }
}

#[test]
fn breaking_changes_are_reported() {
    let at = |place: &str, rest: &str| format!("{place}{rest}");
    for (place, value, expected) in [
        // Endpoints.
        ("/paths/~1api~1v1~1orders".to_owned(), Value::Null, "POST /api/v1/orders: the endpoint is gone"),
        (LIST.to_owned(), Value::Null, "GET /api/v1/orders: the endpoint is gone"),
        (at(LIST, "/responses/410"), json!({}), "GET /api/v1/orders: it answers 410"),
        (at(LIST, "/responses/200"), Value::Null, "GET /api/v1/orders 200: the answer is gone"),
        (at(PLACE, "/requestBody/content/application~1json"), Value::Null, "POST /api/v1/orders: application/json is gone"),
        (at(PLACE, "/requestBody"), Value::Null, "POST /api/v1/orders: the request body is gone"),
        (
            "/paths/~1api~1v1~1orders~1{id}~1cancel/post/requestBody/required".to_owned(),
            json!(true),
            "POST /api/v1/orders/{id}/cancel: the request body was optional and is required",
        ),
        // Fields removed, renamed or given another type, in requests and responses.
        (at(REQUEST, "/properties/client_reference"), Value::Null, "POST /api/v1/orders client_reference: the field is gone"),
        (at(ORDER, "/properties/amount"), Value::Null, "GET /api/v1/orders 200[] amount: the field is gone"),
        (
            at(REQUEST, "/properties/product_id"),
            json!({"type": "string"}),
            "POST /api/v1/orders product_id: its type was integer and is string",
        ),
        (
            at(ORDER, "/properties/amount"),
            json!({"type": "number"}),
            "GET /api/v1/orders 200[] amount: its type was string and is number",
        ),
        (at(ORDER, "/properties/amount/pattern"), json!("."), "GET /api/v1/orders 200[] amount: its pattern has changed"),
        (
            at(ORDER, "/properties/id/format"),
            json!("int32"),
            "GET /api/v1/orders 200[] id: its format was \"int64\" and is \"int32\"",
        ),
        (at(ORDER, "/properties/amount/type"), json!(["string", "null"]), "GET /api/v1/orders 200[] amount: may be null"),
        (at(LIST, "/responses/200/headers/X-Page"), Value::Null, "GET /api/v1/orders 200: the header X-Page is gone"),
        // Enums narrowed.
        (
            "/components/schemas/Status/enum/0".to_owned(),
            Value::Null,
            "GET /api/v1/orders 200[] parent status: the value \"PENDING\" is gone",
        ),
        (
            "/components/schemas/Status/enum".to_owned(),
            Value::Null,
            "GET /api/v1/orders 200[] parent status: is no longer an enum",
        ),
        (
            at(REQUEST, "/properties/client_reference/enum"),
            json!(["a"]),
            "POST /api/v1/orders client_reference: takes only the values of an enum",
        ),
        // Error codes and the envelope.
        (
            "/components/schemas/Error/properties/code/enum/1".to_owned(),
            Value::Null,
            "GET /api/v1/orders 400 code: the value \"E_MALFORMED_JSON\" is gone",
        ),
        (
            "/components/schemas/Error/properties/message".to_owned(),
            Value::Null,
            "GET /api/v1/orders 400 message: the field is gone",
        ),
        // Optional fields made required.
        (at(REQUEST, "/required/-"), json!("metadata"), "POST /api/v1/orders metadata: was optional and is required"),
        (
            at(REQUEST, "/properties/metadata/type"),
            json!("object"),
            "POST /api/v1/orders metadata: was optional and is required: it may not be null",
        ),
        (at(ORDER, "/required/-"), json!("note"), "GET /api/v1/orders 200[] note: was optional and is required"),
        (
            at(LIST, "/parameters/0/required"),
            json!(true),
            "GET /api/v1/orders: the query parameter page was optional and is required",
        ),
        (
            at(LIST, "/parameters/-"),
            json!({"name": "wallet", "in": "query", "required": true, "schema": {}}),
            "GET /api/v1/orders: the query parameter wallet is new and required",
        ),
        // Header names, signing, credentials.
        (at(LIST, "/parameters/1"), Value::Null, "GET /api/v1/orders: the header x-signature is gone"),
        ("/components/securitySchemes/Key/name".to_owned(), json!("X-Key"), "Key: the security scheme is gone or has changed"),
        (at(LIST, "/security/0"), Value::Null, "GET /api/v1/orders: Key and Secret no longer suffices"),
        // The webhook envelope.
        ("/webhooks/order.created".to_owned(), Value::Null, "order.created: the webhook event is gone"),
        (
            "/webhooks/order.created/post/requestBody/content/application~1json/schema/properties/event_id".to_owned(),
            Value::Null,
            "order.created event_id: the field is gone",
        ),
        ("/webhooks/order.created/post/parameters/0".to_owned(), Value::Null, "order.created: the header x-event-id is gone"),
    ] {
        let found: Vec<String> = after(&place, value.clone()).iter().map(ToString::to_string).collect();
        assert!(found.contains(&expected.to_owned()), "{place} = {value}: {found:#?}");
    }
}

#[test]
fn requiring_credentials_on_a_public_operation_is_breaking() {
    let mut old = document();
    old["paths"]["/api/v1/orders"]["get"]["security"] = json!([]);
    let found: Vec<String> = breaking_changes(&old, &document()).iter().map(ToString::to_string).collect();
    assert_eq!(found, ["GET /api/v1/orders: it was open to all and needs credentials"]);
    assert_eq!(breaking_changes(&document(), &old), [], "dropping the requirement is additive");
}

#[test]
fn dropping_the_type_of_list_items_is_breaking() {
    let found = after(&format!("{LIST}/responses/200/content/application~1json/schema/items"), Value::Null);
    assert!(
        matches!(found.as_slice(), [one] if one.to_string().ends_with("the type of its items is no longer given")),
        "{found:?}"
    );
}

#[test]
fn stricter_input_is_reported_as_such() {
    for (place, value) in [
        ("/properties/client_reference/maxLength", json!(50)),
        ("/properties/client_reference/minLength", json!(1)),
        ("/properties/client_reference/pattern", json!("^a")),
        ("/properties/product_id/minimum", json!(2)),
        ("/properties/product_id/maximum", json!(9)),
        ("/properties/product_id/multipleOf", json!(2)),
    ] {
        let found = after(&format!("{REQUEST}{place}"), value);
        assert!(matches!(found.as_slice(), [Breaking { is_stricter_input: true, .. }]), "{place}: {found:?}");
    }
}

#[test]
fn additive_changes_are_not_reported() {
    let at = |place: &str, rest: &str| format!("{place}{rest}");
    for (place, value) in [
        // New endpoints, optional request fields, response fields, headers and responses.
        ("/paths/~1api~1v1~1charges".to_owned(), json!({"post": {"responses": {"200": {}}}})),
        ("/paths/~1api~1v1~1orders/put".to_owned(), json!({"responses": {"200": {}}})),
        (at(REQUEST, "/properties/note"), json!({"type": ["string", "null"]})),
        (at(ORDER, "/properties/currency"), json!({"type": "string"})),
        (at(ORDER, "/required/-"), json!("currency")),
        (at(LIST, "/parameters/-"), json!({"name": "wallet", "in": "query", "required": false, "schema": {"type": "integer"}})),
        (at(LIST, "/responses/200/headers/X-Total"), json!({"schema": {"type": "integer"}})),
        (at(LIST, "/responses/202"), json!({})),
        // New enum values, events, error codes.
        ("/components/schemas/Status/enum/-".to_owned(), json!("DELAYED")),
        ("/components/schemas/Error/properties/code/enum/-".to_owned(), json!("E_NEW")),
        ("/webhooks/order.refunded".to_owned(), json!({"post": {}})),
        (
            "/webhooks/order.created/post/requestBody/content/application~1json/schema/properties/data".to_owned(),
            json!({"type": "object"}),
        ),
        // From required to optional, in requests and responses.
        (at(REQUEST, "/required"), json!([])),
        (at(REQUEST, "/properties/product_id/type"), json!(["integer", "null"])),
        (at(ORDER, "/required"), json!(["id"])),
        ("/paths/~1api~1v1~1orders/post/requestBody/required".to_owned(), json!(false)),
        // Looser validation, changed descriptions, an error that can no longer occur.
        (at(REQUEST, "/properties/client_reference/maxLength"), json!(200)),
        (at(REQUEST, "/properties/product_id/minimum"), json!(0)),
        (at(REQUEST, "/additionalProperties"), json!(true)),
        (at(ORDER, "/description"), json!("An order.")),
        (at(LIST, "/operationId"), json!("orders")),
        (at(LIST, "/responses/400"), Value::Null),
        (at(LIST, "/security"), json!([{"Key": [], "Secret": []}, {"Token": []}, {"Other": []}])),
    ] {
        assert_eq!(after(&place, value.clone()), [], "{place} = {value}");
    }
}

#[test]
fn renaming_a_path_parameter_is_not_breaking() {
    let mut new = document();
    let mut item = new["paths"]["/api/v1/orders/{id}/cancel"].take();
    item["post"]["parameters"][0]["name"] = json!("order_id");
    new["paths"].as_object_mut().unwrap().remove("/api/v1/orders/{id}/cancel");
    new["paths"]["/api/v1/orders/{order_id}/cancel"] = item;
    assert_eq!(breaking_changes(&document(), &new), []);
}

#[test]
fn vectors_may_be_added_but_not_changed_or_removed() {
    let old = json!({"about": "a", "sign": [{"name": "one", "header": "x"}, {"name": "two", "header": "y"}], "verify": [{"name": "three"}]});
    let mut new = old.clone();
    new["about"] = json!("another text");
    new["sign"].as_array_mut().unwrap().insert(0, json!({"name": "new"}));
    assert_eq!(lost_vectors(&old, &new), [""; 0]);
    new["sign"][1]["header"] = json!("z");
    new["verify"] = json!([]);
    assert_eq!(lost_vectors(&old, &new), ["sign \"one\"", "verify \"three\""]);
}
