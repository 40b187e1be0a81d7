//! The pages for people, with a million orders: the time of every page of the portal and of the console, and of forms that do
//! much work.
//!
//! ```text
//! cargo bench --bench pages
//! ```

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chrono::Utc;
use futures::{StreamExt, TryStreamExt};
use ledger_database::PgConnectOptions;
use poem::http::Method;
use rewards_ledger::pages;
use serde_json::{Value, json};
use support::Serve;
use support::long_lists::{self, LongLists};
use support::report::Report;
use support::table::{millis, thousands};

/// Number of times each page is read, and the bulk order is checked.
const READS: usize = 50;
/// Number of times each count of a replay is made.
const COUNTED: usize = 10;
/// Targets of every page and of the check of a bulk order: the median and the p95.
const TARGETS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(150));
const PASSWORD: &str = "correct horse battery staple";

/// Largest size of a page with its style sheet, script and pictures, in bytes.
const MAX_BYTES: usize = 200_000;

/// Routes that are no page of their own: files, parts of pages, streams, and redirects to a form whose answer comes in steps.
const NO_PAGES: &[&str] = &[
    "/assets/{version}/icon.svg",
    "/assets/{version}/script.js",
    "/assets/{version}/style.css",
    "/console/audit.csv",
    "/console/bank-statements/{id}/matches.csv",
    "/console/bank-statements/{id}/matches.xlsx",
    "/console/live",
    "/console/orders/{id}/receipt",
    "/console/products/{id}/image/{version}",
    "/console/reconciliation.csv",
    "/console/reconciliation.xlsx",
    "/console/replays/count",
    "/console/wallets/{id}/statement.csv",
    "/portal/live",
    "/portal/orders.csv",
    "/portal/orders/bulk/place",
    "/portal/products/{id}/image/{version}",
    "/portal/wallets/{id}/statement.csv",
    "/portal/webhooks/{id}/replays/count",
    // Only a sandbox and the demo have it. The benchmark measures a node for production, which answers 404.
    "/portal/outbox",
];

/// Pages for people who are not signed in.
const OPEN: &[&str] =
    &["/portal/login", "/portal/password-reset", "/portal/reset-password", "/portal/accept-invitation", "/console/login"];

