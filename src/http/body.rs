//! Bodies on the server's side. It drains the rest of a request body that the application did not read, and it detects the
//! end of a response body.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};

use super::activity::Activity;
use crate::api::body::DEFAULT_LIMIT;

/// Maximum size of an unread body that the server drains to reuse the connection, in bytes. With a longer one, it closes the
/// connection after the response.
const DRAIN_LIMIT: u64 = DEFAULT_LIMIT as u64;
/// Deadline for draining, after which the server closes the connection too. It equals the grace period before a body's rate
/// counts: 2 s were too few for 1 MiB on a busy machine. Meanwhile the connection can be evicted, as with any slow body.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

/// Request body. Its clones share the unread rest.
#[derive(Clone, Debug)]
pub struct RequestBody {
    left: Arc<Mutex<RemainingBody>>,
    activity: Arc<Activity>,
}

#[derive(Debug)]
struct RemainingBody {
    body: Incoming,
    was_read: bool,
    is_broken: bool,
}

impl RequestBody {
    pub fn new(body: Incoming, activity: Arc<Activity>) -> RequestBody {
        RequestBody { left: Arc::new(Mutex::new(RemainingBody { body, was_read: false, is_broken: false })), activity }
    }

    pub fn for_application(&self) -> poem::Body {
        match self.is_end_stream() {
            true => poem::Body::empty(),
            false => BoxBody::new(self.clone()).into(),
        }
    }

    /// Reads and discards the rest of the body. Returns whether the body has ended, so that the next request can follow.
    pub async fn drain(mut self, expects_continue: bool) -> bool {
        {
            let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            if left.body.is_end_stream() {
                return true;
            }
            // A client that waits for `100 Continue` before it sends its body does not get it.
            if left.is_broken || (expects_continue && !left.was_read) || left.body.size_hint().lower() > DRAIN_LIMIT {
                return false;
            }
        }
        let drained = async {
            let mut bytes = 0;
            while let Some(frame) = self.frame().await {
                let Ok(frame) = frame else { return false };
                bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                if bytes > DRAIN_LIMIT {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(DRAIN_WITHIN, drained).await.unwrap_or(false)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.was_read = true;
        let polled = Pin::new(&mut left.body).poll_frame(cx);
        self.activity.wait_for_body(polled.is_pending());
        let frame = ready!(polled);
        left.is_broken |= matches!(frame, Some(Err(_)));
        Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).body.size_hint()
    }
}

/// Response body.
#[derive(Debug)]
pub struct ResponseBody {
    body: BoxBody<Bytes, io::Error>,
    activity: Arc<Activity>,
}

impl ResponseBody {
    pub fn new(body: BoxBody<Bytes, io::Error>, activity: Arc<Activity>) -> ResponseBody {
        ResponseBody { body, activity }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    /// Notes the end of the response: the connection drops the body after it has taken all of it.
    fn drop(&mut self) {
        self.activity.answer_ends();
    }
}
