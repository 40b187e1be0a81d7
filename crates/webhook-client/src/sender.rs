//! HTTPS client for webhooks: sends one signed delivery and reports its outcome.
//!
//! One [`Sender`] serves a whole process. It holds the TLS settings, the connection pool and the SSRF filter. A request
//! carries only the headers that the README lists and those that HTTP requires. So the sender uses hyper's connections
//! directly: a full client would add headers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use ipnet::IpNet;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;
use tokio::time::{Instant, timeout_at};
use url::{Host, Url};

use super::address::{AddressFilter, UrlRefused, check_url};
use super::connections::{Connections, Origin};
use super::custom::CustomHeaders;
use super::resolver::Resolver;
use super::signature::{sign, token_header_name};
use describe::describe;

mod describe;

/// Maximum size of a response body that is read and stored, in bytes.
pub const MAX_RESPONSE_BODY_BYTES: usize = 64 * 1024;

/// Recommended [`SenderSettings::connection_lifetime`].
pub const CONNECTION_LIFETIME: Duration = Duration::from_secs(300);

/// Number of TLS sessions kept for resumption.
const SESSIONS: usize = 4_096;

const X_WEBHOOK_ID: HeaderName = HeaderName::from_static("x-webhook-id");
const X_EVENT_ID: HeaderName = HeaderName::from_static("x-event-id");
const X_EVENT_TYPE: HeaderName = HeaderName::from_static("x-event-type");
const X_EVENT_SEQUENCE: HeaderName = HeaderName::from_static("x-event-sequence");
/// Header with the time of a signature, in Unix seconds.
pub const X_TIMESTAMP: HeaderName = HeaderName::from_static("x-timestamp");
/// Header with the signature of a body ([`crate::signature`]).
pub const X_SIGNATURE: HeaderName = HeaderName::from_static("x-signature");
const X_SIGNATURE_PREVIOUS: HeaderName = HeaderName::from_static("x-signature-previous");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Settings of a [`Sender`].
#[derive(Debug, Clone)]
pub struct SenderSettings {
    /// Service name in `User-Agent` and in the name of the token header.
    pub service_name: String,
    /// Deadline of one delivery: name resolution, connection, response and body.
    pub deadline: Duration,
    /// Certificate authorities to trust in addition to the platform's, as PEM.
    pub ca_pem: Option<Vec<u8>>,
    /// Networks that the SSRF filter allows although they are not public.
    pub allowed_nets: Vec<IpNet>,
    /// Maximum number of open connections, including idle ones.
    pub max_connections: usize,
    /// Longest time that a connection is reused. A name is resolved only when a connection opens, and its address may
    /// change.
    pub connection_lifetime: Duration,
}

/// Reason that a [`Sender`] cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum SenderError {
    /// The service name contains characters that are not allowed in a header.
    #[error("the service name {0:?} contains characters that are not allowed in a header")]
    ServiceName(String),
    /// The CA file contains no certificate, or an invalid one.
    #[error("the CA file contains no usable certificate")]
    CaFile,
    /// TLS could not be set up, for example because no root is trusted.
    #[error("failed to set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// One attempt to deliver one event to one webhook.
pub struct Delivery<'a> {
    /// URL of the webhook.
    pub url: &'a str,
    /// Id of the webhook, sent as `X-Webhook-ID`.
    pub webhook_id: i64,
    /// Id of the event, the same in every attempt. Sent as `X-Event-ID`.
    pub event_id: &'a str,
    /// Type of the event, sent as `X-Event-Type`.
    pub event_type: &'a str,
    /// Number that grows with every event of the same object, sent as `X-Event-Sequence`. `None` if the sender does not know
    /// it.
    pub sequence: Option<i64>,
    /// Id of this attempt only, sent as `X-Request-ID`.
    pub request_id: &'a str,
    /// Secret of the webhook. It signs the delivery and is sent in the token header.
    pub secret: &'a str,
    /// Secret before a rotation, while it is still valid. Its signature is sent, too; the secret is not.
    pub previous_secret: Option<&'a str>,
    /// Time of sending, in Unix seconds.
    pub timestamp: i64,
    /// `traceparent` of W3C Trace Context, if the attempt belongs to a trace. It is not signed.
    pub traceparent: Option<&'a str>,
    /// Headers of the webhook's owner.
    pub custom_headers: &'a CustomHeaders,
    /// Stored bytes of the payload, sent unchanged.
    pub body: Bytes,
}

impl fmt::Debug for Delivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret stays out, and so does the URL, whose query may contain one.
        f.debug_struct("Delivery")
            .field("webhook_id", &self.webhook_id)
            .field("event_id", &self.event_id)
            .field("request_id", &self.request_id)
            .finish_non_exhaustive()
    }
}

/// Outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// HTTP status, if one arrived before the deadline.
    pub response_status: Option<u16>,
    /// Milliseconds until the status arrived, or until the attempt failed.
    pub response_time_ms: i64,
    /// Part of the body that arrived before the deadline, as text without NUL characters.
    pub response_body: Option<String>,
    /// Reason that the attempt failed. Clients read it, so the wording is stable.
    pub error: Option<String>,
}

impl Outcome {
    /// Returns whether a status from 200 to 299 arrived before the deadline.
    pub fn succeeded(&self) -> bool {
        matches!(self.response_status, Some(200..=299))
    }
}

/// Sends deliveries. Share one sender, so that its connections are reused.
pub struct Sender {
    connections: Arc<Connections>,
    deadline: Duration,
    headers: DeliveryHeaders,
}

/// Headers of deliveries, for programs that send one themselves, such as a relay to plain HTTP.
#[derive(Clone, Debug)]
pub struct DeliveryHeaders {
    user_agent: HeaderValue,
    token_header: HeaderName,
}

impl DeliveryHeaders {
    /// Prepares the headers that have the service's name.
    ///
    /// # Errors
    /// [`SenderError::ServiceName`] if the name has characters that are not allowed in a header.
    pub fn new(service_name: &str) -> Result<DeliveryHeaders, SenderError> {
        let bad_name = || SenderError::ServiceName(service_name.to_owned());
        let user_agent = HeaderValue::from_str(&format!("{service_name}-Webhooks/1")).map_err(|_| bad_name())?;
        let token_header = HeaderName::try_from(token_header_name(service_name)).map_err(|_| bad_name())?;
        Ok(DeliveryHeaders { user_agent, token_header })
    }

