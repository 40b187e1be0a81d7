//! Pages and totals of long lists match the tables at every moment.

mod pending;
mod shards;
mod statistics;
mod tampered;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::{DateTime, TimeDelta, Utc};
use ledger_events::order::{Order, OrderStatus};
use ledger_events::webhook::WebhookEventType;
use ledger_events::{AccountId, OrderId, ProductId, WebhookId};
use ledger_projections::deliveries::{self, DeliveryFilter};
use ledger_projections::listing::maintain::CountStep;
use ledger_projections::listing::pages::Thresholds;
use ledger_projections::orders::{OrderFilter, PlacedOrder};
use ledger_projections::page::Page;
use ledger_projections::state::{all, select};
use rewards_ledger::audit::verify;
use rewards_ledger::ledger::commands::PlaceOrder;
use rewards_ledger::ledger::reader;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::ledger::product;
use crate::support::node::Node;
use crate::support::shop::{SHARD, Shop, deliveries_of};

const STATUSES: [OrderStatus; 5] =
    [OrderStatus::Pending, OrderStatus::Delayed, OrderStatus::PartiallyDelivered, OrderStatus::Delivered, OrderStatus::Cancelled];

/// Returns the default thresholds, and thresholds that every list exceeds, which select the other ways of finding pages: with
/// and without the stored counts.
fn ways() -> [Thresholds; 3] {
    let exceeded = Thresholds { merged_groups: 0, pending: 0, skipped: -1_000_000, ..Thresholds::default() };
    [Thresholds::default(), exceeded, Thresholds { uncounted: -1, ..exceeded }]
}

impl Shop {
    /// Counts everything in the log.
    async fn count(&self) {
        let projector = self.projector();
        // The first step creates the checkpoint.
        _ = projector.count(SHARD).await.unwrap();
        while matches!(projector.count(SHARD).await.unwrap(), CountStep::Counted { .. }) {}
    }

    async fn orders_of(&self, account_id: AccountId, product_id: ProductId, count: usize) {
        let order = PlaceOrder { account_id, product_id, ..self.customer.order("10.00", 1) };
        futures::future::join_all((0..count).map(|_| self.place(order.clone()))).await;
    }

    /// Returns all orders that the list must contain, newest first.
    async fn expected(&self, filter: &OrderFilter) -> Vec<OrderId> {
        let mut all: Vec<Order> = all(select("FROM orders WHERE shard_id = $1").bind(SHARD), self.pool()).await.unwrap();
        all.retain(|order: &Order| {
            let placed = &order.placed;
            filter.account_id.is_none_or(|id| placed.account_id == id)
                && filter.status.is_none_or(|status| order.status == status)
                && filter.product_id.is_none_or(|id| placed.product_id == id)
                && filter.created_from.is_none_or(|from| order.created_at >= from)
                && filter.created_to.is_none_or(|to| order.created_at < to)
        });
        all.sort_unstable_by_key(|order| std::cmp::Reverse(order.placed_position));
        all.into_iter().map(|order| order.id).collect()
    }

    /// Walks over all pages, and one more.
    async fn walk(&self, filter: &OrderFilter, size: i64) {
        let expected = self.expected(filter).await;
        for way in ways() {
            let mut walked = vec![];
            for number in 1.. {
                let listed = reader::list_orders_by(self.pool(), SHARD, filter, Page { number, size }, &way).await.unwrap();
                assert_eq!(listed.total, expected.len() as i64, "{filter:?}, {way:?}");
                if listed.rows.is_empty() {
                    break;
                }
                walked.extend(listed.rows.iter().map(|order| order.id));
            }
            assert!(walked == expected, "{filter:?}, {way:?}: {} orders, {} expected", walked.len(), expected.len());
        }
    }

