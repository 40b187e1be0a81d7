//! Sends one signed webhook delivery over HTTPS and says what came of it.
//!
//! One [`Sender`] serves a whole process: it holds the TLS settings, the pool of
//! open connections and the address filter. The headers are the specification's and HTTP's own, no
//! others: so it speaks HTTP itself rather than through a client that adds some.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use ipnet::IpNet;
use nix::errno::Errno;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{AlertDescription, CertificateError};
use rustls_platform_verifier::Verifier;
use tokio::time::{Instant, timeout_at};
use url::{Host, Url};

use super::address::{AddressFilter, UrlRefused, check_url};
use super::connections::{Connections, Origin, Trouble};
use super::resolver::{Resolver, Unresolved};
use super::signature::{sign, token_header_name};

/// How much of a response body is read and kept, in bytes.
pub const MAX_RESPONSE_BODY_BYTES: usize = 64 * 1024;

/// [`SenderSettings::connection_lifetime`] of a node.
pub const CONNECTION_LIFETIME: Duration = Duration::from_secs(300);

/// What an attempt fails with for want of descriptors, ports or memory here.
const NONE_TO_SPARE: &str = "this service had no connection to spare: the receiver was not asked";

/// How many TLS sessions are remembered, to be resumed.
const SESSIONS: usize = 4_096;

const X_WEBHOOK_ID: HeaderName = HeaderName::from_static("x-webhook-id");
const X_EVENT_ID: HeaderName = HeaderName::from_static("x-event-id");
const X_EVENT_TYPE: HeaderName = HeaderName::from_static("x-event-type");
const X_TIMESTAMP: HeaderName = HeaderName::from_static("x-timestamp");
const X_SIGNATURE: HeaderName = HeaderName::from_static("x-signature");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What a [`Sender`] is made from.
#[derive(Debug, Clone)]
pub struct SenderSettings {
    /// The name in `User-Agent` and in the token's header.
    pub service_name: String,
    /// How long a delivery may take: name look-up, connection, answer and body.
    pub deadline: Duration,
    /// Certificates of authorities to trust beside the platform's, as PEM.
    pub ca_pem: Option<Vec<u8>>,
    /// Networks that may be dialled although they are not public.
    pub allowed_nets: Vec<IpNet>,
    /// Most connections that are open at once, those that are kept unused included.
    pub max_connections: usize,
    /// How long a connection is used: what its name resolves to is asked when it is opened, and may change.
    pub connection_lifetime: Duration,
}

/// Why a [`Sender`] cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SenderError {
    /// The service name does not fit into a header.
    #[error("the service name {0:?} cannot be part of a header")]
    ServiceName(String),
    /// The operator's file holds no certificate, or a broken one.
    #[error("the CA file holds no usable certificate")]
    CaFile,
    /// TLS could not be set up, for example without any trusted root.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// One attempt to deliver one event to one webhook.
pub struct Delivery<'a> {
    /// Where to send it.
    pub url: &'a str,
    /// The webhook's id.
    pub webhook_id: i64,
    /// The event's id, the same in every attempt.
    pub event_id: &'a str,
    /// The event's type.
    pub event_type: &'a str,
    /// The id of this attempt alone.
    pub request_id: &'a str,
    /// The webhook's token: it signs, and goes along in the token header.
    pub secret: &'a str,
    /// The moment of sending, in Unix seconds.
    pub timestamp: i64,
    /// The stored bytes of the payload, sent as they are.
    pub body: Bytes,
}

impl fmt::Debug for Delivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the secret nor the URL, whose query may hold one.
        f.debug_struct("Delivery")
            .field("webhook_id", &self.webhook_id)
            .field("event_id", &self.event_id)
            .field("request_id", &self.request_id)
            .finish_non_exhaustive()
    }
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The status, if one arrived in time.
    pub response_status: Option<u16>,
    /// Milliseconds until the status arrived, or until the attempt failed.
    pub response_time_ms: i64,
    /// As much of the body as arrived in time, as text without NUL characters.
    pub response_body: Option<String>,
    /// Why the attempt did not succeed, in stable words.
    pub error: Option<String>,
}

