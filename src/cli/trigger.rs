//! `trigger EVENT_TYPE`: sends a test delivery with sample data of one event type, and waits for its first attempt.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;
use ledger_events::webhook::WebhookEventType;
use reqwest::header::HeaderName;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::{Body, Client};
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
    let webhook = match args.webhook {
        Some(id) => id,
        None => only_webhook(&client).await?,
    };
    let path = format!("/api/v1/webhooks/{webhook}/test");
    let body = Body::json(json!({"event_type": args.event_type}).to_string());
    // Only this call is to create a delivery, however often the request is sent.
    let key = uuid::Uuid::now_v7().to_string();
    let further = [(HeaderName::from_static("idempotency-key"), key.as_str())];
    let test = client.send(Method::POST, &path, Some(body), &further).await?.data()?;
    let id = test["delivery_id"].as_i64().context("the service returned no delivery_id")?;
    let delivery = with_progress("waiting for the first attempt", attempted(&client, id)).await?;
    output.facts(&delivery)?;
    Ok(if delivery["status"] == "delivered" { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn only_webhook(client: &Client) -> anyhow::Result<i64> {
    let list = client.json(Method::GET, "/api/v1/webhooks?limit=100", None).await?;
    match list["webhooks"].as_array().map(Vec::as_slice) {
        Some([one]) => one["id"].as_i64().context("the webhook has no id"),
        Some([]) | None => bail!("the account has no webhook: register one with POST /api/v1/webhooks"),
        Some(several) => {
            let named =
                several.iter().map(|webhook| format!("{} ({})", webhook["id"], webhook["name"].as_str().unwrap_or_default()));
            bail!("the account has several webhooks; choose one with --webhook: {}", named.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Returns the delivery after its first attempt. It appears a moment after the test, when it is projected.
async fn attempted(client: &Client, id: i64) -> anyhow::Result<Value> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let reply = client.send(Method::GET, &format!("/api/v1/webhooks/deliveries/{id}"), None, &[]).await?;
        if reply.status != StatusCode::NOT_FOUND {
            let mut delivery = reply.data()?;
            let is_attempted = delivery["attempt_count"].as_i64() > Some(0) && !delivery["response_time_ms"].is_null();
            if is_attempted || delivery["status"] != "pending" {
                if let Some(fields) = delivery.as_object_mut() {
                    fields.remove("attempts");
                }
                return Ok(delivery);
            }
        }
        ensure!(Instant::now() < deadline, "delivery {id} was not attempted within {} s", DEADLINE.as_secs());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
