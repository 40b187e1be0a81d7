//! The program is killed while it buys vouchers. Each unit is bought once, and each order gets what was bought for it.

use chrono::Utc;
use nix::sys::signal::Signal;
use reqwest::Client as Http;
use serde_json::{Value, json};
use sqlx::PgPool;

use super::RETRY_PAUSE;
use crate::support::postgres;
use crate::support::program::{Client, OPERATOR_TOKEN, Program};
use crate::support::supplier::{Fault, NOTICE_SECRET, Simulator, signed};
use crate::support::wait::{until, until_true};

/// Settings of the supplier. No test lives to see the second poll.
const SETTINGS: &str = "daily_budget = { EUR = \"100000.00\" }\npoll_seconds = 300\nnotice_secret_file = \"notices\"";

/// Behaviour of the supplier towards the first request for each order. The program is killed when that request arrives.
const FAULTS: [Option<Fault>; 8] = [
    None,
    Some(Fault::Hang),
    Some(Fault::Drop),
    None,
    Some(Fault::SoldAndStatus(500)),
    Some(Fault::Status(503)),
    Some(Fault::Garbage),
    None,
];

/// A running program whose product is bought from the simulator.
struct Market {
    program: Program,
    simulator: Simulator,
    client: Client,
    product: i64,
    pool: PgPool,
}

impl Market {
    async fn open(database_url: &str) -> Market {
        let simulator = Simulator::start().await;
        let file = simulator.file(SETTINGS);
        let program = Program::start(database_url, &["--suppliers-file", file.to_str().unwrap()]).await;
        let (client, product) = (program.client("100000.00").await, program.product(0).await);
        let supplier = Http::new().put(format!("{}/admin/v1/products/{product}/supplier", program.url()));
        let named = supplier.bearer_auth(OPERATOR_TOKEN).json(&json!({"supplier": "acme", "sku": "SKU-10"})).send().await;
        assert_eq!(named.unwrap().status(), 200);
        let pool = PgPool::connect(database_url).await.unwrap();
        Market { program, simulator, client, product, pool }
    }

    /// Places an order under this key, and retries until it is acknowledged, as a client of a busy machine does.
    async fn order(&self, key: &str, quantity: usize) -> i64 {
        let body = json!({"product_id": self.product, "denomination": 10, "quantity": quantity});
        loop {
            match self.program.call(&self.client, "POST", "/orders", Some(key), &body).await {
                Ok((201, order)) => return order["id"].as_i64().unwrap(),
                Ok((503 | 504, _)) | Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
                Ok((status, answer)) => panic!("{status} {answer}"),
            }
        }
    }

    /// Kills the program with SIGKILL, and starts it again.
    async fn kill(&mut self) {
        self.program.signal(Signal::SIGKILL);
        self.program.restart().await;
    }

    async fn is_delivered(&self, order: i64) -> bool {
        let path = format!("/orders/{order}");
        let answer = self.program.call(&self.client, "GET", &path, None, &Value::Null).await;
        matches!(answer, Ok((200, order)) if order["status"] == "DELIVERED")
    }

    /// Ends the lease of the node that was killed, and every pause. Locks one table at a time, so that it blocks no node for long.
    async fn lease_ends(&self) {
        for end in [
            "UPDATE purchase_calls SET due_at = '-infinity', leased_until = '-infinity'",
            "UPDATE supplier_calls SET next_at = '-infinity', open_until = '-infinity', failures = 0",
        ] {
            sqlx::query(end).execute(&self.pool).await.unwrap();
        }
    }

    /// Checks that each of these orders got vouchers of its own, that the supplier sold no other ones, and that the log is sound.
    async fn check(&self, orders: &[(i64, usize)]) {
        let ordered: usize = orders.iter().map(|(_, quantity)| quantity).sum();
        assert_eq!(self.simulator.units(), ordered, "bought: {:?}", self.simulator.sold());
        let allocated: Vec<(i64, i64)> =
            sqlx::query_as("SELECT order_id, count(*) FROM vault.vouchers GROUP BY order_id ORDER BY order_id")
                .fetch_all(&self.pool)
                .await
                .unwrap();
        let expected: Vec<(i64, i64)> =
            orders.iter().map(|(order, quantity)| (*order, i64::try_from(*quantity).unwrap())).collect();
        assert_eq!(allocated, expected, "no voucher is lost, left over or there twice");
        let verified = self.program.command().arg("verify").output().await.unwrap();
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_program_during_purchases_buys_nothing_twice() {
    let database = postgres::database().await;
    let mut market = Market::open(&database.url).await;
    let mut orders = vec![];
    for (round, fault) in FAULTS.into_iter().enumerate() {
        market.simulator.fail(fault.as_slice());
        let asked = market.simulator.requests().len();
        let quantity = 1 + round % 3;
        let order = market.order(&format!("round {round}"), quantity).await;
        until("the supplier is asked for the vouchers", async || market.simulator.requests().len() > asked).await;
        market.kill().await;
        until("the order is delivered", async || {
            market.lease_ends().await;
            market.is_delivered(order).await
        })
        .await;
        orders.push((order, quantity));
    }
    market.check(&orders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notice_to_a_restarted_node_brings_vouchers_that_were_bought_before() {
    let database = postgres::database().await;
    let mut market = Market::open(&database.url).await;
    market.simulator.fail(&[Fault::Pending]);
    let order = market.order("pending", 2).await;
    let accepted = "SELECT EXISTS (SELECT FROM purchases p JOIN purchase_calls c ON c.purchase_id = p.id
        WHERE p.status = 'PENDING' AND c.leased_until = '-infinity')";
    until_true("the supplier has accepted the order, and the next poll is far away", &market.pool, accepted).await;
    market.kill().await;
    market.simulator.deliver();
    assert!(!market.is_delivered(order).await);

    let key = market.simulator.sold().into_keys().next().unwrap();
    let body = json!({"idempotency_key": key, "status": "FULFILLED"}).to_string();
    let request = Http::new().post(format!("{}/suppliers/acme/notices", market.program.url()));
    let answer = signed(request, &body, Utc::now().timestamp(), NOTICE_SECRET).send().await.unwrap();
    assert_eq!(answer.status(), 204);
    until("the order is delivered", async || market.is_delivered(order).await).await;
    market.check(&[(order, 2)]).await;
    assert_eq!(market.simulator.requests(), ["POST", "GET"]);
}
