//! Every example is valid against its schema, and real responses and webhooks match their descriptions.

use ledger_events::account::LowBalanceReached;
use ledger_events::webhook::{SAMPLE_VERSION, WebhookEventType};
use ledger_projections::envelope::{Head, test_payload};
use rewards_ledger::ledger::commands::{self, PayoutOutcome};
use serde_json::Value;

use super::{documents, problems};
use crate::support::ledger::{Customer, money};
use crate::support::shop::Shop;

/// Collects every media type, parameter and header of a document that has a schema, with its examples.
fn with_schema<'a>(place: String, value: &'a Value, found: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(parts) => {
            if parts.get("schema").is_some_and(Value::is_object) {
                found.push((place.clone(), value));
            }
            for (name, part) in parts.iter().filter(|(name, _)| *name != "schema" && *name != "example" && *name != "examples") {
                with_schema(format!("{place}/{name}"), part, found);
            }
        }
        Value::Array(parts) => {
            parts.iter().enumerate().for_each(|(index, part)| with_schema(format!("{place}/{index}"), part, found));
        }
        _ => {}
    }
}

#[test]
fn every_example_is_valid() {
    for (path, document) in documents() {
        let mut found = Vec::new();
        with_schema(path.to_owned(), &document, &mut found);
        let mut count = 0;
        for (place, holder) in found {
            let single = holder.get("example").into_iter();
            let several = holder.get("examples").and_then(Value::as_object).into_iter().flatten();
            let examples: Vec<&Value> = single.chain(several.map(|(_, example)| &example["value"])).collect();
            for example in &examples {
                let wrong = problems(&document, &holder["schema"], example);
                assert!(
                    wrong.is_empty(),
                    "{place}: {wrong:#?}\n{example:#}\nGive the field a value in src/api/document/examples.json."
                );
            }
            count += examples.len();
            let is_json = place.ends_with("application/json");
            assert!(!is_json || !examples.is_empty(), "{place} has no example");
        }
        assert!(count > 50, "{path}: {count}");
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            for (field, property) in schema["properties"].as_object().into_iter().flatten() {
                for example in property["examples"].as_array().into_iter().flatten() {
                    assert_eq!(problems(&document, property, example), [""; 0], "{name}.{field}");
                }
            }
        }
    }
}

#[test]
fn documents_name_every_code_and_header() {
    let text: String = documents().iter().map(|(_, document)| document["components"]["responses"].to_string()).collect();
    for (path, document) in documents() {
        let codes = document["components"]["schemas"]["ErrorCode"]["enum"].as_array().unwrap();
        for code in codes {
            // A missing method is not a response of any operation of the path. The document's introduction describes
            // it instead.
            if code == "E_METHOD_NOT_ALLOWED" {
                let said = document["info"]["description"].as_str().unwrap();
                assert!(
                    said.contains("405 `E_METHOD_NOT_ALLOWED`: the path does not support the method. The header `Allow`"),
                    "{path}"
                );
                continue;
            }
            // The introduction also describes the refusals of the HTTP layer.
            if let Some(code) =
                ["E_MALFORMED_REQUEST", "E_URI_TOO_LONG", "E_HEADERS_TOO_LARGE"].into_iter().find(|own| code == own)
            {
                assert!(document["info"]["description"].as_str().unwrap().contains(&format!("`{code}`")), "{path}: {code}");
                continue;
            }
            assert!(text.contains(&format!("{code}:")), "{code} is listed under no status");
        }
        for (route, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let mut schemes = operation["security"].as_array().unwrap().iter();
                let is_session =
                    |scheme: &Value| ["PortalSession", "ConsoleSession"].iter().any(|name| scheme.get(name).is_some());
                let needs_origin = method != "get" && schemes.any(is_session);
                let mut parameters = operation["parameters"].as_array().unwrap().iter();
                let has_origin = parameters.any(|parameter| parameter["$ref"] == "#/components/parameters/Origin");
                assert_eq!(has_origin, needs_origin, "{path}: {method} {route}");
                for (status, response) in operation["responses"].as_object().unwrap() {
                    let place = response["$ref"].as_str().map(|reference| document.pointer(&reference[1..]).unwrap());
                    let headers = &place.unwrap_or(response)["headers"];
                    assert!(headers["X-Request-ID"].is_object(), "{path}: {method} {route} {status}");
                    if route.starts_with("/api/v1/") {
                        assert!(headers["Deprecation"].is_object(), "{path}: {method} {route} {status}");
                        assert!(headers["X-RateLimit-Limit"].is_object(), "{path}: {method} {route} {status}");
                    }
                }
            }
        }
    }
}

