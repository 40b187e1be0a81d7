//! Sends one signed webhook delivery over HTTPS and says what came of it.
//!
//! One [`Sender`] serves a whole process: it holds the TLS settings, the pool of
//! open connections and the address filter.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use rustls::CertificateError;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::address::{AddressFilter, Refused, check_url};
use super::signature::{sign, token_header_name};

/// How much of a response body is read and kept, in bytes.
pub const MAX_RESPONSE_BODY_BYTES: usize = 64 * 1024;

/// How long an unused connection is kept. Below the minute after which common
/// receivers hang up, so that few requests meet a connection as it is closed.
const IDLE_CONNECTION_LIFETIME: Duration = Duration::from_secs(45);

/// Name look-ups block a thread each. Names whose servers are dead must not take
/// all the threads that the rest of the process needs.
const MAX_LOOKUPS_IN_FLIGHT: usize = 128;

/// How far apart two timers of the same length may fire.
const TICK: Duration = Duration::from_millis(10);

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
    /// How many unused connections to one host are kept open.
    pub max_idle_per_host: usize,
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
    /// The HTTP client could not be built, for example without any trusted root.
    #[error("the HTTPS client cannot be set up")]
    Client(#[source] reqwest::Error),
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
    client: reqwest::Client,
    filter: Arc<AddressFilter>,
    deadline: Duration,
    user_agent: HeaderValue,
    token_header: HeaderName,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("filter", &self.filter).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Sender {
    /// Makes a sender. Reads the platform's trusted roots, so it takes a moment.
    pub fn new(settings: SenderSettings) -> Result<Sender, SenderError> {
        let name = &settings.service_name;
        let bad_name = || SenderError::ServiceName(name.clone());
        let user_agent = HeaderValue::from_str(&format!("{name}-Webhooks/1")).map_err(|_| bad_name())?;
        let token_header = HeaderName::try_from(token_header_name(name)).map_err(|_| bad_name())?;

        let filter = Arc::new(AddressFilter { allowed: settings.allowed_nets.clone() });
        let mut client = reqwest::Client::builder()
            .https_only(true)
            .http1_only()
            .no_proxy()
            .referer(false)
            .redirect(reqwest::redirect::Policy::none())
            // An attempt is one request; the schedule decides about the next one.
            .retry(reqwest::retry::never())
            .dns_resolver(FilteringResolver::new(filter.clone()))
            // Bounds a connection that the pool finishes after its send was given up.
            .connect_timeout(settings.deadline)
            .pool_idle_timeout(IDLE_CONNECTION_LIFETIME)
            .pool_max_idle_per_host(settings.max_idle_per_host);
        if let Some(pem) = &settings.ca_pem {
            let authorities = reqwest::Certificate::from_pem_bundle(pem).map_err(|_| SenderError::CaFile)?;
            if authorities.is_empty() {
                return Err(SenderError::CaFile);
            }
            client = client.tls_certs_merge(authorities);
        }
        Ok(Sender {
            client: client.build().map_err(SenderError::Client)?,
            filter,
            deadline: settings.deadline,
            user_agent,
            token_header,
        })
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

        let request = match self.request(delivery) {
            Ok(request) => request,
            Err(error) => return failed(error),
        };
        let mut response = match timeout_at(ends_at, self.client.execute(request)).await {
            Ok(Ok(response)) => response,
            // The connector's own time-out races with this one.
            Ok(Err(error)) if !(error.is_timeout() && Instant::now() + TICK >= ends_at) => {
                return failed(describe(error));
            }
            Ok(Err(_)) | Err(_) => {
                return failed(format!("no answer within {} s", self.deadline.as_secs_f64()));
            }
        };

        let response_time_ms = milliseconds_since(started);
        let status = response.status().as_u16();
        let body = read_body(&mut response, ends_at).await;
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

    fn request(&self, delivery: Delivery<'_>) -> Result<reqwest::Request, String> {
        let url = check_url(delivery.url).map_err(|refused| refused.to_string())?;
        // The resolver, which checks every other address, sees no literal.
        self.filter.check_literal(&url).map_err(|refused| refused.to_string())?;

        let signature = sign(delivery.secret, delivery.timestamp, &delivery.body);
        let mut token = header_value("token", delivery.secret)?;
        token.set_sensitive(true);

        let mut request = reqwest::Request::new(reqwest::Method::POST, url);
        let headers: &mut HeaderMap = request.headers_mut();
        headers.reserve(16);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, self.user_agent.clone());
        headers.insert(X_WEBHOOK_ID, HeaderValue::from(delivery.webhook_id));
        headers.insert(X_EVENT_ID, header_value("event id", delivery.event_id)?);
        headers.insert(X_EVENT_TYPE, header_value("event type", delivery.event_type)?);
        headers.insert(X_TIMESTAMP, HeaderValue::from(delivery.timestamp));
        headers.insert(X_SIGNATURE, header_value("signature", &signature)?);
        headers.insert(X_REQUEST_ID, header_value("request id", delivery.request_id)?);
        headers.insert(self.token_header.clone(), token);
        *request.body_mut() = Some(delivery.body.into());
        Ok(request)
    }
}

fn header_value(what: &str, text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| format!("the {what} cannot be sent in a header"))
}

