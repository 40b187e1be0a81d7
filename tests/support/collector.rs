//! A collector that speaks OTLP over HTTP, or accepts connections and never answers.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use webhook_client::receiver::Certificate;

/// A span as the collector received it, with ids in hexadecimal.
#[derive(Clone, Debug)]
pub struct ExportedSpan {
    pub name: String,
    pub trace_id: String,
    pub span_id: String,
    /// Empty for the first span of a trace.
    pub parent: String,
    /// Traces that the span has links to.
    pub linked: Vec<String>,
    span: Span,
}

impl ExportedSpan {
    /// Returns an attribute as text.
    pub fn attribute(&self, key: &str) -> String {
        text_of(&self.span.attributes, key)
    }

    /// Returns whether the span was recorded for the trace, in it or through a link.
    pub fn is_of(&self, trace_id: &str) -> bool {
        self.trace_id == trace_id || self.linked.iter().any(|linked| linked == trace_id)
    }
}

/// A running collector, which ends when this value is dropped.
#[derive(Debug)]
pub struct Collector {
    url: String,
    received: Arc<Mutex<Received>>,
    server: AbortHandle,
}

#[derive(Debug, Default)]
struct Received {
    connections: usize,
    /// `Authorization` of each request, and an empty text if there is none.
    keys: Vec<String>,
    requests: Vec<ExportTraceServiceRequest>,
    is_refusing: bool,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Collector {
    pub async fn start() -> Collector {
        Collector::serving(true, None).await
    }

    /// Starts a collector that speaks HTTPS with this certificate.
    pub async fn with_certificate(certificate: &Certificate) -> Collector {
        Collector::serving(true, Some(certificate.server_config().unwrap().into())).await
    }

    /// Starts a collector that never answers.
    pub async fn hanging() -> Collector {
        Collector::serving(false, None).await
    }

    async fn serving(answers: bool, tls: Option<TlsAcceptor>) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let received = Arc::<Mutex<Received>>::default();
        let kept = received.clone();
        let serving = async move {
            let mut held = vec![];
            while let Ok((stream, _)) = listener.accept().await {
                kept.lock().unwrap().connections += 1;
                if !answers {
                    held.push(stream);
                    continue;
                }
                let (kept, tls) = (kept.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => serve(tls.accept(stream).await.unwrap(), kept).await,
                        None => serve(stream, kept).await,
                    }
                });
            }
        };
        let server = tokio::spawn(serving).abort_handle();
        Collector { url, received, server }
    }

    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Answers 401 from now on.
    pub fn refuse(&self) {
        self.received.lock().unwrap().is_refusing = true;
    }

    /// Returns the `Authorization` header of each request, or an empty text.
    pub fn keys(&self) -> Vec<String> {
        self.received.lock().unwrap().keys.clone()
    }

    /// Returns the number of connections that were opened.
    pub fn connections(&self) -> usize {
        self.received.lock().unwrap().connections
    }

    /// Returns everything that was received, as text.
    pub fn everything(&self) -> String {
        format!("{:?}", self.received.lock().unwrap().requests)
    }

    /// Returns an attribute of the resource, if every export has the same.
    pub fn resource(&self, key: &str) -> String {
        let received = self.received.lock().unwrap();
        let resources = received.requests.iter().flat_map(|request| &request.resource_spans).map(|spans| &spans.resource);
        let mut values: Vec<String> = resources.map(|resource| text_of(&resource.as_ref().unwrap().attributes, key)).collect();
        values.dedup();
        values.join(", ")
    }

    pub fn spans(&self) -> Vec<ExportedSpan> {
        let received = self.received.lock().unwrap();
        let scopes = received.requests.iter().flat_map(|request| &request.resource_spans).flat_map(|spans| &spans.scope_spans);
        let exported = |span: &Span| ExportedSpan {
            name: span.name.clone(),
            trace_id: hex::encode(&span.trace_id),
            span_id: hex::encode(&span.span_id),
            parent: hex::encode(&span.parent_span_id),
            linked: span.links.iter().map(|link| hex::encode(&link.trace_id)).collect(),
            span: span.clone(),
        };
        scopes.flat_map(|scope| &scope.spans).map(exported).collect()
    }

    /// Returns the spans of a trace: those in it, and those with a link to it.
    pub fn trace(&self, trace_id: &str) -> Vec<ExportedSpan> {
        self.spans().into_iter().filter(|span| span.is_of(trace_id)).collect()
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, kept: Arc<Mutex<Received>>) {
    let service = service_fn(move |request| take(request, kept.clone()));
    _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn take(request: Request<Incoming>, kept: Arc<Mutex<Received>>) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/v1/traces"));
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    let key = request.headers().get("authorization").map_or_else(String::new, |key| key.to_str().unwrap().to_owned());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut kept = kept.lock().unwrap();
    kept.keys.push(key);
    kept.requests.push(ExportTraceServiceRequest::decode(body).unwrap());
    let mut answer = Response::new(Full::new(ExportTraceServiceResponse::default().encode_to_vec().into()));
    if kept.is_refusing {
        *answer.status_mut() = StatusCode::UNAUTHORIZED;
    }
    Ok(answer)
}

fn text_of(attributes: &[KeyValue], key: &str) -> String {
    let value = attributes.iter().find(|attribute| attribute.key == key).and_then(|found| found.value.clone()?.value);
    match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{key}: {other:?} in {attributes:?}"),
    }
}
