//! Division of a node's file descriptors between connections to receivers and connections from clients.

use crate::config::{Config, Role};

/// Maximum number of idle connections to webhook receivers that are kept, in addition to those in use.
const KEPT_CONNECTIONS: usize = 1_024;
/// Maximum number of concurrent client connections.
const CLIENTS: usize = 8_192;
/// Maximum number of concurrent connections to the separate operator listener.
pub const OPERATORS: usize = 128;
/// Connections from other nodes.
pub const NODES: usize = 1_024;
/// Minimum number of client connections, even if few file descriptors are available.
const MIN_CLIENTS: usize = 256;
/// File descriptors reserved for everything else, such as Postgres and files.
const OTHER_DESCRIPTORS: usize = 256;

/// Returns the maximum numbers of connections to receivers and from clients, limited by the file descriptors that the
/// process has left for them.
pub fn share(config: &Config) -> (usize, usize) {
    // Each attempt in flight needs a connection to its receiver; idle ones are kept for later attempts.
    let sends = match config.roles.include(Role::Delivery) {
        true => config.delivery_in_flight as usize + KEPT_CONNECTIONS,
        false => 0,
    };
    let (clients, min_clients) = if config.roles.include(Role::Api) { (CLIENTS, MIN_CLIENTS) } else { (0, 0) };
    let operators = if config.operator_listen.is_some() { OPERATORS } else { 0 };
    let needed = sends + clients;
    let nodes = if config.nodes.node_listen.is_some() { NODES } else { 0 };
    let others = OTHER_DESCRIPTORS + config.database_connections as usize + operators + nodes;
    let allowed = raise_limit(needed + others).saturating_sub(others);
    if allowed < needed {
        tracing::warn!(allowed, needed, "too few file descriptors (ulimit -n); limiting the number of connections");
    }
    let sends = sends.min(allowed.saturating_sub(min_clients)).max(1);
    (sends, clients.min(allowed.saturating_sub(sends)).max(1))
}

/// Raises the soft limit of file descriptors to `wanted`, if the hard limit allows it. Returns the resulting limit.
fn raise_limit(wanted: usize) -> usize {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return wanted };
    let enough = u64::try_from(wanted).unwrap_or(u64::MAX).min(hard);
    let is_raised = soft < enough && setrlimit(Resource::RLIMIT_NOFILE, enough, hard).is_ok();
    usize::try_from(if is_raised { enough } else { soft }).unwrap_or(usize::MAX)
}
