//! Every action of the pages: who may do it, and that no foreign page can.
//!
//! A new route for forms needs a row in [`table`]; without it, the first test fails.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use poem::http::Method;
use reqwest::RequestBuilder;
use reqwest::redirect::Policy;
use rewards_ledger::access::two_factor;
use rewards_ledger::ledger::commands;
use rewards_ledger::pages;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use url::form_urlencoded;

use super::furnished::{Furnished, PNG};
use crate::support::ledger::run;
use crate::support::node::{Node, PASSWORD};

/// People who may do an action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Who {
    /// Everybody, without a session.
    Anyone,
    /// Users of at least this role: viewer, operator, owner.
    User(usize),
    /// Operators from this one on: auditor, finance, admin.
    Operator(usize),
}

const VIEWER: Who = Who::User(0);
const OPERATOR: Who = Who::User(1);
const OWNER: Who = Who::User(2);
const AUDITOR: Who = Who::Operator(0);
const FINANCE: Who = Who::Operator(1);
const ADMIN: Who = Who::Operator(2);

/// Content of a form.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    Fields(&'static str),
    /// A file in a field.
    File(&'static str, &'static str),
    /// A picture in the field `image`.
    Picture,
}

/// A form. The names in braces of its path and its content stand for ids.
pub struct Action {
    pub path: &'static str,
    pub who: Who,
    pub content: Content,
    /// Status of the response for whoever may.
    status: u16,
}

fn action(path: &'static str, who: Who, fields: &'static str, status: u16) -> Action {
    Action { path, who, content: Content::Fields(fields), status }
}

/// Actions of the portal. Those that end something come after those that need it.
fn of_portal() -> Vec<Action> {
    const LINES: &str = "lines=product_id,denomination,quantity%0A{products},10.00,1";
    vec![
        action("/portal/orders/bulk", VIEWER, LINES, 200),
        action("/portal/orders/bulk/place", OPERATOR, LINES, 200),
        action("/portal/orders/bulk/results.csv", VIEWER, LINES, 200),
        action("/portal/orders", OPERATOR, "product_id={products}&denomination=10.00&quantity=1", 303),
        action("/portal/orders/{delivered}/vouchers", OPERATOR, "", 200),
        action("/portal/orders/{delivered}/vouchers.csv", OPERATOR, "", 200),
        action("/portal/orders/{orders}/cancel", OPERATOR, "reason=r", 303),
        action("/portal/wallets/{wallets}/notice", OPERATOR, "below=10.00", 303),
        action("/portal/payouts", OWNER, "beneficiary_id={beneficiaries}&wallet_id={wallets}&amount=1.00", 303),
        action("/portal/payouts/{payouts}/cancel", OWNER, "", 303),
        action(
            "/portal/beneficiaries",
            OWNER,
            "name=A&type=BANK&country=DE&currency=EUR&account_number=DE89370400440532013000",
            303,
        ),
        action("/portal/beneficiaries/{beneficiaries}/delete", OWNER, "", 303),
        action("/portal/webhooks", OPERATOR, "name=A&url=https://shop.example/a&events=order.created", 200),
        action(
            "/portal/webhooks/{webhooks}",
            OPERATOR,
            "name=B&url=https://shop.example/b&events=order.created&remove_headers=on",
            303,
        ),
        action("/portal/webhooks/{webhooks}/test", OPERATOR, "", 303),
        action("/portal/webhooks/{webhooks}/rotate-token", OPERATOR, "", 200),
        action("/portal/webhooks/{off}/replays/count", OPERATOR, "since=2026-01-01&from_position=2&found=3", 200),
        action("/portal/webhooks/{off}/replays", OPERATOR, "since=2026-01-01", 303),
        action("/portal/webhooks/deliveries/{deliveries}/retry", OPERATOR, "", 303),
        action("/portal/webhooks/{webhooks}/switch", OPERATOR, "to=off", 303),
        action("/portal/webhooks/{webhooks}/delete", OPERATOR, "", 303),
        action("/portal/api-keys", OWNER, "name=A", 200),
        action("/portal/api-keys/{api-keys}/signing-secret", OWNER, "", 200),
        action("/portal/api-keys/{api-keys}/revoke", OWNER, "", 303),
        action("/portal/team/invitations", OWNER, "email=ada@example.com&role=viewer", 303),
        action("/portal/team/invitations/{invitations}/revoke", OWNER, "", 303),
        action("/portal/team/security", OWNER, "owners_need_two_factor=false", 303),
        action("/portal/team/{team}/role", OWNER, "role=operator", 303),
        action("/portal/team/{team}/remove", OWNER, "", 303),
        action("/portal/account/sessions/{sessions of a viewer}/end", VIEWER, "", 303),
        action("/portal/account/two-factor/begin", VIEWER, "", 200),
        action("/portal/account/two-factor/confirm", VIEWER, "otp=x", 400),
        action("/portal/account/two-factor/disable", VIEWER, "otp=x", 400),
        action("/portal/account/password", VIEWER, "current_password={password}&new_password=a+quite+different+one", 303),
        action("/portal/password-reset", Who::Anyone, "email=nobody@example.com", 303),
        action("/portal/reset-password", Who::Anyone, "token=x&new_password=a+quite+different+one", 401),
        action("/portal/accept-invitation", Who::Anyone, "token=x&new_password=a+quite+different+one", 401),
        action("/portal/login", Who::Anyone, "email=nobody@example.com&password=x", 401),
        action("/portal/logout", VIEWER, "", 303),
    ]
}

