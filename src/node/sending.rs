//! The client that sends webhooks to their receivers.

use webhook_client::sender::{CONNECTION_LIFETIME, Sender, SenderSettings};

use super::NodeError;
use crate::config::{Config, ConfigError};

/// Creates the client, with at most this many connections.
///
/// # Errors
/// If a certificate cannot be read, or TLS cannot be set up.
pub fn sender(config: &Config, max_connections: usize) -> Result<Sender, NodeError> {
    let read = |path| {
        std::fs::read(path)
            .map_err(|error| ConfigError(format!("--webhook-ca-file (LEDGER_WEBHOOK_CA_FILE): cannot read {path:?}: {error}")))
    };
    Ok(Sender::new(SenderSettings {
        service_name: config.service_name.clone(),
        deadline: config.delivery_timeout,
        ca_pem: config.webhook_ca_file.as_ref().map(read).transpose()?,
        allowed_nets: config.webhook_allow_nets.clone(),
        max_connections,
        connection_lifetime: CONNECTION_LIFETIME,
    })?)
}
