//! Traces of requests, commands, batches, projections and deliveries, sent to an OpenTelemetry collector by OTLP over HTTP.
//!
//! A trace crosses tasks and nodes as a [`TraceParent`]: from the request's task into its command, from there into the metadata
//! of the command's events, and from these to the projector, to fulfilment and to the delivery worker. So spans get their parents
//! explicitly. No global state is involved, and a node without an endpoint makes no span.
//!
//! No attribute holds a query, a header, a body, or another text of a client.

mod collector;
mod parent;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Link, Span as _, SpanBuilder, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, Span};

use super::process::{PROFILE, host};
use collector::Collector;
pub use opentelemetry::trace::SpanKind;
pub use parent::{TraceParent, current, during, within};

/// Name of the service and of the instrumentation.
const SERVICE: &str = "rewards-ledger";
/// Maximum number of ended spans that wait for their export. More are lost.
const MAX_SPANS: usize = 4_096;
/// Maximum number of spans in one export.
const MAX_SPANS_PER_EXPORT: usize = 512;
/// Maximum number of links of a span.
const MAX_LINKS: usize = 128;
/// Longest time that an ended span waits for its export.
const EXPORT_EVERY: Duration = Duration::from_secs(1);
/// Deadline of one export. There is no second attempt.
const EXPORT_DEADLINE: Duration = Duration::from_secs(5);
/// Time that the last export gets when the node stops.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// Settings of [`Traces`].
#[derive(Clone, Debug)]
pub struct TraceSettings {
    /// Base URL of the collector, without a trailing slash. Spans go to `/v1/traces` below it.
    pub endpoint: String,
    /// Certificates to trust in addition to the platform's, in PEM.
    pub ca_pem: Option<Vec<u8>>,
    /// Share of the traces that begin here and are exported, from 0 to 1. Other traces keep the decision of their caller.
    pub sample: f64,
}

/// Reason why traces cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("the file has no certificate in PEM")]
    Authorities,
    #[error("the client of the collector cannot be created: {0}")]
    Client(#[from] reqwest::Error),
    #[error(transparent)]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// Traces of this node; by default none are made. Cheap to clone.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<Exporting>>);

struct Exporting {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The exporter stays out, because its headers may hold a key.
        f.debug_struct("Traces").field("is_on", &self.is_on()).finish()
    }
}

impl Traces {
    /// Starts to export, on a thread of its own. A collector that hangs or is away loses spans, and nothing waits for it.
    ///
    /// # Errors
    /// See [`TraceError`].
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn start(settings: &TraceSettings) -> Result<Traces, TraceError> {
        let authorities = settings.ca_pem.as_deref().map_or(Ok(vec![]), authorities)?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector::new(authorities, EXPORT_DEADLINE)?)
            .with_retry_policy(RetryPolicy::disabled())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", settings.endpoint))
            .with_timeout(EXPORT_DEADLINE)
            .build()?;
        let limits = BatchConfigBuilder::default()
            .with_max_queue_size(MAX_SPANS)
            .with_max_export_batch_size(MAX_SPANS_PER_EXPORT)
            .with_scheduled_delay(EXPORT_EVERY)
            .build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(limits).build())
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.sample))))
            .with_max_links_per_span(u32::try_from(MAX_LINKS).unwrap_or(u32::MAX))
            .with_resource(resource())
            .build();
        let tracer = provider.tracer(SERVICE);
        Ok(Traces(Some(Arc::new(Exporting { provider, tracer }))))
    }

    /// Returns whether this node exports traces.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins a span, or a trace if there is no parent. Returns none on a node that exports no traces.
    pub fn begin(&self, name: &'static str, kind: SpanKind, parent: Option<TraceParent>) -> Option<OpenSpan> {
        let tracer = &self.0.as_ref()?.tracer;
        let builder = SpanBuilder::from_name(name).with_kind(kind);
        Some(OpenSpan(Box::new(tracer.build_with_context(builder, &context(parent)))))
    }

    /// Records work that began at `started`, has just ended, and was done for several traces at once. The span belongs to the
    /// first sampled one, and has links to up to [`MAX_LINKS`] of them.
    pub fn record_shared(
        &self,
        name: &'static str,
        traces: impl Iterator<Item = TraceParent>,
        started: SystemTime,
        attributes: impl IntoIterator<Item = (&'static str, i64)>,
    ) {
        let Some(Exporting { tracer, .. }) = self.0.as_deref() else { return };
        let mut seen = HashSet::new();
        let sampled: Vec<TraceParent> =
            traces.filter(|trace| trace.is_sampled() && seen.insert(*trace)).take(MAX_LINKS).collect();
        let Some(first) = sampled.first() else { return };
        let links = sampled.iter().map(|trace| Link::with_context(trace.context())).collect();
        let builder = SpanBuilder::from_name(name)
            .with_start_time(started)
            .with_links(links)
            .with_attributes(attributes.into_iter().map(|(key, value)| KeyValue::new(key, value)));
        tracer.build_with_context(builder, &context(Some(*first))).end();
    }

    /// Exports what has ended, for three seconds at most.
    pub async fn stop(&self) {
        let Some(exporting) = self.0.clone() else { return };
        let stopped = tokio::task::spawn_blocking(move || exporting.provider.shutdown_with_timeout(STOP_WITHIN)).await;
        if !matches!(stopped, Ok(Ok(()))) {
            tracing::warn!("failed to export the last spans; they are lost");
        }
    }
}

/// A span that has not ended. It ends when it is dropped.
#[derive(Debug)]
pub struct OpenSpan(Box<Span>);

impl OpenSpan {
    /// Returns the place of the span in its trace, the parent of what follows from it.
    pub fn place(&self) -> TraceParent {
        TraceParent::of(self.0.span_context())
    }

    pub fn rename(&mut self, name: String) {
        self.0.update_name(name);
    }

    pub fn set(&mut self, attribute: &'static str, value: impl Into<Value>) {
        self.0.set_attribute(KeyValue::new(attribute, value));
    }

    /// Marks the work of the span as failed.
    pub fn fail(&mut self, why: &'static str) {
        self.0.set_status(Status::error(why));
    }
}

fn context(parent: Option<TraceParent>) -> Context {
    match parent {
        Some(parent) => Context::new().with_remote_span_context(parent.context()),
        None => Context::new(),
    }
}

/// Parses certificates. A file without any is a mistake, for example the file of a key.
fn authorities(pem: &[u8]) -> Result<Vec<reqwest::Certificate>, TraceError> {
    let parsed = reqwest::Certificate::from_pem_bundle(pem).ok();
    parsed.filter(|certificates| !certificates.is_empty()).ok_or(TraceError::Authorities)
}

/// Describes this node: its name, version, build and instance.
fn resource() -> Resource {
    Resource::builder()
        .with_service_name(SERVICE)
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", uuid::Uuid::now_v7().to_string()),
            KeyValue::new("host.name", host()),
            KeyValue::new("process.pid", i64::from(std::process::id())),
            KeyValue::new("build.profile", PROFILE),
            KeyValue::new("build.target", format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)),
        ])
        .build()
}