    /// Walks over a list of all accounts: each page begins before the last order of the one before.
    async fn walk_by_order(&self, filter: &OrderFilter, size: i64) {
        let expected = self.expected(filter).await;
        let (mut filter, mut walked) = (filter.clone(), vec![]);
        loop {
            let listed = reader::list_orders(self.pool(), SHARD, &filter, Page { number: 1, size }).await.unwrap();
            assert_eq!(listed.total, expected.len() as i64, "{filter:?}");
            let Some(last) = listed.rows.last() else { break };
            let (position, created_at) = (last.placed_position, last.created_at);
            filter.before = Some(PlacedOrder { shard: SHARD, position, created_at });
            walked.extend(listed.rows.iter().map(|order| order.id));
        }
        assert!(walked == expected, "{filter:?}: {} orders, {} expected", walked.len(), expected.len());
    }

    /// Walks over all pages of deliveries, and one more, with each of these thresholds.
    async fn walk_deliveries(&self, filter: &DeliveryFilter, size: i64, ways: &[Thresholds]) {
        let expected: Vec<i64> = sqlx::query_scalar(
            "SELECT d.id FROM deliveries d JOIN delivery_state s ON s.delivery_id = d.id
             WHERE d.account_id = $1 AND ($2::text IS NULL OR s.status = $2) AND ($3::text IS NULL OR d.event_type = $3)
               AND ($4::bigint IS NULL OR d.webhook_id = $4) AND ($5::bigint IS NULL OR d.order_id = $5)
               AND ($6::timestamptz IS NULL OR d.created_at >= $6) AND ($7::timestamptz IS NULL OR d.created_at < $7) ORDER BY d.id DESC",
        )
        .bind(filter.account_id)
        .bind(filter.status)
        .bind(filter.event_type.map(WebhookEventType::as_str))
        .bind(filter.webhook_id)
        .bind(filter.order_id)
        .bind(filter.created_from)
        .bind(filter.created_to)
        .fetch_all(self.pool())
        .await
        .unwrap();
        for way in ways {
            let mut walked = vec![];
            for number in 1.. {
                let listed = deliveries::list_by(self.pool(), SHARD, filter, Page { number, size }, way).await.unwrap();
                assert_eq!(listed.total, expected.len() as i64, "{filter:?}, {way:?}");
                if listed.rows.is_empty() {
                    break;
                }
                walked.extend(listed.rows.iter().map(|delivery| delivery.id));
            }
            assert!(walked == expected, "{filter:?}, {way:?}: {} deliveries, {} expected", walked.len(), expected.len());
        }
    }

    /// Compares pages of periods that begin and end with the rounds, at the time of a delivery.
    async fn walk_periods(&self, all: &DeliveryFilter, rounds: &[DateTime<Utc>; 3], (webhook, order): (WebhookId, OrderId)) {
        let [_, second, third] = rounds.map(Some);
        let later = Some(Utc::now() + TimeDelta::hours(1));
        let cancelled = Some(WebhookEventType::OrderCancelled);
        for (created_from, created_to) in
            [(second, None), (None, third), (second, third), (third, second), (later, None), (None, later)]
        {
            for status in [None, Some("pending"), Some("delivered"), Some("failed")] {
                let dated = DeliveryFilter { status, created_from, created_to, ..all.clone() };
                let (size, ways) = (if status == Some("failed") { 13 } else { 200 }, &ways()[..2]);
                self.walk_deliveries(&dated, size, ways).await;
                self.walk_deliveries(&DeliveryFilter { webhook_id: Some(webhook), ..dated.clone() }, size, ways).await;
                self.walk_deliveries(&DeliveryFilter { event_type: cancelled, ..dated.clone() }, 1, ways).await;
                self.walk_deliveries(&DeliveryFilter { order_id: Some(order), ..dated }, 1, ways).await;
            }
        }
    }

