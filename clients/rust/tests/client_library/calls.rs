//! Requests that calls send, and what they read from responses.

use rewards_ledger_client::models::{ErrorCode, OrderStatus, PlaceOrder, RegisterWebhook};
use rewards_ledger_client::signing::{canonical_string, header, sign};
use rewards_ledger_client::{Credentials, Error, ListEventsQuery, ListOrdersQuery};
use serde_json::json;

use crate::server::{Seen, refuse, reply, serve};

pub fn order() -> String {
    let data = json!({
        "id": 42, "reference_code": "ORD-42", "status": "HALF_EATEN", "sub_status": "", "product_id": 1, "product_name": "Card",
        "currency": "USD", "denomination": "25.10", "quantity": 2, "face_value": "50.20", "discount": "0.00",
        "discount_amount": "0.00", "amount": "50.20", "refunded_amount": "0.00", "transaction_id": 7, "delivered_quantity": 0,
        "created_at": "2026-01-31T12:00:00.000Z", "updated_at": "2026-01-31T12:00:00.000Z", "order_items": [],
        "cancel_reason": null, "cancelled_on": null, "client_reference": null, "delivered_on": null,
        "metadata": {"basket": 9}, "later": "unknown fields are ignored",
    });
    json!({"success": true, "data": data}).to_string()
}

pub fn placed() -> PlaceOrder {
    PlaceOrder { metadata: Some(json!({"basket": 9})), ..PlaceOrder::new(1, "25.10".parse().unwrap(), 2) }
}

/// Asserts that a request is signed, over what was sent.
pub fn assert_signed(request: &Seen, secret: &str) {
    let timestamp = request.header("x-signature").strip_prefix("t=").unwrap().split(',').next().unwrap();
    let (path, query) = request.target.split_once('?').map_or((&*request.target, None), |(path, query)| (path, Some(query)));
    let canonical = canonical_string(&request.method, path, query, request.body.as_bytes(), timestamp);
    assert_eq!(request.header("x-signature"), header(timestamp.parse().unwrap(), &sign(secret, &canonical)));
}

#[tokio::test]
async fn a_call_sends_what_the_document_says_and_reads_the_data() {
    let answer = reply(201, order()).with("x-request-id", "req-7").with("idempotent-replayed", "true");
    let (client, log) = serve(Credentials::api_key("key", "secret"), [answer]).await;
    let response = client.place_order(&placed()).send().await.unwrap();
    assert!(response.is_replayed && response.request_id == "req-7");
    let order = response.data;
    assert_eq!((order.id, order.amount.to_string()), (42, "50.20".to_owned()));
    assert_eq!(order.status, OrderStatus::Other("HALF_EATEN".to_owned()), "an unknown value is kept");
    assert_eq!(order.metadata, Some(json!({"basket": 9})));

    let request = &log.all()[0];
    assert_eq!((&*request.method, &*request.target), ("POST", "/api/v1/orders"));
    assert_eq!(request.body, r#"{"product_id":1,"denomination":25.10,"quantity":2,"metadata":{"basket":9}}"#);
    assert_eq!(request.header("content-type"), "application/json");
    assert_eq!((request.header("x-api-key"), request.header("x-api-secret")), ("key", "secret"));
    assert_eq!(request.header("x-signature"), "", "there is no signing secret");
}

#[tokio::test]
async fn the_query_is_signed_as_it_is_sent() {
    let page = reply(200, r#"{"data": {"orders": []}}"#);
    let (client, log) = serve(Credentials::signed("key", "secret", "signing"), [page]).await;
    let query = ListOrdersQuery {
        client_reference: Some("a b&c=é/".to_owned()),
        status: Some(OrderStatus::Pending),
        created_from: Some("1970-01-01T00:00:00.005Z".parse().unwrap()),
        ..Default::default()
    };
    client.list_orders(&query).await.unwrap();
    let request = &log.all()[0];
    let expected = "status=PENDING&client_reference=a+b%26c%3D%C3%A9%2F&created_from=1970-01-01T00%3A00%3A00.005Z";
    assert_eq!(request.target, format!("/api/v1/orders?{expected}"));
    assert_signed(request, "signing");
}

#[tokio::test]
async fn a_given_key_is_sent_and_calls_have_different_keys_otherwise() {
    let (client, log) = serve(Credentials::access_token("jwt"), [(); 4].map(|()| reply(200, order()))).await;
    client.cancel_order(42, None).idempotency_key("basket-9").await.unwrap();
    client.cancel_order(42, None).await.unwrap();
    client.cancel_order(42, None).await.unwrap();
    client.get_order(42).await.unwrap();
    let seen = log.all();
    let keys: Vec<&str> = seen.iter().map(|request| request.header("idempotency-key")).collect();
    assert_eq!((keys[0], keys[3]), ("basket-9", ""));
    assert!(keys[1] != keys[2] && keys[1].len() == 36, "{keys:?}");
    assert_eq!((&*seen[0].target, &*seen[0].body), ("/api/v1/orders/42/cancel", ""));
    assert_eq!((seen[0].header("authorization"), seen[0].header("x-api-key")), ("Bearer jwt", ""));
}

#[tokio::test]
async fn a_key_that_is_no_header_is_never_sent() {
    let (client, log) = serve(Credentials::Anonymous, []).await;
    let error = client.place_order(&placed()).idempotency_key("two\nlines").await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)) && log.all().is_empty(), "{error}");
}

