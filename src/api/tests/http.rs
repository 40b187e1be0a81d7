//! Tests of the HTTP layer from a client's point of view.

use poem::Body;
use poem::http::{StatusCode, header};
use poem::test::{TestClient, TestResponse};
use serde_json::{Value, json};

use super::sample::app;

async fn get(path: &str) -> TestResponse {
    TestClient::new(app()).get(path).send().await
}

async fn post(path: &str, body: &str) -> TestResponse {
    let client = TestClient::new(app());
    client.post(path).content_type("application/json").body(body.to_owned()).send().await
}

async fn refused(response: TestResponse, status: u16, code: &str) -> Value {
    response.assert_status(StatusCode::from_u16(status).unwrap());
    response.assert_content_type("application/json");
    response.assert_header_exist("x-request-id");
    let body: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(body["error"]["code"], code, "{body}");
    body
}

async fn text(response: TestResponse) -> String {
    response.0.into_body().into_string().await.unwrap()
}

#[tokio::test]
async fn a_valid_request_returns_the_stored_bytes() {
    let response = post("/v1/orders", r#"{"product_id":7,"denomination":25}"#).await;
    response.assert_status(StatusCode::CREATED);
    response.assert_header_is_not_exist("idempotent-replayed");
    response.assert_content_type("application/json");
    let body = r#"{"success":true,"data":{"id":1007,"amount":"100.00","reason":null}}"#;
    assert_eq!(text(response).await, body);

    let again = r#"{"product_id":7,"denomination":25,"client_reference":"a"}"#;
    let response = post("/v1/orders", again).await;
    response.assert_status_is_ok();
    response.assert_header("idempotent-replayed", "true");
    assert_eq!(text(response).await, body);
}

#[tokio::test]
async fn a_list_has_pagination_headers() {
    let response = get("/v1/orders?page=2&limit=10").await;
    response.assert_status_is_ok();
    for (name, value) in [("x-page", "2"), ("x-total-count", "41"), ("x-total-pages", "5"), ("x-page-size", "10")] {
        response.assert_header(name, value);
    }
    let body = r#"{"success":true,"data":{"orders":[{"id":1,"amount":"100.00","reason":null}]}}"#;
    assert_eq!(text(response).await, body);
}

#[tokio::test]
async fn an_anonymous_caller_learns_only_that_it_is_not_authenticated() {
    let client = TestClient::new(app());
    for body in ["{", "{}", r#"{"product_id":7,"denomination":25}"#] {
        let request = client.post("/anonymous/orders").body(body.to_owned());
        refused(request.send().await, 401, "E_UNAUTHORIZED").await;
    }
    refused(get("/anonymous/orders/abc").await, 401, "E_UNAUTHORIZED").await;
}

#[tokio::test]
async fn an_error_names_what_is_wrong_with_the_body() {
    let body = refused(post("/v1/orders", "{\"product_id\":").await, 400, "E_MALFORMED_JSON").await;
    let fixed = json!({"error": {"name": "ValidationError", "code": "E_MALFORMED_JSON", "message": "The request body is not valid JSON."}});
    assert_eq!(body, fixed);
    let body = post("/v1/orders", r#"{"product_id":0,"denomination":1.234,"quantitee":1}"#).await;
    let body = refused(body, 400, "E_VALIDATION_FAILURE").await;
    assert_eq!(
        body["error"]["messages"],
        json!({
            "product_id": ["must be at least 1"],
            "denomination": ["must have at most 2 decimals"],
            "quantitee": ["is not a known field"],
        })
    );
}

#[tokio::test]
async fn the_content_type_must_be_json() {
    let good = r#"{"product_id":7,"denomination":25}"#;
    for (content_type, status) in [
        ("application/json", 201),
        ("application/json; charset=utf-8", 201),
        ("APPLICATION/JSON", 201),
        ("text/plain", 415),
        ("application/problem+json", 415),
        ("application/jsonp", 415),
    ] {
        let client = TestClient::new(app());
        let request = client.post("/v1/orders").content_type(content_type).body(good);
        request.send().await.assert_status(StatusCode::from_u16(status).unwrap());
    }
    let client = TestClient::new(app());
    let response = client.post("/v1/orders").body(good).send().await;
    refused(response, 415, "E_UNSUPPORTED_MEDIA_TYPE").await;
}

#[tokio::test]
async fn a_body_over_its_limit_is_refused_while_it_is_read() {
    let put = async |body: Body, length: Option<&str>| {
        let client = TestClient::new(app());
        let mut request = client.put("/v1/small").content_type("application/json").body(body);
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        request.send().await
    };
    let chunks = |count: usize| {
        let chunks = (0..count).map(|_| Ok::<_, std::io::Error>("        ".to_owned()));
        Body::from_bytes_stream(futures::stream::iter(chunks))
    };
    put("{            }".into(), None).await.assert_status_is_ok();
    refused(put("{               }".into(), None).await, 413, "E_PAYLOAD_TOO_LARGE").await;
    refused(put("{               }".into(), Some("2")).await, 413, "E_PAYLOAD_TOO_LARGE").await;
    refused(put(chunks(2), None).await, 400, "E_MALFORMED_JSON").await;
    // An endless body is cut off at the limit.
    refused(put(chunks(usize::MAX), Some("2")).await, 413, "E_PAYLOAD_TOO_LARGE").await;
    let big = format!("{{\"product_id\":\"{}\"}}", "x".repeat(1 << 20));
    refused(post("/v1/orders", &big).await, 413, "E_PAYLOAD_TOO_LARGE").await;

    let broken = futures::stream::iter([Err::<String, _>(std::io::Error::other("reset"))]);
    let body = refused(put(Body::from_bytes_stream(broken), None).await, 400, "E_MALFORMED_JSON").await;
    assert!(!body.to_string().contains("reset"), "{body}");
}

#[tokio::test]
async fn an_optional_body_may_be_left_out() {
    let client = TestClient::new(app());
    let response = client.post("/v1/orders/1/cancel").send().await;
    response.assert_status(StatusCode::CREATED);
    response.assert_header("cache-control", "no-store");
    let response = post("/v1/orders/1/cancel", r#"{"reason":"late"}"#).await;
    assert!(text(response).await.contains(r#""reason":"late""#));
    let response = post("/v1/orders/1/cancel", r#"{"raison":"late"}"#).await;
    refused(response, 400, "E_VALIDATION_FAILURE").await;
    let response = client.post("/v1/orders/1/cancel").body("{}").send().await;
    refused(response, 415, "E_UNSUPPORTED_MEDIA_TYPE").await;
}

#[tokio::test]
async fn unknown_paths_and_resources_return_404() {
    for path in [
        "/",
        "/nowhere",
        "/v1/orders/9",
        "/v1/orders/abc",
        "/v1/orders/1.0",
        "/v1/orders/99999999999999999999",
        "/v1/orders/%00",
        "/v1/orders/%ff",
        "/v1/%00",
    ] {
        refused(get(path).await, 404, "E_NOT_FOUND").await;
    }
}

#[tokio::test]
async fn an_unsupported_method_returns_405() {
    let client = TestClient::new(app());
    let response = client.delete("/v1/orders/").send().await;
    response.assert_header("allow", "GET, HEAD, POST");
    refused(response, 405, "E_METHOD_NOT_ALLOWED").await;
    client.head("/v1/orders/1").send().await.assert_status_is_ok();
}

#[tokio::test]
async fn an_invalid_query_parameter_is_named() {
    for (query, name) in [
        ("page=0", "page"),
        ("page=x", "page"),
        ("limit=101", "limit"),
        ("limit=", "limit"),
        ("product_id=6", "product_id"),
        ("product_id=a%00", "product_id"),
    ] {
        let body = refused(get(&format!("/v1/orders?{query}")).await, 400, "E_VALIDATION_FAILURE").await;
        assert!(body["error"]["messages"][name].is_array(), "{query}: {body}");
        assert!(!body.to_string().contains("parse"), "{body}");
    }
}

#[tokio::test]
async fn trailing_slashes_are_ignored_but_kept_in_the_wire_uri() {
    for (wire, path) in [("/seen", "/seen"), ("/seen/", "/seen"), ("/seen///?a=/&b", "/seen"), ("/seen?", "/seen")] {
        assert_eq!(text(get(wire).await).await, format!("{wire} {path} true"));
    }
    get("/v1/orders/").await.assert_status_is_ok();
    get("/v1/orders/1//?x=/").await.assert_status_is_ok();
}

#[tokio::test]
async fn every_response_carries_the_request_id() {
    for path in ["/v1/orders", "/nowhere", "/v1/orders/2", "/v1/orders/3", "/limited", "/foreign"] {
        let client = TestClient::new(app());
        let response = client.get(path).header("X-Request-ID", "mine-1").send().await;
        response.assert_header("x-request-id", "mine-1");
        let response = client.get(path).header("X-Request-ID", "no good").send().await;
        let given = response.0.header("x-request-id").unwrap().to_owned();
        assert!(uuid::Uuid::parse_str(&given).is_ok(), "{given}");
    }
}

#[tokio::test]
async fn an_internal_error_shows_its_id_and_nothing_else() {
    for path in ["/v1/orders/2", "/v1/orders/3", "/foreign"] {
        let client = TestClient::new(app());
        let response = client.get(path).header("X-Request-ID", "mine-1").send().await;
        let body = refused(response, 500, "E_INTERNAL").await;
        let message = "Something went wrong on our side. Request id: mine-1";
        assert_eq!(body["error"], json!({"name": "InternalError", "code": "E_INTERNAL", "message": message}));
    }
}

#[tokio::test]
async fn temporary_errors_have_retry_after() {
    let response = get("/v1/orders/4").await;
    response.assert_header(header::RETRY_AFTER, "7");
    refused(response, 503, "E_UNAVAILABLE").await;
    let response = get("/limited").await;
    response.assert_status(StatusCode::TOO_MANY_REQUESTS);
    response.assert_header(header::RETRY_AFTER, "42");
    let flat = r#"{"error":"rate_limit_exceeded","message":"Wait a minute.","retry_after":42}"#;
    assert_eq!(text(response).await, flat);
}
