//! The local HTTPS receiver of webhooks, which `listen`, the demo and a new sandbox run.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use chrono::Utc;
use rewards_ledger_client::webhook::Verifier;
use tokio::sync::mpsc;
use webhook_client::receiver::{Certificate, Received, Receiver, ReceiverSettings, Respond};

use crate::secrets::seal::Secret;

/// Subdirectory of the data directory that holds the receiver's certificate.
pub const DIRECTORY: &str = "receiver";
/// File in that directory with the authority that senders have to trust.
pub const CA_FILE: &str = "receiver-ca.pem";

/// Starts a receiver whose certificate is kept in a data directory. The certificate is made if it does not exist.
///
/// # Errors
/// If the certificate cannot be used, or the address cannot be bound.
pub async fn start(
    data_dir: &Path,
    listen: SocketAddr,
    service_name: &str,
    respond: Respond,
) -> anyhow::Result<(Receiver, mpsc::UnboundedReceiver<Received>)> {
    let directory = data_dir.join(DIRECTORY);
    let certificate = Certificate::load_or_generate(&directory)
        .with_context(|| format!("cannot use the receiver's certificate in {}", directory.display()))?;
    let settings = ReceiverSettings { listen, service_name: service_name.to_owned(), certificate, respond };
    Receiver::start(settings).await.with_context(|| format!("cannot receive webhooks on {listen}"))
}

/// Verifies the signature of a delivery, as a client does with the library. Returns none if there is no secret to verify it with.
pub fn verdict(received: &Received, secret: Option<&Secret>) -> Option<Result<(), String>> {
    let (timestamp, signature) = (received.timestamp().unwrap_or_default(), received.signature().unwrap_or_default());
    let checked = Verifier::new(secret?.expose()).check(timestamp, signature, &received.body, Utc::now().timestamp());
    Some(checked.map_err(|error| error.to_string()))
}