impl Outcome {
    /// Whether a status from 200 to 299 arrived in time.
    pub fn succeeded(&self) -> bool {
        matches!(self.response_status, Some(200..=299))
    }
}

/// Sends deliveries. Meant to be shared: its connections are reused.
pub struct Sender {
    connections: Arc<Connections>,
    deadline: Duration,
    user_agent: HeaderValue,
    token_header: HeaderName,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("connections", &self.connections).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Sender {
    /// Makes a sender. Reads the platform's trusted roots, so it takes a moment.
    pub fn new(settings: SenderSettings) -> Result<Sender, SenderError> {
        let resolver = Resolver::new(AddressFilter { allowed: settings.allowed_nets.clone() });
        Sender::with(settings, resolver)
    }

    /// The same with another way to resolve names.
    pub(crate) fn with(settings: SenderSettings, resolver: Resolver) -> Result<Sender, SenderError> {
        let name = &settings.service_name;
        let bad_name = || SenderError::ServiceName(name.clone());
        let user_agent = HeaderValue::from_str(&format!("{name}-Webhooks/1")).map_err(|_| bad_name())?;
        let token_header = HeaderName::try_from(token_header_name(name)).map_err(|_| bad_name())?;
        let tls = Arc::new(tls(settings.ca_pem.as_deref())?);
        let connections = Arc::new(Connections::new(resolver, tls, settings.max_connections, settings.connection_lifetime));
        Ok(Sender { connections, deadline: settings.deadline, user_agent, token_header })
    }

    /// Makes one attempt. It ends within the deadline, whatever the receiver does.
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
        let signature = sign(delivery.secret, delivery.timestamp, &delivery.body);
        let mut token = header_value("token", delivery.secret)?;
        token.set_sensitive(true);

        let mut request = Request::new(Full::new(delivery.body));
        *request.method_mut() = Method::POST;
        let target = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        *request.uri_mut() = target.parse().map_err(|_| UrlRefused::Invalid.to_string())?;
        let headers = request.headers_mut();
        headers.reserve(16);
        headers.insert(HOST, host(&url).ok_or_else(|| UrlRefused::Invalid.to_string())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, self.user_agent.clone());
        headers.insert(X_WEBHOOK_ID, HeaderValue::from(delivery.webhook_id));
        headers.insert(X_EVENT_ID, header_value("event id", delivery.event_id)?);
        headers.insert(X_EVENT_TYPE, header_value("event type", delivery.event_type)?);
        headers.insert(X_TIMESTAMP, HeaderValue::from(delivery.timestamp));
        headers.insert(X_SIGNATURE, header_value("signature", &signature)?);
        headers.insert(X_REQUEST_ID, header_value("request id", delivery.request_id)?);
        headers.insert(self.token_header.clone(), token);
        Ok((origin, request))
    }
}

