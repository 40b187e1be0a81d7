//! The parts of the HTTP interface that a listener can serve.

use super::probes;
use crate::access::limits::is_under;

/// The part of the HTTP interface that a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// Everything, for the only listener of a node.
    Whole,
    /// Everything except the operator API, its documents and the metrics, for a node with a separate operator listener.
    Clients,
    /// The operator API, its documents, the log and the probes, for the operator listener.
    Operators,
}

impl Surface {
    /// Returns whether the listener serves a path. Every listener serves the log and the probes, except for the metrics.
    pub(super) fn serves(self, path: &str) -> bool {
        let is_operators = is_under(path, "/admin") || path == probes::METRICS;
        match self {
            Self::Whole => true,
            Self::Clients => !is_operators,
            Self::Operators => is_operators || is_under(path, "/log") || probes::PATHS.contains(&path),
        }
    }
}
