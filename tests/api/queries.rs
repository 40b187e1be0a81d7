//! Unknown query parameters are refused, like unknown fields of a body.

use rewards_ledger::access::Role;
use rewards_ledger::api;
use serde_json::{Value, json};

use super::callers::{Caller, call};
use super::routes::{LOGOUT, Who, table, world};
use crate::support::node::Node;

const UNKNOWN: &str = "is not a known parameter";

/// Returns the names of a route's query parameters, as its OpenAPI document lists them.
fn known(route: &str) -> Vec<String> {
    let (method, path) = route.split_once(' ').unwrap();
    let documents = api::documents().into_iter().map(|(_, text)| serde_json::from_str::<Value>(&text).unwrap());
    let operation =
        documents.map(|document| document["paths"][path][method.to_lowercase()].clone()).find(|found| !found.is_null());
    let parameters = operation.unwrap()["parameters"].as_array().cloned().unwrap_or_default();
    let of_query = parameters.iter().filter(|parameter| parameter["in"] == "query");
    of_query.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn every_operation_refuses_unknown_query_parameters_by_name_and_takes_its_own() {
    let node = Node::sandbox().await;
    let world = world(&node).await;
    let admin = node.token(Role::Admin).await;
    let console = node.console_user(Role::Auditor).await;
    let head = node.head().await;
    for row in table() {
        let session = node.again(&world.users[2]).await;
        let caller = match row.who {
            Who::Anyone => Caller::Nobody,
            Who::Client(_) => Caller::Key(&world.key),
            Who::Portal(_) => Caller::Token(&session.access_token),
            Who::Operators(_) => Caller::Token(admin.expose()),
            Who::Console => Caller::Cookie(&console.cookie),
        };
        let (path, mut body) = (row.path(&world.things), row.body(&world.things));
        if body.is_null() && ["POST /auth/", "POST /admin/auth/login"].iter().any(|public| row.route.starts_with(public)) {
            body = json!({}); // a body that is not JSON is refused before anything else there
        }
        let ask = async |query: &str| call(&node, &caller, row.method(), &format!("{path}?{query}"), body.clone()).await;

        let answer = ask("Surplus=1&%73urplus=2&surplus=3&empty").await;
        let error = answer.refused(400, "E_VALIDATION_FAILURE");
        let expected = json!({"Surplus": [UNKNOWN], "surplus": [UNKNOWN], "empty": [UNKNOWN]});
        assert_eq!(error["messages"], expected, "{}", row.route);

        let names = known(row.route);
        if names.is_empty() {
            continue;
        }
        let query: Vec<String> = names.iter().map(|name| format!("{name}=x")).collect();
        let answer = ask(&query.join("&")).await;
        assert!(!answer.text.contains(UNKNOWN), "{}: {}", row.route, answer.text);
        let answer = ask(&format!("{}&surplus=1", query.join("&"))).await;
        assert_eq!(answer.refused(400, "E_VALIDATION_FAILURE")["messages"], json!({"surplus": [UNKNOWN]}), "{}", row.route);
    }
    assert_eq!(node.head().await, head, "refused requests have no effect");
}

/// A caller without permission learns nothing about an operation's parameters. A refused request is charged like any
/// other.
#[tokio::test]
async fn the_caller_is_checked_before_the_query_parameters() {
    let node = Node::sandbox().await;
    let world = world(&node).await;
    let viewer = &world.users[0];
    for row in table().into_iter().filter(|row| row.who != Who::Anyone && row.route != LOGOUT) {
        let path = format!("{}?surplus=1", row.path(&world.things));
        let answer = call(&node, &Caller::Nobody, row.method(), &path, row.body(&world.things)).await;
        assert_eq!(answer.status, 401, "{}: {}", row.route, answer.text);
        let is_above_viewers = matches!(row.who, Who::Client(role) | Who::Portal(role) if role != "viewer");
        if is_above_viewers {
            let answer = call(&node, &Caller::Token(&viewer.access_token), row.method(), &path, row.body(&world.things)).await;
            answer.refused(403, "E_FORBIDDEN");
        }
    }
    let remaining = async |path: &str| {
        let answer = node.client(&world.key, "GET", path, Value::Null).await;
        answer.header("X-RateLimit-Remaining").parse::<i64>().unwrap()
    };
    let before = remaining("/orders").await;
    assert_eq!(remaining("/orders?surplus=1").await, before - 1);
}

#[tokio::test]
async fn unknown_paths_and_methods_get_the_usual_errors() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    node.client(&client, "GET", "/nowhere?surplus=1", Value::Null).await.refused(404, "E_NOT_FOUND");
    node.client(&client, "DELETE", "/orders?surplus=1", Value::Null).await.refused(405, "E_METHOD_NOT_ALLOWED");
    node.client(&client, "GET", "/orders/?", Value::Null).await.data(200);
    let answer = node.client(&client, "GET", &format!("/orders?{}=1", "x".repeat(5_000)), Value::Null).await;
    let error = answer.refused(400, "E_VALIDATION_FAILURE");
    let name = error["messages"].as_object().unwrap().keys().next().unwrap();
    assert_eq!(name.len(), 100, "a long name is truncated");
}
