//! Users that operators add, change and remove, and the sessions that end with that.

use rewards_ledger::access::Role;
use serde_json::{Value, json};

use super::sessions::{KEYS, with_user};
use crate::support::node::{Node, PASSWORD, User};

#[tokio::test]
async fn operators_add_and_remove_users() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let (users, head) = (format!("/accounts/{}/users", client.account_id), node.head().await);
    let ada = json!({"email": "Ada@example.com", "password": PASSWORD, "role": "viewer"});
    let created = node.operator("POST", &users, ada.clone()).await.data(201);
    assert_eq!(created, json!({"id": created["id"], "email": "Ada@example.com", "role": "viewer"}));
    let mut same = ada.clone();
    same["email"] = json!("ada@EXAMPLE.com");
    node.operator("POST", &users, same.clone()).await.refused(409, "E_CONFLICT");
    let elsewhere = node.account("Other").await;
    node.operator("POST", &format!("/accounts/{}/users", elsewhere.account_id), same).await.refused(409, "E_CONFLICT");
    for (field, value) in [("email", json!("nobody")), ("password", json!("short")), ("role", json!("admin"))] {
        let mut body = ada.clone();
        body[field] = value;
        let error = node.operator("POST", &users, body).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][field].is_array(), "{error}");
    }
    node.operator("POST", "/accounts/999999/users", ada.clone()).await.refused(404, "E_NOT_FOUND");

    let auditor = node.token(Role::Auditor).await;
    let list = node.operator_with(&auditor, "GET", &users, Value::Null).await;
    assert_eq!(list.data(200)["users"], json!([created]));
    let path = format!("/users/{}", created["id"]);
    assert_eq!(node.operator("DELETE", &path, Value::Null).await.data(200), created);
    node.operator("DELETE", &path, Value::Null).await.data(200);
    assert_eq!(node.operator("GET", &users, Value::Null).await.data(200)["users"], json!([]));
    // The email can be used again.
    assert_ne!(node.operator("POST", &users, ada).await.data(201)["id"], created["id"]);

    // Each change is one event, and no event contains the email or the password.
    let events: Vec<(String, String)> = sqlx::query_as(
        "SELECT type, data::text || metadata::text FROM events WHERE position > $1 AND stream_type = 'user' ORDER BY position",
    )
    .bind(head)
    .fetch_all(node.ledger.pool())
    .await
    .unwrap();
    assert_eq!(events.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["UserCreated", "UserRemoved", "UserCreated"]);
    assert!(events.iter().all(|(_, text)| !text.to_lowercase().contains("example.com")), "{events:?}");
}

#[tokio::test]
async fn operators_change_users_and_end_their_sessions() {
    let (node, user) = with_user("viewer").await;
    let path = format!("/users/{}", user.id);
    let has_ended = async |user: &User| {
        node.bearer(&user.access_token, "GET", KEYS, Value::Null).await.refused(401, "E_INVALID_TOKEN");
        node.portal(&user.cookie, node.url(), "GET", KEYS, Value::Null).await.refused(401, "E_INVALID_TOKEN");
        let refresh = json!({"refresh_token": user.refresh_token});
        node.anyone("POST", "/auth/refresh", refresh).await.refused(401, "E_INVALID_TOKEN");
    };
    let log_in =
        async |password: &str| node.anyone("POST", "/auth/login", json!({"email": user.email, "password": password})).await;
    let head = node.head().await;
    // Setting the current role is not a change.
    let viewer = node.operator("PUT", &path, json!({"role": "viewer"})).await.data(200);
    assert_eq!(viewer, json!({"id": user.id, "email": user.email, "role": "viewer"}));
    node.bearer(&user.access_token, "GET", KEYS, Value::Null).await.data(200);
    assert_eq!(node.head().await, head);

    let owner = node.operator("PUT", &path, json!({"role": "owner", "password": null})).await.data(200);
    assert_eq!(owner["role"], "owner");
    has_ended(&user).await;
    let (first, second) = (node.again(&user).await, node.again(&user).await);
    node.bearer(&first.access_token, "POST", KEYS, json!({"name": "a"})).await.data(201);
    assert_eq!(node.operator("DELETE", &format!("{path}/sessions"), Value::Null).await.data(200), owner);
    has_ended(&first).await;
    has_ended(&second).await;

    let third = node.again(&user).await;
    let password = "a password of an operator's";
    assert_eq!(node.operator("PUT", &path, json!({"password": password})).await.data(200), owner);
    has_ended(&third).await;
    log_in(PASSWORD).await.refused(401, "E_INVALID_CREDENTIALS");
    log_in(password).await.data(200);

    for (body, field) in [
        (json!({}), "body"),
        (json!({"role": "admin"}), "role"),
        (json!({"password": "short"}), "password"),
        (json!({"email": "b@c"}), "email"),
    ] {
        let error = node.operator("PUT", &path, body).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][field].is_array(), "{error}");
    }
    node.operator("PUT", "/users/999999", json!({"role": "owner"})).await.refused(404, "E_NOT_FOUND");
    node.operator("DELETE", "/users/999999/sessions", Value::Null).await.refused(404, "E_NOT_FOUND");
    node.operator("DELETE", &path, Value::Null).await.data(200);
    node.operator("PUT", &path, json!({"role": "viewer"})).await.refused(409, "E_CONFLICT");
    node.operator("DELETE", &format!("{path}/sessions"), Value::Null).await.refused(409, "E_CONFLICT");

    let events: Vec<(String, String)> =
        sqlx::query_as("SELECT type, data::text FROM events WHERE position > $1 AND stream_type = 'user' ORDER BY position")
            .bind(head)
            .fetch_all(node.ledger.pool())
            .await
            .unwrap();
    let (types, data): (Vec<&str>, Vec<&str>) = events.iter().map(|(kind, data)| (&**kind, &**data)).unzip();
    assert_eq!(types, ["UserRoleChanged", "UserSessionsEnded", "UserPasswordReset", "UserRemoved"]);
    assert!(data.iter().all(|text| !text.contains(password) && !text.contains("argon2")), "{data:?}");
}
