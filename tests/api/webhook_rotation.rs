//! Rotations after which the replaced secret stays valid for a while.

use chrono::{TimeDelta, Utc};
use rewards_ledger::audit::verify_with;
use rewards_ledger_client::signing::sign;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::UnboundedReceiver;
use webhook_client::receiver::{Received, Receiver, ReceiverResponse};
use webhook_client::signature;

use super::at_rest::readable_in;
use crate::support::ledger::{SHARD, keyring};
use crate::support::node::{Client, Node};
use crate::support::shop::{DEADLINE, receiver, worker};

/// A node with a client, and a receiver of its webhooks.
struct World {
    node: Node,
    client: Client,
    receiver: Receiver,
    arrived: UnboundedReceiver<Received>,
}

impl World {
    async fn open() -> World {
        let node = Node::start().await;
        let client = node.account("Acme").await;
        let (receiver, arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
        World { node, client, receiver, arrived }
    }

    async fn webhook(&self, credential: Option<i64>) -> Value {
        let hook = json!({"name": "a", "url": self.receiver.url(), "events": ["order.created"], "credential_id": credential});
        self.node.client(&self.client, "POST", "/webhooks", hook).await.json()
    }

    /// Sends a test delivery, by a clock that is this far ahead. Returns its request.
    async fn sent(&mut self, webhook: &Value, ahead: TimeDelta) -> Received {
        self.node.client(&self.client, "POST", &format!("/webhooks/{}/test", webhook["id"]), Value::Null).await.data(200);
        self.node.project().await;
        let worker = worker(&self.node.options, &self.receiver, DEADLINE);
        let mut claimed = worker.claim_once(SHARD, 1).await.unwrap().remove(0);
        claimed.clock.at += ahead;
        let Ok(ended) = worker.send(claimed).await else { panic!("the lease has ended") };
        worker.record(SHARD, &[ended]).await.unwrap();
        self.arrived.recv().await.unwrap()
    }
}

fn header<'a>(received: &'a Received, name: &str) -> Option<&'a str> {
    received.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
}

/// Verifies both signatures: that of the current secret, and that of the replaced one, if there should be one.
fn assert_signed(received: &Received, current: &str, previous: Option<&str>) {
    let timestamp = header(received, "x-timestamp").unwrap();
    let now = timestamp.parse().unwrap();
    received.verify(current, now).unwrap();
    assert_eq!(received.token(), Some(current));
    let second = header(received, "x-signature-previous");
    assert_eq!(second.is_some(), previous.is_some());
    if let (Some(second), Some(previous)) = (second, previous) {
        assert_eq!(signature::verify(previous, timestamp, &received.body, second, now), Ok(()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_carry_a_signature_of_the_replaced_token_until_its_time_ends() {
    let mut world = World::open().await;
    let webhook = world.webhook(None).await;
    let first = webhook["token"].as_str().unwrap().to_owned();
    let path = format!("/webhooks/{}/rotate-token", webhook["id"]);
    for hours in [json!(0), json!(169), json!("24"), json!(1.5)] {
        let body = json!({"previous_valid_hours": hours});
        world.node.client(&world.client, "POST", &path, body).await.refused(400, "E_VALIDATION_FAILURE");
    }
    assert_signed(&world.sent(&webhook, TimeDelta::zero()).await, &first, None);

    let rotated = world.node.client(&world.client, "POST", &path, json!({"previous_valid_hours": 24})).await.data(200);
    let until: chrono::DateTime<Utc> = rotated["previous_valid_until"].as_str().unwrap().parse().unwrap();
    let rotated_at: chrono::DateTime<Utc> = rotated["rotated_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(until - rotated_at, TimeDelta::hours(24));
    let second = rotated["token"].as_str().unwrap().to_owned();
    assert_signed(&world.sent(&webhook, TimeDelta::zero()).await, &second, Some(&first));
    assert_signed(&world.sent(&webhook, TimeDelta::hours(23)).await, &second, Some(&first));
    assert_signed(&world.sent(&webhook, TimeDelta::hours(25)).await, &second, None);
    assert_eq!(readable_in(&world.node, &first).await, Vec::<String>::new());

    // Another rotation ends the time of the one before it.
    let rotated = world.node.client(&world.client, "POST", &path, Value::Null).await.data(200);
    assert_eq!(rotated["previous_valid_until"], Value::Null);
    let third = rotated["token"].as_str().unwrap();
    assert_signed(&world.sent(&webhook, TimeDelta::zero()).await, third, None);
    let report = verify_with(&world.node.options, Some(&keyring()), |_| {}).await.unwrap();
    assert!(report.is_clean(), "{report}: {:?}", report.differences);
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_of_a_linked_webhook_carry_a_signature_of_the_replaced_signing_secret() {
    let mut world = World::open().await;
    let credential = world.client.credential_id;
    let webhook = world.webhook(Some(credential)).await;
    let owner = world.node.user(world.client.account_id, "owner").await;
    let path = format!("/client/api/api-keys/{credential}/rotate-signing-secret");
    let body = json!({"previous_valid_hours": 1});
    let rotated = world.node.portal(&owner.cookie, world.node.url(), "POST", &path, body).await.data(200);
    assert!(rotated["previous_valid_until"].is_string(), "{rotated}");
    let (first, second) = (webhook["token"].as_str().unwrap(), rotated["signing_secret"].as_str().unwrap());
    assert_signed(&world.sent(&webhook, TimeDelta::zero()).await, second, Some(first));
    assert_signed(&world.sent(&webhook, TimeDelta::hours(2)).await, second, None);
    // Only the new secret signs requests.
    let operator = json!({"hmac_required": true});
    world.node.operator("PUT", &format!("/credentials/{credential}"), operator).await.data(200);
    let status = async |secret: &str| {
        let (now, empty) = (Utc::now().timestamp(), hex::encode(Sha256::digest(b"")));
        let signature = sign(secret, &format!("GET\n/api/v1/webhooks\n\n{empty}\n{now}"));
        let signature = format!("t={now},v1={signature}");
        let client = &world.client;
        let headers = [("X-API-Key", &*client.key), ("X-API-Secret", &*client.secret), ("X-Signature", &*signature)];
        world.node.raw("GET", "/api/v1/webhooks", &headers, b"").await.status
    };
    assert_eq!((status(first).await, status(second).await), (401, 200));
}