/// Queries with which pages are read beside their plain addresses: those that links and filters lead to. Names in braces stand
/// for ids, for the day on which the middle order was placed, for today, and for the prefix of an API key.
const QUERIES: &[(&str, &str)] = &[
    ("/portal/products", "search=bench"),
    ("/portal/products/{id}", "denomination=10.00&quantity=1"),
    ("/portal/orders", "status=DELIVERED"),
    ("/portal/orders", "status=DELAYED"),
    ("/portal/orders", "page=40000"),
    ("/portal/orders", "to=2020-01-01"),
    ("/portal/orders", "from=2020-01-01"),
    ("/portal/orders", "from={middle}"),
    ("/portal/orders", "from={middle}&to={middle}"),
    ("/portal/orders", "status=DELIVERED&from={middle}"),
    ("/portal/orders", "status=PARTIALLY_DELIVERED"),
    ("/portal/orders", "product_id={products}"),
    ("/portal/orders", "product_id={products}&status=DELIVERED"),
    ("/portal/orders", "product_id={products}&from={middle}"),
    ("/portal/orders", "client_reference=missing"),
    ("/portal/events", "types=payout.paid"),
    ("/portal/events", "since={middle}T12:00"),
    ("/portal/events", "types=payout.paid&since={middle}T12:00"),
    ("/portal/wallets/{id}", "page=40000"),
    ("/portal/wallets/{id}", "from={middle}&to={middle}"),
    ("/portal/wallets/{id}", "order_id=500000"),
    ("/portal/wallets/{id}", "reference=ORD-0000500000"),
    ("/portal/wallets/{id}", "from=2020-01-01"),
    ("/portal/wallets/{id}", "category=ORDER_REFUND&from={middle}"),
    ("/portal/wallets/{id}", "category=ORDER&from={middle}"),
    ("/portal/wallets/{id}", "category=ORDER"),
    ("/portal/wallets/{id}", "type=DEBIT&from={middle}"),
    ("/portal/wallets/{id}", "type=CREDIT"),
    ("/portal/wallets/{id}", "category=FUNDING"),
    ("/portal/wallets/{id}/statement", "from=2020-01-01"),
    ("/portal/wallets/{id}", "to=2020-01-01&category=ORDER"),
    ("/portal/payouts", "to=2020-01-01"),
    ("/portal/payouts", "wallet_id={wallets}"),
    ("/portal/payouts", "beneficiary_id={beneficiaries}"),
    ("/portal/webhooks/deliveries", "status=failed"),
    ("/portal/webhooks/deliveries", "limit=100&status=failed"),
    ("/portal/webhooks/deliveries", "status=delivered"),
    ("/portal/webhooks/deliveries", "status=pending"),
    ("/portal/webhooks/deliveries", "webhook_url_id={webhooks}"),
    ("/portal/webhooks/deliveries", "webhook_url_id={webhooks}&status=failed"),
    ("/portal/webhooks/deliveries", "page=40000"),
    ("/portal/webhooks/deliveries", "from={middle}T00:00&to={middle}T23:59"),
    ("/portal/webhooks/deliveries", "from={middle}T00:00"),
    ("/portal/webhooks/deliveries", "status=failed&from={middle}T00:00&to={middle}T23:59"),
    ("/portal/webhooks/deliveries", "status=failed&from={middle}T00:00"),
    ("/portal/webhooks/deliveries", "status=delivered&from={middle}T00:00"),
    ("/portal/webhooks/deliveries", "webhook_url_id={webhooks}&from={middle}T00:00&to={middle}T23:59"),
    ("/portal/webhooks/deliveries", "webhook_url_id={webhooks}&from={middle}T00:00"),
    ("/portal/webhooks/deliveries", "event_type=order.cancelled"),
    ("/portal/webhooks/deliveries", "order_id=500000"),
    ("/portal/webhooks/deliveries", "replay_id={replays}"),
    ("/portal/webhooks/deliveries", "replay_id={replays}&status=failed"),
    ("/portal/webhooks/{id}/explanation", "order_id=500000"),
    ("/portal/webhooks/{id}/attempts", "outcome=failed"),
    ("/portal/webhooks/{id}/attempts", "outcome=unknown"),
    ("/portal/webhooks/{id}/attempts", "from={middle}T00:00&to={middle}T23:59"),
    ("/console/search", "q=ORD-0000500000"),
    ("/console/search", "q=Account"),
    ("/console/search", "q=owner%40example.com"),
    ("/console/search", "q=01900000-0000-7000-8001-00000007a120"),
    ("/console/search", "q=benchmark"),
    ("/console/search", "q={key_prefix}"),
    ("/console/accounts/{id}/deliveries", "status=failed"),
    ("/console/accounts/{id}/deliveries", "webhook_url_id={webhooks}&status=failed"),
    ("/console/accounts/{id}/deliveries", "replay_id={replays}&status=delivered"),
    ("/console/accounts/{id}/deliveries", "status=pending&from={middle}T00:00"),
    ("/console/approvals", "status=ALL"),
    ("/console/approvals", "wallet_id={wallets}"),
    ("/console/payouts", "status=PENDING"),
    ("/console/payouts", "wallet_id={wallets}"),
    ("/console/purchases", "status=FULFILLED&supplier=acme"),
    ("/console/purchases", "product_id={products}"),
    ("/console/reconciliation", "account_id={accounts}"),
    ("/console/reconciliation", "from={middle}"),
    ("/console/reconciliation", "from=2020-01-01"),
    ("/console/reconciliation", "from={middle}&to={middle}"),
    // A day with so few events that each one is checked.
    ("/console/reconciliation", "from={today}"),
    ("/console/orders", "status=DELAYED"),
    ("/console/orders", "status=PENDING"),
    ("/console/orders", "product_id={products}"),
    ("/console/orders", "client_reference=missing"),
    ("/console/orders", "account_id={accounts}&status=DELIVERED"),
    ("/console/orders", "account_id={accounts}&page=40000"),
    ("/console/orders", "to=2020-01-01"),
    ("/console/orders", "from=2020-01-01"),
    ("/console/orders", "from={middle}"),
    ("/console/orders", "to={middle}"),
    ("/console/orders", "to={middle}&status=DELIVERED"),
    ("/console/orders", "from={middle}&product_id={products}"),
    ("/console/orders", "before=500000"),
    ("/console/orders", "before=20&status=DELIVERED"),
    ("/console/wallets/{id}", "to=2020-01-01"),
    ("/console/wallets/{id}", "category=ORDER"),
    ("/console/wallets/{id}", "category=FUNDING"),
    ("/console/wallets/{id}", "type=CREDIT"),
    ("/console/orders/{id}", "as_of=2500000"),
    // The order was placed on that day, at a time that is not known here.
    ("/console/orders/{id}", "as_of={middle}T23:59:59.999Z"),
    ("/console/replays", "webhook_id={webhooks}"),
    ("/console/products/{id}/discounts", "account_id={accounts}"),
    ("/console/log/proof", "order_id=500000"),
    ("/console/webhooks/{id}/queue", "part=retries"),
    ("/console/webhooks/{id}/queue", "part=failed"),
    ("/console/webhooks/{id}/queue", "part=failed_lately"),
    ("/console/queue", "part=retries"),
    ("/console/queue", "part=failed"),
    ("/console/queue", "part=in_flight"),
    ("/console/queue", "part=without_outcome"),
    ("/console/queue", "part=failed_lately&shard_id=1"),
    ("/console/products/{id}/stock/vouchers", "status=ALLOCATED&page=100"),
    ("/console/attempts", "outcome=failed"),
    ("/console/attempts", "outcome=unknown"),
    ("/console/attempts", "from={middle}T00:00&to={middle}T23:59"),
    ("/console/attempts", "from={middle}T00:00&to={middle}T23:59&outcome=failed"),
    ("/console/audit", "type=VouchersRevealed"),
    ("/console/audit", "type=VouchersVoided&subject=product/{products}"),
    ("/console/audit", "type=OrderCancelled"),
    ("/console/audit", "reveals=true"),
    ("/console/audit", "reveals=true&account_id={accounts}"),
    ("/console/audit", "before=2000000"),
    ("/console/audit", "subject=order/500000"),
    ("/console/audit", "subject=payout/{payouts}"),
    ("/console/audit", "subject=approval/{approvals}"),
    ("/console/audit", "from={middle}&to={middle}"),
    ("/console/audit", "actor=operator/1"),
    ("/console/audit", "actor=operator/987654321"),
    ("/console/audit", "actor=operator"),
    ("/console/audit", "account_id={accounts}"),
    ("/console/audit", "account_id=987654321"),
    ("/console/audit", "account_id={accounts}&actor=operator"),
];

