//! Statistics by day, and voucher codes as CSV.

use chrono::{Days, NaiveDate, Utc};
use serde_json::{Value, json};
use webhook_client::receiver::ReceiverResponse as Received;

use crate::support::node::{Node, Setup};
use crate::support::shop::{DEADLINE, receiver, worker};

#[tokio::test]
async fn orders_and_spend_are_counted_by_day() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 2});
    for _ in 0..2 {
        node.client(client, "POST", "/orders", order.clone()).await.data(201);
    }
    let read = async |query: &str| node.client(client, "GET", &format!("/orders/stats{query}"), Value::Null).await.data(200);
    let days = read("?days=3").await["days"].clone();
    let today = Utc::now().date_naive().to_string();
    let expected = json!({"day": today, "orders": 2, "spend": [{"currency": "EUR", "spent": "40.00", "refunded": "0.00"}]});
    assert_eq!((days.as_array().unwrap().len(), &days[2]), (3, &expected), "before the totals have caught up");
    assert_eq!((&days[0]["orders"], &days[0]["spend"]), (&json!(0), &json!([])));
    node.project().await;
    assert_eq!(read("?days=3").await["days"], days, "afterwards");

    let third = node.client(client, "POST", "/orders", order).await.data(201)["id"].clone();
    node.client(client, "POST", &format!("/orders/{third}/cancel"), Value::Null).await.data(200);
    let last = read("").await["days"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["spend"], json!([{"currency": "EUR", "spent": "60.00", "refunded": "20.00"}]));
    let statuses = json!([
        {"status": "PENDING", "orders": 2}, {"status": "DELAYED", "orders": 0}, {"status": "PARTIALLY_DELIVERED", "orders": 0},
        {"status": "DELIVERED", "orders": 0}, {"status": "CANCELLED", "orders": 1}
    ]);
    assert_eq!(read("").await["statuses"], statuses, "before the counts have caught up");
    node.project().await;
    assert_eq!(read("").await["statuses"], statuses, "afterwards");
    assert_eq!(read("").await["days"].as_array().unwrap().len(), 30);
    for days in ["0", "93", "-1"] {
        node.client(client, "GET", &format!("/orders/stats?days={days}"), Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
    }
}

/// Orders something of which a webhook receives one event, and refuses another. Returns the webhook.
async fn attempted(node: &Node, setup: &Setup) -> Value {
    let (receiver, _arrived) = receiver(|received| {
        let is_created = String::from_utf8_lossy(&received.body).contains("order.created");
        Received::Status(if is_created { 500 } else { 200 })
    })
    .await;
    let hook = json!({"name": "a", "url": receiver.url(), "events": ["order.created", "order.delivered"]});
    let webhook = node.client(&setup.client, "POST", "/webhooks", hook).await.json()["id"].clone();
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(order).await;
    node.project().await;
    worker(&node.options, &receiver, DEADLINE).once().await.unwrap();
    webhook
}

