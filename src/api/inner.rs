//! The API behind admission, as the pages of this node call it.

use std::fmt;
use std::sync::Arc;

use poem::endpoint::{BoxEndpoint, make_sync};
use poem::http::StatusCode;
use poem::{Endpoint, EndpointExt, IntoResponse, Request, Response, Result};

use super::edge::enveloped;

/// The routes of the API, without authentication, rate limits and access log. The caller's identity is in the request's
/// extensions. Cheap to clone.
#[derive(Clone)]
pub struct Inner {
    routes: Arc<BoxEndpoint<'static, Response>>,
    /// Whether the node shows the mails that it sends, as a sandbox and the demo do.
    pub shows_outbox: bool,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl Inner {
    pub(super) fn new(routes: BoxEndpoint<'static, Response>, shows_outbox: bool) -> Inner {
        Inner { routes: Arc::new(routes), shows_outbox }
    }

    /// Creates an API that refuses every request. It suffices to list the routes of the pages.
    pub fn closed() -> Inner {
        Inner::new(make_sync(|_| StatusCode::SERVICE_UNAVAILABLE.into_response()).boxed(), false)
    }

    /// Handles a request of an admitted caller. Errors are in the error envelope, as clients get them.
    pub async fn respond(&self, request: Request) -> Response {
        self.routes.call(request).await.unwrap_or_else(enveloped)
    }
}

impl Endpoint for Inner {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        self.routes.call(request).await
    }
}