/// Forms that count the events of a replay, and their fields. One of them searches a bounded part of the log, however long that
/// takes, so the targets do not hold for it.
const COUNTS: &[(&str, &str)] = &[
    ("/portal/webhooks/{webhooks}/replays/count", "since=2020-01-01"),
    ("/portal/webhooks/{webhooks}/replays/count", "since=2020-01-01&only=failed"),
    ("/console/replays/count", "webhook_id={webhooks}&kind=deliveries&since=2020-01-01"),
];

/// Form that checks a bulk order, and its number of lines: as many as it takes.
const BULK: &str = "/portal/orders/bulk";
const LINES: usize = 1_000;

/// Pages that are read only with a query.
const ONLY_WITH_QUERY: &[&str] = &["/portal/webhooks/{id}/explanation", "/console/log/proof"];

const NOTE: &str = "\
    The ledger is that of the long lists: one account has a million orders over a hundred products in eighty days. It has 1,900,000 \
    deliveries to two webhooks, each with one attempt, and 2,500 of them wait for another one. It has 5,000 purchases from a supplier, \
    and a replay of 10,000 deliveries. Beside it, a thousand accounts have no orders. Every page is read 50 times over HTTP, one after \
    the other, by a user who is signed in. The target of every page is 50 ms at the median and 150 ms at the p95, and 200,000 bytes \
    with its style sheet, script and pictures. It holds for the check of a bulk order of 1,000 lines, `POST /portal/orders/bulk`, too. \
    The exceptions are the counts of the events of a replay (`…/replays/count`), of which only the bytes have a target: each one \
    searches up to 500,000 positions of the log, and the page asks for the next part. Each is made 10 times. The reconciliation \
    that checks every event of a long period (`every_event=true`) is long work with a page of its progress, and is not measured.";

