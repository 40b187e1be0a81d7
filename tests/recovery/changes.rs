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

/// Deliveries that the receiver answers at once.
const QUICK: usize = 48;
/// Longer than the test takes.
const NEVER: Duration = Duration::from_secs(3_600);

/// Returns a query for whether this many deliveries are claimed, or being sent, with the webhook's first settings.
fn claimed_at_first(count: usize) -> String {
    format!(
        "SELECT count(*) = {count} FROM delivery_attempts
         WHERE finished_at IS NULL AND (url_hash, secret_hash) = (SELECT url_hash, secret_hash FROM delivery_attempts ORDER BY started_at LIMIT 1)"
    )
}

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
        let (kept, is_changed) = (arrivals.clone(), CancellationToken::new());
        let answers = is_changed.clone();
        let (receiver, _arrived) = receiver(move |r| {
            let mut arrivals = kept.lock().unwrap();
            arrivals.push((r.path.clone(), r.token().unwrap().to_owned()));
            // Responds at once until the worker has claimed ahead as much as it may. Then the claimed deliveries have to wait
            // until the webhook has changed.
            if arrivals.len() <= QUICK { ReceiverResponse::Status(200) } else { ReceiverResponse::When(answers.clone(), 200) }
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
        // Neither the worker's own polling interval nor a pause of the machine makes it give back what it has claimed.
        worker.settings.idle = NEVER;
        worker.settings.fresh = NEVER;
        worker.settings.fast_within = NEVER;
        worker.settings.max_in_flight = 2 * AT_ONCE;
        worker.settings.max_in_flight_per_webhook = AT_ONCE;
        let stop = CancellationToken::new();
        let running = tokio::spawn(worker.run(stop.clone()));
        let pool = node.ledger.pool();
        until("as many as allowed are in flight", async || arrivals.lock().unwrap().len() == QUICK + AT_ONCE).await;
        until_true("the deliveries claimed ahead have to wait", pool, &claimed_at_first(4 * AT_ONCE)).await;
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
        until_true("all that wait are given back", pool, &claimed_at_first(AT_ONCE)).await;
        is_changed.cancel();
        let ended = "SELECT count(*) = 96 FROM delivery_state WHERE status <> 'pending' AND leased_until IS NULL";
        until_true("everything has ended", pool, ended).await;
        stop.cancel();
        running.await.unwrap();
        let arrivals = arrivals.lock().unwrap().clone();
        let old = arrivals.iter().filter(|arrival| **arrival == arrivals[0]).count();
        assert_eq!(old, QUICK + AT_ONCE, "{change:?}: none was sent with the old settings after the change");
        let expected = if matches!(change, Change::SwitchedOff) { old } else { 96 };
        assert_eq!(arrivals.len(), expected, "{change:?}");
        // The attempts record which URL and secret each one used.
        let counts = "SELECT count(*) FROM delivery_attempts GROUP BY url_hash, secret_hash ORDER BY min(started_at)";
        let counts: Vec<i64> = sqlx::query_scalar(counts).fetch_all(pool).await.unwrap();
        let mut shown = vec![old, arrivals.len() - old];
        shown.retain(|count| *count > 0);
        assert_eq!(counts, shown.into_iter().map(|count| count as i64).collect::<Vec<_>>(), "{change:?}");
    }
}