    /// Signs a delivery. Returns its headers, apart from those that HTTP requires.
    ///
    /// # Errors
    /// If a value has characters that are not allowed in a header.
    pub fn sign(&self, delivery: &Delivery<'_>) -> Result<HeaderMap, String> {
        let signature = sign(delivery.secret, delivery.timestamp, &delivery.body);
        let mut token = header_value("token", delivery.secret)?;
        token.set_sensitive(true);
        let mut headers = HeaderMap::with_capacity(16);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, self.user_agent.clone());
        headers.insert(X_WEBHOOK_ID, HeaderValue::from(delivery.webhook_id));
        headers.insert(X_EVENT_ID, header_value("event id", delivery.event_id)?);
        headers.insert(X_EVENT_TYPE, header_value("event type", delivery.event_type)?);
        if let Some(sequence) = delivery.sequence {
            headers.insert(X_EVENT_SEQUENCE, HeaderValue::from(sequence));
        }
        headers.insert(X_TIMESTAMP, HeaderValue::from(delivery.timestamp));
        headers.insert(X_SIGNATURE, header_value("signature", &signature)?);
        if let Some(previous) = delivery.previous_secret {
            let signature = sign(previous, delivery.timestamp, &delivery.body);
            headers.insert(X_SIGNATURE_PREVIOUS, header_value("signature", &signature)?);
        }
        headers.insert(X_REQUEST_ID, header_value("request id", delivery.request_id)?);
        if let Some(traceparent) = delivery.traceparent {
            headers.insert(TRACEPARENT, header_value("traceparent", traceparent)?);
        }
        headers.insert(self.token_header.clone(), token);
        Ok(headers)
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("connections", &self.connections).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Sender {
    /// Creates a sender. This takes a moment, because it reads the platform's trusted roots.
    ///
    /// # Errors
    /// See [`SenderError`].
    pub fn new(settings: SenderSettings) -> Result<Sender, SenderError> {
        let resolver = Resolver::new(AddressFilter { allowed: settings.allowed_nets.clone() });
        Sender::with_resolver(settings, resolver)
    }

    /// Creates a sender with another resolver, whose filter applies instead of [`SenderSettings::allowed_nets`].
    ///
    /// # Errors
    /// See [`SenderError`].
    pub fn with_resolver(settings: SenderSettings, resolver: Resolver) -> Result<Sender, SenderError> {
        let headers = DeliveryHeaders::new(&settings.service_name)?;
        let tls = Arc::new(tls(settings.ca_pem.as_deref())?);
        let connections = Arc::new(Connections::new(resolver, tls, settings.max_connections, settings.connection_lifetime));
        Ok(Sender { connections, deadline: settings.deadline, headers })
    }

    /// Makes one attempt. It ends by the deadline, whatever the receiver does.
    pub async fn send(&self, delivery: Delivery<'_>) -> Outcome {
        let started = Instant::now();
        let ends_at = started + self.deadline;
        let failed = |error: String| Outcome {
            response_status: None,
            response_time_ms: milliseconds_since(started),
            response_body: None,
            error: Some(error),
        };

        let (origin, request) = match self.request(delivery) {
            Ok(request) => request,
            Err(error) => return failed(error),
        };
        let (response, connection) = match self.connections.exchange(&origin, request, ends_at).await {
            Ok(answered) => answered,
            Err(trouble) => return failed(describe(&trouble, self.deadline)),
        };

        let response_time_ms = milliseconds_since(started);
        let status = response.status().as_u16();
        let (body, is_whole) = read_body(response.into_body(), ends_at).await;
        if is_whole {
            self.connections.give_back(connection, ends_at).await;
        }
        Outcome {
            response_status: Some(status),
            response_time_ms,
            response_body: Some(body),
            error: match status {
                200..=299 => None,
                301 | 302 | 303 | 307 | 308 => Some(format!("redirect {status} is not followed")),
                _ => Some(format!("HTTP {status}")),
            },
        }
    }

    fn request(&self, delivery: Delivery<'_>) -> Result<(Origin, Request<Full<Bytes>>), String> {
        let url = check_url(delivery.url).map_err(|refused| refused.to_string())?;
        let origin = origin(&url).ok_or_else(|| UrlRefused::Invalid.to_string())?;
        let mut headers = HeaderMap::with_capacity(16);
        delivery.custom_headers.add_to(&mut headers);
        // None of these can be replaced by a custom one.
        headers.insert(HOST, host(&url).ok_or_else(|| UrlRefused::Invalid.to_string())?);
        headers.extend(self.headers.sign(&delivery)?);
        let mut request = Request::new(Full::new(delivery.body));
        *request.method_mut() = Method::POST;
        let target = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        *request.uri_mut() = target.parse().map_err(|_| UrlRefused::Invalid.to_string())?;
        *request.headers_mut() = headers;
        Ok((origin, request))
    }
}

/// Configures TLS 1.2 and 1.3, trusting the platform's roots and the given ones.
fn tls(ca_pem: Option<&[u8]>) -> Result<rustls::ClientConfig, SenderError> {
    let authorities = match ca_pem {
        Some(pem) => {
            let authorities: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(pem).collect();
            authorities.ok().filter(|authorities| !authorities.is_empty()).ok_or(SenderError::CaFile)?
        }
        None => vec![],
    };
    // The provider is explicit, because a process may contain more than one.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous() // rustls's term for any verifier but its own; this one is the platform's
        .with_custom_certificate_verifier(Arc::new(Verifier::new_with_extra_roots(authorities, provider)?))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = rustls::client::Resumption::in_memory_sessions(SESSIONS);
    Ok(config)
}

fn origin(url: &Url) -> Option<Origin> {
    let host = match url.host()? {
        Host::Domain(name) => Host::Domain(name.to_owned()),
        Host::Ipv4(v4) => Host::Ipv4(v4),
        Host::Ipv6(v6) => Host::Ipv6(v6),
    };
    Some(Origin { host, port: url.port_or_known_default()? })
}

fn host(url: &Url) -> Option<HeaderValue> {
    let host = url.host_str()?;
    match url.port() {
        Some(port) => HeaderValue::from_str(&format!("{host}:{port}")).ok(),
        None => HeaderValue::from_str(host).ok(),
    }
}

fn header_value(what: &str, text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| format!("the {what} cannot be sent in a header"))
}

fn milliseconds_since(started: Instant) -> i64 {
    i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// Reads the part of the body that arrives before the deadline and fits the limit. Returns it with a flag that says whether
/// the body is complete.
///
/// The status has decided the outcome already, so no error here matters. The caller closes the connection of an incomplete
/// body.
async fn read_body(mut incoming: Incoming, ends_at: Instant) -> (String, bool) {
    let mut body = Vec::new();
    let is_whole = loop {
        match timeout_at(ends_at, incoming.frame()).await {
            Ok(None) => break true,
            Ok(Some(Ok(frame))) => {
                let chunk = frame.data_ref().map_or(&[][..], |data| data);
                body.extend_from_slice(&chunk[..chunk.len().min(MAX_RESPONSE_BODY_BYTES - body.len())]);
                if body.len() == MAX_RESPONSE_BODY_BYTES {
                    break false;
                }
            }
            Ok(Some(Err(_))) | Err(_) => break false,
        }
    };
    (storable_text(&body), is_whole)
}

/// Converts bytes to text that Postgres accepts, without NUL. Replacing invalid bytes may lengthen it, so it is cut again.
fn storable_text(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    text.retain(|c| c != '\0');
    text.truncate(text.floor_char_boundary(MAX_RESPONSE_BODY_BYTES));
    text
}

#[cfg(test)]
mod tests;
