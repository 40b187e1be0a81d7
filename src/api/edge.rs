//! The outermost middleware. It gives every request an ID, a path to route by, and one line in the access log.
//! Every error response, also after a panic, is in the error envelope, and every response carries the request ID.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use poem::error::MethodNotAllowedError;
use poem::http::uri::PathAndQuery;
use poem::http::{HeaderValue, Method, StatusCode, Uri, header};
use poem::{Endpoint, Error, IntoResponse, Middleware, PathPattern, Request, Response};
use poem_openapi::error::{ParseParamError, ParsePathError, ParseRequestPayloadError};
use tokio_util::sync::CancellationToken;

use super::allow::Methods;
use super::audit_log::{AuditLine, Notes};
use super::auth::{QuotaSlot, X_API_KEY};
use super::browser_headers::forbid_storing;
use super::error::{ApiError, Code, RateLimited};
use super::lifecycle::Lifecycle;
use super::progress::LateOutcome;
use super::request_id::{CURRENT, RequestId, X_REQUEST_ID, current_text};
use super::trace::RequestTrace;
use super::wire_uri::WireUri;
use crate::access::limits::is_under;
use crate::telemetry::{Metrics, traces};

/// The outermost middleware. Its access log has the target `access` and the level INFO. The filter `access=off`
/// turns the log off, together with its cost.
#[derive(Debug, Clone, Default)]
pub struct Edge {
    methods: Methods,
    metrics: Option<Metrics>,
    lifecycle: Lifecycle,
    leaving: CancellationToken,
}

impl Edge {
    /// Creates an edge that lists a path's methods in the header `Allow` of a 405.
    pub fn with_methods(methods: Methods) -> Self {
        Self { methods, ..Self::default() }
    }

    /// Announces the end of the client API's version in the headers of its responses.
    #[must_use]
    pub fn with_lifecycle(mut self, lifecycle: Lifecycle) -> Self {
        self.lifecycle = lifecycle;
        self
    }

    /// Closes each connection after its next response, once this is cancelled.
    #[must_use]
    pub fn until_leaving(mut self, leaving: CancellationToken) -> Self {
        self.leaving = leaving;
        self
    }

    /// Records every response in the metrics.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }
}

impl<E: Endpoint> Middleware<E> for Edge {
    type Output = EdgeEndpoint<E>;

    fn transform(&self, inner: E) -> Self::Output {
        let Edge { methods, metrics, lifecycle, leaving } = self.clone();
        EdgeEndpoint { inner, methods, metrics, lifecycle, leaving }
    }
}

/// An endpoint wrapped by [`Edge`]. It never returns an `Err`.
#[derive(Debug)]
pub struct EdgeEndpoint<E> {
    inner: E,
    methods: Methods,
    metrics: Option<Metrics>,
    lifecycle: Lifecycle,
    leaving: CancellationToken,
}

impl<E: Endpoint> Endpoint for EdgeEndpoint<E> {
    type Output = Response;

    async fn call(&self, mut request: Request) -> poem::Result<Response> {
        let start = Instant::now();
        let id = RequestId::of(request.headers());
        let wire = request.uri().clone();
        let method = request.method().clone();
        request.extensions_mut().insert(id.clone());
        request.extensions_mut().insert(WireUri(wire.clone()));
        let quota = QuotaSlot::default();
        request.extensions_mut().insert(quota.clone());
        let notes = Notes::default();
        request.extensions_mut().insert(notes.clone());
        let api_key = request.headers().get(X_API_KEY).cloned();
        let (known, class) = (known_method(&method), route_class(wire.path()));
        let trace = RequestTrace::begin(self.metrics.as_ref(), request.headers(), class);
        let audited = AuditLine::begin(&method, &wire, &id, &notes, trace.place);

        let answer = async {
            strip_trailing_slashes(request.uri_mut());
            self.inner.call(request).await.map(IntoResponse::into_response)
        };
        let answer = async {
            match AssertUnwindSafe(answer).catch_unwind().await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => self.refusal(error, &wire),
                // The panic hook has logged it.
                Err(_) => Error::from(ApiError::new(Code::Internal)).into_response(),
            }
        };
        let mut response = traces::within(trace.place, CURRENT.scope(id.clone(), notes.during(answer))).await;

