//! Error messages are the service's own: for any input, they never contain messages of a parser, the database or the
//! file system.

use rewards_ledger::api::error::Code;
use serde_json::{Value, json};

use super::documents;
use crate::support::node::{Node, Setup, TestResponse, User};

/// Bodies that are not JSON, or that no operation accepts.
const BODIES: [&[u8]; 26] = [
    b"",
    b" ",
    b"{",
    b"}",
    b"[",
    b"nul",
    b"\"",
    b"'a'",
    b"{\"a\":}",
    b"{\"a\" 1}",
    b"{\"a\":1,}",
    b"{\"a\":01}",
    b"{\"a\":1}{",
    b"{\"\\x\":1}",
    b"{\"a\":NaN}",
    b"{\"a\":\"\xff\"}",
    b"\xff\xfe{\x00}\x00",
    b"\xef\xbb\xbf{}",
    b"\x00",
    b"{\"a\":\"\\ud800\"}",
    b"null",
    b"[]",
    b"7",
    b"\"text\"",
    b"a=1&b=2",
    b"<?xml version=\"1.0\"?><a/>",
];

/// Returns values that are invalid for nearly every field.
fn values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(1e300),
        json!(18_446_744_073_709_551_615_u64),
        json!(""),
        json!("\u{0}"),
        json!("a\nb"),
        json!("' OR 1=1; DROP TABLE events; --"),
        json!("../../etc/passwd"),
        json!("http://["),
        json!("https://[::1"),
        json!("https://exa mple.com:99999/"),
        json!("https://user:pw@example.com"),
        json!("2026-13-45T99:99:99Z"),
        json!("99999999999999999999.999"),
        json!("x".repeat(3_000)),
        json!([]),
        json!([null, 1, "x", {}]),
        json!({}),
        json!({"a": {"a": {"a": [{"b": "\u{0}"}]}}}),
    ]
}

/// Texts that are invalid for nearly every parameter, as they appear in a URL.
const TEXTS: [&str; 16] = [
    "",
    "x",
    "-1",
    "0",
    "1.5",
    "99999999999999999999999",
    "%00",
    "%FF%FE",
    "%",
    "%zz",
    "'--",
    "2026-13-45T99:99:99Z",
    "0000-01-01T00:00:00Z",
    "true",
    "%F0%9F%98%80",
    "PENDING,DELIVERED",
];

/// Phrases of parsers, databases, file systems and libraries, in lower case.
const FOREIGN: [&str; 55] = [
    "at line",
    "column 1",
    "expected",
    "eof",
    "trailing",
    "invalid type",
    "invalid digit",
    "invalid value",
    "invalid length",
    "invalid utf",
    "missing field",
    "unknown variant",
    "unknown field",
    "unexpected",
    "premature",
    "out of range integral",
    "relative url",
    "invalid port",
    "empty host",
    "domain name",
    "invalid ipv6",
    "invalid character",
    "serde",
    "sqlx",
    "postgres",
    "relation",
    "duplicate key",
    "constraint",
    "violates",
    "syntax",
    "sqlstate",
    "pg_",
    "select ",
    "insert ",
    "no such file",
    "os error",
    "permission denied",
    ".rs",
    "/tmp",
    "/root",
    "/home",
    "panicked",
    "unwrap",
    "none value",
    "utf-8 sequence",
    "byte index",
    "csv error",
    "record",
    "decimal:",
    "i64",
    "u32",
    "parse",
    "poem",
    "tokio",
    "connection",
];

/// Returns the part of an error that is not the service's own wording, if there is one.
fn foreign(error: &Value) -> Option<String> {
    let message = error["message"].as_str()?;
    let code = Code::ALL.iter().find(|code| error["code"] == code.as_str());
    let Some(code) = code else { return Some(format!("the code {}", error["code"])) };
    let is_sentence = message.ends_with('.') && message.starts_with(|first: char| first.is_ascii_uppercase());
    if message != code.message() && !is_sentence {
        return Some(message.to_owned());
    }
    let details = error["messages"].as_object().into_iter().flatten().flat_map(|(_, list)| list.as_array().into_iter().flatten());
    let details: Vec<&str> = details.filter_map(Value::as_str).collect();
    let ours = ["must ", "is ", "it is ", "or ", "has ", "have ", "cannot ", "the URL ", "the name ", "address "];
    let strange = details.iter().find(|text| text.len() > 200 || !ours.iter().any(|begin| text.starts_with(begin)));
    if let Some(strange) = strange {
        return Some((*strange).to_owned());
    }
    // The fixed message of a code is the service's own, whatever it contains.
    let own = (message != code.message()).then_some(message);
    let named = |text: &&str| FOREIGN.iter().any(|word| text.to_lowercase().contains(word));
    own.into_iter().chain(details).find(named).map(str::to_owned)
}

#[test]
fn messages_of_libraries_are_detected() {
    let invalid =
        |text: &str| json!({"code": "E_VALIDATION_FAILURE", "message": "The request is not valid.", "messages": {"a": [text]}});
    for text in ["must be between 1 and 5", "is not a known field", "the URL must begin with https://"] {
        assert_eq!(foreign(&invalid(text)), None);
    }
    for text in [
        "EOF while parsing at line 1 column 3",
        "invalid digit found in string",
        "is not: relation \"x\" is gone",
        "must be /tmp/x",
    ] {
        assert!(foreign(&invalid(text)).is_some(), "{text}");
    }
    assert!(foreign(&json!({"code": "E_CONFLICT", "message": "duplicate key value"})).is_some());
    assert!(foreign(&json!({"code": "E_CONFLICT", "message": "Violates a constraint."})).is_some());
    assert!(foreign(&json!({"code": "E_OTHER", "message": "The request is not valid."})).is_some());
}