    async fn walk_all(&self, products: [ProductId; 2], between: (DateTime<Utc>, DateTime<Utc>)) {
        let all = OrderFilter { account_id: Some(self.customer.account_id), ..OrderFilter::default() };
        let (from, to) = (Some(between.0), Some(between.1));
        let dated = OrderFilter { created_from: from, created_to: to, ..all.clone() };
        let mut filters = vec![
            OrderFilter { created_from: from, ..all.clone() },
            OrderFilter { created_to: to, ..all.clone() },
            OrderFilter { created_from: to, created_to: from, ..all.clone() },
            OrderFilter { account_id: Some(AccountId(99_999)), ..all.clone() },
            OrderFilter { product_id: Some(ProductId(99_999)), ..all.clone() },
        ];
        // Over all accounts, as operators query.
        let of_all = OrderFilter { account_id: None, ..all.clone() };
        let dated_of_all = OrderFilter { account_id: None, ..dated.clone() };
        let moment = between.0 + TimeDelta::milliseconds(1);
        for (created_from, created_to) in [(from, None), (None, to), (to, from), (None, from), (to, None), (from, Some(moment))] {
            filters.push(OrderFilter { created_from, created_to, ..of_all.clone() });
        }
        for base in [of_all.clone(), dated_of_all.clone(), OrderFilter { status: Some(STATUSES[0]), ..dated_of_all.clone() }] {
            self.walk_by_order(&base, 31).await;
        }
        for base in [all, dated, of_all, dated_of_all] {
            filters.extend(products.map(|id| OrderFilter { product_id: Some(id), ..base.clone() }));
            for status in STATUSES.map(Some) {
                filters.push(OrderFilter { status, ..base.clone() });
                filters.push(OrderFilter { status, product_id: Some(products[0]), ..base.clone() });
            }
            self.walk(&base, 31).await;
            filters.push(base);
        }
        for filter in &filters {
            self.walk(filter, 100).await;
        }
        self.sound().await;
    }

    async fn sound(&self) {
        let report = verify(&self.options, |_| {}).await.unwrap();
        assert!(report.is_clean(), "{:#?}", report.differences);
    }

