//! `listen`: a local HTTPS receiver for developing against webhooks, or a relay of the events that a service keeps.

mod certificates;
mod forward;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::Args;
use ledger_projections::envelope::iso8601;
use owo_colors::OwoColorize;
use serde_json::{Value, json};
use tempfile::TempDir;
use webhook_client::receiver::{Received, Receiver, ReceiverResponse};

use super::escape;
use super::events::by_outcome;
use super::output::Output;
use super::profiles::{ClientArgs, secret};
use super::receiver;
use super::serve::StopSignals;
use crate::embedded::default_data_dir;
use crate::secrets::seal::Secret;

#[derive(Args, Debug)]
pub struct ListenArgs {
    /// Address on which to receive webhooks; port 0 picks a free port
    #[arg(long, env = "LEDGER_LISTEN_WEBHOOKS", value_name = "ADDRESS", default_value = "127.0.0.1:8443")]
    listen_webhooks: SocketAddr,
    /// Token of the webhook, which verifies the signatures of deliveries; with --forward-to, it signs each event, because
    /// events that are pulled have no signature of their own [default: deliveries are not verified; with --forward-to, a
    /// random secret signs, and is printed]
    #[arg(long, env = "LEDGER_WEBHOOK_SECRET", value_name = "SECRET", value_parser = secret)]
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
    #[command(flatten)]
    forward: forward::ForwardArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Receives and prints webhooks, or forwards events, until a signal arrives.
pub async fn run(args: ListenArgs, output: &Output) -> anyhow::Result<()> {
    let mut signals = StopSignals::listen()?;
    if let Some(target) = &args.forward.forward_to {
        let signing = (args.secret, args.service_name.as_str());
        return tokio::select! {
            forwarded = forward::run(&args.forward, target, args.client, signing, output) => forwarded,
            _ = signals.next() => Ok(()),
        };
    }
    // Only `serve`, `demo`, and `migrate` create a data directory.
    let temporary = match args.data_dir.is_dir() {
        true => None,
        false => Some(tempfile::tempdir().context("cannot create a temporary directory")?),
    };
    let data_dir = temporary.as_ref().map_or(args.data_dir.as_path(), TempDir::path);
    let answer = args.answer;
    let respond = Arc::new(move |_: &Received| ReceiverResponse::Status(answer));
    let (receiver, mut arrived) = receiver::start(data_dir, args.listen_webhooks, &args.service_name, respond).await?;
    if temporary.is_some() {
        let data_dir = args.data_dir.display();
        anstream::eprintln!("this certificate is temporary: to keep one, create the data directory first (mkdir -p {data_dir})");
    }
    let ca = data_dir.join(receiver::DIRECTORY).join(receiver::CA_FILE);
    introduce(&receiver, &ca, args.secret.is_some(), output)?;

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
        ip if ip.is_unspecified() || ip == Ipv4Addr::LOCALHOST => "127.0.0.1,::1".to_owned(),
        ip => ip.to_string(),
    }
}

fn print(received: &Received, secret: Option<&Secret>, output: &Output) -> std::io::Result<()> {
    let at: DateTime<Utc> = received.received_at.into();
    let verdict = receiver::verdict(received, secret);
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
    let (event_type, event_id) = (received.event_type(), received.event_id());
    Shown { at, event_type, event_id, outcome: signature, body: body.as_ref() }.print(output)
}

/// An event on two lines: what happened to it, and its order.
struct Shown<'a> {
    at: DateTime<Utc>,
    event_type: Option<&'a str>,
    event_id: Option<&'a str>,
    /// Coloured outcome, without untrusted text.
    outcome: String,
    body: Option<&'a Value>,
}

impl Shown<'_> {
    fn print(&self, output: &Output) -> std::io::Result<()> {
        let event_type = escape::value(self.event_type.unwrap_or("no event type"));
        let id = escape::value(self.event_id.unwrap_or("no event id"));
        let at = self.at.format("%H:%M:%S%.3f");
        output.line(format!("{}  {:<26}  {id}  {}", at.dimmed(), event_type.cyan(), self.outcome))?;
        let data = self.body.and_then(|body| body.get("data"));
        let names = ["id", "reference_code", "status", "product_name", "quantity", "delivered_quantity", "amount"];
        let fields = names
            .iter()
            .filter_map(|name| Some(format!("{} {}", name.replace('_', " "), super::output::shown(data?.get(*name)?))));
        output.line(format!("              {}", fields.collect::<Vec<_>>().join("  ").replacen("id ", "order ", 1).dimmed()))
    }
}