/// Actions of the console, in such an order too.
fn of_console() -> Vec<Action> {
    const CARD: &str = "name=Card&brand=B&country=DE&currency=EUR&denomination_type=FIXED&denominations=10,25&max_quantity=5";
    let file = |path, who, field, content, status| Action { path, who, content: Content::File(field, content), status };
    vec![
        action("/console/products", ADMIN, CARD, 303),
        action("/console/products/{products}/edit", ADMIN, CARD, 303),
        Action { path: "/console/products/{products}/image", who: ADMIN, content: Content::Picture, status: 303 },
        file(
            "/console/products/{products}/vouchers",
            ADMIN,
            "file",
            "card_number,voucher_reference_number,denomination\nA,VCH-A,10\nB,VCH-B,10\n",
            200,
        ),
        action("/console/products/{products}/vouchers/expiry", ADMIN, "vouchers=VCH-A&expires_on=2027-12-31", 200),
        action("/console/products/{products}/vouchers/transfer", ADMIN, "vouchers=VCH-B&to_product_id={successor}&reason=r", 200),
        action("/console/products/{products}/vouchers/void", ADMIN, "vouchers=VCH-A&reason=r", 200),
        action("/console/products/{products}/supplier", ADMIN, "supplier=acme&sku=A-10", 303),
        action("/console/purchases/{purchases}/close", ADMIN, "", 303),
        action("/console/products/{products}/threshold", ADMIN, "denomination=10.00&threshold=5", 303),
        action("/console/products/{products}/discounts", ADMIN, "account_id={accounts}&discount=1.00", 303),
        action("/console/products/{products}/state", ADMIN, "is_active=false", 303),
        action("/console/categories", ADMIN, "name=Games", 303),
        action("/console/audit-runs", ADMIN, "", 303),
        action("/console/audit-runs/{a run}/stop", ADMIN, "", 303),
        action("/console/wallets/{wallets}/fund", FINANCE, "amount=1.00&reference=r-1", 303),
        action("/console/wallets/{wallets}/adjust", FINANCE, "type=CREDIT&amount=1.00&reason=r", 303),
        action("/console/payouts/{one payout}/paid", FINANCE, "", 303),
        action("/console/payouts/{another payout}/failed", FINANCE, "failure_reason=r", 303),
        action("/console/approvals/{approvals}/approve", FINANCE, "", 303),
        action("/console/approvals/{another approval}/reject", FINANCE, "reason=r", 303),
        action("/console/approvals/{own approval}/withdraw", FINANCE, "", 303),
        file("/console/bank-statements", FINANCE, "file", "date,amount,currency,reference\n2026-01-31,1.00,EUR,x\n", 303),
        action("/console/bank-statements/{bank-statements}/lines/{lines}/decide", FINANCE, "decision=IGNORED&reason=r", 303),
        action("/console/bank-statements/{bank-statements}/lines/{lines}/revoke", FINANCE, "reason=r", 303),
        action("/console/orders/{waiting}/cancel", ADMIN, "reason=r", 303),
        action("/console/replays/{another replay}/cancel", ADMIN, "", 303),
        action("/console/replays/count", ADMIN, "webhook_id={another webhook}&kind=deliveries&since=2026-01-01&found=3", 200),
        action("/console/replays", ADMIN, "webhook_id={another webhook}&kind=deliveries&since=2026-01-01", 303),
        action("/console/log/proof", AUDITOR, "receipt={", 400),
        action("/console/ip-blocks", ADMIN, "ip=203.0.113.7", 303),
        action("/console/operators", ADMIN, "email=ada@example.com&password=another+battery+staple&role=auditor", 303),
        action("/console/operators/{operators}", ADMIN, "role=finance", 303),
        action("/console/operators/{operators}/two-factor", ADMIN, "", 303),
        action("/console/operators/{operators}/remove", ADMIN, "", 303),
        action("/console/operator-tokens", ADMIN, "name=A&role=auditor", 200),
        action("/console/operator-tokens/{operator-tokens}/revoke", ADMIN, "", 303),
        action("/console/accounts", ADMIN, "name=A", 303),
        action("/console/accounts/{accounts}/wallets", ADMIN, "currency=USD", 303),
        action("/console/accounts/{accounts}/discounts", ADMIN, "discount=1.00", 303),
        action("/console/accounts/{accounts}/credentials", ADMIN, "name=A", 200),
        action("/console/accounts/{accounts}/credentials/{credentials}/signatures", ADMIN, "required=yes", 200),
        action("/console/accounts/{accounts}/credentials/{credentials}/revoke", ADMIN, "", 303),
        action(
            "/console/accounts/{accounts}/users",
            ADMIN,
            "email=kim@example.com&password=another+battery+staple&role=viewer",
            303,
        ),
        action("/console/accounts/{accounts}/users/{users}", ADMIN, "role=operator", 303),
        action("/console/accounts/{accounts}/users/{users}/sessions", ADMIN, "", 303),
        action("/console/accounts/{accounts}/users/{users}/remove", ADMIN, "", 303),
        action("/console/accounts/{accounts}/status", ADMIN, "status=SUSPENDED", 303),
        action("/console/operations/shards/{a shard}/drain", ADMIN, "draining=false", 303),
        action("/console/operations/shards", ADMIN, "shard_id=3", 303),
        action("/console/account/two-factor", AUDITOR, "", 200),
        action("/console/account/two-factor/confirm", AUDITOR, "code=x", 400),
        action("/console/account/two-factor/remove", AUDITOR, "code=x", 400),
        action("/console/account/sessions/{sessions of an auditor}/end", AUDITOR, "", 303),
        action("/console/account/password", AUDITOR, "current_password={password}&new_password=a+quite+different+one", 303),
        action("/console/login", Who::Anyone, "email=nobody@example.com&password=x", 401),
        action("/console/logout", AUDITOR, "", 303),
    ]
}

