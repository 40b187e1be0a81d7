//! A webhook that changes while many deliveries are due to it. Deliveries that a node has claimed ahead use the new
//! settings.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use webhook_client::receiver::ReceiverResponse;

use super::{order, switch};
use crate::support::node::Node;
use crate::support::shop::{DEADLINE, receiver, worker};
use crate::support::wait::{until, until_true};

/// Deliveries sent at once. Four times as many may be claimed ahead.
const AT_ONCE: usize = 8;

#[derive(Clone, Copy, Debug)]
enum Change {
    Url,
    Secret,
    Token,
    Link,
    SwitchedOff,
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_claimed_ahead_use_the_settings_of_the_time_of_sending() {
    for change in [Change::Url, Change::Secret, Change::Token, Change::Link, Change::SwitchedOff] {
        let node = Node::start().await;
        let setup = node.setup().await;
        let client = &setup.client;
        let owner = node.user(client.account_id, "owner").await;
        let credential = node.credential(client.account_id).await.credential_id;
        // The path and token of each arrival.
        let arrivals: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let kept = arrivals.clone();
        let (receiver, _arrived) = receiver(move |r| {
            let mut arrivals = kept.lock().unwrap();
            arrivals.push((r.path.clone(), r.token().unwrap().to_owned()));
            // ReceiverResponse fast until the worker has claimed ahead as much as it may, then slowly, so that the claimed
            // deliveries have to wait.
            if arrivals.len() <= 48 {
                ReceiverResponse::Status(200)
            } else {
                ReceiverResponse::Delayed(Duration::from_millis(500), 200)
            }
        })
        .await;
        let mut hook = json!({"name": "a", "url": receiver.url(), "events": ["order.created"]});
        if matches!(change, Change::Secret) {
            hook["credential_id"] = json!(credential);
        }
        let made = node.bearer(&owner.access_token, "POST", "/api/v1/webhooks", hook).await;
        let id = made.json()["id"].as_i64().unwrap_or_else(|| panic!("{}", made.text));
        futures::future::join_all((0..96).map(|_| order(&node, &setup))).await;
        node.project().await;
        let mut worker = worker(&node.options, &receiver, DEADLINE);
        worker.made = node.ledger.wake().deliveries();
        // The worker's own polling interval ends long after all deliveries are sent.
        worker.settings.idle = Duration::from_secs(5);
        worker.settings.max_in_flight = 2 * AT_ONCE;
        worker.settings.max_in_flight_per_webhook = AT_ONCE;
        let stop = CancellationToken::new();
        let running = tokio::spawn(worker.run(stop.clone()));
        until("the claimed deliveries have to wait", async || arrivals.lock().unwrap().len() >= 56).await;
        match change {
            Change::Url => {
                let elsewhere = json!({"url": format!("{}/new", receiver.url())});
                node.client(client, "PUT", &format!("/webhooks/{id}"), elsewhere).await.data(200);
                node.project().await;
            }
            Change::Secret => {
                let rotate = format!("/client/api/api-keys/{credential}/rotate-signing-secret");
                node.portal(&owner.cookie, node.url(), "POST", &rotate, Value::Null).await.data(200);
                node.project().await;
            }
            Change::Token => {
                node.client(client, "POST", &format!("/webhooks/{id}/rotate-token"), Value::Null).await.data(200);
                node.project().await;
            }
            Change::Link => {
                let (path, link) = (format!("/api/v1/webhooks/{id}"), json!({"credential_id": credential}));
                node.bearer(&owner.access_token, "PUT", &path, link).await.data(200);
                node.project().await;
            }
            Change::SwitchedOff => switch(&node, client, id, false).await,
        }
        let before = arrivals.lock().unwrap().len();
        let ended = "SELECT count(*) = 96 FROM delivery_state WHERE status <> 'pending' AND leased_until IS NULL";
        until_true("everything has ended", node.ledger.pool(), ended).await;
        stop.cancel();
        running.await.unwrap();
        let arrivals = arrivals.lock().unwrap().clone();
        let old = arrivals.iter().filter(|arrival| **arrival == arrivals[0]).count();
        // At most two rounds are sent before the worker hears of the change. Three times as many were claimed ahead.
        assert!(
            old < before + 3 * AT_ONCE,
            "{change:?}: {old} deliveries used the old settings, {before} of them before the change"
        );
        let expected = if matches!(change, Change::SwitchedOff) { old } else { 96 };
        assert_eq!(arrivals.len(), expected, "{change:?}");
        // The attempts record which URL and secret each one used.
        let counts = "SELECT count(*) FROM delivery_attempts GROUP BY url_hash, secret_hash ORDER BY min(started_at)";
        let counts: Vec<i64> = sqlx::query_scalar(counts).fetch_all(node.ledger.pool()).await.unwrap();
        let mut shown = vec![old, arrivals.len() - old];
        shown.retain(|count| *count > 0);
        assert_eq!(counts, shown.into_iter().map(|count| count as i64).collect::<Vec<_>>(), "{change:?}");
    }
}
