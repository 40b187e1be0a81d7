//! A node that sends reads to a standby: no read misses an event that the client asks for, or else that the primary has.

use std::time::Duration;

use ledger_database::PgConnectOptions;
use serde_json::{Value, json};

use crate::support::program::{Client, NODE_LISTEN, OPERATOR_TOKEN, Program, run};
use crate::support::replicas::Pair;
use crate::support::wait::until;

const POSITION: &str = "X-Log-Position";

/// A node with a standby for reads, and a client with an account and a product.
struct Shop {
    pair: Pair,
    node: Program,
    client: Client,
    product: i64,
    http: reqwest::Client,
}

impl Shop {
    async fn open() -> Shop {
        Shop::with(&[]).await
    }

    /// Opens a shop whose node gets these additional arguments.
    async fn with(further: &[&str]) -> Shop {
        let pair = Pair::start().await;
        let standby = pair.standby_url();
        let node = Program::start(&pair.primary_url(), &[&["--read-url", &standby][..], further].concat()).await;
        let (client, product) = (node.client("1000.00").await, node.product(100).await);
        Shop { pair, node, client, product, http: reqwest::Client::new() }
    }

    fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.request_to(&self.node, method, path)
    }

    fn request_to(&self, node: &Program, method: &str, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method.parse().unwrap(), format!("{}{path}", node.url()));
        match path.starts_with("/admin") {
            true => request.bearer_auth(OPERATOR_TOKEN),
            false => request.header("X-API-Key", &self.client.key).header("X-API-Secret", &self.client.secret),
        }
    }

    /// Places an order. Returns its id, and the position of the log that the response names.
    async fn order(&self) -> (i64, String) {
        self.order_at(&self.node).await
    }

    async fn order_at(&self, node: &Program) -> (i64, String) {
        let (order, position) = self.change(node, "/api/v1/orders", None).await;
        (order["id"].as_i64().unwrap(), position)
    }

    /// Orders a voucher, or asks for its price. Returns the response's `data` and position.
    async fn change(&self, node: &Program, path: &str, position: Option<&str>) -> (Value, String) {
        let body = json!({"product_id": self.product, "denomination": 10, "quantity": 1}).to_string();
        let request = self.request_to(node, "POST", path).header("Content-Type", "application/json").body(body);
        let answer = position.into_iter().fold(request, |request, at| request.header(POSITION, at)).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        let position = answer.headers()[POSITION].to_str().unwrap().to_owned();
        let mut body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        (body["data"].take(), position)
    }

    /// Reads a path that must be served, from this position on if there is one.
    async fn read(&self, path: &str, position: Option<&str>) -> String {
        self.read_at(&self.node, path, position).await
    }

    async fn read_at(&self, node: &Program, path: &str, position: Option<&str>) -> String {
        let request = self.request_to(node, "GET", path);
        let request = position.into_iter().fold(request, |request, at| request.header(POSITION, at));
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert_eq!(status, 200, "{path}: {text}");
        text
    }

    /// Returns the ids of all orders that a list shows.
    async fn listed(&self, position: Option<&str>) -> Vec<i64> {
        self.listed_at(&self.node, position).await
    }

    async fn listed_at(&self, node: &Program, position: Option<&str>) -> Vec<i64> {
        let list: Value = serde_json::from_str(&self.read_at(node, "/api/v1/orders", position).await).unwrap();
        list["data"]["orders"].as_array().unwrap().iter().map(|order| order["id"].as_i64().unwrap()).collect()
    }

    /// Returns the number of requests with this outcome so far.
    async fn count(&self, outcome: &str) -> u64 {
        let metrics = reqwest::get(format!("{}/metrics", self.node.url())).await.unwrap().text().await.unwrap();
        let name = format!("ledger_standby_reads_total{{outcome=\"{outcome}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    }

    /// Reads a path until the standby serves it. A pause of the machine may send some of the reads to the primary.
    async fn until_served(&self, path: &str, position: Option<&str>) {
        until(&format!("the standby serves {path}"), async || {
            let before = self.count("served").await;
            self.read(path, position).await;
            self.count("served").await > before
        })
        .await;
    }

    /// Runs a command with the URLs of a primary and of the standby. Returns whether it succeeded, and its two outputs.
    async fn command(&self, primary: &str, arguments: &[&str]) -> (bool, String, String) {
        let mut command = self.node.command();
        command.args(arguments).args(["--database-url", primary, "--read-url", &self.pair.standby_url()]);
        let done = run(&mut command).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.success(), text(&done.stdout), text(&done.stderr))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_sees_its_order_whether_the_standby_follows_lags_or_is_lost() {
    let mut shop = Shop::open().await;
    let (first, at_first) = shop.order().await;
    shop.until_served("/api/v1/orders", None).await;
    assert_eq!(shop.listed(Some(&at_first)).await, [first]);

    shop.pair.hold_back(true).await;
    let (second, at_second) = shop.order().await;
    // Without a position, or with one that no node has made, a read sees everything, too.
    for position in [Some(&*at_second), None, Some("1:1")] {
        assert_eq!(shop.listed(position).await, [second, first]);
    }
    shop.pair.hold_back(false).await;
    shop.until_served("/api/v1/orders", Some(&at_second)).await;
    assert_eq!(shop.listed(Some(&at_second)).await, [second, first]);

    shop.pair.lose_standby().await;
    let (third, at_third) = shop.order().await;
    until("a read finds the standby lost", async || {
        assert_eq!(shop.listed(Some(&at_third)).await, [third, second, first]);
        shop.count("unavailable").await > 0
    })
    .await;
    shop.read("/readyz", None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_survives_a_change_at_another_node() {
    let shop = Shop::with(&NODE_LISTEN).await;
    let standby = shop.pair.standby_url();
    let other = Program::start(&shop.pair.primary_url(), &[&["--read-url", &standby][..], &NODE_LISTEN].concat()).await;
    let (first, at_first) = shop.order_at(&other).await;
    shop.until_served("/api/v1/orders", Some(&at_first)).await;
    shop.pair.hold_back(true).await;
    let (second, at_second) = shop.order().await;
    // A quote without a key passes no writer, so the position that this node knows is still the first order's.
    let (_, at_quote) = shop.change(&other, "/api/v1/charges", Some(&at_second)).await;
    assert_eq!(shop.listed_at(&other, Some(&at_quote)).await, [second, first]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_exports_statements_and_reports_run_on_the_standby() {
    let shop = Shop::open().await;
    let (_, position) = shop.order().await;
    let wallets: Value = serde_json::from_str(&shop.read("/api/v1/wallets", None).await).unwrap();
    let (wallet, account) = (wallets["data"]["wallets"][0]["id"].as_i64().unwrap(), shop.client.account_id);
    for path in [
        "/api/v1/orders",
        "/api/v1/products",
        "/api/v1/transactions",
        "/api/v1/payouts",
        "/api/v1/beneficiaries",
        "/api/v1/wallets",
        "/api/v1/webhooks",
        "/api/v1/webhooks/deliveries",
        "/api/v1/webhooks/deliveries/stats",
        &format!("/api/v1/wallets/{wallet}/statement"),
        "/admin/v1/accounts",
        "/admin/v1/orders",
        "/admin/v1/payouts",
        "/admin/v1/products",
        "/admin/v1/categories",
        "/admin/v1/approvals",
        "/admin/v1/events",
        "/admin/v1/audit",
        "/admin/v1/reconciliation",
        "/admin/v1/reconciliation/statements",
        &format!("/admin/v1/accounts/{account}/users"),
        &format!("/admin/v1/accounts/{account}/wallets"),
        &format!("/admin/v1/wallets/{wallet}/statement"),
    ] {
        shop.until_served(path, Some(&position)).await;
    }
    // The standby has run each statement itself.
    let log = shop.node.log();
    assert!(!log.contains("repeating it on the primary"), "{log}");
    let refused = run(shop.node.command().args(["verify", "--database-url", &shop.pair.standby_url()])).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("on the primary"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_read_what_the_primary_has_and_warn_when_it_does_not_answer() {
    let shop = Shop::open().await;
    let (order, _) = shop.order().await;
    let gone = "postgres://nobody@127.0.0.1:1/nowhere";
    for arguments in [&["events", "export"][..], &["events", "tail"], &["show", "order", &order.to_string()], &["reconcile"]] {
        let (is_done, told, said) = shop.command(gone, arguments).await;
        assert!(is_done && !told.is_empty(), "{arguments:?}: {told}{said}");
        assert!(said.contains("the primary does not answer"), "{arguments:?}: {said}");
    }

    shop.pair.hold_back(true).await;
    let (newer, _) = shop.order().await;
    let show = ["show", "order", &newer.to_string()];
    let (is_done, told, said) = shop.command(&shop.pair.primary_url(), &show).await;
    assert!(is_done && said.contains("reading from the primary"), "{told}{said}");
    let (is_done, _, said) = shop.command(gone, &show).await;
    assert!(!is_done && said.contains("there is no order"), "{said}");
}

/// The standby keeps a lock that the primary has released, so that a read waits there until its connection is ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_fails_on_the_standby_is_repeated_on_the_primary() {
    let shop = Shop::open().await;
    let (order, position) = shop.order().await;
    // No event comes after it, so the standby stays current.
    until("the order is delivered", async || shop.read(&format!("/api/v1/orders/{order}"), None).await.contains("\"DELIVERED\""))
        .await;
    shop.until_served("/api/v1/orders", Some(&position)).await;
    let (primary, standby) = (shop.pair.primary_url(), shop.pair.standby_url());
    let connect = async |url: &str| url.parse::<PgConnectOptions>().unwrap().connect().await.unwrap();
    let (mut holder, mut on_primary, mut on_standby) =
        (connect(&primary).await, connect(&primary).await, connect(&standby).await);
    sqlx::raw_sql("BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").execute(&mut holder).await.unwrap();
    // Another commit takes the lock's record to the standby.
    sqlx::raw_sql("CREATE TABLE another (n int)").execute(&mut on_primary).await.unwrap();
    let is_locked = "SELECT count(*) > 0 FROM pg_locks WHERE relation = 'orders'::regclass AND mode = 'AccessExclusiveLock'";
    until("the standby has the lock", async || sqlx::query_scalar(is_locked).fetch_one(&mut on_standby).await.unwrap()).await;
    shop.pair.hold_back(true).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();

    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE application_name = 'rewards-ledger standby' AND wait_event_type = 'Lock'";
    let ending = async {
        loop {
            sqlx::raw_sql(end).execute(&mut on_standby).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    // A pause of the machine may send some of the reads to the primary at once.
    let reading = until("a read is repeated on the primary", async || {
        assert_eq!(shop.listed(Some(&position)).await, [order]);
        shop.node.log().contains("repeating it on the primary")
    });
    tokio::select! {
        () = reading => {}
        () = ending => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_complete_although_its_standby_dies() {
    let mut shop = Shop::open().await;
    // The first page of an export fills all buffers between the node and a client that does not read. So the node reads the
    // second page after the standby has died.
    let more = "WITH head AS (UPDATE log_head SET position = position + 5500 WHERE shard_id = 1 RETURNING position - 5500 AS old)
                INSERT INTO events SELECT 1, old + n, gen_random_uuid(), 'product', 1000000 + n, 1, type, schema_version,
                    jsonb_set(data::jsonb, '{details,description}', to_jsonb(repeat('x', 8000)))::json, metadata, sample.recorded_at
                FROM head, generate_series(1, 5500) AS n, (SELECT type, schema_version, data, metadata, recorded_at
                    FROM events WHERE type = 'ProductAdded' LIMIT 1) AS sample";
    let mut admin = shop.pair.primary_url().parse::<PgConnectOptions>().unwrap().connect().await.unwrap();
    sqlx::raw_sql(more).execute(&mut admin).await.unwrap();
    // A pause of the machine may send the export to the primary at once.
    let mut export = loop {
        let before = shop.count("served").await;
        let answer = shop.request("GET", "/admin/v1/events").header("Accept-Encoding", "identity").send().await.unwrap();
        assert_eq!(answer.status(), 200);
        if shop.count("served").await > before {
            break answer;
        }
    };
    let last: usize = export.headers()["X-Log-To"].to_str().unwrap().parse().unwrap();
    // The statement of the first page has ended then.
    let mut events = export.chunk().await.unwrap().unwrap().to_vec();
    shop.pair.lose_standby().await;
    events.extend(export.bytes().await.unwrap());
    assert_eq!(events.split(|byte| *byte == b'\n').count(), last + 1);
    let log = shop.node.log();
    assert!(log.contains("a request that began on the standby goes on at the primary"), "{log}");
}
