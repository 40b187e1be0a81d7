//! Requests that create something with a secret: a repeated one creates nothing, and the secret is stored nowhere.

use serde_json::{Value, json};

use super::at_rest::readable_in;
use crate::support::node::{Node, TestResponse};

#[tokio::test]
async fn a_repeated_request_for_a_secret_creates_nothing_and_shows_nothing() {
    let node = Node::start().await;
    let account = node.account("Acme").await;
    let owner = node.user(account.account_id, "owner").await;
    let keys = format!("/admin/v1/accounts/{}/credentials", account.account_id);
    for (path, body, secret, token) in [
        ("/client/api/api-keys", json!({"name": "Shop"}), "api_secret", Some(&owner.access_token)),
        (&keys, json!({"name": "Shop"}), "api_secret", None),
        ("/admin/v1/operator-tokens", json!({"name": "Report", "role": "auditor"}), "token", None),
    ] {
        let send = async |body: &Value| {
            let request = match token {
                Some(token) => node.request("POST", path).bearer_auth(token),
                None => node.by_operator("POST", path.strip_prefix("/admin/v1").unwrap()),
            };
            node.send(request.header("Idempotency-Key", "form-1").json(body)).await
        };
        let head = node.head().await;
        let answers = <[TestResponse; 2]>::from(tokio::join!(send(&body), send(&body)));
        let [created, again] = if answers[0].status == 201 { [&answers[0], &answers[1]] } else { [&answers[1], &answers[0]] };
        let created = created.data(201);
        let error = again.refused(409, "E_ALREADY_CREATED");
        assert!(error["message"].as_str().unwrap().contains(&format!("the ID {}", created["id"])), "{error}");
        assert_eq!(node.head().await, head + 1, "{path}");
        let mut other = body.clone();
        other["name"] = json!("Another");
        send(&other).await.refused(422, "E_IDEMPOTENCY_KEY_REUSED");
        assert_eq!(readable_in(&node, created[secret].as_str().unwrap()).await, Vec::<String>::new(), "{path}");
    }
}
