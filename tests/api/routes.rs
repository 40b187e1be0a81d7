//! Every route of both documents with every kind of caller.
//!
//! A new route needs one row in [`table`], or the first test fails: `read` for what changes
//! nothing, `change` with a body that would do, `of_operators` for `/admin/v1`. A new kind of
//! thing in a path (`/things/{id}`) needs an id in [`things`].

use std::collections::{BTreeSet, HashMap};

use chrono::{TimeDelta, Utc};
use rewards_ledger::access::Role;
use rewards_ledger::access::seal::random_secret;
use rewards_ledger::access::tokens::{AccessTokens, Claims};
use rewards_ledger::api;
use serde_json::{Value, json};

use crate::support::ledger::keyring;
use crate::support::node::{Answer, Client, Node, User};

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Anyone,
    /// API keys, and users from this role on.
    Client(&'static str),
    /// Users from this role on, by token or cookie.
    Portal(&'static str),
    /// Operators of these roles.
    Operators(&'static [Role]),
}

/// Roles of users, each with what those before it may.
const USER_ROLES: [&str; 3] = ["viewer", "operator", "owner"];
const ANY: Who = Who::Operators(&[Role::Admin, Role::Finance, Role::Auditor]);
const FINANCE: Who = Who::Operators(&[Role::Admin, Role::Finance]);
const ADMIN: Who = Who::Operators(&[Role::Admin]);

type Body = fn(&Things) -> Value;

struct Row {
    /// Method and path, as in the document.
    route: &'static str,
    who: Who,
    /// Of a change: a body that would do.
    change: Option<Body>,
    /// What its path names belongs to no account.
    is_shared: bool,
}

fn read(route: &'static str, who: Who) -> Row {
    Row { route, who, change: None, is_shared: false }
}

fn change(route: &'static str, who: Who, body: Body) -> Row {
    Row { change: Some(body), ..read(route, who) }
}

/// What operators do is bound to no account, suspended or not.
fn of_operators(route: &'static str, who: Who) -> Row {
    Row { is_shared: true, ..read(route, who) }
}

fn shared(row: Row) -> Row {
    Row { is_shared: true, ..row }
}

fn nothing(_: &Things) -> Value {
    Value::Null
}

fn table() -> Vec<Row> {
    use Who::{Anyone, Client, Portal};
    vec![
        shared(read("POST /auth/login", Anyone)),
        shared(read("POST /auth/refresh", Anyone)),
        shared(read("POST /auth/logout", Portal("viewer"))),
        read("GET /client/api/api-keys", Portal("viewer")),
        change("POST /client/api/api-keys", Portal("owner"), |_| json!({"name": "key"})),
        change("DELETE /client/api/api-keys/{id}", Portal("owner"), nothing),
        change("POST /client/api/api-keys/{id}/rotate-signing-secret", Portal("owner"), nothing),
        read("GET /api/v1/orders", Client("viewer")),
        change(
            "POST /api/v1/orders",
            Client("operator"),
            |things| json!({"product_id": things["products"], "denomination": 10, "quantity": 1}),
        ),
        read("GET /api/v1/orders/{id}", Client("viewer")),
        read("GET /api/v1/orders/{id}/vouchers", Client("operator")),
        change("POST /api/v1/orders/{id}/cancel", Client("operator"), nothing),
        read("GET /api/v1/products", Client("viewer")),
        shared(read("GET /api/v1/products/{id}", Client("viewer"))),
        shared(read("GET /api/v1/products/images", Client("viewer"))),
        shared(read("GET /api/v1/products/{id}/image", Client("viewer"))),
        shared(read("GET /api/v1/products/{id}/image/{version}", Client("viewer"))),
        read("POST /api/v1/charges", Client("viewer")),
        read("GET /api/v1/countries", Client("viewer")),
        read("GET /api/v1/currencies", Client("viewer")),
        read("GET /api/v1/categories", Client("viewer")),
        read("GET /api/v1/wallets", Client("viewer")),
        read("GET /api/v1/wallets/{id}/statement", Client("viewer")),
        read("GET /api/v1/transactions", Client("viewer")),
        read("GET /api/v1/transactions/{id}", Client("viewer")),
        read("GET /api/v1/webhooks", Client("viewer")),
        change(
            "POST /api/v1/webhooks",
            Client("operator"),
            |_| json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]}),
        ),
        read("GET /api/v1/webhooks/{id}", Client("viewer")),
        change("PUT /api/v1/webhooks/{id}", Client("operator"), |_| json!({"is_active": false})),
        change("DELETE /api/v1/webhooks/{id}", Client("operator"), nothing),
        read("GET /api/v1/webhooks/deliveries", Client("viewer")),
        read("GET /api/v1/webhooks/deliveries/{id}", Client("viewer")),
        read("GET /api/v1/webhooks/deliveries/stats", Client("viewer")),
        change("POST /api/v1/webhooks/deliveries/{id}/retry", Client("operator"), nothing),
        change("POST /api/v1/webhooks/{id}/test", Client("operator"), nothing),
        read("GET /api/v1/beneficiaries", Client("viewer")),
        change("POST /api/v1/beneficiaries", Client("owner"), |_| beneficiary()),
        read("GET /api/v1/beneficiaries/{id}", Client("viewer")),
        change("DELETE /api/v1/beneficiaries/{id}", Client("owner"), nothing),
        read("GET /api/v1/payouts", Client("viewer")),
        change("POST /api/v1/payouts", Client("owner"), payout),
        read("GET /api/v1/payouts/{id}", Client("viewer")),
        change("POST /api/v1/payouts/{id}/cancel", Client("owner"), nothing),
        change("POST /api/v1/sandbox/wallets/{id}/fund", Client("operator"), |_| json!({"amount": "1.00"})),
        of_operators("GET /admin/v1/accounts", ANY),
        of_operators("POST /admin/v1/accounts", ADMIN),
        of_operators("PUT /admin/v1/accounts/{id}", ADMIN),
        of_operators("POST /admin/v1/accounts/{id}/credentials", ADMIN),
        of_operators("PUT /admin/v1/accounts/{id}/discounts", ADMIN),
        of_operators("GET /admin/v1/accounts/{id}/users", ANY),
        of_operators("POST /admin/v1/accounts/{id}/users", ADMIN),
        of_operators("POST /admin/v1/accounts/{id}/wallets", ADMIN),
        of_operators("DELETE /admin/v1/users/{id}", ADMIN),
        of_operators("PUT /admin/v1/credentials/{id}", ADMIN),
        of_operators("DELETE /admin/v1/credentials/{id}", ADMIN),
        of_operators("DELETE /admin/v1/ip-blocks/{ip}", ADMIN),
        of_operators("GET /admin/v1/wallets/{id}", ANY),
        of_operators("GET /admin/v1/wallets/{id}/statement", ANY),
        of_operators("POST /admin/v1/wallets/{id}/fund", FINANCE),
        of_operators("POST /admin/v1/wallets/{id}/adjust", FINANCE),
        of_operators("GET /admin/v1/categories", ANY),
        of_operators("POST /admin/v1/categories", ADMIN),
        of_operators("GET /admin/v1/products", ANY),
        of_operators("POST /admin/v1/products", ADMIN),
        of_operators("PUT /admin/v1/products/{id}", ADMIN),
        of_operators("PUT /admin/v1/products/{id}/image", ADMIN),
        of_operators("GET /admin/v1/products/{id}/stock", ANY),
        of_operators("POST /admin/v1/products/{id}/vouchers", ADMIN),
        of_operators("GET /admin/v1/orders", ANY),
        of_operators("GET /admin/v1/orders/{id}", ANY),
        of_operators("GET /admin/v1/orders/{id}/history", ANY),
        of_operators("POST /admin/v1/orders/{id}/cancel", ADMIN),
        of_operators("GET /admin/v1/webhooks/{id}/replays", ANY),
        of_operators("POST /admin/v1/webhooks/{id}/replays", ADMIN),
        of_operators("GET /admin/v1/replays/{id}", ANY),
        of_operators("POST /admin/v1/replays/{id}/cancel", ADMIN),
        of_operators("GET /admin/v1/events", ANY),
        of_operators("GET /admin/v1/orders/{id}/receipt", ANY),
        shared(read("GET /log/{shard}/checkpoint", Anyone)),
        shared(read("GET /log/{shard}/keys", Anyone)),
        shared(read("GET /log/{shard}/proof/consistency", Anyone)),
        shared(read("GET /log/{shard}/proof/inclusion", Anyone)),
        shared(read("GET /log/{shard}/tile/{place}", Anyone)),
        of_operators("GET /log/{shard}/tile/entries/{place}", ANY),
        of_operators("GET /log/{shard}/tile/entries32/{place}", ANY),
        shared(read("POST /log/{shard}/cosignatures", Anyone)),
        of_operators("GET /admin/v1/reconciliation", ANY),
        of_operators("GET /admin/v1/reconciliation/statements", ANY),
        of_operators("POST /admin/v1/reconciliation/statements", FINANCE),
        of_operators("GET /admin/v1/reconciliation/statements/{id}", ANY),
        of_operators("POST /admin/v1/reconciliation/statements/{id}/lines/{line}/decide", FINANCE),
        of_operators("POST /admin/v1/reconciliation/statements/{id}/lines/{line}/revoke", FINANCE),
        of_operators("GET /admin/v1/payouts", ANY),
        of_operators("PUT /admin/v1/payouts/{id}", FINANCE),
    ]
}