/// Adds purchases from a supplier. Returns the id of the last one.
const PURCHASES: &str = "WITH made AS (
        INSERT INTO purchases (shard_id, id, version, order_id, product_id, currency, denomination, quantity, supplier, sku, reserved, key,
            status, spent, vouchers, usable, may_succeed_later, requested_at, updated_at)
        SELECT 1, nextval('purchase_ids'), 1, n, (SELECT min(id) FROM products), 'EUR', 10, 1, 'acme', 'SKU', 10, gen_random_uuid(),
            CASE n % 4 WHEN 0 THEN 'REFUSED' ELSE 'FULFILLED' END, 9, 1, 1, false, now(), now()
        FROM generate_series(1, 5000) AS n RETURNING id)
    SELECT max(id) FROM made";
/// Adds a replay of the latest 10,000 deliveries to the webhook `$1` as a worker would have left it. Returns its id.
const REPLAY: &str = "WITH replay AS (SELECT nextval('replay_ids') AS id),
    again AS (
        INSERT INTO deliveries (shard_id, id, event_id, webhook_id, replay_id, account_id, order_id, event_type, created_at)
        SELECT d.shard_id, (SELECT max(id) FROM deliveries) + row_number() OVER (ORDER BY d.id), d.event_id, d.webhook_id, replay.id,
            d.account_id, d.order_id, d.event_type, d.created_at
        FROM (SELECT * FROM deliveries WHERE webhook_id = $1 ORDER BY id DESC LIMIT 10000) AS d, replay RETURNING *),
    sent AS (
        INSERT INTO delivery_state (shard_id, delivery_id, webhook_id, event_type, status, attempt_count, next_attempt_at, delivered_at)
        SELECT shard_id, id, webhook_id, event_type, CASE id % 20 WHEN 0 THEN 'failed' ELSE 'delivered' END, 1, created_at,
            CASE id % 20 WHEN 0 THEN NULL ELSE created_at END
        FROM again)
    INSERT INTO webhook_replays (shard_id, id, version, account_id, webhook_id, kind, events, per_second, status, from_position,
        next_position, until_position, deliveries, created_at, updated_at)
    SELECT 1, replay.id, 1, (SELECT min(account_id) FROM again), $1, 'deliveries', ARRAY['order.created'], 500, 'COMPLETED', 1, 2, 2,
        10000, now(), now()
    FROM replay RETURNING id";

/// Number of accounts without orders.
const ACCOUNTS: usize = 1_000;

/// Ids by the segment that they follow in a path.
type Ids = BTreeMap<&'static str, i64>;