/// The node, with everything that the actions need.
pub struct Stage {
    pub furnished: Furnished,
    http: reqwest::Client,
    /// Values of the names in braces.
    values: BTreeMap<&'static str, String>,
}

impl Stage {
    pub async fn set() -> Stage {
        let furnished = Furnished::start().await;
        let (node, wallet) = (&furnished.node, furnished.id("wallets"));
        let values = furnished.things.iter().map(|(name, id)| (*name, id.to_string()));
        let mut values: BTreeMap<&'static str, String> = values.collect();
        values.insert("password", PASSWORD.replace(' ', "+"));
        for name in ["one payout", "another payout"] {
            let payout = json!({"beneficiary_id": furnished.id("beneficiaries"), "wallet_id": wallet, "amount": "1.00"});
            let payout = node.client(&furnished.client, "POST", "/payouts", payout).await.data(201);
            values.insert(name, payout["id"].to_string());
        }
        for (name, operator) in [("another approval", &furnished.operators[2]), ("own approval", &furnished.operators[1])] {
            let (path, fund) = (format!("/admin/v1/wallets/{wallet}/fund"), json!({"amount": "2500.00", "reference": name}));
            let requested = node.portal(&operator.cookie, node.url(), "POST", &path, fund).await.data(202);
            values.insert(name, requested["id"].to_string());
        }
        let hook = json!({"name": "C", "url": "https://shop.example/c", "events": ["order.created"]});
        let hook = node.client(&furnished.client, "POST", "/webhooks", hook).await.json()["id"].to_string();
        let replay = json!({"kind": "deliveries", "from_position": 1});
        let replay = node.operator("POST", &format!("/webhooks/{hook}/replays"), replay).await;
        values.insert("another replay", replay.json()["data"]["replay"]["id"].to_string());
        values.insert("another webhook", hook);
        let interrupted =
            "INSERT INTO audit_runs (kind, host, beat_at) VALUES ('verify', 'here', now() - interval '1 h') RETURNING id";
        let interrupted: i64 = sqlx::query_scalar(interrupted).fetch_one(node.ledger.pool()).await.unwrap();
        values.insert("a run", interrupted.to_string());
        node.again(&furnished.users[0]).await;
        let sessions = node.bearer(&furnished.users[0].access_token, "GET", "/client/api/sessions", Value::Null).await.data(200);
        values.insert("sessions of a viewer", other_session(&sessions));
        let auditor = &furnished.operators[0];
        node.console_login(&auditor.email, PASSWORD, None).await.data(200);
        let sessions = node.portal(&auditor.cookie, node.url(), "GET", "/admin/auth/sessions", Value::Null).await.data(200);
        values.insert("sessions of an auditor", other_session(&sessions));
        let (id, secret) = (furnished.id("operators"), two_factor::generate_secret());
        run(&node.ledger, commands::EnableOperatorTwoFactor { id, secret, step: 1, recovery_codes: vec![], session_id: 0 }).await;
        run(&node.ledger, commands::AddShard { shard_id: 2 }).await;
        run(&node.ledger, commands::SetShardDrain { shard_id: 2, draining: true }).await;
        values.insert("a shard", "2".to_owned());
        let http = reqwest::Client::builder().redirect(Policy::none()).build().unwrap();
        Stage { furnished, http, values }
    }

