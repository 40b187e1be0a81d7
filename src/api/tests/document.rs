//! The published document and the table of error codes.

use serde_json::{Value, json};

use super::sample::published;
use crate::api::document;
use crate::api::error::{ApiError, Code};

#[test]
fn error_codes_match_the_contract() {
    assert_eq!(Code::ALL.len(), 42);
    for code in Code::ALL {
        let error = ApiError::new(*code);
        let timed = matches!(code, Code::IdempotencyInProgress | Code::Unavailable | Code::OutcomeUnknown);
        assert_eq!(error.retry_after_secs.is_some(), timed, "{code:?}");
        assert!(code.as_str().starts_with("E_") && !code.message().is_empty());
    }
    let error = ApiError::invalid("url", "must be https").field("url", "is too long");
    assert_eq!(json!(error.messages), json!({"url": ["must be https", "is too long"]}));
    assert_eq!(error.to_string(), "E_VALIDATION_FAILURE: The request is not valid.");
}

#[test]
fn the_document_describes_the_enforced_rules() {
    let document = published();
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["PlaceOrder"]["additionalProperties"], false);
    assert_eq!(schemas["SampleLine"]["additionalProperties"], false, "reached through a reference");
    assert_eq!(schemas["Order"]["additionalProperties"], Value::Null, "answers may grow");
    assert_eq!(schemas["PlaceOrder"]["properties"]["metadata"]["additionalProperties"], Value::Null);
    assert_eq!(schemas["OrderReply"]["properties"]["data"]["$ref"], "#/components/schemas/Order");
    let list = &schemas["OrderList"]["properties"]["data"]["properties"]["orders"];
    assert_eq!(list["items"]["$ref"], "#/components/schemas/Order");
    let codes = schemas["ErrorCode"]["enum"].as_array().unwrap();
    assert_eq!(codes.len(), Code::ALL.len());
    assert!(codes.contains(&"E_OUTCOME_UNKNOWN".into()), "{codes:?}");
    assert_eq!(schemas["ErrorDetail"]["required"], json!(["name", "code", "message"]));

    let reason = |name: &str| schemas[name]["properties"]["reason"]["type"] == json!(["string", "null"]);
    assert!(reason("Order") && reason("CancelOrder"));
    let amount = |name: &str, field: &str| schemas[name]["properties"][field]["type"].clone();
    assert_eq!((amount("Order", "amount"), amount("PlaceOrder", "denomination")), (json!("string"), json!("number")));
    assert!(schemas["PlaceOrder"]["properties"]["client_reference"]["pattern"].is_string(), "one line");
    assert_eq!(schemas["Order"]["required"], json!(["id", "amount", "reason"]));
    assert_eq!(schemas["CancelOrder"]["required"], Value::Null);

    let place = &document["paths"]["/orders"]["post"];
    assert_eq!(place["security"], json!([{"ApiKey": [], "ApiSecret": []}, {"AccessToken": []}]));
    assert!(document["components"]["securitySchemes"]["ApiSecret"].is_object());
    let content = &place["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(content["$ref"], "#/components/schemas/PlaceOrder");
    assert_eq!(place["requestBody"]["required"], true);
    let statuses = |operation: &Value| -> Vec<String> { operation["responses"].as_object().unwrap().keys().cloned().collect() };
    assert_eq!(statuses(place).join(" "), "200 201 400 401 402 403 404 409 413 415 422 429 500 503 504");
    let get = &document["paths"]["/orders/{id}"]["get"];
    assert_eq!(statuses(get).join(" "), "200 400 401 403 404 429 500 503", "a read has no outcome to be unknown");
    let response = |operation: &Value, status: &str| -> Value {
        let reference = operation["responses"][status]["$ref"].as_str().unwrap().trim_start_matches('#').to_owned();
        document.pointer(&reference).unwrap().clone()
    };
    let flat = response(place, "429");
    assert_eq!(flat["content"]["application/json"]["schema"]["$ref"], "#/components/schemas/RateLimitError");
    assert_eq!(response(place, "500"), response(get, "500"), "what is the same stands there once");
    let shown = |operation: &Value, status: &str| -> Vec<String> {
        let response = response(operation, status);
        let examples = response["content"]["application/json"]["examples"].as_object().unwrap().clone();
        for (code, example) in &examples {
            assert_eq!(example["value"]["error"]["code"], *code);
            assert!(response["description"].as_str().unwrap().contains(code), "{code} stands with its status");
        }
        examples.keys().cloned().collect()
    };
    assert_eq!(shown(place, "402"), ["E_INSUFFICIENT_BALANCE"]);
    assert_eq!(shown(place, "409"), ["E_DUPLICATE_REFERENCE"]);
    assert_eq!((shown(place, "400").len(), shown(get, "400").len()), (2, 1), "a read has no body that could be malformed");
    let cancel = &document["paths"]["/orders/{id}/cancel"]["post"];
    assert_eq!(cancel["requestBody"]["required"], false);
    assert!(cancel["responses"]["201"]["headers"]["Cache-Control"].is_object());
    let headers = &document["paths"]["/orders"]["get"]["responses"]["200"]["headers"];
    assert!(headers["X-Total-Pages"].is_object(), "{headers}");

    let text = document::text(&document);
    assert!(text.ends_with("}\n"));
    assert_eq!(text, document::text(&serde_json::from_str(&text).unwrap()));
    assert_eq!(document::finish(document.clone()), document, "finishing twice changes nothing");
}
