//! Progress of a request whose work takes long, for a page of this node that waits for the response. The page may begin its own
//! response before that, and goes on with the work as [`carry`] allows.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use poem::http::StatusCode;
use poem::{FromRequest, Request, RequestBody};
use tokio::sync::watch;

use super::audit_log;
use super::request_id::{self, RequestId};
use crate::telemetry::traces;

/// Part of a request's work that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    pub done: usize,
    pub total: usize,
}

/// Progress of a request's work, as a handler's argument. Nobody follows it unless a page has made the request.
#[derive(Clone, Debug, Default)]
pub struct Progress(Option<watch::Sender<Option<Reached>>>);

impl Progress {
    /// Creates progress that the receiver follows. There is none until the work begins.
    pub fn followed() -> (Progress, watch::Receiver<Option<Reached>>) {
        let (sender, receiver) = watch::channel(None);
        (Progress(Some(sender)), receiver)
    }

    /// Tells how much is done. A handler calls this for the first time once it has checked the request.
    pub fn tell(&self, done: usize, total: usize) {
        if let Some(sender) = &self.0 {
            sender.send_replace(Some(Reached { done, total }));
        }
    }
}

impl<'a> FromRequest<'a> for Progress {
    async fn from_request(request: &'a Request, _: &mut RequestBody) -> poem::Result<Self> {
        Ok(request.extensions().get::<Self>().cloned().unwrap_or_default())
    }
}

/// Outcome of a request whose response begins before it is known. The response has a clone among its extensions.
#[derive(Clone, Default)]
pub struct LateOutcome(Arc<Mutex<Option<Record>>>);

/// Records the outcome of a request in the logs, the metrics and the trace.
type Record = Box<dyn FnOnce(StatusCode) + Send>;

impl LateOutcome {
    /// Keeps the record until the outcome is known. It is dropped if the client leaves before that.
    pub(super) fn keep(&self, record: impl FnOnce(StatusCode) + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(record));
    }

    /// Records the outcome: the status that the response would have had without the progress.
    pub fn end(&self, status: StatusCode) {
        let record = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(record) = record {
            record(status);
        }
    }
}

impl fmt::Debug for LateOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateOutcome").finish_non_exhaustive()
    }
}

/// Makes work a part of the current request, wherever it goes on: with the request's ID, its trace and the notes about it.
pub fn carry<F: Future>(work: F) -> impl Future<Output = F::Output> {
    // Only tests handle requests outside of the edge.
    let id = request_id::current().unwrap_or_else(RequestId::random);
    let (notes, trace) = (audit_log::current(), traces::current());
    async move { traces::within(trace, request_id::CURRENT.scope(id, notes.during(work))).await }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn carried_work_belongs_to_its_request() {
        let id = RequestId::random();
        let carried = request_id::CURRENT.sync_scope(id.clone(), || carry(async { request_id::current() }));
        assert_eq!(request_id::current(), None);
        assert_eq!(carried.await, Some(id));
    }

    #[test]
    fn progress_that_nobody_follows_is_told_to_nobody() {
        Progress::default().tell(1, 2);
        let (progress, reached) = Progress::followed();
        assert_eq!(*reached.borrow(), None);
        progress.tell(1, 2);
        assert_eq!(*reached.borrow(), Some(Reached { done: 1, total: 2 }));
    }
}