#[tokio::test]
async fn attempts_are_counted_by_webhook_and_day() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (client, webhook) = (&setup.client, attempted(&node, &setup).await);
    let path = format!("/webhooks/{webhook}/stats?days=2");
    let counted = node.client(client, "GET", &path, Value::Null).await.data(200);
    assert_eq!(node.operator("GET", &path, Value::Null).await.data(200), counted);
    let days = counted["days"].clone();
    let none = json!({"attempts": 0, "delivered": 0, "failed": 0, "average_ms": null, "longest_ms": null});
    for (name, value) in none.as_object().unwrap() {
        assert_eq!(&days[0][name], value, "{name}");
    }
    assert_eq!((&days[1]["attempts"], &days[1]["delivered"], &days[1]["failed"]), (&json!(2), &json!(1), &json!(1)));
    assert!(days[1]["average_ms"].as_i64().unwrap() <= days[1]["longest_ms"].as_i64().unwrap());
    let hook = json!({"name": "b", "url": "https://shop.example", "events": ["order.created"]});
    let idle = node.client(client, "POST", "/webhooks", hook).await.json()["id"].clone();
    let all = node.client(client, "GET", "/webhooks/stats?days=2", Value::Null).await.data(200);
    let all = all["webhooks"].as_array().unwrap();
    assert_eq!((all.len(), &all[0]["webhook_id"], &all[1]), (2, &idle, &counted), "the newest webhook comes first");
    assert_eq!((&all[0]["days"][0], &all[0]["days"][1]["attempts"]), (&days[0], &json!(0)));
    node.client(client, "DELETE", &format!("/webhooks/{idle}"), Value::Null).await.data(200);
    let all = node.client(client, "GET", "/webhooks/stats?days=2", Value::Null).await.data(200);
    assert_eq!(all["webhooks"], json!([counted]), "without the deleted one");
    node.client(client, "GET", "/webhooks/stats?days=93", Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
    let other = node.account("Other").await;
    node.client(&other, "GET", &format!("/webhooks/{webhook}/stats"), Value::Null).await.refused(404, "E_NOT_FOUND");
    let none = node.client(&other, "GET", "/webhooks/stats", Value::Null).await.data(200);
    assert_eq!(none, json!({"webhooks": []}));
    node.operator("GET", "/webhooks/999999/stats", Value::Null).await.refused(404, "E_NOT_FOUND");
    node.operator("GET", &format!("/webhooks/{webhook}/stats?days=93"), Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
}

#[tokio::test]
async fn attempts_of_a_webhook_are_listed() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (client, webhook) = (&setup.client, attempted(&node, &setup).await);
    let list = async |query: &str| {
        let page = node.client(client, "GET", &format!("/webhooks/{webhook}/attempts?{query}"), Value::Null).await.data(200);
        (page["attempts"].as_array().unwrap().clone(), page["next_before"].clone())
    };
    let (all, end) = list("").await;
    assert_eq!((all.len(), &end), (2, &Value::Null));
    // The counts of each day are those of the list.
    let days = node.client(client, "GET", &format!("/webhooks/{webhook}/stats?days=2"), Value::Null).await.data(200);
    let mut listed = 0;
    for day in days["days"].as_array().unwrap() {
        let from: NaiveDate = day["day"].as_str().unwrap().parse().unwrap();
        let (of_day, _) = list(&format!("since={from}T00:00:00Z&until={}T00:00:00Z", from + Days::new(1))).await;
        let failed = of_day.iter().filter(|attempt| attempt["outcome"] == "failed").count();
        assert_eq!((&day["attempts"], &day["failed"]), (&json!(of_day.len()), &json!(failed)));
        listed += of_day.len();
    }
    assert_eq!(listed, 2);
    for attempt in &all {
        let delivery = &attempt["delivery_id"];
        let delivery = node.client(client, "GET", &format!("/webhooks/deliveries/{delivery}"), Value::Null).await.data(200);
        for field in ["order_id", "event_id", "event_type", "response_status"] {
            assert_eq!(attempt[field], delivery[field], "{field}");
        }
        assert_eq!(attempt["request_id"], delivery["attempts"][0]["request_id"]);
        let outcome = if attempt["event_type"] == "order.created" { "failed" } else { "delivered" };
        assert_eq!(list(&format!("outcome={outcome}")).await.0, std::slice::from_ref(attempt));
    }
    let (first, next) = list("limit=1").await;
    let (second, _) = list(&format!("limit=1&before={}", next.as_str().unwrap())).await;
    assert_eq!([first, second].concat(), all);
    assert_eq!(list("until=2020-01-01T00:00:00Z").await, (vec![], Value::Null));
    for wrong in ["before=1", "outcome=lost", "since=yesterday", "limit=101"] {
        let path = format!("/webhooks/{webhook}/attempts?{wrong}");
        node.client(client, "GET", &path, Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
    }

    // Another webhook has attempts of its own, and another account sees none.
    let hook = json!({"name": "b", "url": "https://shop.example", "events": ["order.created"]});
    let another = node.client(client, "POST", "/webhooks", hook).await.json()["id"].clone();
    let none = node.client(client, "GET", &format!("/webhooks/{another}/attempts"), Value::Null).await.data(200);
    assert_eq!(none, json!({"attempts": [], "next_before": null}));
    let other = node.account("Other").await;
    node.client(&other, "GET", &format!("/webhooks/{webhook}/attempts"), Value::Null).await.refused(404, "E_NOT_FOUND");
}

#[tokio::test]
async fn voucher_codes_are_sent_as_csv_and_every_read_is_recorded() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 2});
    let order = node.client(client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(order).await;
    let head = node.head().await;
    let path = format!("/orders/{order}/vouchers");
    let answer = node.send(node.by(client, "GET", &path).header("Accept", "text/csv")).await;
    assert_eq!((answer.status, answer.header("cache-control"), answer.header("vary")), (200, "no-store", "Accept"));
    assert!(answer.header("content-disposition").contains(&format!("vouchers-{order}.csv")));
    let lines: Vec<&str> = answer.text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, "voucher_reference_number,card_number,pin,claim_url,expires_on"));
    assert!(lines[1].contains(",card-1,pin-1,,"), "{}", lines[1]);
    assert_eq!(node.head().await, head + 1, "the read is an event");
    assert_eq!(node.client(client, "GET", &path, Value::Null).await.data(200)["vouchers"].as_array().unwrap().len(), 2);
}
