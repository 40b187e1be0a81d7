//! Every route of both OpenAPI documents, with its permitted callers.
//!
//! A new route needs one row in [`table`]; without it, the first test fails. Use `read` for a route that changes
//! nothing, `change` with a valid body for one that does, and `of_operators` for `/admin/v1`. A change by clients also
//! needs the scope that an API key must have: `in_scope`. A new kind of thing in
//! a path (`/things/{id}`) needs an id in [`things`].

use std::collections::{BTreeSet, HashMap};

use ledger_events::restrictions::Scope;
use rewards_ledger::access::Role;
use rewards_ledger::api;
use serde_json::{Value, json};

use crate::support::node::{Client, ConsoleUser, Node, User};

/// Callers that a route accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Who {
    Anyone,
    /// API keys, and users with at least this role.
    Client(&'static str),
    /// Users with at least this role, by token or cookie.
    Portal(&'static str),
    /// Operators with one of these roles, by token or cookie.
    Operators(&'static [Role]),
    /// Operators' users of any role, by cookie.
    Console,
}

pub const LOGOUT: &str = "POST /auth/logout";
pub const CONSOLE_LOGOUT: &str = "POST /admin/auth/logout";

/// Roles of users. Each role includes the permissions of the ones before it.
pub const USER_ROLES: [&str; 3] = ["viewer", "operator", "owner"];
const ANY: Who = Who::Operators(&[Role::Admin, Role::Finance, Role::Auditor]);
const AUDITOR: Who = Who::Operators(&[Role::Admin, Role::Auditor]);
const FINANCE: Who = Who::Operators(&[Role::Admin, Role::Finance]);
const ADMIN: Who = Who::Operators(&[Role::Admin]);

pub type Body = fn(&Things) -> Value;

pub struct Row {
    /// Method and path, as in the OpenAPI document.
    pub route: &'static str,
    pub who: Who,
    /// A valid body, for a route that changes something.
    pub change: Option<Body>,
    /// Scope that an API key needs, on a route for clients.
    pub scope: Option<Scope>,
    /// True if no account owns the resource that the path names or the response shows.
    pub is_shared: bool,
}

fn read(route: &'static str, who: Who) -> Row {
    let scope = matches!(who, Who::Client(_)).then_some(Scope::Read);
    Row { route, who, change: None, scope, is_shared: false }
}

fn change(route: &'static str, who: Who, body: Body) -> Row {
    Row { change: Some(body), scope: None, ..read(route, who) }
}

fn in_scope(scope: Scope, row: Row) -> Row {
    Row { scope: Some(scope), ..row }
}

/// Operators' routes do not depend on an account or its suspension.
fn of_operators(route: &'static str, who: Who) -> Row {
    Row { is_shared: true, ..read(route, who) }
}

fn shared(row: Row) -> Row {
    Row { is_shared: true, ..row }
}

fn nothing(_: &Things) -> Value {
    Value::Null
}

pub fn table() -> Vec<Row> {
    use Who::{Anyone, Client, Portal};
    vec![
        shared(read("POST /auth/login", Anyone)),
        shared(read("POST /auth/refresh", Anyone)),
        shared(read(LOGOUT, Portal("viewer"))),
        shared(read("POST /auth/password-reset", Anyone)),
        shared(read("POST /auth/password-reset/confirm", Anyone)),
        shared(read("POST /auth/invitations/accept", Anyone)),
        // These belong to the user who sends the request, not to an account.
        shared(read("GET /client/api/sessions", Portal("viewer"))),
        shared(read("DELETE /client/api/sessions/{id}", Portal("viewer"))),
        shared(read("PUT /client/api/password", Portal("viewer"))),
        shared(read("GET /client/api/two-factor", Portal("viewer"))),
        shared(read("POST /client/api/two-factor", Portal("viewer"))),
        shared(read("POST /client/api/two-factor/confirm", Portal("viewer"))),
        shared(read("DELETE /client/api/two-factor", Portal("viewer"))),
        shared(read("GET /client/api/security", Portal("viewer"))),
        change("PUT /client/api/security", Portal("owner"), |_| json!({"owners_need_two_factor": false})),
        read("GET /client/api/users", Portal("viewer")),
        read("GET /client/api/users/{id}", Portal("viewer")),
        change("PUT /client/api/users/{id}", Portal("owner"), |_| json!({"role": "operator"})),
        change("DELETE /client/api/users/{id}", Portal("owner"), nothing),
        read("GET /client/api/users/invitations", Portal("owner")),
        change("POST /client/api/users/invitations", Portal("owner"), |_| json!({"email": "new@example.com", "role": "viewer"})),
        change("DELETE /client/api/users/invitations/{id}", Portal("owner"), nothing),
        read("GET /client/api/api-keys", Portal("viewer")),
        change("POST /client/api/api-keys", Portal("owner"), |_| json!({"name": "key"})),
        read("GET /client/api/api-keys/{id}", Portal("viewer")),
        change("DELETE /client/api/api-keys/{id}", Portal("owner"), nothing),
        change("POST /client/api/api-keys/{id}/rotate-signing-secret", Portal("owner"), nothing),
        read("GET /client/api/wallets/notices", Portal("viewer")),
        read("GET /client/api/wallets/{id}/notice", Portal("viewer")),
        change("PUT /client/api/wallets/{id}/notice", Portal("operator"), |_| json!({"below": "10.00"})),
        read("GET /api/v1/orders", Client("viewer")),
        in_scope(
            Scope::Orders,
            change(
                "POST /api/v1/orders",
                Client("operator"),
                |things| json!({"product_id": things["products"], "denomination": 10, "quantity": 1}),
            ),
        ),
        read("GET /api/v1/orders/stats", Client("viewer")),
        read("GET /api/v1/orders/{id}", Client("viewer")),
        in_scope(Scope::Orders, read("GET /api/v1/orders/{id}/vouchers", Client("operator"))),
        read("GET /api/v1/orders/{id}/history", Client("viewer")),
        in_scope(Scope::Orders, change("POST /api/v1/orders/{id}/cancel", Client("operator"), nothing)),
        shared(read("GET /api/v1/products", Client("viewer"))),
        shared(read("GET /api/v1/products/{id}", Client("viewer"))),
        shared(read("GET /api/v1/products/images", Client("viewer"))),
        shared(read("GET /api/v1/products/{id}/image", Client("viewer"))),
        shared(read("GET /api/v1/products/{id}/image/{version}", Client("viewer"))),
        read("POST /api/v1/charges", Client("viewer")),
        shared(read("GET /api/v1/countries", Client("viewer"))),
        shared(read("GET /api/v1/currencies", Client("viewer"))),
        shared(read("GET /api/v1/categories", Client("viewer"))),
        read("GET /api/v1/wallets", Client("viewer")),
        read("GET /api/v1/wallets/{id}/statement", Client("viewer")),
        read("GET /api/v1/transactions", Client("viewer")),
        read("GET /api/v1/transactions/{id}", Client("viewer")),
        read("GET /api/v1/webhooks", Client("viewer")),
        in_scope(
            Scope::Webhooks,
            change(
                "POST /api/v1/webhooks",
                Client("operator"),
                |_| json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]}),
            ),
        ),
        read("GET /api/v1/webhooks/{id}", Client("viewer")),
        read("GET /api/v1/webhooks/{id}/explanation", Client("viewer")),
        read("GET /api/v1/webhooks/stats", Client("viewer")),
        read("GET /api/v1/webhooks/{id}/stats", Client("viewer")),
        read("GET /api/v1/webhooks/{id}/attempts", Client("viewer")),
        in_scope(Scope::Webhooks, change("PUT /api/v1/webhooks/{id}", Client("operator"), |_| json!({"is_active": false}))),
        in_scope(Scope::Webhooks, change("POST /api/v1/webhooks/{id}/rotate-token", Client("operator"), nothing)),
        in_scope(Scope::Webhooks, change("DELETE /api/v1/webhooks/{id}", Client("operator"), nothing)),
        read("GET /api/v1/webhooks/deliveries", Client("viewer")),
        read("GET /api/v1/webhooks/deliveries/{id}", Client("viewer")),
        read("GET /api/v1/webhooks/deliveries/stats", Client("viewer")),
        in_scope(Scope::Webhooks, change("POST /api/v1/webhooks/deliveries/{id}/retry", Client("operator"), nothing)),
        in_scope(Scope::Webhooks, change("POST /api/v1/webhooks/{id}/test", Client("operator"), nothing)),
        read("GET /api/v1/webhooks/{id}/replays", Client("viewer")),
        in_scope(
            Scope::Webhooks,
            change("POST /api/v1/webhooks/{id}/replays", Client("operator"), |_| json!({"since": "2026-01-01T00:00:00Z"})),
        ),
        read("GET /api/v1/events", Client("viewer")),
        read("GET /api/v1/beneficiaries", Client("viewer")),
        in_scope(Scope::Payouts, change("POST /api/v1/beneficiaries", Client("owner"), |_| beneficiary())),
        read("GET /api/v1/beneficiaries/{id}", Client("viewer")),
        in_scope(Scope::Payouts, change("DELETE /api/v1/beneficiaries/{id}", Client("owner"), nothing)),
        read("GET /api/v1/payouts", Client("viewer")),
        in_scope(Scope::Payouts, change("POST /api/v1/payouts", Client("owner"), payout)),
        read("GET /api/v1/payouts/{id}", Client("viewer")),
        in_scope(Scope::Payouts, change("POST /api/v1/payouts/{id}/cancel", Client("owner"), nothing)),
        shared(read("GET /client/api/outbox", Portal("owner"))),
        in_scope(
            Scope::Orders,
            change("POST /api/v1/sandbox/wallets/{id}/fund", Client("operator"), |_| json!({"amount": "1.00"})),
        ),
        of_operators("GET /admin/v1/accounts", ANY),
        of_operators("POST /admin/v1/accounts", ADMIN),
        of_operators("GET /admin/v1/accounts/{id}", ANY),
        of_operators("PUT /admin/v1/accounts/{id}", ADMIN),
        of_operators("GET /admin/v1/accounts/{id}/credentials", ANY),
        of_operators("GET /admin/v1/accounts/{id}/credentials/{credential_id}", ANY),
        of_operators("GET /admin/v1/accounts/{id}/deliveries", ANY),
        of_operators("GET /admin/v1/accounts/{id}/discounts", ANY),
        of_operators("GET /admin/v1/accounts/{id}/limits", ANY),
        of_operators("GET /admin/v1/accounts/{id}/wallets", ANY),
        of_operators("GET /admin/v1/accounts/{id}/webhooks", ANY),
        of_operators("POST /admin/v1/accounts/{id}/credentials", ADMIN),
        of_operators("PUT /admin/v1/accounts/{id}/discounts", ADMIN),
        of_operators("GET /admin/v1/accounts/{id}/users", ANY),
        of_operators("GET /admin/v1/accounts/{id}/users/{user_id}", ANY),
        of_operators("POST /admin/v1/accounts/{id}/users", ADMIN),
        of_operators("POST /admin/v1/accounts/{id}/wallets", ADMIN),
        of_operators("PUT /admin/v1/users/{id}", ADMIN),
        of_operators("DELETE /admin/v1/users/{id}", ADMIN),
        of_operators("DELETE /admin/v1/users/{id}/sessions", ADMIN),
        of_operators("PUT /admin/v1/credentials/{id}", ADMIN),
        of_operators("DELETE /admin/v1/credentials/{id}", ADMIN),
        of_operators("GET /admin/v1/ip-blocks", ANY),
        of_operators("DELETE /admin/v1/ip-blocks/{ip}", ADMIN),
        of_operators("GET /admin/v1/search", ANY),
        of_operators("GET /admin/v1/webhooks/{id}", ANY),
        of_operators("GET /admin/v1/webhooks/{id}/stats", ANY),
        of_operators("GET /admin/v1/deliveries/{id}", ANY),
        of_operators("GET /admin/v1/wallets/{id}", ANY),
        of_operators("GET /admin/v1/wallets/{id}/statement", ANY),
        of_operators("GET /admin/v1/wallets/{id}/transactions", ANY),
        of_operators("POST /admin/v1/wallets/{id}/fund", FINANCE),
        of_operators("POST /admin/v1/wallets/{id}/adjust", FINANCE),
        of_operators("GET /admin/v1/categories", ANY),
        of_operators("POST /admin/v1/categories", ADMIN),
        of_operators("GET /admin/v1/products", ANY),
        of_operators("POST /admin/v1/products", ADMIN),
        of_operators("GET /admin/v1/products/{id}", ANY),
        of_operators("PUT /admin/v1/products/{id}", ADMIN),
        of_operators("GET /admin/v1/products/{id}/image", ANY),
        of_operators("PUT /admin/v1/products/{id}/image", ADMIN),
        of_operators("GET /admin/v1/products/{id}/stock", ANY),
        of_operators("GET /admin/v1/products/{id}/vouchers", ANY),
        of_operators("POST /admin/v1/products/{id}/vouchers", ADMIN),
        of_operators("POST /admin/v1/products/{id}/vouchers/void", ADMIN),
        of_operators("POST /admin/v1/products/{id}/vouchers/expiry", ADMIN),
        of_operators("POST /admin/v1/products/{id}/vouchers/transfer", ADMIN),
        of_operators("PUT /admin/v1/products/{id}/stock-threshold", ADMIN),
        of_operators("GET /admin/v1/products/{id}/supplier", ANY),
        of_operators("PUT /admin/v1/products/{id}/supplier", ADMIN),
        of_operators("GET /admin/v1/purchases", ANY),
        of_operators("GET /admin/v1/purchases/{id}", ANY),
        of_operators("POST /admin/v1/purchases/{id}/close", ADMIN),
        of_operators("GET /admin/v1/orders", ANY),
        of_operators("GET /admin/v1/orders/{id}", ANY),
        of_operators("GET /admin/v1/orders/{id}/history", ANY),
        of_operators("POST /admin/v1/orders/{id}/cancel", ADMIN),
        of_operators("GET /admin/v1/webhooks/{id}/replays", ANY),
        of_operators("POST /admin/v1/webhooks/{id}/replays", ADMIN),
        of_operators("GET /admin/v1/replays", ANY),
        of_operators("GET /admin/v1/replays/{id}", ANY),
        of_operators("POST /admin/v1/replays/{id}/cancel", ADMIN),
        of_operators("GET /admin/v1/events", ANY),
        of_operators("GET /admin/v1/operations", ANY),
        of_operators("GET /admin/v1/alerts", ANY),
        of_operators("GET /admin/v1/shards", ANY),
        of_operators("POST /admin/v1/shards", ADMIN),
        of_operators("PUT /admin/v1/shards/{id}/drain", ADMIN),
        of_operators("GET /admin/v1/audit-runs", ANY),
        of_operators("POST /admin/v1/audit-runs", ADMIN),
        of_operators("GET /admin/v1/audit-runs/{id}", ANY),
        of_operators("DELETE /admin/v1/audit-runs/{id}", ADMIN),
        of_operators("GET /admin/v1/transactions/{id}", ANY),
        of_operators("GET /admin/v1/erasures", ANY),
        of_operators("GET /admin/v1/retention", ANY),
        of_operators("GET /admin/v1/checkpoints", ANY),
        of_operators("GET /admin/v1/orders/{id}/receipt", ANY),
        of_operators("GET /admin/v1/operators", ADMIN),
        of_operators("POST /admin/v1/operators", ADMIN),
        of_operators("GET /admin/v1/operators/{id}", ADMIN),
        of_operators("PUT /admin/v1/operators/{id}", ADMIN),
        of_operators("DELETE /admin/v1/operators/{id}", ADMIN),
        of_operators("DELETE /admin/v1/operators/{id}/two-factor", ADMIN),
        of_operators("GET /admin/v1/operator-tokens", ADMIN),
        of_operators("POST /admin/v1/operator-tokens", ADMIN),
        of_operators("DELETE /admin/v1/operator-tokens/{id}", ADMIN),
        of_operators("GET /admin/v1/audit", ANY),
        of_operators("GET /admin/v1/attempts", ANY),
        of_operators("GET /admin/v1/queue", ANY),
        of_operators("GET /admin/v1/webhooks/{id}/queue", ANY),
        shared(read("POST /admin/auth/login", Anyone)),
        of_operators("GET /admin/auth/session", Who::Console),
        of_operators(CONSOLE_LOGOUT, Who::Console),
        of_operators("PUT /admin/auth/password", Who::Console),
        of_operators("GET /admin/auth/sessions", Who::Console),
        of_operators("DELETE /admin/auth/sessions/{id}", Who::Console),
        of_operators("POST /admin/auth/two-factor", Who::Console),
        of_operators("POST /admin/auth/two-factor/confirm", Who::Console),
        of_operators("POST /admin/auth/two-factor/remove", Who::Console),
        shared(read("GET /log/{shard}/checkpoint", Anyone)),
        shared(read("GET /log/{shard}/keys", Anyone)),
        shared(read("GET /log/{shard}/proof/consistency", Anyone)),
        shared(read("GET /log/{shard}/proof/inclusion", Anyone)),
        shared(read("GET /log/{shard}/tile/{place}", Anyone)),
        of_operators("GET /log/{shard}/tile/entries/{place}", AUDITOR),
        of_operators("GET /log/{shard}/tile/entries32/{place}", AUDITOR),
        shared(read("POST /log/{shard}/cosignatures", Anyone)),
        shared(read("GET /healthz", Anyone)),
        shared(read("GET /readyz", Anyone)),
        shared(read("GET /metrics", Anyone)),
        of_operators("GET /admin/v1/reconciliation", ANY),
        of_operators("GET /admin/v1/reconciliation/statements", ANY),
        of_operators("POST /admin/v1/reconciliation/statements", FINANCE),
        of_operators("GET /admin/v1/reconciliation/statements/{id}", ANY),
        of_operators("POST /admin/v1/reconciliation/statements/{id}/lines/{line}/decide", FINANCE),
        of_operators("POST /admin/v1/reconciliation/statements/{id}/lines/{line}/revoke", FINANCE),
        of_operators("GET /admin/v1/payouts", ANY),
        of_operators("GET /admin/v1/payouts/{id}", ANY),
        of_operators("PUT /admin/v1/payouts/{id}", FINANCE),
        of_operators("GET /admin/v1/approvals", ANY),
        of_operators("GET /admin/v1/approvals/{id}", ANY),
        of_operators("POST /admin/v1/approvals/{id}/approve", FINANCE),
        of_operators("POST /admin/v1/approvals/{id}/reject", FINANCE),
        of_operators("POST /admin/v1/approvals/{id}/withdraw", FINANCE),
    ]
}