    pub fn node(&self) -> &Node {
        &self.furnished.node
    }

    pub fn filled(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }

    /// Builds the request that the browser sends if nothing is filled in.
    fn empty_form(&self, action: &Action) -> RequestBuilder {
        let content = match action.content {
            Content::Fields(_) => Content::Fields(""),
            Content::File(field, _) => Content::File(field, ""),
            Content::Picture => Content::File("image", ""),
        };
        self.form(&Action { content, ..*action })
    }

    /// Builds the request that the form's browser would send.
    fn form(&self, action: &Action) -> RequestBuilder {
        self.form_with(action, &[])
    }

    /// Builds the request that the form's browser would send with these values in some of its fields.
    pub fn form_with(&self, action: &Action, changed: &[(&str, &str)]) -> RequestBuilder {
        let request = self.http.post(format!("{}{}", self.node().url(), self.filled(action.path)));
        match action.content {
            Content::Fields(fields) => {
                let fields = self.filled(fields);
                let is_kept = |name: &str| changed.iter().all(|(other, _)| *other != name);
                let kept = form_urlencoded::parse(fields.as_bytes()).filter(|(name, _)| is_kept(name));
                let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(kept).extend_pairs(changed).finish();
                request.header("Content-Type", "application/x-www-form-urlencoded").body(body)
            }
            Content::File(field, text) => upload(request, changed, field, text.as_bytes()),
            Content::Picture => upload(request, changed, "image", &STANDARD.decode(PNG).unwrap()),
        }
    }

    /// Cookies of the people on the action's side, in the order of their roles, with the place of the first who may.
    pub fn callers(&self, action: &Action) -> (Vec<&str>, usize) {
        let users = || self.furnished.users.iter().map(|user| &*user.cookie).collect();
        match action.who {
            Who::Anyone => (vec![""], 0),
            Who::User(least) => (users(), least),
            Who::Operator(least) => (self.furnished.operators.iter().map(|user| &*user.cookie).collect(), least),
        }
    }

