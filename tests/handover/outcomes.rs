//! Outcomes of requests to the node that leads the shard, and to one that hands its commands over: they are the same.

use futures::future::join_all;
use serde_json::{Value, json};

use super::nodes::{Caller, Scene, handed_over};
use crate::support::program::Program;
use crate::support::wait::{is_true, until, until_true};

/// Number of orders at the same time.
const ORDERS: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn orders_through_another_node_are_handed_to_the_leader() {
    let scene = Scene::of_apis().await;
    let in_force = "SELECT count(*) = 1 FROM shard_leaders WHERE shard_id = 1 AND expires_at > clock_timestamp()";
    until_true("one node has the lease", &scene.pool, in_force).await;
    let mut orders = vec![];
    // On a busy machine the other node may write some orders itself.
    until("each order of a round is handed over", async || {
        let other = &scene.nodes[1 - scene.leader().await];
        let (url, body, before) = (other.url(), scene.body(), handed_over(other, "answered").await);
        for placed in join_all((0..ORDERS).map(|_| scene.caller.order(&url, None, &body))).await {
            let placed = placed.unwrap();
            assert_eq!((placed.status, placed.is_replay), (201, false), "{placed:?}");
            orders.push(placed.order());
        }
        handed_over(other, "answered").await - before == ORDERS
    })
    .await;
    let placed: i64 = sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(&scene.pool).await.unwrap();
    let counted = scene.handed_over("answered").await;
    assert!(counted <= placed.unsigned_abs(), "{counted} commands were counted, and {placed} orders placed");
    assert_eq!(scene.handed_over("unknown").await, 0);
    scene.check(&orders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_has_the_same_status_code_and_text_through_every_node() {
    let scene = Scene::of_apis().await;
    let poor = Caller::new(scene.nodes[0].client("5.00").await);
    let order = scene.caller.order(&scene.nodes[0].url(), Some("used"), &scene.body()).await.unwrap().order();
    let with = |field: &str, value: i64| {
        let mut body = scene.body();
        body[field] = value.into();
        body
    };
    let cases = [
        (&poor, None, scene.body(), 402, "E_INSUFFICIENT_BALANCE"),
        (&scene.caller, None, with("product_id", 999_999), 422, "E_PRODUCT_UNAVAILABLE"),
        (&scene.caller, None, with("quantity", 101), 422, "E_QUANTITY_LIMIT_EXCEEDED"),
        (&scene.caller, None, with("denomination", 7), 422, "E_INVALID_DENOMINATION"),
        (&scene.caller, Some("new"), with("denomination", 7), 422, "E_INVALID_DENOMINATION"),
        (&scene.caller, Some("used"), with("quantity", 2), 422, "E_IDEMPOTENCY_KEY_REUSED"),
    ];
    let before = scene.handed_over("answered").await;
    for (caller, key, body, status, code) in &cases {
        let mut texts = vec![];
        for node in &scene.nodes {
            let refused = caller.order(&node.url(), *key, body).await.unwrap();
            assert_eq!((refused.status, &*refused.code()), (*status, *code), "{body}: {refused:?}");
            texts.push(refused.text);
        }
        assert_eq!(texts[0], texts[1], "{code}");
    }
    assert!(scene.handed_over("answered").await > before, "the leader has refused some of them");
    scene.check(&[order]).await;
}

/// The stored response to an order with metadata is sealed.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_gets_the_same_bytes_through_every_node() {
    let scene = Scene::of_apis().await;
    let mut orders = vec![];
    let before = scene.handed_over("answered").await;
    for (name, metadata) in [("plain", Value::Null), ("with metadata", json!({"z": 1.5, "a": {"deep": [1, null, "é"]}}))] {
        let mut body = scene.body();
        if !metadata.is_null() {
            body["metadata"] = metadata;
        }
        for first in [0, 1] {
            let key = format!("{name} {first}");
            let placed = scene.caller.order(&scene.nodes[first].url(), Some(&key), &body).await.unwrap();
            assert_eq!((placed.status, placed.is_replay), (201, false), "{placed:?}");
            orders.push(placed.order());
            for node in &scene.nodes {
                let again = scene.caller.order(&node.url(), Some(&key), &body).await.unwrap();
                assert_eq!((again.status, &again.text, again.is_replay), (201, &placed.text, true), "{key}");
                let read = scene.caller.get(&node.url(), &format!("/orders/{}", placed.order()), None).await;
                assert_eq!((read.status, &read.text), (200, &placed.text), "{key}");
            }
        }
        // Without a key, the node that was asked renders the response.
        let [texts, ids] = unkeyed(&scene, &body).await;
        assert_eq!(texts[0], texts[1], "{name}");
        orders.extend(ids.iter().map(|id| id.as_i64().unwrap()));
    }
    assert!(scene.handed_over("answered").await > before, "the leader has answered some of them");
    let sealed = "SELECT count(*) = 4 AND count(*) FILTER (WHERE is_sealed) = 2 FROM idempotency_keys";
    assert!(is_true(&scene.pool, sealed).await, "the responses with metadata are sealed");
    scene.check(&orders).await;
}

/// Places an order through each node without a key. Returns the two responses without what differs between two orders, and the
/// ids of the orders.
async fn unkeyed(scene: &Scene, body: &Value) -> [Vec<Value>; 2] {
    let (mut orders, mut ids) = (vec![], vec![]);
    for node in &scene.nodes {
        let placed = scene.caller.order(&node.url(), None, body).await.unwrap();
        assert_eq!(placed.status, 201, "{placed:?}");
        let mut order = placed.json()["data"].take();
        ids.push(order["id"].take());
        for field in ["reference_code", "transaction_id", "created_at", "updated_at"] {
            assert!(!order[field].take().is_null(), "{field}: {placed:?}");
        }
        orders.push(order);
    }
    [orders, ids]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_reference_is_known_to_every_node() {
    let scene = Scene::of_apis().await;
    let mut orders = vec![];
    let before = scene.handed_over("answered").await;
    for first in [0, 1] {
        let mut body = scene.body();
        body["client_reference"] = format!("PO-{first}").into();
        body["metadata"] = json!({"for": "Ada"});
        let placed = scene.caller.order(&scene.nodes[first].url(), None, &body).await.unwrap();
        assert_eq!(placed.status, 201, "{placed:?}");
        orders.push(placed.order());
        let mut other = body.clone();
        other["quantity"] = json!(2);
        for node in &scene.nodes {
            let again = scene.caller.order(&node.url(), None, &body).await.unwrap();
            assert_eq!((again.status, &again.text), (200, &placed.text));
            let under_key = scene.caller.order(&node.url(), Some(&format!("{first} {}", node.id())), &body).await.unwrap();
            assert_eq!((under_key.status, &under_key.text, under_key.is_replay), (200, &placed.text, false));
            let refused = scene.caller.order(&node.url(), None, &other).await.unwrap();
            assert_eq!((refused.status, &*refused.code()), (409, "E_DUPLICATE_REFERENCE"), "{refused:?}");
        }
    }
    assert!(scene.handed_over("answered").await > before, "the leader has answered some of them");
    scene.check(&orders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_requests_to_both_nodes_at_the_same_time_have_one_effect() {
    let scene = Scene::of_apis().await;
    let (urls, mut orders) = (scene.nodes.each_ref().map(Program::url), vec![]);
    for round in 0..5 {
        let (key, body) = (format!("round {round}"), scene.body());
        let burst = (0..50).map(|n| scene.caller.order(&urls[n % 2], Some(&key), &body));
        let answers: Vec<_> = join_all(burst).await.into_iter().map(Result::unwrap).collect();
        let (done, early): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 201);
        for answer in early {
            assert_eq!((answer.status, &*answer.code()), (409, "E_IDEMPOTENCY_IN_PROGRESS"), "{answer:?}");
        }
        assert!(done.iter().all(|answer| answer.text == done[0].text), "{done:?}");
        assert_eq!(done.iter().filter(|answer| !answer.is_replay).count(), 1, "all other responses are replays");
        orders.push(done[0].order());
    }
    scene.check(&orders).await;
}