fn beneficiary() -> Value {
    json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"})
}

fn payout(things: &Things) -> Value {
    json!({"beneficiary_id": things["beneficiaries"], "wallet_id": things["wallets"], "amount": "1.00"})
}

/// Ids of what an account has, by the segment of a path that they follow.
pub type Things = HashMap<&'static str, i64>;

/// An account with something of everything, and who acts for it.
pub struct World {
    pub key: Client,
    /// A viewer, an operator and an owner.
    pub users: Vec<User>,
    pub things: Things,
}

pub async fn world(node: &Node) -> World {
    let setup = node.setup().await;
    let key = setup.client;
    let hook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});
    let webhook = node.client(&key, "POST", "/webhooks", hook).await.json();
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&key, "POST", "/orders", order).await.data(201);
    node.project().await;
    let deliveries = node.client(&key, "GET", "/webhooks/deliveries", Value::Null).await.data(200);
    let ada = node.client(&key, "POST", "/beneficiaries", beneficiary()).await.data(201);
    let spare = node.credential(key.account_id).await;
    let mut users = vec![];
    for role in USER_ROLES {
        users.push(node.user(key.account_id, role).await);
    }
    let id = |value: &Value| value.as_i64().unwrap();
    let mut things = HashMap::from([
        ("beneficiaries", id(&ada["id"])),
        ("orders", id(&order["id"])),
        ("transactions", id(&order["transaction_id"])),
        ("webhooks", id(&webhook["id"])),
        ("deliveries", id(&deliveries["deliveries"][0]["id"])),
        ("wallets", setup.wallet_id),
        ("products", setup.product_id),
        ("api-keys", spare.credential_id),
        ("credentials", spare.credential_id),
        ("accounts", key.account_id),
        ("users", users[0].id),
    ]);
    let paid = node.client(&key, "POST", "/payouts", payout(&things)).await.data(201);
    things.insert("payouts", id(&paid["id"]));
    World { key, users, things }
}