        response.headers_mut().insert(X_REQUEST_ID, id.header().clone());
        quota.add_headers(&mut response);
        self.lifecycle.announce(wire.path(), response.headers_mut());
        forbid_storing(wire.path(), response.headers_mut());
        if self.leaving.is_cancelled() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let template = response.data::<PathPattern>().map(|pattern| self.methods.template(&pattern.0));
        let handled = Handled { known, class, template, start, method, wire, id, notes, api_key, trace, audited };
        match response.data::<LateOutcome>() {
            Some(late) => {
                let metrics = self.metrics.clone();
                late.keep(move |status| handled.record(metrics.as_ref(), status));
            }
            None => handled.record(self.metrics.as_ref(), response.status()),
        }
        Ok(response)
    }
}

/// A request that is handled, with what its records need.
struct Handled {
    known: &'static str,
    class: &'static str,
    /// Template of its path, if it has a route.
    template: Option<Arc<str>>,
    start: Instant,
    method: Method,
    wire: Uri,
    id: RequestId,
    notes: Notes,
    api_key: Option<HeaderValue>,
    trace: RequestTrace,
    audited: Option<AuditLine>,
}

impl Handled {
    /// Records the status of the response: in the metrics, the access log, the audit log and the trace.
    fn record(self, metrics: Option<&Metrics>, status: StatusCode) {
        if let Some(metrics) = metrics {
            let path = self.template.clone().unwrap_or_default();
            metrics.answered(self.known, self.class, path, status.as_u16(), self.start.elapsed());
        }
        if tracing::enabled!(target: "access", tracing::Level::INFO) {
            let name = self.notes.caller().map(|caller| caller.to_string());
            let caller = Caller { name, api_key: self.api_key.as_ref().and_then(shown) };
            traces::during(self.trace.place, || log_access(&self.method, &self.wire, status, self.start, &self.id, &caller));
        }
        if let Some(audited) = self.audited {
            audited.end(status);
        }
        self.trace.end(self.known, self.template.as_deref().unwrap_or(self.class), status);
    }
}

