//! The audit log in its file.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use super::{err, program, run};
use crate::support::node::PASSWORD;
use crate::support::postgres;
use crate::support::program::{OPERATOR_TOKEN, Program};
use crate::support::wait::until;

/// Returns the kind, the caller, the path and the success of each line since the last call.
fn since(path: &Path, read: &mut usize) -> Vec<(String, Value, String, bool)> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = text.lines().skip(*read).map(|line| serde_json::from_str(line).unwrap()).collect();
    *read += lines.len();
    let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    let told = |line: &Value| {
        assert_eq!((&line["target"], &line["source"]), (&json!("audit"), &json!("127.0.0.1")), "{line}");
        assert!(line["timestamp"].is_string() && line["request_id"].is_string() && line["status"].is_u64(), "{line}");
        (text(line, "kind"), line["caller"].clone(), text(line, "path"), line["is_successful"].as_bool().unwrap())
    };
    lines.iter().map(told).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_ins_reveals_refusals_and_requests_of_operators_are_in_the_file() {
    let database = postgres::database().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let settings = ["--audit-log", path.to_str().unwrap(), "--console-url", "https://console.example"];
    let mut node = Program::logging("info", &database.url, &settings).await;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only its owner reads it");
    let client = node.client("100.00").await;
    let product = node.product(5).await;
    let users = format!("/accounts/{}/users", client.account_id);
    let user = json!({"email": "ann@example.com", "password": PASSWORD, "role": "operator"});
    let user = format!("user {}", node.operator(&users, user).await["id"]);
    let bob = json!({"email": "bob@example.com", "password": PASSWORD, "role": "viewer"});
    let bob = format!("user {}", node.operator(&users, bob).await["id"]);
    let kim = json!({"email": "kim@example.com", "password": PASSWORD, "role": "auditor"});
    let kim = format!("operator {}", node.operator("/operators", kim).await["id"]);

    let mut read = 0;
    let lines = since(&path, &mut read);
    let of = |path: &str| lines.iter().find(|line| line.2 == path).unwrap_or_else(|| panic!("{path} is not in {lines:?}"));
    assert_eq!((&*of("/admin/v1/accounts").0, &of("/admin/v1/accounts").1), ("change", &json!("operator 0")));
    let issued = format!("/admin/v1/accounts/{}/credentials", client.account_id);
    assert_eq!(of(&issued).0, "reveal", "the key is in the response");

    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let send_body = async |method: &str, path: &str, headers: &[(&str, &str)], (content_type, body): (&str, String)| {
        let mut request = http.request(method.parse().unwrap(), format!("{}{path}", node.url())).body(body);
        for (name, value) in [("Content-Type", content_type)].iter().chain(headers) {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        let cookie = answer.headers().get("set-cookie").map(|cookie| cookie.to_str().unwrap().to_owned());
        (answer.status().as_u16(), cookie.unwrap_or_default().split(';').next().unwrap_or_default().to_owned())
    };
    let send = async |method: &str, path: &str, headers: &[(&str, &str)], body: Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        send_body(method, path, headers, ("application/json", body)).await
    };
    let send_form = async |path: &str, headers: &[(&str, &str)], form: &str| {
        send_body("POST", path, headers, ("application/x-www-form-urlencoded", form.to_owned())).await
    };
    let mut expect = |status: u16, expected: u16, lines: &[(&str, Value, &str, bool)]| {
        let lines: Vec<_> = lines.iter().map(|(k, c, p, s)| ((*k).to_owned(), c.clone(), (*p).to_owned(), *s)).collect();
        assert_eq!((status, since(&path, &mut read)), (expected, lines));
    };

    // An order of a client is an event, and has no line. The read of its codes and a wrong key have one.
    let order = json!({"product_id": product, "denomination": 10, "quantity": 1});
    let (status, order) = node.call(&client, "POST", "/orders", None, &order).await.unwrap();
    expect(status, 201, &[]);
    let order = format!("/orders/{}", order["id"]);
    until("the order is delivered", async || {
        node.call(&client, "GET", &order, None, &Value::Null).await.unwrap().1["status"] == "DELIVERED"
    })
    .await;
    let codes = format!("{order}/vouchers");
    let (status, _) = node.call(&client, "GET", &codes, None, &Value::Null).await.unwrap();
    let codes = format!("/api/v1{codes}");
    expect(status, 200, &[("reveal", json!(format!("credential {}", client.credential_id)), &codes, true)]);
    let (status, _) = send("GET", "/api/v1/orders", &[("X-API-Key", "wrong"), ("X-API-Secret", "wrong")], Value::Null).await;
    expect(status, 401, &[("refusal", Value::Null, "/api/v1/orders", false)]);

    let hook = json!({"name": "Shop", "url": "https://shop.example/a", "events": ["order.created"]});
    let (status, hook) = node.call(&client, "POST", "/webhooks", None, &hook).await.unwrap();
    let credential = json!(format!("credential {}", client.credential_id));
    expect(status, 201, &[("reveal", credential.clone(), "/api/v1/webhooks", true)]);
    let rotate = format!("/webhooks/{}/rotate-token", hook["id"]);
    let (status, _) = node.call(&client, "POST", &rotate, None, &json!({})).await.unwrap();
    expect(status, 200, &[("reveal", credential, &format!("/api/v1{rotate}"), true)]);
    node.operator("/operator-tokens", json!({"name": "a program", "role": "auditor"})).await;
    expect(201, 201, &[("reveal", json!("operator 0"), "/admin/v1/operator-tokens", true)]);

    let login = |password: &str| json!({"email": "ann@example.com", "password": password});
    let (status, _) = send("POST", "/auth/login", &[], login("a wrong password")).await;
    expect(status, 401, &[("sign_in", Value::Null, "/auth/login", false)]);
    let (status, cookie) = send("POST", "/auth/login", &[], login(PASSWORD)).await;
    expect(status, 200, &[("sign_in", json!(user), "/auth/login", true)]);
    // A page that shows the codes is one request.
    let origin = node.url();
    let page = format!("/portal{order}/vouchers");
    let (status, _) = send("POST", &page, &[("Cookie", &cookie), ("Origin", &origin)], Value::Null).await;
    expect(status, 200, &[("reveal", json!(user), &page, true)]);
    let from_portal = [("Cookie", &*cookie), ("Origin", &*origin)];
    // The line names the user who signs in on the page, not the one whose session was still open.
    let (status, _) = send_form("/portal/login", &from_portal, "email=bob%40example.com&password=wrong").await;
    expect(status, 401, &[("sign_in", Value::Null, "/portal/login", false)]);
    let form = format!("email=bob%40example.com&password={}", PASSWORD.replace(' ', "+"));
    let (status, second) = send_form("/portal/login", &from_portal, &form).await;
    expect(status, 303, &[("sign_in", json!(bob), "/portal/login", true)]);
    let from_second = [("Cookie", &*second), ("Origin", &*origin)];
    let (status, _) = send_form("/portal/logout", &from_second, "").await;
    expect(status, 303, &[("sign_out", json!(bob), "/portal/logout", true)]);
    let (status, _) = send("DELETE", "/client/api/sessions/1", &from_portal, Value::Null).await;
    expect(status, 200, &[("sign_out", json!(user), "/client/api/sessions/1", true)]);

    let login = json!({"email": "kim@example.com", "password": PASSWORD});
    let from_console = ("Origin", "https://console.example");
    let (status, cookie) = send("POST", "/admin/auth/login", &[from_console], login).await;
    expect(status, 200, &[("sign_in", json!(kim), "/admin/auth/login", true)]);
    let cookie = ("Cookie", &*cookie);
    let (status, _) = send("GET", "/admin/v1/orders?status=DELIVERED", &[cookie], Value::Null).await;
    expect(status, 200, &[("read", json!(kim), "/admin/v1/orders", true)]);
    let (status, _) = send("GET", "/console/orders", &[cookie], Value::Null).await;
    expect(status, 200, &[("read", json!(kim), "/console/orders", true)]);
    let (status, _) = send("POST", "/admin/v1/accounts", &[cookie, from_console], json!({"name": "no"})).await;
    expect(status, 403, &[("refusal", json!(kim), "/admin/v1/accounts", false)]);
    let (status, _) = send("POST", "/admin/auth/logout", &[cookie, from_console], Value::Null).await;
    expect(status, 200, &[("sign_out", json!(kim), "/admin/auth/logout", true)]);

    // The log of the node has none of the lines, and neither log has a secret. A restart appends.
    let text = std::fs::read_to_string(&path).unwrap();
    for secret in [&*client.secret, PASSWORD, OPERATOR_TOKEN, cookie.1, "ann@example.com", "status=DELIVERED"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let audited: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    until("each request has a line in the access log, too", async || {
        let log = node.log();
        let accessed: Vec<&str> = log.lines().filter(|line| line.contains("\"target\":\"access\"")).collect();
        audited.iter().all(|line| accessed.iter().any(|other| other.contains(line["request_id"].as_str().unwrap())))
    })
    .await;
    assert!(!node.log().contains("\"target\":\"audit\""), "{}", node.log());
    node.restart().await;
    node.operator("/accounts", json!({"name": "After"})).await;
    expect(200, 200, &[("change", json!("operator 0"), "/admin/v1/accounts", true)]);
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_stops_the_start() {
    let directory = super::directory();
    let missing = directory.path().join("missing/audit.jsonl");
    let mut command = program(directory.path());
    let started = run(command.args(["serve", "--listen", "127.0.0.1:0", "--audit-log"]).arg(&missing)).await;
    assert!(!started.status.success());
    let expected = format!("--audit-log (LEDGER_AUDIT_LOG): cannot append to {missing:?}: No such file");
    assert!(err(&started).contains(&expected), "{}", err(&started));
}