    async fn tamper_with(&self, sql: &str) {
        let changed = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.admin().await).await.unwrap();
        assert!(changed.rows_affected() > 0, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_orders_hold_each_order_once_and_totals_are_true() {
    let shop = Shop::open().await;
    let (customer, other) = (shop.customer, shop.account("Other").await.0);
    let second = product(&shop.ledger, "Second").await;
    let products = [customer.product_id, second];
    shop.load("a", 60, None).await;
    for _ in 0..3 {
        shop.orders_of(customer.account_id, customer.product_id, 150).await;
        shop.orders_of(other, customer.product_id, 40).await;
        shop.orders_of(customer.account_id, second, 60).await;
    }
    let placed = shop.expected(&OrderFilter { account_id: Some(customer.account_id), ..OrderFilter::default() }).await;
    let time = async |id| shop.find(id).await.created_at;
    let between = (time(placed[500]).await, time(placed[120]).await + TimeDelta::milliseconds(1));
    // Nothing is counted yet, so the totals come from the tail of the log alone.
    shop.walk_all(products, between).await;
    shop.count().await;
    shop.walk_all(products, between).await;
    // Some orders change before they are counted, some afterwards, some twice.
    for (n, id) in placed.iter().enumerate().filter(|(n, _)| n % 9 == 0) {
        match n % 4 {
            0 => shop.cancel(*id).await,
            _ => shop.fulfil(*id).await,
        }
    }
    shop.walk_all(products, between).await;
    let partial = shop.order(90).await;
    shop.load("b", 30, None).await;
    shop.fulfil(partial).await;
    shop.count().await;
    shop.cancel(partial).await;
    shop.orders_of(customer.account_id, second, 450).await;
    shop.walk_all(products, between).await;
    shop.count().await;
    shop.walk_all(products, between).await;
    let marks: i64 = sqlx::query_scalar("SELECT count(*) FROM order_marks").fetch_one(shop.pool()).await.unwrap();
    assert_eq!(marks, 2, "every 500th of 1,081 orders");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reference_finds_its_order_alone() {
    let shop = Shop::open().await;
    let order = PlaceOrder { client_reference: Some("mine".to_owned()), ..shop.customer.order("10.00", 1) };
    let id = shop.place(order).await;
    shop.order(1).await;
    let all = OrderFilter { account_id: Some(shop.customer.account_id), ..OrderFilter::default() };
    let reference = shop.find(id).await.placed.reference_code;
    let list = async |filter: OrderFilter| {
        let listed = reader::list_orders(shop.pool(), SHARD, &filter, Page { number: 1, size: 20 }).await.unwrap();
        (listed.total, listed.rows.iter().map(|order| order.id).collect::<Vec<_>>())
    };
    let by = |text: &str| OrderFilter { reference_code: Some(text.to_owned()), ..all.clone() };
    assert_eq!(list(by(&reference)).await, (1, vec![id]));
    assert_eq!(list(OrderFilter { account_id: Some(AccountId(99_999)), ..by(&reference) }).await, (0, vec![]));
    assert_eq!(list(OrderFilter { status: Some(OrderStatus::Cancelled), ..by(&reference) }).await, (0, vec![]));
    for unknown in ["ORD-1", "ORD-+000000001", "ord-0000000001", "", "ORD-99999999999999999999"] {
        assert_eq!(list(by(unknown)).await, (0, vec![]), "{unknown}");
    }
    assert_eq!(list(OrderFilter { client_reference: Some("mine".into()), ..all.clone() }).await, (1, vec![id]));
    assert_eq!(list(OrderFilter { client_reference: Some("theirs".into()), ..all.clone() }).await, (0, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_are_true_while_orders_are_placed_and_counted() {
    let shop = Arc::new(Shop::open().await);
    let account = shop.customer.account_id;
    let is_over = Arc::new(AtomicBool::new(false));
    let writers = tokio::spawn({
        let (shop, is_over) = (shop.clone(), is_over.clone());
        async move {
            for _ in 0..12 {
                shop.orders(account, 120).await;
            }
            is_over.store(true, Ordering::SeqCst);
        }
    });
    let counter = tokio::spawn({
        let (shop, is_over) = (shop.clone(), is_over.clone());
        async move {
            while !is_over.load(Ordering::SeqCst) {
                shop.count().await;
            }
        }
    });
    let all = OrderFilter { account_id: Some(account), ..OrderFilter::default() };
    let pending = OrderFilter { status: Some(OrderStatus::Pending), ..all.clone() };
    let there = async || -> i64 { sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(shop.pool()).await.unwrap() };
    let mut looks = 0;
    while !is_over.load(Ordering::SeqCst) {
        for filter in [&all, &pending] {
            let before = there().await;
            let listed = reader::list_orders(shop.pool(), SHARD, filter, Page { number: 2, size: 100 }).await.unwrap();
            assert!((before..=there().await).contains(&listed.total), "{filter:?}: {before}, {}", listed.total);
            assert_eq!(listed.rows.len() as i64, (listed.total - 100).clamp(0, 100));
            assert!(listed.rows.is_sorted_by(|a, b| a.placed_position > b.placed_position));
            looks += 1;
        }
    }
    writers.await.unwrap();
    counter.await.unwrap();
    assert!(looks > 4, "{looks}");
    for filter in [&all, &pending] {
        shop.walk(filter, 100).await;
    }
    shop.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_deliveries_hold_each_delivery_once_and_totals_are_true() {
    let shop = Shop::open().await;
    let account = shop.customer.account_id;
    let other = shop.account("Other").await.0;
    let url = "https://example.com/hook";
    let both = [WebhookEventType::OrderCreated, WebhookEventType::OrderCancelled];
    let webhooks = [shop.webhook_for(account, url, &both).await.0, shop.webhook_for(account, url, &both[..1]).await.0];
    shop.webhook_for(other, url, &both).await;
    let (mut cancelled, mut rounds, mut before) = (OrderId(0), [Utc::now(); 3], 0);
    for (round, began) in rounds.iter_mut().enumerate() {
        shop.orders(account, 180).await;
        shop.orders(other, 20).await;
        if round == 1 {
            cancelled = shop.order(1).await;
            shop.cancel(cancelled).await;
        }
        shop.project().await;
        // The time of the first delivery of the round.
        let first = "SELECT created_at FROM deliveries ORDER BY id DESC OFFSET $1 LIMIT 1";
        let made: i64 = sqlx::query_scalar("SELECT count(*) FROM deliveries").fetch_one(shop.pool()).await.unwrap();
        *began = sqlx::query_scalar(first).bind(made - before - 1).fetch_one(shop.pool()).await.unwrap();
        before = made;
    }
    shop.tamper_with(
        "UPDATE delivery_state SET status = 'delivered', delivered_at = now(), attempt_count = 1 WHERE delivery_id % 3 <> 0;
         UPDATE delivery_state SET status = 'failed', attempt_count = 5 WHERE delivery_id % 21 = 0;
         UPDATE delivery_state SET attempt_count = 2 WHERE delivery_id % 30 = 3 AND status = 'pending'",
    )
    .await;
    let mut filters = vec![];
    let all = deliveries_of(account);
    for status in [None, Some("pending"), Some("delivered"), Some("failed")] {
        for event_type in [None, Some(WebhookEventType::OrderCancelled), Some(WebhookEventType::OrderCreated)] {
            for webhook_id in [None, Some(webhooks[0]), Some(webhooks[1]), Some(WebhookId(99_999))] {
                filters.push(DeliveryFilter { status, event_type, webhook_id, ..all.clone() });
            }
        }
        filters.push(DeliveryFilter { status, order_id: Some(cancelled), ..all.clone() });
    }
    for filter in filters {
        shop.walk_deliveries(&filter, 90, &ways()).await;
    }
    let marks: i64 = sqlx::query_scalar("SELECT count(*) FROM delivery_marks").fetch_one(shop.pool()).await.unwrap();
    assert_eq!(marks, 2, "every 500th of 1,083 deliveries");
    shop.sound().await;
    shop.walk_periods(&all, &rounds, (webhooks[1], cancelled)).await;
    // Ids and times of some deliveries without an order are on different sides of the second round.
    let account = account.0;
    let [first, second, third] = rounds.map(|round| round.to_rfc3339());
    shop.tamper_with(&format!(
        "UPDATE deliveries SET order_id = 0, created_at = '{third}' WHERE account_id = {account} AND id % 50 = 1 AND created_at < '{second}';
         UPDATE deliveries SET order_id = 0, created_at = '{first}' WHERE account_id = {account} AND id % 50 = 2 AND created_at >= '{third}'",
    ))
    .await;
    shop.walk_periods(&all, &rounds, (webhooks[1], cancelled)).await;
    // An account without deliveries, and one all of whose deliveries have no order.
    shop.walk_periods(&deliveries_of(AccountId(99_999)), &rounds, (webhooks[1], cancelled)).await;
    shop.tamper_with(&format!("UPDATE deliveries SET order_id = 0 WHERE account_id = {account}")).await;
    shop.walk_periods(&all, &rounds, (webhooks[1], cancelled)).await;
}

/// Worker records from before event types were recorded get the event type of their delivery.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_fills_in_the_event_type_of_each_state() {
    let shop = Shop::open().await;
    let both = [WebhookEventType::OrderCreated, WebhookEventType::OrderCancelled];
    shop.webhook_for(shop.customer.account_id, "https://example.com/hook", &both).await;
    shop.orders(shop.customer.account_id, 3).await;
    let order = shop.order(1).await;
    shop.cancel(order).await;
    shop.project().await;
    let before = "ALTER TABLE delivery_state DROP COLUMN event_type; -- and the indexes that have it
        CREATE INDEX delivery_state_delivered ON delivery_state (shard_id, webhook_id, delivery_id) WHERE status = 'delivered';
        CREATE INDEX delivery_state_failed ON delivery_state (shard_id, webhook_id, delivery_id) WHERE status = 'failed';
        DROP INDEX orders_status";
    sqlx::raw_sql(before).execute(&mut shop.admin().await).await.unwrap();
    shop.tamper_with(include_str!("../../migrations/0014_lists_by_status.sql")).await;
    let told = "SELECT s.event_type, count(*) FROM delivery_state s JOIN deliveries d ON d.id = s.delivery_id AND d.event_type = s.event_type
        GROUP BY 1 ORDER BY 1";
    let told: Vec<(String, i64)> = sqlx::query_as(told).fetch_all(shop.pool()).await.unwrap();
    assert_eq!(told, [("order.cancelled".to_owned(), 1), ("order.created".to_owned(), 4)]);
}

/// Orders counted before counts per mark existed are counted per mark, and moved from there.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_counts_orders_by_their_marks() {
    let shop = Shop::open().await;
    shop.orders(shop.customer.account_id, 505).await;
    let order = shop.order(1).await;
    shop.count().await;
    shop.cancel(order).await;
    let before = "DROP TABLE order_mark_counts; DROP FUNCTION order_moves; DROP INDEX order_marks_key;
        ALTER TABLE list_checkpoints DROP COLUMN marked_position";
    sqlx::raw_sql(before).execute(&mut shop.admin().await).await.unwrap();
    sqlx::raw_sql(include_str!("../../migrations/0016_orders_by_marks.sql")).execute(&mut shop.admin().await).await.unwrap();
    let counted =
        "SELECT c.status, c.orders FROM order_mark_counts c JOIN order_marks m ON m.key = c.after AND m.ordinal = 500 ORDER BY 1";
    let counted: Vec<(String, i64)> = sqlx::query_as(counted).fetch_all(shop.pool()).await.unwrap();
    assert_eq!(counted, [("CANCELLED".to_owned(), 1), ("PENDING".to_owned(), 5)]);
    shop.sound().await;
    shop.orders(shop.customer.account_id, 3).await;
    shop.count().await;
    shop.sound().await;
    // A node of the previous release, which does not keep counts per mark, is stopped.
    let without = sqlx::raw_sql("UPDATE list_checkpoints SET position = position + 1").execute(&mut shop.admin().await).await;
    assert!(without.unwrap_err().to_string().contains("list_checkpoints_marked_check"));
}

/// More products than the number of groups that are merged, over HTTP.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_status_hold_the_orders_of_all_products() {
    let node = Node::start().await;
    let client = node.setup().await.client;
    let mut products = vec![];
    for n in 0..Thresholds::default().merged_groups + 2 {
        products.push(product(&node.ledger, &format!("Card {n}")).await);
    }
    let mut placed = vec![];
    for product_id in products {
        let order = json!({"product_id": product_id, "denomination": 10, "quantity": 1});
        placed.push(node.client(&client, "POST", "/orders", order).await.data(201)["id"].clone());
    }
    // One order has another status.
    let cancelled = placed.remove(20);
    node.client(&client, "POST", &format!("/orders/{cancelled}/cancel"), Value::Null).await.data(200);
    placed.reverse();
    for (path, expected) in [("status=PENDING", placed.clone()), ("status=CANCELLED", vec![cancelled])] {
        let mut walked = vec![];
        for number in 1..=5 {
            let path = format!("/orders?{path}&limit=15&page={number}");
            let answer = node.client(&client, "GET", &path, Value::Null).await;
            assert_eq!(answer.header("x-total-count"), expected.len().to_string(), "{path}");
            let page = answer.data(200);
            walked.extend(page["orders"].as_array().unwrap().iter().map(|order| order["id"].clone()));
        }
        assert_eq!(walked, expected, "{path}");
    }
}