impl<E> EdgeEndpoint<E> {
    /// Converts an error of an endpoint, poem or poem-openapi into a response in the error envelope.
    fn refusal(&self, error: Error, wire: &Uri) -> Response {
        let is_wrong_method = error.is::<MethodNotAllowedError>();
        let pattern = error.data::<PathPattern>().cloned();
        let mut response = enveloped(error);
        if let Some(pattern) = pattern {
            response.set_data(pattern);
        }
        if is_wrong_method
            && let Some(allow) = self.methods.of(wire.path())
            && let Ok(allow) = HeaderValue::from_str(&allow)
        {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        response
    }
}

/// Converts an error into a response in the error envelope.
pub(super) fn enveloped(error: Error) -> Response {
    let ours = error.is_from_response() || error.is::<ApiError>() || error.is::<RateLimited>();
    if ours { error.into_response() } else { Error::from(envelope(&error)).into_response() }
}

/// Translates poem's errors into the API's. No client sees the text of a parser.
fn envelope(error: &Error) -> ApiError {
    if let Some(ParseParamError { name, .. }) = error.downcast_ref() {
        return ApiError::invalid(*name, "is not valid");
    }
    // An ID that does not parse identifies no resource.
    if error.is::<ParsePathError>() || error.is::<poem::error::ParsePathError>() {
        return ApiError::new(Code::NotFound);
    }
    if error.is::<ParseRequestPayloadError>() {
        return ApiError::new(Code::MalformedJson);
    }
    match error.status() {
        StatusCode::UNAUTHORIZED => ApiError::new(Code::Unauthorized),
        StatusCode::FORBIDDEN => ApiError::new(Code::Forbidden),
        StatusCode::NOT_FOUND => ApiError::new(Code::NotFound),
        StatusCode::METHOD_NOT_ALLOWED => ApiError::new(Code::MethodNotAllowed),
        StatusCode::CONFLICT => ApiError::new(Code::Conflict),
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::new(Code::PayloadTooLarge),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ApiError::new(Code::UnsupportedMediaType),
        StatusCode::SERVICE_UNAVAILABLE => ApiError::new(Code::Unavailable),
        StatusCode::GATEWAY_TIMEOUT => ApiError::new(Code::OutcomeUnknown),
        status if status.is_client_error() => ApiError::new(Code::ValidationFailure),
        _ => ApiError::internal(error),
    }
}

/// Rejects a NUL in the URI. Postgres cannot store it in text and would fail the statement, and the whole batch with it.
///
/// # Errors
/// 404 for a NUL in the path, 400 naming the parameter for one in the query.
pub async fn refuse_nul(request: Request) -> poem::Result<Request> {
    let uri = request.uri();
    if uri.path().contains("%00") {
        return Err(ApiError::new(Code::NotFound).into());
    }
    let pairs = uri.query().unwrap_or_default().split('&');
    match pairs.into_iter().find(|pair| pair.contains("%00")) {
        Some(pair) => {
            let name = pair.split('=').next().unwrap_or_default();
            Err(ApiError::invalid(name, "is not valid").into())
        }
        None => Ok(request),
    }
}

fn strip_trailing_slashes(uri: &mut Uri) {
    let path = uri.path();
    if path.len() < 2 || !path.ends_with('/') {
        return;
    }
    let path = match path.trim_end_matches('/') {
        "" => "/",
        path => path,
    };
    let stripped = match uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = stripped.ok();
    // A part of a valid URI is a valid URI. If it were not, the path would stay as received.
    if let Ok(stripped) = Uri::from_parts(parts) {
        *uri = stripped;
    }
}

/// Returns the method as a metric label. Other methods become `other`, because a caller can invent any number of them.
fn known_method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// Returns the kind of route as a metric label, from a fixed set whatever the path is.
fn route_class(path: &str) -> &'static str {
    let path = path.trim_end_matches('/');
    let class = [
        ("/api/v1/orders", "orders"),
        ("/api/v1/products", "products"),
        ("/api/v1/wallets", "wallets"),
        ("/api/v1/transactions", "transactions"),
        ("/api/v1/beneficiaries", "beneficiaries"),
        ("/api/v1/payouts", "payouts"),
        ("/api/v1/webhooks/deliveries", "deliveries"),
        ("/api/v1/webhooks", "webhooks"),
        ("/api/v1", "client"),
        ("/auth", "sessions"),
        ("/client/api", "portal"),
        ("/admin/v1", "operator"),
        ("/admin/auth", "console"),
        ("/portal", "portal pages"),
        ("/console", "console pages"),
        ("/assets", "assets"),
        ("/suppliers", "suppliers"),
        ("/log", "log"),
        ("/healthz", "probe"),
        ("/readyz", "probe"),
        ("/metrics", "probe"),
    ];
    class.into_iter().find(|(prefix, _)| is_under(path, prefix)).map_or("other", |(_, class)| class)
}

/// Returns the part of an API key that a log may show: its first 8 characters.
fn shown(api_key: &HeaderValue) -> Option<&str> {
    let text = api_key.to_str().ok()?;
    Some(&text[..text.len().min(8)])
}

/// The caller of a request, as the access log shows it.
struct Caller<'a> {
    name: Option<String>,
    /// First 8 characters of the API key that was sent, valid or not.
    api_key: Option<&'a str>,
}

/// Writes the access log's line. It leaves out the query, which can contain private data.
fn log_access(method: &Method, uri: &Uri, status: StatusCode, start: Instant, id: &RequestId, caller: &Caller<'_>) {
    let duration_ms = start.elapsed().as_micros() as f64 / 1000.0;
    tracing::info!(
        target: "access",
        method = method.as_str(),
        path = uri.path(),
        status = status.as_u16(),
        duration_ms,
        request_id = id.as_str(),
        caller = caller.name.as_deref(),
        api_key = caller.api_key,
    );
}

/// Replaces the process's panic hook with one that writes one log line with the source location, and with the
/// request ID if a request panicked.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let panic = panic.payload_as_str().unwrap_or("unknown payload");
        tracing::error!(request_id = current_text(), place, panic, "panicked");
    }));
}
