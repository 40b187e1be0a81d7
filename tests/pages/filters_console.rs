//! Filters of the console's lists of orders and products.

use std::collections::BTreeSet;

use chrono::{Days, Utc};
use ledger_events::order::OrderStatus;
use rewards_ledger::access::Role;
use serde_json::json;

use super::filters::{catalogue, choices, day, form, make_earlier, narrows, offers};
use crate::support::node::Node;

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_of_the_consoles_orders_is_offered_and_narrows_the_list() {
    let node = Node::start().await;
    let (first, second) = (node.setup().await, node.setup().await);
    let auditor = node.console_user(Role::Auditor).await;
    let mut orders = vec![];
    for (setup, product, reference) in [
        (&first, first.product_id, "first"),
        (&first, second.product_id, "second"),
        (&second, second.product_id, "second"),
        (&second, first.product_id, "third"),
    ] {
        let order = json!({"product_id": product, "denomination": 10, "quantity": 1, "client_reference": reference});
        orders.push(node.client(&setup.client, "POST", "/orders", order).await.data(201));
    }
    let ids: Vec<i64> = orders.iter().map(|order| order["id"].as_i64().unwrap()).collect();
    node.client(&second.client, "POST", &format!("/orders/{}/cancel", ids[3]), json!({})).await.data(200);
    make_earlier(&node, "orders", "created_at", ids[0]).await;

    let path = "/console/orders";
    let names = ["account_id", "status", "product_id", "reference_code", "client_reference", "from", "to"];
    let page = offers(&node, &auditor.cookie, path, &names).await;
    let statuses: BTreeSet<String> = choices(form(&page), "status").into_iter().collect();
    let expected = [""].into_iter().chain(OrderStatus::ALL.map(OrderStatus::as_str));
    assert_eq!(statuses, expected.map(str::to_owned).collect::<BTreeSet<_>>());

    let (one, other) = (first.client.account_id, second.client.account_id);
    let tomorrow = Utc::now().date_naive().checked_add_days(Days::new(1)).unwrap();
    for (query, shown) in [
        ("status=".to_owned(), ids.clone()),
        ("status=PENDING".to_owned(), vec![ids[0], ids[1], ids[2]]),
        ("status=CANCELLED".to_owned(), vec![ids[3]]),
        (format!("account_id={one}"), vec![ids[0], ids[1]]),
        (format!("account_id={}", one + other + 1_000), vec![]),
        (format!("account_id={other}&status=PENDING"), vec![ids[2]]),
        (format!("product_id={}", second.product_id), vec![ids[1], ids[2]]),
        (format!("product_id={}&status=CANCELLED", second.product_id), vec![]),
        (format!("account_id={other}&product_id={}", first.product_id), vec![ids[3]]),
        (format!("reference_code={}", orders[2]["reference_code"].as_str().unwrap()), vec![ids[2]]),
        // Each account has its own references.
        ("client_reference=second".to_owned(), vec![ids[1], ids[2]]),
        (format!("account_id={other}&client_reference=second"), vec![ids[2]]),
        (format!("account_id={one}&from={}", day(5)), vec![ids[1]]),
        (format!("account_id={one}&to={}", day(5)), vec![ids[0]]),
        (format!("account_id={one}&from={}&to={}", day(11), day(9)), vec![ids[0]]),
        // The list of all accounts finds a period by the times in the log, in which no order is earlier.
        (format!("from={}", day(20)), ids.clone()),
        (format!("from={tomorrow}"), vec![]),
        (format!("to={tomorrow}"), ids.clone()),
        (format!("to={}", day(20)), vec![]),
        (format!("status=CANCELLED&from={}&to={tomorrow}", day(20)), vec![ids[3]]),
    ] {
        narrows(&node, &auditor.cookie, path, &query, path, &ids, &shown).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_of_the_consoles_products_is_offered_and_narrows_the_list() {
    let node = Node::start().await;
    let auditor = node.console_user(Role::Auditor).await;
    let (ids, category) = catalogue(&node).await;

    let path = "/console/products";
    let page = offers(&node, &auditor.cookie, path, &["search", "category_id", "country", "currency", "is_active"]).await;
    assert_eq!(choices(form(&page), "category_id"), [String::new(), category.to_string()]);
    for (query, shown) in [
        ("is_active=".to_owned(), ids.clone()),
        ("is_active=true".to_owned(), vec![ids[0], ids[1], ids[2]]),
        ("is_active=false".to_owned(), vec![ids[3]]),
        ("search=third".to_owned(), vec![ids[2]]),
        ("search=zenith".to_owned(), vec![ids[1]]),
        ("country=US".to_owned(), vec![ids[1]]),
        ("currency=USD".to_owned(), vec![ids[1], ids[3]]),
        (format!("category_id={category}"), vec![ids[2], ids[3]]),
        (format!("category_id={category}&currency=USD&is_active=false"), vec![ids[3]]),
        (format!("category_id={category}&country=US"), vec![]),
    ] {
        narrows(&node, &auditor.cookie, path, &query, path, &ids, &shown).await;
    }
}
