//! Settings of several nodes on one database.

use std::net::SocketAddr;

use clap::Args;
use reqwest::Url;

use super::ConfigError;
use super::values::url;

/// Address at which other nodes hand over commands.
#[derive(Args, Clone, Debug)]
pub struct NodeSettings {
    /// Address on which other nodes of the same ledger hand commands to this one, encrypted under the master key; port 0 picks a
    /// free port [default: none: this node writes its commands itself]
    #[arg(long, env = "LEDGER_NODE_LISTEN", value_name = "ADDRESS")]
    pub node_listen: Option<SocketAddr>,

    /// URL at which other nodes reach --node-listen, with http and no path [default: that address; required if it stands for all
    /// addresses]
    #[arg(long, env = "LEDGER_NODE_URL", value_name = "URL", value_parser = url)]
    pub node_url: Option<String>,
}

impl NodeSettings {
    /// Returns the URL at which other nodes reach a node that listens on this address.
    pub fn url(&self, bound: SocketAddr) -> String {
        self.node_url.clone().unwrap_or_else(|| format!("http://{bound}"))
    }

    /// # Errors
    /// If the URL is missing, without a listener, or not one of a plain HTTP server's root.
    pub fn check(&self) -> Result<(), ConfigError> {
        let stands_for_all = self.node_listen.is_some_and(|address| address.ip().is_unspecified());
        match &self.node_url {
            None if stands_for_all => Err(ConfigError(
                "--node-listen (LEDGER_NODE_LISTEN) stands for all addresses: say with --node-url (LEDGER_NODE_URL) how other \
                 nodes reach this one"
                    .into(),
            )),
            Some(_) if self.node_listen.is_none() => {
                Err(ConfigError("--node-url (LEDGER_NODE_URL) needs --node-listen (LEDGER_NODE_LISTEN)".into()))
            }
            Some(given) if !is_plain(given) => {
                Err(ConfigError("--node-url (LEDGER_NODE_URL) must be an http URL without a path, a user or a password".into()))
            }
            _ => Ok(()),
        }
    }
}

fn is_plain(url: &str) -> bool {
    let parsed = Url::parse(url);
    parsed.is_ok_and(|url| url.scheme() == "http" && url.path() == "/" && url.username().is_empty() && url.password().is_none())
}