/// An operation of an OpenAPI document.
struct Operation<'a> {
    route: &'a str,
    method: String,
    /// Names of the query parameters.
    query: Vec<&'a str>,
    /// Names of the body's fields, if there is a body.
    fields: Option<Vec<&'a str>>,
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let mut found = Vec::new();
    for (route, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let query = parameters.filter(|p| p["in"] == "query").filter_map(|p| p["name"].as_str()).collect();
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let schema = schema["$ref"].as_str().and_then(|place| document.pointer(&place[1..]));
            let fields = schema.map(|schema| schema["properties"].as_object().unwrap().keys().map(String::as_str).collect());
            let fields = fields.or(operation["requestBody"].is_object().then(Vec::new));
            found.push(Operation { route, method: method.to_uppercase(), query, fields });
        }
    }
    found
}

struct Hurler {
    node: Node,
    setup: Setup,
    /// The user for requests to the portal.
    owner: User,
    refused: usize,
}

impl Hurler {
    async fn start() -> Hurler {
        let node = Node::start().await;
        let setup = node.setup().await;
        let owner = node.user(setup.client.account_id, "owner").await;
        Hurler { node, setup, owner, refused: 0 }
    }

    /// Builds a request with the credentials of a caller who may send it.
    fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        if let Some(path) = path.strip_prefix("/admin/v1") {
            self.node.by_operator(method, path)
        } else if let Some(path) = path.strip_prefix("/api/v1") {
            self.node.by(&self.setup.client, method, path)
        } else {
            let request = self.node.request(method, path).header("Origin", self.node.url());
            // A logout would end the session that later requests need.
            if path.starts_with("/client/api") { request.header("Cookie", &self.owner.cookie) } else { request }
        }
    }

    async fn hurl(&mut self, what: &str, request: reqwest::RequestBuilder) {
        let answer = self.node.send(request).await;
        self.judge(what, &answer);
    }

    fn judge(&mut self, what: &str, answer: &TestResponse) {
        if answer.status < 400 {
            return;
        }
        self.refused += 1;
        assert_ne!(answer.status, 500, "{what}: {}", answer.text);
        let error = &answer.json()["error"];
        assert_eq!(foreign(error), None, "{what}: {}", answer.text);
    }
}

#[tokio::test]
async fn no_invalid_input_is_answered_with_a_librarys_message() {
    let mut hurler = Hurler::start().await;
    let documents = documents();
    let mut routes = std::collections::BTreeSet::new();
    for operation in documents.iter().flat_map(|(_, document)| operations(document)) {
        routes.extend(operation.route.split('/').nth(1).map(str::to_owned));
        let Operation { route, method, query, fields } = operation;
        let path = filled(route, "1");
        for text in TEXTS.iter().filter(|text| route.contains('{') && !text.is_empty()) {
            let request = hurler.request(&method, &filled(route, text));
            hurler.hurl(&format!("{method} {route} {text}"), request).await;
        }
        for name in &query {
            for text in TEXTS {
                let request = hurler.request(&method, &format!("{path}?{name}={text}"));
                hurler.hurl(&format!("{method} {path}?{name}={text}"), request).await;
            }
        }
        let Some(fields) = fields else { continue };
        for content_type in [
            "application/json",
            "text/csv",
            "application/xml",
            "image/png",
            "text/plain",
            "application/json; charset=latin1",
            "/",
        ] {
            for body in BODIES {
                let request = hurler.request(&method, &path).header("Content-Type", content_type).body(body);
                hurler.hurl(&format!("{method} {path} {content_type} {}", body.escape_ascii()), request).await;
            }
        }
        for field in fields {
            for value in values() {
                let body = json!({field: value}).to_string();
                let request = hurler.request(&method, &path).header("Content-Type", "application/json").body(body);
                hurler.hurl(&format!("{method} {path} {field}={:.60}", value.to_string()), request).await;
            }
        }
    }
    assert!(hurler.refused > 1_000, "{}", hurler.refused);
    assert_eq!(routes.into_iter().collect::<Vec<_>>(), ["admin", "api", "auth", "client", "healthz", "log", "metrics", "readyz"]);
}

#[tokio::test]
async fn no_invalid_header_is_answered_with_a_librarys_message() {
    let mut hurler = Hurler::start().await;
    let binary = reqwest::header::HeaderValue::from_bytes(b"\xff\xfe\x80").unwrap();
    for name in [
        "X-API-Key",
        "X-API-Secret",
        "Authorization",
        "X-Signature",
        "Idempotency-Key",
        "X-Request-ID",
        "Accept",
        "Content-Type",
        "Cookie",
        "Origin",
    ] {
        for path in ["/api/v1/orders", "/admin/v1/accounts", "/auth/refresh", "/client/api/api-keys"] {
            let long = "x".repeat(4_000);
            for text in ["", "x", "Bearer", "Bearer x", "Basic eA==", "t=,v1=", "t=1,v1=x", "t=99999999999999999999,v1=é", &long]
            {
                let request = hurler.request("POST", path).header(name, text).body("{}");
                hurler.hurl(&format!("{path} {name}: {text:.40}"), request).await;
            }
            let request = hurler.request("POST", path).header(name, binary.clone()).body("{}");
            hurler.hurl(&format!("{path} {name}: binary"), request).await;
        }
    }
    let long = format!("/api/v1/orders?client_reference={}", "x".repeat(20_000));
    let request = hurler.request("GET", &long);
    hurler.hurl("a long query", request).await;
    assert!(hurler.refused > 100, "{}", hurler.refused);
}

fn filled(route: &str, value: &str) -> String {
    let segment = |segment| if str::starts_with(segment, '{') { value } else { segment };
    route.split('/').map(segment).collect::<Vec<_>>().join("/")
}
