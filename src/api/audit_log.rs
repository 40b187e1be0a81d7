//! The audit log: a line for each sign-in and its end, each response that shows a secret, each refused caller, and each
//! request of an operator. Changes of clients are events of the log, which have their actors.
//!
//! The lines have the target `audit`. `--audit-log` writes them to a file of their own (`cli/logging.rs`).

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use ledger_events::Actor;
use poem::http::{Method, StatusCode, Uri};

use super::request_id::RequestId;
use crate::telemetry::traces::{self, TraceParent};

/// Target of the lines.
pub const TARGET: &str = "audit";

tokio::task_local! {
    /// Notes about the request that the current task handles. The edge sets them.
    static CURRENT: Notes;
}

/// Reason for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A user or an operator signs in, or fails to.
    SignIn,
    SignOut,
    /// The response shows a voucher code, a key, a token or another secret.
    Reveal,
    /// The caller is unknown, or may not do this.
    Refusal,
    /// An operator reads.
    Read,
    /// An operator changes something.
    Change,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::SignIn => "sign_in",
            Kind::SignOut => "sign_out",
            Kind::Reveal => "reveal",
            Kind::Refusal => "refusal",
            Kind::Read => "read",
            Kind::Change => "change",
        }
    }

    /// Returns the reason for a line about a request, or `None` if it needs none. `noted` is what its handler noted. There is
    /// no status if the client left before the response.
    fn of(noted: Option<Kind>, is_read: bool, is_by_operator: bool, status: Option<StatusCode>) -> Option<Kind> {
        match (noted, status) {
            (Some(Kind::SignIn | Kind::SignOut), _) => noted,
            (_, Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) => Some(Kind::Refusal),
            (Some(_), _) => noted,
            (None, _) if is_by_operator => Some(if is_read { Kind::Read } else { Kind::Change }),
            (None, _) => None,
        }
    }
}

/// Notes about a request, taken while it is handled, for the log lines about it. The request's extensions hold them.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Noted>);

#[derive(Debug, Default)]
struct Noted {
    caller: OnceLock<Actor>,
    source: OnceLock<IpAddr>,
    kind: OnceLock<Kind>,
    /// User or operator who has signed in with the request. The caller may be another one, whose session was still open.
    signed_in: OnceLock<Actor>,
}

impl Notes {
    /// Runs a request's handler, which may then call [`note`] and [`signed_in`].
    pub async fn during<F: Future>(&self, handler: F) -> F::Output {
        CURRENT.scope(self.clone(), handler).await
    }

    /// Sets the caller. A request has one, so a second is ignored.
    pub fn set_caller(&self, caller: Actor) {
        _ = self.0.caller.set(caller);
    }

    pub fn set_source(&self, source: IpAddr) {
        _ = self.0.source.set(source); // a request has one
    }

    /// Returns `None` if nobody was authenticated.
    pub fn caller(&self) -> Option<Actor> {
        self.0.caller.get().copied()
    }
}

/// Line about a request. It is written when this is dropped, so also if the client leaves before the response: the request may
/// have had its effect.
#[derive(Debug)]
pub struct AuditLine {
    method: Method,
    uri: Uri,
    id: RequestId,
    notes: Notes,
    place: Option<TraceParent>,
    status: Option<StatusCode>,
}

impl AuditLine {
    /// Returns `None` on a node without an audit log.
    pub fn begin(method: &Method, uri: &Uri, id: &RequestId, notes: &Notes, place: Option<TraceParent>) -> Option<AuditLine> {
        let is_wanted = tracing::enabled!(target: TARGET, tracing::Level::INFO);
        is_wanted.then(|| AuditLine {
            method: method.clone(),
            uri: uri.clone(),
            id: id.clone(),
            notes: notes.clone(),
            place,
            status: None,
        })
    }

    /// Ends the line with the status of the response.
    pub fn end(mut self, status: StatusCode) {
        self.status = Some(status);
    }

    fn write(&self) {
        let Noted { caller, source, kind, signed_in } = &*self.notes.0;
        let is_by_operator = matches!(caller.get(), Some(Actor::Operator(_)));
        let Some(kind) = Kind::of(kind.get().copied(), self.method.is_safe(), is_by_operator, self.status) else { return };
        let caller = if kind == Kind::SignIn { signed_in } else { caller };
        tracing::info!(
            target: TARGET,
            kind = kind.as_str(),
            caller = caller.get().map(tracing::field::display),
            source = source.get().map(tracing::field::display),
            method = self.method.as_str(),
            path = self.uri.path(),
            status = self.status.map(|status| status.as_u16()),
            is_successful = self.status.is_some_and(|status| status.as_u16() < 400),
            request_id = self.id.as_str(),
        );
    }
}

impl Drop for AuditLine {
    fn drop(&mut self) {
        traces::during(self.place, || self.write());
    }
}

/// Returns the notes about the request that the current task handles.
pub(super) fn current() -> Notes {
    CURRENT.try_with(Clone::clone).unwrap_or_default()
}

/// Notes what the current request is. The first note counts.
pub fn note(kind: Kind) {
    // Only tests handle requests outside of the edge.
    _ = CURRENT.try_with(|notes| notes.0.kind.set(kind));
}

/// Notes who has signed in with the current request.
pub fn signed_in(user: Actor) {
    _ = CURRENT.try_with(|notes| notes.0.signed_in.set(user));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_operators_refusals_and_noted_requests_have_lines() {
        let (ok, created, see_other) = (Some(StatusCode::OK), Some(StatusCode::CREATED), Some(StatusCode::SEE_OTHER));
        let (unknown, forbidden) = (Some(StatusCode::UNAUTHORIZED), Some(StatusCode::FORBIDDEN));
        for (noted, is_read, is_by_operator, status, expected) in [
            (None, true, false, ok, None),
            (None, false, false, created, None),
            (None, true, true, ok, Some(Kind::Read)),
            (None, false, true, created, Some(Kind::Change)),
            (None, false, true, Some(StatusCode::CONFLICT), Some(Kind::Change)),
            (None, false, true, None, Some(Kind::Change)),
            (None, false, false, None, None),
            (None, true, true, forbidden, Some(Kind::Refusal)),
            (None, true, false, unknown, Some(Kind::Refusal)),
            (Some(Kind::Reveal), true, false, ok, Some(Kind::Reveal)),
            (Some(Kind::Reveal), false, true, created, Some(Kind::Reveal)),
            (Some(Kind::SignIn), false, false, unknown, Some(Kind::SignIn)),
            (Some(Kind::SignIn), false, false, see_other, Some(Kind::SignIn)),
            (Some(Kind::SignOut), false, true, ok, Some(Kind::SignOut)),
        ] {
            assert_eq!(Kind::of(noted, is_read, is_by_operator, status), expected, "{noted:?} {status:?}");
        }
    }
}