    /// Fingerprints of all tables but those that change by themselves: counters of limits, leases, and times of use.
    pub async fn fingerprints(&self) -> BTreeMap<String, String> {
        let mut admin = self.node().admin().await;
        let tables = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
            WHERE schemaname IN ('public', 'vault') AND tablename NOT IN ('rate_windows', 'nodes', 'leases')";
        let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut admin).await.unwrap();
        let mut found = BTreeMap::new();
        for table in tables {
            let rows = format!("SELECT coalesce(md5(string_agg(t::text, '|' ORDER BY t::text)), 'empty') FROM {table} t");
            found.insert(table, sqlx::query_scalar(AssertSqlSafe(rows)).fetch_one(&mut admin).await.unwrap());
        }
        found
    }
}

/// Returns the id of a session in a list that is not the caller's own.
fn other_session(list: &Value) -> String {
    let mut sessions = list["sessions"].as_array().unwrap().iter();
    sessions.find(|session| session["is_current"] == false).unwrap()["id"].to_string()
}

/// Adds a form with a file in one field, and with texts in others, to a request.
fn upload(request: RequestBuilder, texts: &[(&str, &str)], field: &str, content: &[u8]) -> RequestBuilder {
    const PART: &str = "--limit\r\nContent-Disposition: form-data; name=";
    let texts: String = texts.iter().map(|(name, text)| format!("{PART}\"{name}\"\r\n\r\n{text}\r\n")).collect();
    let head = format!("{texts}{PART}\"{field}\"; filename=\"file\"\r\n\r\n");
    let body = [head.as_bytes(), content, b"\r\n--limit--\r\n"].concat();
    request.header("Content-Type", "multipart/form-data; boundary=limit").body(body)
}

pub fn table() -> Vec<Action> {
    of_portal().into_iter().chain(of_console()).collect()
}

#[test]
fn the_table_has_every_form_and_no_other() {
    let anonymous = |path: &str| -> String {
        let segment = |segment: &str| if segment.starts_with('{') { "{}".to_owned() } else { segment.to_owned() };
        path.split('/').map(segment).collect::<Vec<_>>().join("/")
    };
    let forms = pages::routes().into_iter().filter(|(_, methods)| methods.contains(&Method::POST));
    let forms: BTreeSet<String> = forms.map(|(path, _)| anonymous(&path)).collect();
    let rows: BTreeSet<String> = table().iter().map(|action| anonymous(action.path)).collect();
    assert_eq!(rows.len(), table().len(), "a form has two rows");
    let missing: Vec<_> = forms.difference(&rows).collect();
    let unknown: Vec<_> = rows.difference(&forms).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "forms without a row: {missing:#?}\nrows without a form: {unknown:#?}");
}

/// Headers of a request that a page of another site makes a browser send.
const FOREIGN: [(&str, &str); 3] =
    [("Origin", "https://elsewhere.example"), ("Origin", "null"), ("Sec-Fetch-Site", "cross-site")];

#[tokio::test(flavor = "multi_thread")]
async fn each_action_is_for_its_roles_and_for_no_foreign_page() {
    let stage = Stage::set().await;
    refuses_foreign_pages_and_strangers(&stage).await;
    admits_its_roles(&stage).await;
}

/// Sends every form as a page of another site does, and without a session. Nothing changes.
async fn refuses_foreign_pages_and_strangers(stage: &Stage) {
    let before = stage.fingerprints().await;
    for action in table() {
        let (callers, _) = stage.callers(&action);
        for (name, value) in FOREIGN {
            let form = stage.form(&action).header("Cookie", *callers.last().unwrap()).header(name, value);
            let status = form.send().await.unwrap().status();
            assert_eq!(status, 403, "{} with {name}: {value}", action.path);
        }
        if action.who != Who::Anyone {
            let answer = stage.form(&action).header("Origin", stage.node().url()).send().await.unwrap();
            let to = answer.headers().get("location").map_or("", |to| to.to_str().unwrap());
            let login = if matches!(action.who, Who::User(_)) { "/portal/login" } else { "/console/login" };
            assert!(answer.status() == 303 && to.starts_with(login), "{}: a stranger gets {answer:?}", action.path);
        }
    }
    let after = stage.fingerprints().await;
    let changed: Vec<&String> = after.keys().filter(|table| before[*table] != after[*table]).collect();
    assert_eq!(changed, Vec::<&String>::new());
}