#[tokio::main]
async fn main() -> Result<()> {
    let mut report = Report::start("pages");
    let server = support::postgres().await?;
    let options = support::database(&server, "pages").await?;
    let serve = Serve::start(&server.url_of("pages"), "api", &[]).await?;
    // A verification of the empty log ends at once.
    let verification = id(serve.operator("/audit-runs", json!({})).await?)?;
    let filled = long_lists::fill(&serve, &options).await?;
    // The totals of the days are as a running node keeps them.
    let supervised = ["--approval-above", "EUR=1000000"];
    let projecting = Serve::start(&server.url_of("pages"), "api,projector", &supervised).await?;
    let mut ids = complete(&projecting, &filled, &options).await?;
    add_accounts(&projecting).await?;
    ids.insert("audit-runs", verification);
    support::until_totalled(&options).await?;
    drop(projecting);
    let owner = serve.sign_in("/auth/login", "owner@example.com", PASSWORD).await?;
    let admin = serve.sign_in("/admin/auth/login", "admin@example.com", PASSWORD).await?;

    let (mut rows, mut missed) = (vec![], vec![]);
    let mut keep = |name: String, (median, p95, bytes): (Duration, Duration, usize), is_timed: bool| {
        if (is_timed && (median > TARGETS.0 || p95 > TARGETS.1)) || bytes > MAX_BYTES {
            missed.push(name.clone());
        }
        rows.push(vec![format!("`{name}`"), thousands(bytes as f64), millis(median), millis(p95)]);
    };
    let middle = filled.middle.split('T').next().context("a day")?;
    let today = Utc::now().format("%Y-%m-%d").to_string();
    let key_prefix = filled.client.api_key.get(..8).context("the prefix of a key")?;
    for (route, path) in addresses(&ids)? {
        let path = path.replace("{middle}", middle).replace("{today}", &today).replace("{key_prefix}", key_prefix);
        let cookie = match () {
            () if OPEN.contains(&&*route) => "",
            () if route.starts_with("/portal") => &*owner,
            () => &*admin,
        };
        let times = measure(&serve, cookie, &path, None, READS).await.with_context(|| path.clone())?;
        keep(path, times, true);
    }
    let times = measure(&serve, &owner, BULK, Some(&bulk(&options).await?), READS).await.context(BULK)?;
    keep(format!("POST {BULK}"), times, true);
    for (path, fields) in COUNTS {
        let [path, fields] = [path, fields].map(|text| filled_in(text, &ids));
        let cookie = if path.starts_with("/portal") { &owner } else { &admin };
        let times = measure(&serve, cookie, &path, Some(&fields), COUNTED).await.with_context(|| path.clone())?;
        keep(format!("POST {path}?{fields}"), times, false);
    }
    report.table("Pages for people", NOTE, &["page", "bytes", "median", "p95"], &rows);
    report.end(&server).await?;
    server.stop().await?;
    ensure!(missed.is_empty(), "these pages missed their target: {}", missed.join(", "));
    Ok(())
}

fn id(made: Value) -> Result<i64> {
    made["id"].as_i64().context("an id")
}

/// Adds accounts without orders.
async fn add_accounts(serve: &Serve) -> Result<()> {
    let add = |number: usize| serve.operator("/accounts", json!({"name": format!("Account {number}")}));
    futures::stream::iter(0..ACCOUNTS).map(add).buffer_unordered(16).map_ok(drop).try_collect().await
}

/// Adds what the long lists lack, so that every page shows something. Returns the ids.
async fn complete(serve: &Serve, filled: &LongLists, options: &PgConnectOptions) -> Result<Ids> {
    let mut admin = options.connect().await?;
    let mut one = async |sql: &'static str| sqlx::query_scalar::<_, i64>(sql).fetch_one(&mut admin).await;
    let wallet = one("SELECT id FROM wallets").await?;
    let owner = json!({"email": "owner@example.com", "password": PASSWORD, "role": "owner"});
    let owner = id(serve.operator(&format!("/accounts/{}/users", filled.account), owner).await?)?;
    let operator = json!({"email": "admin@example.com", "password": PASSWORD, "role": "admin"});
    let operator = id(serve.operator("/operators", operator).await?)?;
    let beneficiary =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let beneficiary = id(serve.client(&filled.client, "/beneficiaries", beneficiary).await?)?;
    let payout = json!({"beneficiary_id": beneficiary, "wallet_id": wallet, "amount": "30.00"});
    let payout = id(serve.client(&filled.client, "/payouts", payout).await?)?;
    let funding = json!({"amount": "2000000.00", "reference": "large"});
    let approval = id(serve.operator(&format!("/wallets/{wallet}/fund"), funding).await?)?;
    let statement = serve.import("date,amount,currency,reference\n2026-01-31,30.00,EUR,x\n").await?;
    let key = one("SELECT min(id) FROM credentials").await?;
    let purchase = one(PURCHASES).await?;
    let replay = sqlx::query_scalar(REPLAY).bind(filled.webhook).fetch_one(&mut options.connect().await?).await?;
    Ok(Ids::from([
        ("accounts", filled.account),
        ("api-keys", key),
        ("approvals", approval),
        ("bank-statements", statement),
        ("beneficiaries", beneficiary),
        ("credentials", key),
        ("deliveries", one("SELECT max(delivery_id) FROM delivery_state").await?),
        ("events", 1),
        ("lines", 1),
        ("operators", operator),
        ("orders", 500_000),
        ("payouts", payout),
        ("products", filled.product),
        ("purchases", purchase),
        ("replays", replay),
        ("team", owner),
        ("transactions", one("SELECT transaction_id FROM orders WHERE id = 500000").await?),
        ("users", owner),
        ("wallets", wallet),
        ("webhooks", filled.webhook),
        ("{shard}", 1_000_000),
    ]))
}

