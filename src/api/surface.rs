//! The parts of the HTTP interface that a listener can serve.

use super::probes;
use crate::access::limits::is_under;

/// Prefixes of the paths of pages and their assets.
const PREFIXES: [&str; 3] = ["/portal", "/console", "/assets"];

/// Addresses that people type, which lead to the start page.
pub const STARTS: [&str; 2] = ["/", "/login"];

/// Prefix of the steps of a sign-in through OpenID Connect. They are routes of the API.
pub(super) const OPEN_ID: &str = "/console/oidc";

/// Returns whether a path is one of a page or of its assets. The steps of a sign-in through OpenID Connect are routes of the
/// API.
pub(super) fn is_page(path: &str) -> bool {
    STARTS.contains(&path) || PREFIXES.into_iter().any(|prefix| is_under(path, prefix)) && !is_under(path, OPEN_ID)
}

/// The part of the HTTP interface that a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// Everything, for the only listener of a node.
    Whole,
    /// Everything except the operator API, its documents, the console and the metrics, for a node with a separate operator
    /// listener.
    Clients,
    /// The operator API, its documents, the console, the log and the probes, for the operator listener.
    Operators,
}

impl Surface {
    /// Returns whether the listener serves a path. Every listener serves the log and the probes, except for the metrics.
    pub(super) fn serves(self, path: &str) -> bool {
        let is_operators = is_under(path, "/admin") || is_under(path, "/console") || path == probes::METRICS;
        match self {
            Self::Whole => true,
            Self::Clients => !is_operators,
            Self::Operators => {
                is_operators
                    || is_under(path, "/assets")
                    || is_under(path, "/log")
                    || probes::PATHS.contains(&path)
                    || STARTS.contains(&path)
            }
        }
    }
}