/// TLS 1.2 and 1.3, trusting the platform's roots and an operator's.
fn tls(ca_pem: Option<&[u8]>) -> Result<rustls::ClientConfig, SenderError> {
    let authorities = match ca_pem {
        Some(pem) => {
            let authorities: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(pem).collect();
            authorities.ok().filter(|authorities| !authorities.is_empty()).ok_or(SenderError::CaFile)?
        }
        None => vec![],
    };
    // Named, because a process may hold more than one provider.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous() // rustls's word for any verifier but its own; this one is the platform's
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

/// Reads what arrives in time and fits; and whether that is all. The status has decided already, so
/// every way this can end is as good as any other; what is unread closes the connection.
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

/// Text that Postgres takes: no NUL. Replaced bytes may grow, so it is cut again.
fn storable_text(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    text.retain(|c| c != '\0');
    text.truncate(text.floor_char_boundary(MAX_RESPONSE_BODY_BYTES));
    text
}

/// The first cause in the chain that has words for a client. Nothing is quoted
/// from the error itself.
fn describe(trouble: &Trouble, deadline: Duration) -> String {
    let (error, closed, otherwise): (&(dyn StdError + 'static), _, _) = match trouble {
        Trouble::Connecting(error) => (&**error, "connection closed while connecting", "the connection could not be made"),
        Trouble::Exchanging(error) => (error, "connection closed before an answer", "the connection broke before an answer"),
        Trouble::Informed => return "too many informational answers (1xx)".to_owned(),
        Trouble::Late(what) => return format!("{what} within {} s", deadline.as_secs_f64()),
    };
    let cause = find_cause(error, closed).unwrap_or_else(|| {
        tracing::debug!(?error, "a delivery failed in a way that has no words");
        otherwise.to_owned()
    });
    if cause == NONE_TO_SPARE {
        tracing::warn!(?error, "webhooks cannot be sent for want of descriptors (ulimit -n), ports or memory");
    }
    cause
}

fn find_cause(error: &(dyn StdError + 'static), closed: &str) -> Option<String> {
    if let Some(unresolved) = error.downcast_ref::<Unresolved>() {
        return Some(unresolved.to_string());
    }
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return Some(describe_tls(tls));
    }
    if let Some(http) = error.downcast_ref::<hyper::Error>() {
        if http.is_parse_too_large() {
            return Some("the headers of the answer are too large".to_owned());
        }
        if http.is_parse() {
            return Some("not an HTTP answer".to_owned());
        }
        if http.is_incomplete_message() || http.is_closed() || http.is_canceled() {
            return Some(closed.to_owned());
        }
    }
    if let Some(io) = error.downcast_ref::<io::Error>() {
        // `source()` of an I/O error passes over the error it wraps.
        let inner = io.get_ref().and_then(|inner| find_cause(inner, closed));
        return inner.or_else(|| describe_io(io, closed));
    }
    find_cause(error.source()?, closed)
}

fn describe_io(error: &io::Error, closed: &str) -> Option<String> {
    let is_ours =
        |errno: Errno| matches!(errno, Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM | Errno::EADDRNOTAVAIL);
    if error.raw_os_error().map(Errno::from_raw).is_some_and(is_ours) {
        return Some(NONE_TO_SPARE.to_owned());
    }
    let text = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected
        | io::ErrorKind::UnexpectedEof => closed,
        io::ErrorKind::HostUnreachable => "host unreachable",
        io::ErrorKind::NetworkUnreachable => "network unreachable",
        io::ErrorKind::TimedOut => "connection timed out",
        _ => return None,
    };
    Some(text.to_owned())
}

fn describe_tls(error: &rustls::Error) -> String {
    use CertificateError as Bad;
    let text = match error {
        rustls::Error::InvalidCertificate(bad) => match bad {
            Bad::Expired | Bad::ExpiredContext { .. } => "certificate has expired",
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => "certificate is not valid yet",
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => "certificate is not valid for this name",
            // A bad signature is a trusted name with a key that is not its own.
            Bad::UnknownIssuer | Bad::BadSignature => "unknown issuer",
            Bad::Revoked => "certificate has been revoked",
            _ => "certificate is not acceptable",
        },
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => "the receiver does not speak HTTP/1.1",
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the receiver asks for a certificate of this service"
        }
        rustls::Error::AlertReceived(AlertDescription::UnrecognisedName) => "the receiver does not know this name",
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) | rustls::Error::PeerIncompatible(_) => {
            "no common version or cipher"
        }
        rustls::Error::AlertReceived(_) => "the receiver refused the handshake",
        rustls::Error::NoCertificatesPresented => "the receiver has no certificate",
        rustls::Error::PeerMisbehaved(_) | rustls::Error::DecryptError | rustls::Error::PeerSentOversizedRecord => {
            "the receiver does not keep to the protocol"
        }
        rustls::Error::InvalidMessage(_)
        | rustls::Error::InappropriateMessage { .. }
        | rustls::Error::InappropriateHandshakeMessage { .. } => "the receiver does not speak TLS",
        _ => "the handshake failed, and the receiver did not say why",
    };
    format!("TLS: {text}")
}

#[cfg(test)]
mod tests;
