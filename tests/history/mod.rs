//! Views of the past: orders, wallets and statements as of any position or time, and the history of an order.

mod timeline;

use std::collections::HashMap;

use chrono::{SecondsFormat, TimeDelta};
use ledger_events::{Event, OrderId, WalletId};
use ledger_projections::{orders, state, wallets};
use rewards_ledger::ledger::history::{self, AsOf, HistoryError};
use rewards_ledger::ledger::reader;
use serde_json::{Value, json};
use sqlx::ConnectOptions;

use crate::support::node::{Client, Node, Setup};
use crate::support::program::{program, run};
use crate::support::shop::{SHARD, Shop};

/// Checks every position of a rich history against a fold of the whole log up to it.
#[tokio::test]
async fn an_order_and_a_wallet_as_of_every_position_are_the_fold_of_the_log_up_to_it() {
    let shop = Shop::open().await;
    shop.eventful().await;
    let pool = shop.pool();
    let log = reader::after(pool, SHARD, 0, 10_000).await.unwrap();
    let (mut placed, mut opened) = (HashMap::new(), HashMap::new());
    let (all_orders, all_wallets) = ((1..=20).map(OrderId).collect::<Vec<_>>(), (1..=5).map(WalletId).collect::<Vec<_>>());
    let mut compared = 0;
    for recorded in &log {
        match &recorded.event {
            Event::Order(_) => state::fold(&mut placed, recorded),
            Event::Wallet(event) => _ = wallets::fold(&mut opened, recorded, event),
            _ => {}
        }
        let at = recorded.moment.position;
        assert_eq!(history::position(pool, SHARD, AsOf::Position(at)).await.unwrap(), at);
        for id in &all_orders {
            assert_eq!(history::order_at(pool, SHARD, *id, at).await.unwrap().as_ref(), placed.get(id), "order {id} at {at}");
        }
        for id in &all_wallets {
            assert_eq!(history::wallet_at(pool, SHARD, *id, at).await.unwrap().as_ref(), opened.get(id), "wallet {id} at {at}");
        }
        compared += 1;
    }
    assert!(compared > 60 && placed.len() > 7, "{compared} {}", placed.len());
    // At the end the folded states equal the rows.
    for (id, order) in &placed {
        assert_eq!(orders::find(pool, SHARD, *id, None).await.unwrap().as_ref(), Some(order));
    }
    for (id, wallet) in &opened {
        assert_eq!(wallets::find(pool, SHARD, *id).await.unwrap().as_ref(), Some(wallet));
    }
}

#[tokio::test]
async fn a_time_means_the_last_position_that_was_recorded_by_then() {
    let shop = Shop::open().await;
    shop.history().await;
    let pool = shop.pool();
    let log = reader::after(pool, SHARD, 0, 10_000).await.unwrap();
    for recorded in &log {
        let time = recorded.moment.recorded_at;
        for time in [time, time + TimeDelta::microseconds(999), time - TimeDelta::microseconds(1)] {
            let last = log.iter().filter(|r| r.moment.recorded_at <= time).map(|r| r.moment.position).max().unwrap_or(0);
            assert_eq!(history::position(pool, SHARD, AsOf::Time(time)).await.unwrap(), last, "{time}");
        }
    }
    let head = log.last().unwrap().moment.position;
    assert_eq!(history::position(pool, SHARD, "9999-12-31T23:59:59Z".parse().unwrap()).await.unwrap(), head);
    assert_eq!(history::position(pool, SHARD, "0001-01-01T00:00:00Z".parse().unwrap()).await.unwrap(), 0);
    let beyond = history::position(pool, SHARD, AsOf::Position(head + 1)).await;
    assert!(matches!(beyond, Err(HistoryError::BeyondHead { head: known }) if known == head), "{beyond:?}");
}

/// An operator's view of these resources at one moment, and the position of that moment.
struct Seen {
    head: i64,
    order: Value,
    wallet: Value,
    statement: Value,
    csv: String,
}

async fn read(node: &Node, path: &str) -> Value {
    node.operator("GET", path, Value::Null).await.data(200)
}

