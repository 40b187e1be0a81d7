//! Operators' lists over several shards: in the order of time, page by page, and of one account from its shard alone.

use ledger_events::ShardId;
use serde_json::{Value, json};

use crate::support::node::{Client, Node};
use crate::support::tampering::tamper;

/// Two shards with an account each, whose orders alternate.
struct TwoShards {
    /// Owns the database.
    _first: Node,
    node: Node,
    clients: [Client; 2],
    product: i64,
}

impl TwoShards {
    async fn start() -> TwoShards {
        let first = Node::start().await;
        let setup = first.setup().await;
        let node = first.beside_with_two_shards().await;
        let second = node.client_in(2).await;
        TwoShards { _first: first, node, clients: [setup.client, second], product: setup.product_id }
    }

    /// Places an order in a shard.
    async fn place(&self, shard: ShardId) {
        let order = json!({"product_id": self.product, "denomination": 10, "quantity": 1});
        let client = &self.clients[usize::try_from(shard - 1).unwrap()];
        self.node.client(client, "POST", "/orders", order).await.data(201);
    }

    /// Returns the orders of all accounts or of one, the newest first, and those of one time in the order of the shards.
    async fn placed(&self, account: Option<i64>) -> Vec<i64> {
        let orders = "SELECT id FROM orders WHERE $1::bigint IS NULL OR account_id = $1
            ORDER BY created_at DESC, shard_id, placed_position DESC";
        sqlx::query_scalar(orders).bind(account).fetch_all(self.node.ledger.pool()).await.unwrap()
    }

    /// Checks that pages of any length have these orders, by their numbers and by their last orders.
    async fn check_pages(&self, orders: &[i64]) {
        for limit in [1, 3, 100] {
            assert_eq!(self.by_number(limit).await, orders, "{limit} a page");
            assert_eq!(self.by_cursor(limit).await, orders, "{limit} a page, by cursor");
        }
    }

    /// Returns a page of the orders of all accounts.
    async fn page(&self, query: &str) -> Vec<i64> {
        let page = self.node.operator("GET", &format!("/orders?{query}"), Value::Null).await.data(200);
        page["orders"].as_array().unwrap().iter().map(|order| order["id"].as_i64().unwrap()).collect()
    }

    /// Returns all orders, read by their page numbers.
    async fn by_number(&self, limit: usize) -> Vec<i64> {
        let mut all = vec![];
        for number in 1.. {
            let page = self.page(&format!("limit={limit}&page={number}")).await;
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        all
    }

    /// Returns all orders, each page from the last order of the one before.
    async fn by_cursor(&self, limit: usize) -> Vec<i64> {
        let mut all = self.page(&format!("limit={limit}")).await;
        while let Some(last) = all.last() {
            let page = self.page(&format!("limit={limit}&before={last}")).await;
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        all
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_all_shards_are_in_the_order_of_time() {
    let shards = TwoShards::start().await;
    for shard in [2, 1, 2, 2, 1, 1, 2, 1] {
        shards.place(shard).await;
    }
    let placed = shards.placed(None).await;
    assert!(!placed.is_sorted_by(|newer, older| newer > older), "the shards draw ids ahead: {placed:?}");
    shards.check_pages(&placed).await;
    let answer = shards.node.operator("GET", "/orders?limit=3&page=2", Value::Null).await;
    assert_eq!(answer.header("X-Total-Count"), "8");
    for client in &shards.clients {
        let account = client.account_id;
        let mut own: Vec<i64> = shards.page(&format!("account_id={account}&limit=2")).await;
        own.extend(shards.page(&format!("account_id={account}&limit=2&page=2")).await);
        assert_eq!(own, shards.placed(Some(account)).await, "account {account}");
    }
    assert_eq!(shards.page("account_id=999999").await, Vec::<i64>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_one_time_are_on_one_page_each() {
    let shards = TwoShards::start().await;
    for shard in [1, 2, 1, 2, 2] {
        shards.place(shard).await;
    }
    // All orders of the second shard and the last one of the first shard get one time.
    let one_time = "CREATE TEMP TABLE one (at) ON COMMIT DROP AS SELECT max(recorded_at) FROM events;
        UPDATE events SET recorded_at = (SELECT at FROM one)
            WHERE shard_id = 2 AND position >= (SELECT min(position) FROM events WHERE shard_id = 2 AND type = 'OrderPlaced')
                OR shard_id = 1 AND position >= (SELECT max(position) FROM events WHERE shard_id = 1 AND type = 'OrderPlaced');
        UPDATE orders SET created_at = (SELECT at FROM one)
            WHERE shard_id = 2 OR placed_position = (SELECT max(placed_position) FROM orders WHERE shard_id = 1);
        UPDATE log_head SET recorded_at = (SELECT at FROM one)";
    tamper(&mut shards.node.admin().await, one_time).await;
    shards.check_pages(&shards.placed(None).await).await;
}
