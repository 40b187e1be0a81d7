//! `trigger EVENT_TYPE`: sends a test delivery with sample data of one event type, and waits for its first attempt.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;
use futures::TryStreamExt;
use ledger_events::webhook::WebhookEventType;
use rewards_ledger_client::models::{ErrorCode, TestWebhook, Webhook};
use rewards_ledger_client::{Client, ListWebhooksQuery};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::failure;
use super::output::{Output, with_progress};
use super::profiles::ClientArgs;

/// Time for the first attempt of the delivery. The service gives a receiver 30 s by default.
const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Args, Debug)]
pub struct TriggerArgs {
    /// Event type of the sample data
    #[arg(value_parser = PossibleValuesParser::new(WebhookEventType::ALL.map(WebhookEventType::as_str)))]
    event_type: String,
    /// Webhook that receives the delivery, by its ID [default: the account's only webhook]
    #[arg(long, value_name = "ID")]
    webhook: Option<i64>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Sends the test delivery and prints its outcome. The exit status is 1 if the first attempt failed.
pub async fn run(args: TriggerArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let client = args.client.service()?.known_client()?;
    let client = client.calls();
    let webhook = match args.webhook {
        Some(id) => id,
        None => only_webhook(client).await?,
    };
    let test = TestWebhook { event_type: serde_json::from_value(json!(args.event_type))? };
    let test = client.test_webhook(webhook, Some(&test)).await.map_err(failure)?;
    let delivery = with_progress("waiting for the first attempt", attempted(client, test.delivery_id)).await?;
    output.facts(&delivery)?;
    Ok(if delivery["status"] == "delivered" { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn only_webhook(client: &Client) -> anyhow::Result<i64> {
    let webhooks = client.list_webhooks(&ListWebhooksQuery::default()).items();
    let webhooks: Vec<Webhook> = webhooks.try_collect().await.map_err(failure)?;
    match webhooks.as_slice() {
        [one] => Ok(one.id),
        [] => bail!("the account has no webhook: register one with POST /api/v1/webhooks"),
        several => {
            let named = several.iter().map(|webhook| format!("{} ({})", webhook.id, webhook.name));
            bail!("the account has several webhooks; choose one with --webhook: {}", named.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Returns the delivery after its first attempt. It appears a moment after the test, when it is projected.
async fn attempted(client: &Client, id: i64) -> anyhow::Result<Value> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        // As it arrived: a node of another build sends more fields or fewer.
        match client.get_delivery(id).reply().await {
            Ok(reply) => {
                let mut delivery = serde_json::from_slice::<Value>(&reply.body)?["data"].take();
                let is_attempted = delivery["attempt_count"].as_i64() > Some(0) && !delivery["response_time_ms"].is_null();
                if is_attempted || delivery["status"] != "pending" {
                    if let Some(fields) = delivery.as_object_mut() {
                        fields.remove("attempts");
                    }
                    return Ok(delivery);
                }
            }
            Err(error) if error.code() == Some(&ErrorCode::NotFound) => {}
            Err(error) => return Err(failure(error)),
        }
        ensure!(Instant::now() < deadline, "delivery {id} was not attempted within {} s", DEADLINE.as_secs());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
