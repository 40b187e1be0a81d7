//! The parts of the HTTP interface that a listener can serve.

use super::probes;
use crate::access::limits::is_under;

/// The part of the HTTP interface that a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// Everything: the only listener's.
    Whole,
    /// Everything but the operator API, its documents and the metrics: beside an operator listener.
    Clients,
    /// The operator API, its documents, the log and the probes.
    Operators,
}

impl Surface {
    /// Whether a path belongs to it. The log and the probes belong to every one, but for the metrics.
    pub(super) fn serves(self, path: &str) -> bool {
        let is_operators = is_under(path, "/admin") || path == probes::METRICS;
        match self {
            Self::Whole => true,
            Self::Clients => !is_operators,
            Self::Operators => is_operators || is_under(path, "/log") || probes::PATHS.contains(&path),
        }
    }
}