fn milliseconds_since(started: Instant) -> i64 {
    i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// Reads what arrives in time and fits. The status has decided already, so every
/// way this can end is as good as any other; what is unread closes the connection.
async fn read_body(response: &mut reqwest::Response, ends_at: Instant) -> String {
    let mut body = Vec::new();
    while let Ok(Ok(Some(chunk))) = timeout_at(ends_at, response.chunk()).await {
        let room = MAX_RESPONSE_BODY_BYTES - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == MAX_RESPONSE_BODY_BYTES {
            break;
        }
    }
    storable_text(&body)
}

/// Text that Postgres takes: no NUL. Replaced bytes may grow, so it is cut again.
fn storable_text(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    text.retain(|c| c != '\0');
    text.truncate(text.floor_char_boundary(MAX_RESPONSE_BODY_BYTES));
    text
}

/// The first cause in the chain that has words for a client. Nothing is quoted
/// from the error itself: it may hold the URL.
fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let closed = if error.is_connect() { "connection closed while connecting" } else { "connection closed before an answer" };
    find_cause(&error, closed).unwrap_or_else(|| {
        tracing::debug!(?error, "a delivery failed in a way that has no words");
        if error.is_connect() { "connection failed" } else { "the exchange failed" }.to_owned()
    })
}

fn find_cause(error: &(dyn StdError + 'static), closed: &str) -> Option<String> {
    if let Some(refused) = error.downcast_ref::<Refused>() {
        return Some(refused.to_string());
    }
    if error.is::<NotResolved>() {
        return Some(NotResolved.to_string());
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
        rustls::Error::AlertReceived(_) => "the receiver refused the handshake",
        rustls::Error::PeerIncompatible(_) => "no common version or cipher",
        rustls::Error::InvalidMessage(_)
        | rustls::Error::InappropriateMessage { .. }
        | rustls::Error::InappropriateHandshakeMessage { .. } => "the receiver does not speak TLS",
        _ => "handshake failed",
    };
    format!("TLS: {text}")
}

#[derive(Debug, thiserror::Error)]
#[error("the name could not be resolved")]
struct NotResolved;

/// The system's resolver behind the address filter. What it returns is what is
/// dialled: there is no second look-up that could answer otherwise.
struct FilteringResolver {
    filter: Arc<AddressFilter>,
    lookups: Arc<Semaphore>,
}

impl FilteringResolver {
    fn new(filter: Arc<AddressFilter>) -> Self {
        let lookups = Arc::new(Semaphore::new(MAX_LOOKUPS_IN_FLIGHT));
        Self { filter, lookups }
    }
}

impl Resolve for FilteringResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let filter = self.filter.clone();
        let lookups = self.lookups.clone();
        Box::pin(async move {
            let permit = lookups.acquire_owned().await.map_err(|_| NotResolved)?;
            // A task of its own: the permit stays taken for as long as the look-up
            // holds its thread, even if the send is given up before.
            let lookup = tokio::spawn(async move {
                let found = tokio::net::lookup_host((name.as_str(), 0)).await;
                drop(permit);
                found.map(Iterator::collect::<Vec<_>>)
            });
            let found = lookup.await.map_err(|_| NotResolved)?;
            let addresses = filter.check_all(found.map_err(|_| NotResolved)?)?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_body_becomes_text_that_can_be_stored() {
        assert_eq!(storable_text(b"a\0b\xffc"), "ab\u{fffd}c");
        let text = storable_text(&[0xff; MAX_RESPONSE_BODY_BYTES]);
        assert!(text.len() <= MAX_RESPONSE_BODY_BYTES);
        assert!(text.chars().all(|c| c == '\u{fffd}'));
    }

    #[test]
    fn bad_settings_are_errors() {
        let settings = SenderSettings {
            service_name: "SERVICE".to_owned(),
            deadline: Duration::from_secs(30),
            ca_pem: None,
            allowed_nets: Vec::new(),
            max_idle_per_host: 8,
        };
        for name in ["A B", "A\n", "A:B", "É"] {
            let service_name = name.to_owned();
            let made = Sender::new(SenderSettings { service_name, ..settings.clone() });
            assert!(matches!(made, Err(SenderError::ServiceName(_))), "{name:?}");
        }
        for pem in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let ca_pem = Some(pem.as_bytes().to_vec());
            assert!(Sender::new(SenderSettings { ca_pem, ..settings.clone() }).is_err(), "{pem:?}");
        }
    }

    #[test]
    fn a_delivery_does_not_show_its_secrets() {
        let shown = format!(
            "{:?}",
            Delivery {
                url: "https://example.com/?key=hidden",
                webhook_id: 1,
                event_id: "evt",
                event_type: "order.created",
                request_id: "req",
                secret: "hidden",
                timestamp: 0,
                body: Bytes::from_static(b"hidden"),
            }
        );
        assert!(!shown.contains("hidden"), "{shown}");
    }
}