/// Types of the events that [`further_events`] makes.
const FURTHER: [&str; 7] = [
    "payout.requested",
    "payout.paid",
    "payout.requested",
    "payout.failed",
    "payout.requested",
    "payout.cancelled",
    "wallet.low_balance",
];

/// Makes an event of each type of payouts and wallets.
async fn further_events(shop: &Shop) {
    let Customer { account_id, wallet_id, .. } = shop.customer;
    let to = shop.beneficiary().await;
    for outcome in [PayoutOutcome::Paid, PayoutOutcome::Failed { reason: None }] {
        let payout_id = shop.payout(to, "1.00").await;
        shop.run(commands::SettlePayout { payout_id, outcome }).await;
    }
    let payout_id = shop.payout(to, "1.00").await;
    shop.run(commands::CancelPayout { account_id, payout_id }).await;
    let (currency, below, balance) = ("EUR".parse().unwrap(), money("10.00"), money("9.00"));
    let reached = LowBalanceReached { wallet_id, currency, below, balance, position: 1, fell_at: chrono::Utc::now() };
    shop.run(commands::AnnounceLowBalance { account_id, reached }).await;
}

/// Checks real envelopes: those of an order's events, one of each type, the first one of a second order, and those of payouts
/// and wallets.
#[tokio::test]
async fn envelopes_are_as_described() {
    let types =
        ["order.created", "order.pending", "order.partially_delivered", "order.delivered", "order.created", "order.cancelled"]
            .into_iter()
            .chain(FURTHER)
            .collect::<Vec<_>>();
    let shop = Shop::open().await;
    shop.webhook_for(shop.customer.account_id, "https://example.com/hook", &WebhookEventType::ALL).await;
    shop.load("card", 1, None).await;
    let order = shop.order(2).await;
    shop.fulfil(order).await;
    shop.load("more", 1, None).await;
    shop.fulfil(order).await;
    let other = shop.order(1).await;
    shop.cancel(other).await;
    further_events(&shop).await;
    shop.project().await;
    let made: Vec<(String, String)> = sqlx::query_as("SELECT event_type, payload FROM webhook_envelopes ORDER BY position")
        .fetch_all(shop.pool())
        .await
        .unwrap();
    assert_eq!(made.iter().map(|(event, _)| event.as_str()).collect::<Vec<_>>(), types);

    let (_, document) = documents().swap_remove(0);
    assert_eq!(document["webhooks"].as_object().unwrap().len(), WebhookEventType::ALL.len());
    for (event, payload) in made {
        is_as_described(&document, &event, &payload);
    }
}

/// Checks that an envelope has the fields and the status of its example, and that each field is described.
fn is_as_described(document: &Value, event: &str, payload: &str) {
    let described = &document["webhooks"][event]["post"]["requestBody"]["content"]["application/json"];
    let mut payload: Value = serde_json::from_str(payload).unwrap();
    assert_eq!(problems(document, &described["schema"], &payload), [""; 0], "{payload:#}");
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&payload), names(&described["example"]), "{event}");
    assert_eq!(names(&payload["data"]), names(&described["example"]["data"]), "{event}");
    assert_eq!(payload["data"]["status"], described["example"]["data"]["status"], "{event}");
    let data = match event.split_once('.').unwrap().0 {
        "order" => "WebhookOrder",
        "payout" => "WebhookPayout",
        _ => "WebhookLowBalance",
    };
    let properties = &document["components"]["schemas"][data]["properties"];
    payload["data"].as_object_mut().unwrap().retain(|name, _| properties.get(name).is_none());
    assert_eq!(payload["data"], serde_json::json!({}), "{event}");
}

#[test]
fn sample_data_of_test_deliveries_is_as_described() {
    let (_, document) = documents().swap_remove(0);
    for event_type in WebhookEventType::ALL {
        let head = Head { event_id: uuid::Uuid::nil(), event_type, recorded_at: chrono::Utc::now() };
        let payload = test_payload(head, Some(SAMPLE_VERSION)).unwrap();
        is_as_described(&document, event_type.as_str(), &payload);
    }
}