/// An id that nothing has.
const NOTHING: i64 = 999_999_999;

/// A document's path, with the ids of these things.
pub fn path(route: &str, things: &Things) -> String {
    let mut path = String::new();
    let mut before = "";
    for segment in route.split('/').skip(1) {
        match segment.starts_with('{') {
            true => path += &format!("/{}", things.get(before).unwrap_or(&NOTHING)),
            false => path += &format!("/{segment}"),
        }
        before = segment;
    }
    path
}

impl Row {
    fn method(&self) -> &'static str {
        self.route.split_once(' ').unwrap().0
    }

    /// The path, with the ids of these things.
    fn path(&self, things: &Things) -> String {
        path(self.route.split_once(' ').unwrap().1, things)
    }

    fn body(&self, things: &Things) -> Value {
        self.change.map_or(Value::Null, |body| body(things))
    }

    /// Whether its path names one of the account's things that [`world`] has made.
    fn names(&self, things: &Things) -> bool {
        !self.is_shared && self.route.contains('{') && !self.path(things).contains(&NOTHING.to_string())
    }
}

/// How a request says who it is from.
enum Caller<'a> {
    Nobody,
    Key(&'a Client),
    Token(&'a str),
    Cookie(&'a str),
}

async fn call(node: &Node, caller: &Caller<'_>, method: &str, path: &str, body: Value) -> Answer {
    match caller {
        Caller::Nobody => node.anyone(method, path, body).await,
        Caller::Token(token) => node.bearer(token, method, path, body).await,
        Caller::Cookie(cookie) => node.portal(cookie, node.url(), method, path, body).await,
        Caller::Key(key) => {
            let request = node.request(method, path).header("X-API-Key", &key.key).header("X-API-Secret", &key.secret);
            node.send(if body.is_null() { request } else { request.json(&body) }).await
        }
    }
}

#[test]
fn the_table_has_every_route_and_no_other() {
    let mut routes = BTreeSet::new();
    for (_, text) in api::documents() {
        let document: Value = serde_json::from_str(&text).unwrap();
        for (path, operations) in document["paths"].as_object().unwrap() {
            routes.extend(operations.as_object().unwrap().keys().map(|method| format!("{} {path}", method.to_uppercase())));
        }
    }
    let rows: BTreeSet<String> = table().iter().map(|row| row.route.to_owned()).collect();
    assert_eq!(rows.len(), table().len(), "a route has two rows");
    let missing: Vec<_> = routes.difference(&rows).collect();
    let unknown: Vec<_> = rows.difference(&routes).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "without a row: {missing:#?}\nrows of no route: {unknown:#?}");
}

/// Refused are real requests, that would do something; let in are those that find nothing.
#[tokio::test]
async fn each_caller_may_what_the_table_says_and_no_more() {
    let node = Node::sandbox().await;
    let world = world(&node).await;
    let tokens = AccessTokens::new(&keyring());
    let owner = &world.users[2];
    let claims = tokens.read(&owner.access_token).unwrap();
    let expired = tokens.sign(&Claims::new(owner.id, claims.sid, Utc::now() - TimeDelta::minutes(15))).unwrap();
    let revoked = node.credential(world.key.account_id).await;
    node.operator("DELETE", &format!("/credentials/{}", revoked.credential_id), Value::Null).await.data(200);
    let removed = node.user(world.key.account_id, "owner").await;
    node.operator("DELETE", &format!("/users/{}", removed.id), Value::Null).await.data(200);
    let wrong = Client { secret: random_secret().expose().to_owned(), ..world.key.clone() };
    let mut operators = vec![];
    for role in [Role::Admin, Role::Finance, Role::Auditor] {
        operators.push((role, node.token(role).await));
    }

    let head = node.head().await;
    for row in table() {
        let from = |role: &str| USER_ROLES.iter().position(|known| *known == role).unwrap();
        let mut callers = vec![
            ("nobody".to_owned(), Caller::Nobody, false),
            ("a revoked key".to_owned(), Caller::Key(&revoked), false),
            ("a wrong secret".to_owned(), Caller::Key(&wrong), false),
            ("an expired token".to_owned(), Caller::Token(expired.expose()), false),
            ("no token".to_owned(), Caller::Token("x.y.z"), false),
            ("a removed user".to_owned(), Caller::Token(&removed.access_token), false),
            ("a removed user's cookie".to_owned(), Caller::Cookie(&removed.cookie), false),
            ("a key".to_owned(), Caller::Key(&world.key), matches!(row.who, Who::Client(_))),
        ];
        for (index, user) in world.users.iter().enumerate() {
            let role = USER_ROLES[index];
            let may = |from_role| index >= from(from_role);
            let by_token = matches!(row.who, Who::Client(r) | Who::Portal(r) if may(r));
            let by_cookie = matches!(row.who, Who::Portal(r) if may(r));
            callers.push((format!("{role}'s token"), Caller::Token(&user.access_token), by_token));
            callers.push((format!("{role}'s cookie"), Caller::Cookie(&user.cookie), by_cookie));
        }
        for (role, token) in &operators {
            let may = matches!(row.who, Who::Operators(roles) if roles.contains(role));
            callers.push((format!("{role:?}, an operator,"), Caller::Token(token.expose()), may));
        }
        for (name, caller, may) in callers {
            let what = format!("{name} and {}", row.route);
            if !may && row.who != Who::Anyone {
                let answer = call(&node, &caller, row.method(), &row.path(&world.things), row.body(&world.things)).await;
                // Known, but not for this; or not known here at all.
                let is_known = match row.who {
                    Who::Anyone => false,
                    Who::Client(_) => matches!(caller, Caller::Token(_)) && name.contains("'s token"),
                    Who::Portal(_) => name.contains("'s token") || name.contains("'s cookie") && !name.contains("removed"),
                    Who::Operators(_) => name.contains("an operator"),
                };
                let expected = if is_known { 403 } else { 401 };
                assert_eq!(answer.status, expected, "{what}: {}", answer.text);
                let code = answer.json()["error"]["code"].as_str().unwrap().to_owned();
                let codes: &[&str] = if is_known { &["E_FORBIDDEN"] } else { &["E_UNAUTHORIZED", "E_INVALID_TOKEN"] };
                assert!(codes.contains(&&*code), "{what}: {code}");
            } else if row.route != "POST /auth/logout" {
                // That one would end the session of the rows to come.
                let answer = call(&node, &caller, row.method(), &row.path(&Things::new()), Value::Null).await;
                let is_let_in = matches!(answer.status, 200 | 201 | 400 | 404 | 415);
                assert!(is_let_in, "{what}: {} {}", answer.status, answer.text);
            }
        }
    }
    assert_eq!(node.head().await, head, "nobody has changed anything");
}

#[tokio::test]
async fn to_another_account_it_is_not_there() {
    let node = Node::sandbox().await;
    let world = world(&node).await;
    let other = node.account("Other").await;
    let owner = node.user(other.account_id, "owner").await;
    let head = node.head().await;
    let mut walked = 0;
    for row in table().iter().filter(|row| row.names(&world.things)) {
        for caller in [Caller::Key(&other), Caller::Token(&owner.access_token), Caller::Cookie(&owner.cookie)] {
            if matches!((&caller, row.who), (Caller::Key(_), Who::Portal(_)) | (Caller::Cookie(_), Who::Client(_))) {
                continue;
            }
            let (path, body) = (row.path(&world.things), row.body(&world.things));
            let foreign = call(&node, &caller, row.method(), &path, body.clone()).await;
            let unknown = call(&node, &caller, row.method(), &row.path(&Things::new()), body).await;
            foreign.refused(404, "E_NOT_FOUND");
            assert_eq!((foreign.status, foreign.text), (unknown.status, unknown.text), "{}", row.route);
            walked += 1;
        }
    }
    assert!(walked > 15, "{walked}");
    assert_eq!(node.head().await, head);
}

#[tokio::test]
async fn a_suspended_account_reads_everything_and_changes_nothing() {
    let node = Node::sandbox().await;
    let world = world(&node).await;
    node.operator("PUT", &format!("/accounts/{}", world.key.account_id), json!({"status": "SUSPENDED"})).await.data(200);
    let owner = &world.users[2];
    for row in table() {
        let callers = match row.who {
            Who::Client(_) => vec![Caller::Key(&world.key), Caller::Token(&owner.access_token)],
            Who::Portal(_) if !row.is_shared => vec![Caller::Token(&owner.access_token), Caller::Cookie(&owner.cookie)],
            _ => continue,
        };
        for caller in callers {
            let head = node.head().await;
            let (path, body) = (row.path(&world.things), row.body(&world.things));
            let answer = call(&node, &caller, row.method(), &path, body).await;
            if row.change.is_some() && !path.contains(&NOTHING.to_string()) {
                answer.refused(403, "E_ACCOUNT_SUSPENDED");
                assert_eq!(node.head().await, head, "{}", row.route);
            } else {
                let is_read = matches!(answer.status, 200 | 400 | 404 | 415);
                assert!(is_read, "{}: {}", row.route, answer.text);
            }
        }
    }
}