/// Returns the addresses of all pages, each with its route.
fn addresses(ids: &Ids) -> Result<Vec<(String, String)>> {
    let mut addresses = vec![];
    for (route, methods) in pages::routes() {
        if !methods.contains(&Method::GET) || NO_PAGES.contains(&&*route) {
            continue;
        }
        let path = path(&route, ids).with_context(|| format!("{route} must be in NO_PAGES, or its ids in `complete`"))?;
        let queries = QUERIES.iter().filter(|(page, _)| *page == route).map(|(_, query)| *query);
        let plain = (!ONLY_WITH_QUERY.contains(&&*route)).then(|| path.clone());
        let with = |query: &str| filled_in(&format!("{path}?{query}"), ids);
        addresses.extend(plain.into_iter().chain(queries.map(with)).map(|address| (route.clone(), address)));
    }
    Ok(addresses)
}

/// Replaces the names in braces with the ids.
fn filled_in(text: &str, ids: &Ids) -> String {
    ids.iter().fold(text.to_owned(), |text, (kind, id)| text.replace(&format!("{{{kind}}}"), &id.to_string()))
}

/// Returns the fields of a form with a bulk order, over the hundred products of the orders.
async fn bulk(options: &PgConnectOptions) -> Result<String> {
    let mut admin = options.connect().await?;
    let products: Vec<i64> = sqlx::query_scalar("SELECT id FROM products ORDER BY id LIMIT 100").fetch_all(&mut admin).await?;
    let lines = products.iter().cycle().take(LINES).enumerate();
    let lines: String = lines.map(|(line, product)| format!("{product},10.00,1,basket-{line}\n")).collect();
    let file = format!("product_id,denomination,quantity,client_reference\n{lines}");
    Ok(url::form_urlencoded::Serializer::new(String::new()).append_pair("lines", &file).finish())
}

/// Fills the ids into a route. `None` if one is not known.
fn path(route: &str, ids: &Ids) -> Option<String> {
    let (mut path, mut before) = (String::new(), "");
    for segment in route.split('/').skip(1) {
        match segment.starts_with('{') {
            true => path += &format!("/{}", ids.get(before)?),
            false => path += &format!("/{segment}"),
        }
        before = segment;
    }
    Some(path)
}

/// Reads a page this many times, or sends a form with these fields. Returns the median and the p95 of the times, and the size of
/// the page with everything that it loads.
async fn measure(
    serve: &Serve,
    cookie: &str,
    path: &str,
    fields: Option<&str>,
    reads: usize,
) -> Result<(Duration, Duration, usize)> {
    let read = async || match fields {
        Some(fields) => serve.send_form(cookie, path, fields).await,
        None => serve.look_at(cookie, path).await,
    };
    let (_, page) = read().await?;
    let mut bytes = page.len();
    for part in parts(&String::from_utf8(page)?) {
        bytes += serve.look_at(cookie, &part).await?.1.len();
    }
    let mut times = Vec::with_capacity(reads);
    for _ in 0..reads {
        times.push(read().await?.0);
    }
    times.sort_unstable();
    Ok((times[reads / 2], times[reads * 95 / 100], bytes))
}

/// Returns the addresses of what a page loads: style sheet, icon, script and pictures.
fn parts(page: &str) -> BTreeSet<String> {
    let tags = page.split('<').filter(|tag| ["link ", "script ", "img "].iter().any(|name| tag.starts_with(name)));
    let address =
        |tag: &str| ["href=\"", "src=\""].iter().find_map(|name| Some(tag.split_once(name)?.1.split_once('"')?.0.to_owned()));
    tags.filter_map(address).filter(|address| address.starts_with('/')).collect()
}
