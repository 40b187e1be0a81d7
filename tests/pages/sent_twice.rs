//! Forms that are sent twice at once, over HTTP: each creates one thing.

use reqwest::redirect::Policy;
use rewards_ledger::access::Role;
use serde_json::Value;

use crate::support::node::Node;

/// A form of a page, with the cookie of its visitor.
struct Form<'a> {
    node: &'a Node,
    cookie: &'a str,
    path: String,
}

impl Form<'_> {
    /// Sends the form of a page twice at once. Returns status and text of the responses, the successful one first.
    async fn send_twice(&self, page: &str, fields: &str) -> [(u16, String); 2] {
        let http = reqwest::Client::builder().redirect(Policy::none()).build().unwrap();
        let page = http.get(format!("{}{page}", self.node.url())).header("Cookie", self.cookie).send().await.unwrap();
        let page = page.text().await.unwrap();
        let key = page.split("name=\"idempotency_key\" value=\"").nth(1).unwrap().split('"').next().unwrap();
        let send = async || {
            let form = http.post(format!("{}{}", self.node.url(), self.path)).header("Cookie", self.cookie);
            let form = form.header("Origin", self.node.url()).header("Content-Type", "application/x-www-form-urlencoded");
            let answer = form.body(format!("{fields}&idempotency_key={key}")).send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        let mut answers = <[(u16, String); 2]>::from(tokio::join!(send(), send()));
        answers.sort_by_key(|(status, _)| *status);
        answers
    }
}

#[tokio::test]
async fn a_form_that_creates_a_secret_creates_one() {
    let node = Node::start().await;
    let account = node.account("Acme").await;
    let (owner, admin) = (node.user(account.account_id, "owner").await, node.console_user(Role::Admin).await);
    let keys = format!("/console/accounts/{}/credentials", account.account_id);
    for (cookie, path, fields) in [
        (&owner.cookie, "/portal/api-keys", "name=Shop"),
        (&admin.cookie, &*keys, "name=Shop"),
        (&admin.cookie, "/console/operator-tokens", "name=Report&role=auditor"),
    ] {
        let head = node.head().await;
        let form = Form { node: &node, cookie, path: path.to_owned() };
        let [(good, shown), (status, repeated)] = form.send_twice(path, fields).await;
        assert_eq!((good, status), (200, 409), "{path}");
        assert!(shown.contains("It is gone when you leave this page"), "{shown}");
        assert!(repeated.contains("This form was already sent") && repeated.contains(&format!("href=\"{path}\"")), "{repeated}");
        let secrets: Vec<&str> = shown.split("data-copy=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(!secrets.is_empty() && secrets.iter().all(|secret| secret.len() >= 16), "{shown}");
        assert!(!secrets.iter().any(|secret| repeated.contains(secret)), "{path} shows a secret twice");
        assert_eq!(node.head().await, head + 1, "{path}");
    }
}

#[tokio::test]
async fn an_invitation_that_is_sent_twice_is_one() {
    let node = Node::start().await;
    let account = node.account("Acme").await;
    let owner = node.user(account.account_id, "owner").await;
    let form = Form { node: &node, cookie: &owner.cookie, path: "/portal/team/invitations".to_owned() };
    let answers = form.send_twice("/portal/team", "email=grace%40example.com&role=viewer").await;
    assert_eq!(answers.map(|(status, _)| status), [303, 303]);
    let path = "/client/api/users/invitations";
    let open = node.bearer(&owner.access_token, "GET", path, Value::Null).await.data(200);
    assert_eq!(open["invitations"].as_array().unwrap().len(), 1);
    let mails: i64 = sqlx::query_scalar("SELECT count(*) FROM vault.mails").fetch_one(node.ledger.pool()).await.unwrap();
    assert_eq!(mails, 1);
}
