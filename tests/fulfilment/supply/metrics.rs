//! Metrics of purchases, and their alerts in the state of operations.

use rewards_ledger::fulfilment::supply::Notices;
use rewards_ledger::ledger::backlog;
use rewards_ledger::telemetry::Metrics;
use serde_json::Value;

use super::World;
use crate::support::node::Node;
use crate::support::shop::SHARD;
use crate::support::supplier::Fault;

impl World {
    /// Returns the metrics of the node that buys, with a new sample of the database.
    async fn scraped(&self) -> String {
        let sampled = Metrics::default().scrape(backlog::query(self.shop.pool())).await.unwrap();
        sampled + &self.shop.metrics.scrape(async { Err(sqlx::Error::PoolClosed) }).await.unwrap()
    }

    #[track_caller]
    fn shows(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|shown| shown == *line), "{line} is missing in:\n{text}");
        }
    }
}

async fn alerts(node: &Node) -> Vec<String> {
    let state = node.operator("GET", "/operations", Value::Null).await.data(200);
    let alerts = state["alerts"].as_array().unwrap().iter().map(|alert| alert["name"].as_str().unwrap().to_owned());
    alerts.filter(|name| name.starts_with("LedgerSupplier")).collect()
}

#[tokio::test]
async fn open_purchases_and_failures_are_in_the_metrics_and_raise_alerts() {
    let world = World::open().await;
    let node = Node::accepting(&world.shop.options, Notices::default()).await;
    world.order(1).await;
    world.purchaser().request(SHARD).await.unwrap();
    world.simulator.fail(&[Fault::Status(500); 5]);
    for _ in 0..4 {
        assert!(world.work().await);
    }
    assert_eq!(alerts(&node).await, Vec::<String>::new());
    assert!(world.work().await);
    let text = world.scraped().await;
    World::shows(
        &text,
        &[
            r#"ledger_purchases_open{supplier="acme"} 1"#,
            r#"ledger_supplier_failures{supplier="acme"} 5"#,
            r#"ledger_supplier_breaker_open{supplier="acme"} 1"#,
            r#"ledger_supplier_calls_total{supplier="acme",outcome="failed"} 5"#,
        ],
    );
    assert_eq!(alerts(&node).await, ["LedgerSupplierFails"]);

    let old = "UPDATE purchases SET requested_at = requested_at - interval '2 hours'";
    sqlx::raw_sql(old).execute(&mut world.shop.admin().await).await.unwrap();
    assert_eq!(alerts(&node).await, ["LedgerSupplierFails", "LedgerSupplierOverdue"]);
    let text = world.scraped().await;
    let oldest = text.lines().find_map(|line| line.strip_prefix(r#"ledger_purchases_oldest_seconds{supplier="acme"} "#)).unwrap();
    assert!(oldest.parse::<f64>().unwrap() >= 7_200.0, "{oldest}");

    world.simulator.fail(&[]);
    assert!(world.work().await);
    let text = world.scraped().await;
    World::shows(
        &text,
        &[
            r#"ledger_purchases_open{supplier="acme"} 0"#,
            r#"ledger_supplier_failures{supplier="acme"} 0"#,
            r#"ledger_supplier_breaker_open{supplier="acme"} 0"#,
            r#"ledger_purchases_oldest_seconds{supplier="acme"} 0.0"#,
            r#"ledger_supplier_calls_total{supplier="acme",outcome="answered"} 1"#,
        ],
    );
    assert_eq!(alerts(&node).await, Vec::<String>::new());
}

#[tokio::test]
async fn the_budget_and_purchases_without_usable_vouchers_are_in_the_metrics() {
    let mut world = World::open().await;
    world.supplier = world.simulator.supplier_with("daily_budget = { EUR = \"25.00\" }");
    world.order(2).await;
    let mut purchaser = world.purchaser();
    purchaser.request(SHARD).await.unwrap();
    purchaser.watch(SHARD).await.unwrap();
    World::shows(
        &world.scraped().await,
        &[
            r#"ledger_supplier_daily_budget{supplier="acme",currency="EUR"} 25.0"#,
            r#"ledger_supplier_spent{supplier="acme",currency="EUR",shard="1"} 20.0"#,
            r#"ledger_supplier_budget_exhausted{supplier="acme",currency="EUR"} 0"#,
            r#"ledger_purchases_unusable_total{supplier="acme"} 0"#,
            r#"ledger_supplier_calls_total{supplier="acme",outcome="failed"} 0"#,
        ],
    );
    assert!(world.work().await);
    world.fulfil().await;
    world.order(1).await;
    // The two vouchers have cost 19.00, so another one of 10.00 does not fit.
    assert_eq!(purchaser.request(SHARD).await.unwrap(), 0);
    purchaser.watch(SHARD).await.unwrap();
    World::shows(
        &world.scraped().await,
        &[
            r#"ledger_supplier_spent{supplier="acme",currency="EUR",shard="1"} 19.0"#,
            r#"ledger_supplier_budget_exhausted{supplier="acme",currency="EUR"} 1"#,
        ],
    );

    world.supplier = world.simulator.supplier();
    world.purchaser().request(SHARD).await.unwrap();
    world.simulator.fail(&[Fault::SameCodes]);
    assert!(world.work().await);
    World::shows(&world.scraped().await, &[r#"ledger_purchases_unusable_total{supplier="acme"} 1"#]);
}