#[tokio::test]
async fn refusals_are_typed_by_their_code() {
    let fields = json!({"error": {"name": "ValidationError", "code": "E_VALIDATION_FAILURE", "message": "Invalid.",
        "messages": {"quantity": ["must be at least 1"], "product_id": ["is missing"]}}});
    let limited = json!({"error": "rate_limit_exceeded", "message": "Too many requests.", "retry_after": 3600});
    let answers = [
        reply(400, fields.to_string()).with("x-request-id", "req-9"),
        reply(429, limited.to_string()).with("retry-after", 3600),
        reply(500, "<html>Broken</html>"),
        refuse(402, "E_INSUFFICIENT_BALANCE"),
        refuse(418, "E_TEAPOT"),
    ];
    let (client, _) = serve(Credentials::Anonymous, answers).await;
    let refusal = async || match client.place_order(&placed()).await.unwrap_err() {
        Error::Api(refusal) => *refusal,
        other => panic!("{other}"),
    };
    let expected = "400 E_VALIDATION_FAILURE: Invalid; product_id: is missing; quantity: must be at least 1 (request req-9)";
    assert_eq!(refusal().await.to_string(), expected);
    let limit = refusal().await;
    assert!(limit.is_rate_limit() && limit.code.as_str() == "rate_limit_exceeded", "{limit}");
    assert_eq!(limit.retry_after.unwrap().as_secs(), 3600);
    let proxy = refusal().await;
    assert_eq!((proxy.code.as_str(), &*proxy.message), ("", "Internal Server Error"));
    assert_eq!(refusal().await.code, ErrorCode::InsufficientBalance);
    assert_eq!(refusal().await.code, ErrorCode::Other("E_TEAPOT".to_owned()));
}

#[tokio::test]
async fn an_unreadable_success_names_its_request() {
    let (client, _) = serve(Credentials::Anonymous, [reply(200, "{}").with("x-request-id", "req-3")]).await;
    let error = client.get_order(1).await.unwrap_err();
    assert_eq!(error.to_string(), "unreadable response to request req-3");
    assert!(error.code().is_none());
}

#[tokio::test]
async fn bytes_and_replies_without_data() {
    let webhook = json!({"id": 7, "token": "t0ken", "url": "https://example.com", "name": "w", "events": ["order.created"],
        "is_active": true, "created_at": "2026-01-31T12:00:00.000Z"});
    let events = r#"{"data": {"events": [{"later":1.50}]}}"#;
    let answers = [reply(200, b"\x89PNG"), reply(201, webhook.to_string()), reply(200, events), refuse(404, "E_NOT_FOUND")];
    let (client, log) = serve(Credentials::Anonymous, answers).await;
    assert_eq!(client.get_product_image_bytes(1, "a/b c", &Default::default()).await.unwrap(), b"\x89PNG");
    assert_eq!(log.all()[0].target, "/api/v1/products/1/image/a%2Fb%20c");
    let body = RegisterWebhook::new("w", "https://example.com", vec![]);
    assert_eq!(client.register_webhook(&body).await.unwrap().token.expose(), "t0ken");
    let query = ListEventsQuery::default();
    assert_eq!(client.list_events(&query).reply().await.unwrap().body, events.as_bytes(), "as it arrived");
    let refused = client.list_events(&query).reply().await.unwrap_err();
    assert_eq!(refused.code(), Some(&ErrorCode::NotFound));
}