async fn csv(node: &Node, path: &str) -> (String, String) {
    let answer = node.send(node.by_operator("GET", path).header("Accept", "text/csv")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    (answer.text.clone(), answer.header("x-as-of-position").to_owned())
}

async fn look(node: &Node, setup: &Setup, order: i64) -> Seen {
    let (order, wallet) = (format!("/orders/{order}"), format!("/wallets/{}", setup.wallet_id));
    let statement = format!("{wallet}/statement");
    Seen {
        head: node.head().await,
        order: read(node, &order).await,
        wallet: read(node, &wallet).await,
        statement: read(node, &statement).await,
        csv: csv(node, &statement).await.0,
    }
}

/// Returns true if a line of a statement's CSV is a movement of this type.
fn is_of(line: &str, kind: &str) -> bool {
    line.split(',').any(|cell| cell == kind)
}

async fn place(node: &Node, client: &Client, product: i64, quantity: i64) -> i64 {
    let order = json!({"product_id": product, "denomination": 10, "quantity": quantity, "metadata": {"basket": quantity}});
    node.client(client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap()
}

#[tokio::test]
async fn operators_see_each_past_moment_as_it_was() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (client, wallet) = (&setup.client, setup.wallet_id);
    let before = node.head().await;
    let order = place(&node, client, setup.product_id, 5).await;
    let mut seen = vec![look(&node, &setup, order).await];
    // Three units are in stock.
    node.fulfil(order).await;
    seen.push(look(&node, &setup, order).await);
    place(&node, client, setup.product_id, 1).await;
    seen.push(look(&node, &setup, order).await);
    let path = format!("/orders/{order}/cancel");
    node.client(client, "POST", &path, json!({"reason": "no longer needed"})).await.data(200);
    seen.push(look(&node, &setup, order).await);
    let fee = json!({"type": "DEBIT", "amount": "0.75", "reason": "a fee"});
    node.operator("POST", &format!("/wallets/{wallet}/adjust"), fee).await.data(201);
    seen.push(look(&node, &setup, order).await);
    assert_eq!(seen[3].order["cancel_reason"], "no longer needed");
    assert_eq!(seen[1].order["status"], "PARTIALLY_DELIVERED");

    for (moment, is_projected) in seen.iter().map(|moment| (moment, false)).chain(seen.iter().map(|moment| (moment, true))) {
        if is_projected {
            node.project().await;
        }
        let Seen { head, order: was, wallet: held, statement, csv: lines } = moment;
        let at = |value: &Value| {
            let mut value = value.clone();
            value["as_of_position"] = json!(head);
            value
        };
        assert_eq!(read(&node, &format!("/orders/{order}?as_of={head}")).await, at(was));
        assert_eq!(read(&node, &format!("/wallets/{wallet}?as_of={head}")).await, at(held));
        assert_eq!(read(&node, &format!("/wallets/{wallet}/statement?as_of={head}")).await, at(statement));
        let (again, position) = csv(&node, &format!("/wallets/{wallet}/statement?as_of={head}")).await;
        assert_eq!((&again, position), (lines, head.to_string()));
        // A period of the statement also looks as it did then.
        let from = statement["transactions"][1]["created_at"].as_str().unwrap();
        let part = read(&node, &format!("/wallets/{wallet}/statement?as_of={head}&from={from}")).await;
        assert_eq!(part["closing_balance"], statement["closing_balance"]);
        assert_eq!(part["opening_balance"], statement["transactions"][0]["balance_after"]);
        // So do its totals, before and after the daily totals include it.
        for period in [String::new(), format!("&from={from}")] {
            let query = format!("/wallets/{wallet}/statement?as_of={head}{period}");
            let (mut whole, totals) = (read(&node, &query).await, read(&node, &format!("{query}&totals_only=true")).await);
            whole["transactions"] = json!([]);
            assert_eq!(totals, whole);
            let (whole, position) = csv(&node, &query).await;
            let without: Vec<&str> =
                whole.lines().filter(|line| !["CREDIT", "DEBIT"].iter().any(|kind| is_of(line, kind))).collect();
            let totals = csv(&node, &format!("{query}&totals_only=true")).await;
            assert_eq!((totals.0.lines().collect::<Vec<_>>(), totals.1), (without, position));
        }
        let beyond = read(&node, &format!("/wallets/{wallet}/statement?as_of={head}&from=2999-01-01T00:00:00Z")).await;
        assert_eq!(beyond["opening_balance"], statement["closing_balance"]);
    }
    let last = seen.last().unwrap();
    let now = chrono::Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
    assert_eq!(read(&node, &format!("/orders/{order}?as_of={now}")).await["as_of_position"], json!(last.head));
    assert_eq!(read(&node, &format!("/wallets/{wallet}")).await["as_of_position"], Value::Null);

    // Before it existed the resource is not found. A future time is refused, and so is a value that names no point.
    for path in [format!("/orders/{order}"), format!("/orders/{order}/history")] {
        node.operator("GET", &format!("{path}?as_of={before}"), Value::Null).await.refused(404, "E_NOT_FOUND");
    }
    for path in [format!("/orders/{order}"), format!("/wallets/{wallet}"), format!("/wallets/{wallet}/statement")] {
        node.operator("GET", &format!("{path}?as_of=2001-01-01T00:00:00Z"), Value::Null).await.refused(404, "E_NOT_FOUND");
        for (wrong, text) in [("999999", "the log ends at position"), ("0", "from 1"), ("yesterday", "a position")] {
            let refused = node.operator("GET", &format!("{path}?as_of={wrong}"), Value::Null).await;
            let error = refused.refused(400, "E_VALIDATION_FAILURE");
            assert!(error["messages"]["as_of"][0].as_str().unwrap().contains(text), "{error}");
        }
    }
    for path in ["/wallets/999", "/wallets/999/statement", "/orders/999/history"] {
        node.operator("GET", path, Value::Null).await.refused(404, "E_NOT_FOUND");
    }
}

/// Past states come from the log alone, so missing rows of orders and wallets do not matter.
#[tokio::test(flavor = "multi_thread")]
async fn past_states_are_known_without_the_current_rows() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = place(&node, &setup.client, setup.product_id, 2).await;
    node.fulfil(order).await;
    node.publish().await;
    let at = node.head().await;
    let wallet = setup.wallet_id;
    let paths = [
        format!("/orders/{order}?as_of={at}"),
        format!("/orders/{order}/history?as_of={at}"),
        format!("/orders/{order}/receipt"),
        format!("/wallets/{wallet}?as_of={at}"),
        format!("/wallets/{wallet}/statement?as_of={at}"),
    ];
    let told = async || {
        let mut told = vec![];
        for path in &paths {
            told.push(read(&node, path).await);
        }
        for (what, id) in [("order", order), ("wallet", wallet)] {
            let directory = tempfile::tempdir().unwrap();
            let mut command = program(directory.path());
            command.args(["show", what, &id.to_string(), "--as-of", &at.to_string(), "--json"]);
            let shown = run(command.env("DATABASE_URL", node.options.to_url_lossy().to_string())).await;
            told.push(
                serde_json::from_slice(&shown.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&shown.stderr))),
            );
        }
        told
    };
    let before = told().await;
    assert_eq!(before[1]["entries"][0]["transaction"]["amount"], "20.00");
    let mut admin = node.options.connect().await.unwrap();
    sqlx::raw_sql("DELETE FROM orders; DELETE FROM wallets").execute(&mut admin).await.unwrap();
    assert_eq!(told().await, before);
    // The current state is read from the rows.
    for path in [format!("/orders/{order}"), format!("/wallets/{wallet}")] {
        node.operator("GET", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    }
}

#[tokio::test]
async fn the_position_of_a_time_is_that_of_the_first_event_at_or_after_it() {
    let shop = Shop::open().await;
    shop.eventful().await;
    let log = reader::after(shop.pool(), SHARD, 0, 10_000).await.unwrap();
    let mut conn = shop.pool().acquire().await.unwrap();
    let last = log.last().unwrap().moment.position;
    let times = log.iter().flat_map(|recorded| [-1, 0, 1].map(|ms| recorded.moment.recorded_at + TimeDelta::milliseconds(ms)));
    for time in times {
        for head in [0, 1, last / 2, last] {
            let at_or_after = log.iter().map(|recorded| recorded.moment).find(|moment| moment.recorded_at >= time);
            let expected = at_or_after.map_or(head + 1, |moment| moment.position.min(head + 1));
            assert_eq!(reader::first_at(&mut conn, SHARD, time, head).await.unwrap(), expected, "{time} in a log up to {head}");
        }
    }
}
