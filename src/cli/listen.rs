//! `listen`: a local HTTPS receiver for developing against webhooks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::Args;
use ledger_projections::envelope::iso8601;
use owo_colors::OwoColorize;
use serde_json::{Value, json};
use tempfile::TempDir;
use webhook_client::receiver::{Certificate, Received, Receiver, ReceiverResponse, ReceiverSettings};

use super::call::private;
use super::escape;
use super::events::by_outcome;
use super::output::Output;
use super::serve::StopSignals;
use crate::embedded::default_data_dir;
use crate::secrets::seal::Secret;

#[derive(Args, Debug)]
pub struct ListenArgs {
    /// Address on which to receive webhooks; port 0 picks a free port
    #[arg(long, env = "LEDGER_LISTEN_WEBHOOKS", value_name = "ADDRESS", default_value = "127.0.0.1:8443")]
    listen_webhooks: SocketAddr,
    /// Token of the webhook, which verifies the signatures of deliveries [default: deliveries are not verified]
    #[arg(long, env = "LEDGER_WEBHOOK_SECRET", value_name = "SECRET", value_parser = private)]
    secret: Option<Secret>,
    /// Service name in the webhook headers, as in X-<NAME>-WEBHOOK-TOKEN
    #[arg(long, env = "LEDGER_SERVICE_NAME", value_name = "NAME", default_value = "SERVICE")]
    service_name: String,
    /// Directory that keeps the receiver's certificate; if it does not exist, the certificate is temporary
    #[arg(long, env = "LEDGER_DATA_DIR", value_name = "DIRECTORY", default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
    /// HTTP status of the responses to webhooks
    #[arg(long, value_name = "STATUS", default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..=599))]
    answer: u16,
}

/// Receives and prints webhooks until a signal arrives.
pub async fn run(args: ListenArgs, output: &Output) -> anyhow::Result<()> {
    let mut signals = StopSignals::listen()?;
    // Only `serve`, `demo`, and `migrate` create a data directory.
    let temporary = match args.data_dir.is_dir() {
        true => None,
        false => Some(tempfile::tempdir().context("cannot create a temporary directory")?),
    };
    let directory = temporary.as_ref().map_or(args.data_dir.as_path(), TempDir::path).join("receiver");
    let certificate = Certificate::load_or_generate(&directory)
        .with_context(|| format!("cannot use the receiver's certificate in {}", directory.display()))?;
    let answer = args.answer;
    let (receiver, mut arrived) = Receiver::start(ReceiverSettings {
        listen: args.listen_webhooks,
        service_name: args.service_name,
        certificate,
        respond: Arc::new(move |_| ReceiverResponse::Status(answer)),
    })
    .await
    .with_context(|| format!("cannot listen on {}", args.listen_webhooks))?;
    if temporary.is_some() {
        let data_dir = args.data_dir.display();
        anstream::eprintln!("this certificate is temporary: to keep one, create the data directory first (mkdir -p {data_dir})");
    }
    introduce(&receiver, &directory.join("receiver-ca.pem"), args.secret.is_some(), output)?;

    loop {
        let received = tokio::select! {
            received = arrived.recv() => received,
            _ = signals.next() => None,
        };
        let Some(received) = received else { break };
        print(&received, args.secret.as_ref(), output)?;
    }
    receiver.stop().await;
    Ok(())
}

fn introduce(receiver: &Receiver, ca: &std::path::Path, is_verifying: bool, output: &Output) -> std::io::Result<()> {
    if output.json {
        return output.json_line(&json!({"url": receiver.url(), "ca_file": ca, "is_verifying": is_verifying}));
    }
    output.line(format!("{}  {}", "listening".dimmed(), receiver.url().bold()))?;
    output.line(format!(
        "{}       --webhook-ca-file {} --webhook-allow-nets {}",
        "node".dimmed(),
        ca.display(),
        nets(receiver)
    ))?;
    if !is_verifying {
        output.line(format!("{}   pass the webhook's token as --secret to verify signatures", "secret".dimmed()))?;
    }
    output.line("")
}

/// Returns the networks that a node must allow to reach this receiver.
fn nets(receiver: &Receiver) -> String {
    match receiver.address().ip() {
        // The URL uses the name localhost, which may resolve to either family.
        ip if ip.is_unspecified() || ip.is_loopback() => "127.0.0.0/8,::1/128".to_owned(),
        ip => ip.to_string(),
    }
}

/// Verifies the signature of a delivery. Returns none if there is no secret to verify it with.
pub fn verdict(received: &Received, secret: Option<&Secret>) -> Option<Result<(), String>> {
    secret.map(|secret| received.verify(secret.expose(), Utc::now().timestamp()).map_err(|error| error.to_string()))
}

fn print(received: &Received, secret: Option<&Secret>, output: &Output) -> std::io::Result<()> {
    let at: DateTime<Utc> = received.received_at.into();
    let verdict = verdict(received, secret);
    let body: Option<Value> = serde_json::from_slice(&received.body).ok();
    if output.json {
        let signature = match &verdict {
            Some(Ok(())) => json!("verified"),
            Some(Err(why)) => json!(why),
            None => Value::Null,
        };
        return output.json_line(&json!({
            "received_at": iso8601(at), "method": received.method, "path": received.path,
            "event_type": received.event_type(), "event_id": received.event_id(), "webhook_id": received.webhook_id(),
            "request_id": received.request_id(), "signature": signature, "body": body,
        }));
    }
    let signature = match &verdict {
        Some(Ok(())) => by_outcome(true, "signature verified"),
        Some(Err(why)) => by_outcome(false, why),
        None => "not verified".yellow().to_string(),
    };
    let event_type = escape::value(received.event_type().unwrap_or("no event type"));
    let id = escape::value(received.event_id().unwrap_or("no event id"));
    output.line(format!("{}  {:<26}  {id}  {signature}", at.format("%H:%M:%S%.3f").dimmed(), event_type.cyan()))?;
    let data = body.as_ref().and_then(|body| body.get("data"));
    let names = ["id", "reference_code", "status", "product_name", "quantity", "delivered_quantity", "amount"];
    let fields =
        names.iter().filter_map(|name| Some(format!("{} {}", name.replace('_', " "), super::output::shown(data?.get(*name)?))));
    output.line(format!("              {}", fields.collect::<Vec<_>>().join("  ").replacen("id ", "order ", 1).dimmed()))
}
