//! A separate listener for operators.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::wire::Wire;
use crate::support::postgres;
use crate::support::program::{OPERATOR_TOKEN, Program};

const OPERATOR_PATHS: [&str; 5] = ["/admin/v1/accounts", "/admin/docs", "/admin/openapi.json", "/metrics", "/admin/v1/nowhere"];
const CLIENT_PATHS: [&str; 6] =
    ["/api/v1/orders", "/docs", "/openapi.json", "/docs/guides/errors", "/auth/login", "/client/api/api-keys"];
const EVERYWHERE: [&str; 3] = ["/healthz", "/readyz", "/log/1/checkpoint"];

async fn get(url: &str, path: &str) -> (StatusCode, String) {
    let answer = reqwest::Client::new().get(format!("{url}{path}")).bearer_auth(OPERATOR_TOKEN).send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

/// Returns the URL of a program's operator listener, from its log line `ready`.
pub fn operator_url(program: &Program) -> String {
    let log = program.log();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ready = lines.into_iter().find(|line| line["message"] == "ready").unwrap();
    format!("http://{}", ready["operator_address"].as_str().unwrap_or_else(|| panic!("{ready}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_have_an_address_of_their_own() {
    let database = postgres::database().await;
    let program = Program::start(&database.url, &["--operator-listen", "127.0.0.1:0"]).await;
    let (clients, operators) = (program.url(), operator_url(&program));
    for path in OPERATOR_PATHS {
        let (status, body) = get(&clients, path).await;
        assert_eq!(status, 404, "{path}");
        assert!(body.contains("E_NOT_FOUND"), "{path}: {body}");
        // With any credentials and any spelling of the path.
        let escaped = format!("/%{:x}{}", path.as_bytes()[1], &path[2..]);
        for path in [path.to_owned(), format!("{path}/"), format!("/{path}"), escaped] {
            let mut wire = Wire::open(&clients).await;
            wire.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).await;
            let status = wire.answer().await.status;
            assert!([400, 404].contains(&status), "{path}: {status}");
        }
        if path != "/admin/v1/nowhere" {
            assert_eq!(get(&operators, path).await.0, 200, "{path}");
        }
    }
    for path in CLIENT_PATHS {
        assert_eq!(get(&operators, path).await.0, 404, "{path}");
        assert_ne!(get(&clients, path).await.0, 404, "{path}");
    }
    for path in EVERYWHERE {
        assert_eq!(get(&operators, path).await.0, get(&clients, path).await.0, "{path}");
    }
    let accounts = format!("{operators}/admin/v1/accounts");
    let create = |url: &str| reqwest::Client::new().post(url).json(&json!({"name": "Acme"}));
    assert_eq!(create(&accounts).send().await.unwrap().status(), 401);
    assert_eq!(create(&accounts).bearer_auth(OPERATOR_TOKEN).send().await.unwrap().status(), 201);
    let posted = create(&format!("{clients}/admin/v1/accounts")).bearer_auth(OPERATOR_TOKEN).send().await.unwrap();
    assert_eq!(posted.status(), 404);

    // A flood of clients leaves room for operators.
    let mut command = program.command();
    command.args(["admin", "--url", &operators, "--json", "account", "list"]);
    let listed = crate::support::program::run(&mut command).await;
    assert!(listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains("Acme"), "{listed:?}");
}

#[tokio::test]
async fn a_node_that_serves_no_clients_can_be_inspected() {
    let database = postgres::database().await;
    let arguments = ["--operator-listen", "127.0.0.1:0", "--roles", "projector,fulfilment,delivery"];
    let program = Program::start(&database.url, &arguments).await;
    let operators = operator_url(&program);
    for path in ["/healthz", "/readyz", "/metrics", "/admin/v1/accounts"] {
        assert_eq!(get(&operators, path).await.0, 200, "{path}");
    }
    assert_eq!(get(&operators, "/api/v1/orders").await.0, 404);
}

#[tokio::test]
async fn without_an_operator_listener_everything_is_at_one_address() {
    let database = postgres::database().await;
    let program = Program::start(&database.url, &["--roles", "api"]).await;
    for path in ["/admin/v1/accounts", "/admin/docs", "/metrics", "/healthz", "/docs"] {
        assert_eq!(get(&program.url(), path).await.0, 200, "{path}");
    }
}
