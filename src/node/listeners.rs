//! Addresses on which a node serves its API.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::NodeError;
use crate::config::{Config, Role};

/// Bound listeners of the API.
#[derive(Debug)]
pub struct Listeners {
    pub api: Option<TcpListener>,
    /// The separate listener for operators.
    pub operators: Option<TcpListener>,
    /// The listener for other nodes.
    pub nodes: Option<TcpListener>,
}

impl Listeners {
    /// Binds the addresses that the configuration names.
    ///
    /// # Errors
    /// If an address cannot be bound.
    pub async fn bind(config: &Config) -> Result<Listeners, NodeError> {
        let api = match config.roles.include(Role::Api) {
            true => Some(bind(config.listen).await?),
            false => None,
        };
        let operators = match config.operator_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let nodes = match config.nodes.node_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        Ok(Listeners { api, operators, nodes })
    }

    pub fn address(&self) -> Option<SocketAddr> {
        self.api.as_ref().and_then(|bound| bound.local_addr().ok())
    }

    pub fn operator_address(&self) -> Option<SocketAddr> {
        self.operators.as_ref().and_then(|bound| bound.local_addr().ok())
    }

    /// Returns whether the node serves nobody but other nodes.
    pub fn are_none(&self) -> bool {
        self.api.is_none() && self.operators.is_none()
    }
}

async fn bind(listen: SocketAddr) -> Result<TcpListener, NodeError> {
    TcpListener::bind(listen).await.map_err(|source| NodeError::Io { action: format!("listen on {listen}"), source })
}