/// Actions that succeed without an event, because they concern a sign-in or a session, only check something, or change nothing:
/// the picture and the rule for second factors are what they were, and no user has the email address.
const WITHOUT_AN_EVENT: [&str; 13] = [
    "/portal/orders/bulk",
    "/portal/orders/bulk/results.csv",
    "/portal/webhooks/{off}/replays/count",
    "/portal/team/security",
    "/portal/account/sessions/{sessions of a viewer}/end",
    "/portal/account/two-factor/begin",
    "/portal/password-reset",
    "/portal/logout",
    "/console/products/{products}/image",
    "/console/replays/count",
    "/console/account/two-factor",
    "/console/account/sessions/{sessions of an auditor}/end",
    "/console/logout",
];

/// Sends every form as each role, from the lowest one up to the first that may. That one gets the action's own response, and is
/// the actor of its events.
async fn admits_its_roles(stage: &Stage) {
    let (mut without_an_event, mut by_others) = (vec![], vec![]);
    for action in table() {
        let (callers, least) = stage.callers(&action);
        let send = async |cookie: &str| {
            let form = stage.form(&action).header("Cookie", cookie).header("Origin", stage.node().url());
            let answer = form.send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        let head = stage.node().head().await;
        for cookie in &callers[..least] {
            let (status, page) = send(cookie).await;
            assert_eq!(status, 403, "{} by a lower role: {page}", action.path);
        }
        assert_eq!(stage.node().head().await, head, "{}: a refused action is an event", action.path);
        let (status, page) = send(callers[least]).await;
        assert_eq!(status, action.status, "{}: {page}", action.path);
        let actor = match action.who {
            Who::Anyone => None,
            Who::User(least) => Some(json!({"user": stage.furnished.users[least].id})),
            Who::Operator(least) => Some(json!({"operator": stage.furnished.operators[least].id})),
        };
        let actors = "SELECT DISTINCT metadata->>'actor' FROM events WHERE position > $1";
        let actors: Vec<String> = sqlx::query_scalar(actors).bind(head).fetch_all(stage.node().ledger.pool()).await.unwrap();
        let others: Vec<Value> = actors.iter().map(|actor| serde_json::from_str(actor).unwrap()).collect();
        if others.is_empty() && status < 400 {
            without_an_event.push(action.path);
        }
        if others.iter().any(|other| status >= 400 || Some(other) != actor.as_ref()) {
            by_others.push(format!("{}: {others:?} instead of {actor:?}", action.path));
        }
    }
    assert!(
        by_others.is_empty() && without_an_event == WITHOUT_AN_EVENT,
        "{by_others:#?}, without an event: {without_an_event:#?}"
    );
}

/// Forms whose problem is no visible field's when they are sent empty: a hidden field or a link's token is missing, nothing is to
/// be changed, there is no second factor, or the role sees no form.
const WITHOUT_A_FIELD: [&str; 13] = [
    "/portal/orders/bulk",
    "/portal/orders/bulk/results.csv",
    "/portal/orders",
    "/portal/account/two-factor/disable",
    "/portal/reset-password",
    "/portal/accept-invitation",
    "/console/products/{products}/discounts",
    "/console/ip-blocks",
    "/console/operators/{operators}",
    "/console/accounts/{accounts}/users/{users}",
    "/console/accounts/{accounts}/status",
    "/console/operations/shards",
    "/console/account/two-factor/remove",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_problems_of_an_empty_form_stand_at_its_fields() {
    let stage = Stage::set().await;
    let mut without_a_field = vec![];
    for action in table() {
        let (callers, least) = stage.callers(&action);
        let form = stage.empty_form(&action).header("Cookie", callers[least]).header("Origin", stage.node().url());
        let answer = form.send().await.unwrap();
        let (status, page) = (answer.status().as_u16(), answer.text().await.unwrap());
        assert!(status < 500, "{}: {page}", action.path);
        if status >= 400 && !page.contains("-problem\"") {
            without_a_field.push(action.path);
        }
    }
    assert_eq!(without_a_field, WITHOUT_A_FIELD);
}
