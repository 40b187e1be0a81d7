//! The requests of people: on the portal and the console, and what these rest on. The last release serves none of them.

use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
use serde_json::{Value, json};

use super::{Caller, Shop};
use crate::support::node::PASSWORD;

impl Caller {
    /// Signs a person in. Returns the response and the cookies of the session.
    async fn sign_in(&self, path: &str, body: Value) -> (Value, String) {
        let request = self.http.post(format!("{}{path}", self.url)).header(CONTENT_TYPE, "application/json");
        let answer = request.body(body.to_string()).send().await.unwrap();
        let (status, headers) = (answer.status(), answer.headers().clone());
        let text = answer.text().await.unwrap_or_default();
        if !status.is_success() {
            self.failures.lock().unwrap().push(format!("POST {path}: {status} {text}"));
        }
        let cookies = headers.get_all(SET_COOKIE).iter().filter_map(|cookie| cookie.to_str().ok()?.split(';').next());
        let mut answer: Value = serde_json::from_str(&text).unwrap_or_default();
        (answer["data"].take(), cookies.collect::<Vec<_>>().join("; "))
    }

    /// Looks at a page. A page that leads elsewhere, as to the login, is a failure.
    async fn page(&self, path: &str, cookies: &str) {
        let shown = self.http.get(format!("{}{path}", self.url)).header(COOKIE, cookies).send().await;
        let failure = match shown {
            Ok(page) if page.status().is_success() && page.url().path() == path => return,
            Ok(page) => format!("{} {}", page.status(), page.url().path()),
            Err(error) => format!("{error:?}"),
        };
        self.failures.lock().unwrap().push(format!("GET {path}: {failure}"));
    }

    /// Sends a request of a user who has signed in.
    async fn user(&self, token: &str, method: Method, path: &str, body: Value) -> Value {
        let request = self.http.request(method.clone(), format!("{}{path}", self.url)).bearer_auth(token);
        self.send(method, path, request, body).await
    }
}

/// Does the work of a user on the portal: sessions, keys, invitations, notices, and a forgotten password.
pub(super) async fn of_user(caller: &Caller, shop: &Shop, key: &str) {
    let login = json!({"email": shop.email, "password": PASSWORD});
    let (session, cookies) = caller.sign_in("/auth/login", login).await;
    let token = session["access_token"].as_str().unwrap_or_default();
    for path in ["/portal", "/portal/orders", "/portal/wallets", "/portal/webhooks", "/portal/team"] {
        caller.page(path, &cookies).await;
    }
    let restricted = json!({"name": key, "scopes": ["read"]});
    let id = caller.user(token, Method::POST, "/client/api/api-keys", restricted).await["id"].clone();
    let invited = json!({"email": format!("{key}@example.com"), "role": "viewer"});
    let invitation = caller.user(token, Method::POST, "/client/api/users/invitations", invited).await["id"].clone();
    let notice = format!("/client/api/wallets/{}/notice", shop.wallet);
    caller.user(token, Method::PUT, &notice, json!({"below": "10.00"})).await;
    for path in [
        "/client/api/sessions",
        "/client/api/two-factor",
        "/client/api/security",
        "/client/api/users",
        "/client/api/users/invitations",
        "/client/api/api-keys",
        &format!("/client/api/api-keys/{id}"),
        &notice,
    ] {
        caller.user(token, Method::GET, path, Value::Null).await;
    }
    caller.user(token, Method::DELETE, &format!("/client/api/api-keys/{id}"), Value::Null).await;
    caller.user(token, Method::DELETE, &format!("/client/api/users/invitations/{invitation}"), Value::Null).await;
    caller.anyone(Method::POST, "/auth/password-reset", json!({"email": shop.email})).await;
    caller.user(token, Method::POST, "/auth/logout", Value::Null).await;
}

/// Pulls events, and reads what the pages read.
pub(super) async fn of_program(caller: &Caller, shop: &Shop) {
    let latest = caller.client(Method::GET, "/events?after=latest", Value::Null).await;
    let cursor = latest["cursor"].as_str().unwrap_or_default();
    let orders = caller.client(Method::GET, "/orders?limit=1", Value::Null).await;
    let order = &orders["orders"][0]["id"];
    for path in [
        "/events?limit=3",
        &format!("/events?limit=3&after={cursor}"),
        "/orders/stats",
        &format!("/orders/{order}/history"),
        &format!("/webhooks/{}/explanation?order_id={order}", shop.webhook),
        &format!("/webhooks/{}/stats", shop.webhook),
        &format!("/webhooks/{}/attempts", shop.webhook),
    ] {
        caller.client(Method::GET, path, Value::Null).await;
    }
}

/// Does the work of an operator on the console: an own user, and a request that waits for a second operator.
pub(super) async fn of_operator(caller: &Caller, shop: &Shop, key: &str) {
    let email = format!("{key}@operators.example.com");
    let user = json!({"email": email, "password": PASSWORD, "role": "admin"});
    let id = caller.operator(Method::POST, "/operators", user).await["id"].clone();
    let (_, cookies) = caller.sign_in("/admin/auth/login", json!({"email": email, "password": PASSWORD})).await;
    for path in ["/console", "/console/orders", "/console/operations", "/console/audit"] {
        caller.page(path, &cookies).await;
    }
    let funding = json!({"amount": "5000000.00", "reference": format!("large-{key}")});
    let asked = caller.operator(Method::POST, &format!("/wallets/{}/fund", shop.wallet), funding).await["id"].clone();
    for path in [
        "/approvals?limit=3",
        &format!("/approvals/{asked}"),
        "/operators",
        &format!("/operators/{id}"),
        "/operations",
        "/audit?limit=3",
        &format!("/search?q={key}"),
        "/retention",
    ] {
        caller.operator(Method::GET, path, Value::Null).await;
    }
    caller.operator(Method::POST, &format!("/approvals/{asked}/withdraw"), Value::Null).await;
    caller.operator(Method::DELETE, &format!("/operators/{id}"), Value::Null).await;
}