fn beneficiary() -> Value {
    json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"})
}

fn payout(things: &Things) -> Value {
    json!({"beneficiary_id": things["beneficiaries"], "wallet_id": things["wallets"], "amount": "1.00"})
}

/// Ids of an account's resources, keyed by the path segment that they follow.
pub type Things = HashMap<&'static str, i64>;

/// An account with one resource of each kind, and the callers that act for it.
pub struct World {
    pub key: Client,
    /// A viewer, an operator and an owner, in this order.
    pub users: Vec<User>,
    /// An admin who has signed in to the console.
    pub operator: ConsoleUser,
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
    let invited = json!({"email": "grace@example.com", "role": "viewer"});
    let invited = node.bearer(&users[2].access_token, "POST", "/client/api/users/invitations", invited).await.data(201);
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
        ("invitations", id(&invited["id"])),
    ]);
    let paid = node.client(&key, "POST", "/payouts", payout(&things)).await.data(201);
    things.insert("payouts", id(&paid["id"]));
    World { key, users, operator: node.console_user(Role::Admin).await, things }
}

/// An id that no resource has.
pub const NOTHING: i64 = 999_999_999;

/// Fills these ids into a path of the OpenAPI document.
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
    pub fn method(&self) -> &'static str {
        self.route.split_once(' ').unwrap().0
    }

    /// Returns the route's path with these ids.
    pub fn path(&self, things: &Things) -> String {
        path(self.route.split_once(' ').unwrap().1, things)
    }

    pub fn body(&self, things: &Things) -> Value {
        self.change.map_or(Value::Null, |body| body(things))
    }

    /// Returns true if the path names a resource of the account that [`world`] has created.
    pub fn names(&self, things: &Things) -> bool {
        !self.is_shared && self.route.contains('{') && !self.path(things).contains(&NOTHING.to_string())
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
    assert!(missing.is_empty() && unknown.is_empty(), "routes without a row: {missing:#?}\nrows without a route: {unknown:#?}");
}

#[test]
fn every_route_of_clients_has_a_scope() {
    let missing: Vec<_> =
        table().iter().filter(|row| matches!(row.who, Who::Client(_)) && row.scope.is_none()).map(|row| row.route).collect();
    assert!(missing.is_empty(), "routes without a scope: {missing:#?}");
}
