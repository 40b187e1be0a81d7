//! Words for the owner of a webhook about an attempt that failed.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use nix::errno::Errno;
use rustls::{AlertDescription, CertificateError};

use crate::connections::Trouble;
use crate::resolver::Unresolved;

/// Error of an attempt that fails because this process lacks file descriptors, ports or memory.
pub(super) const NONE_TO_SPARE: &str = "this service had no connection to spare: the receiver was not asked";

/// Describes the first error in the chain of causes that has a text for clients. The text never quotes the error itself.
pub(super) fn describe(trouble: &Trouble, deadline: Duration) -> String {
    let (error, closed, otherwise): (&(dyn StdError + 'static), _, _) = match trouble {
        Trouble::Connecting(error) => (&**error, "connection closed while connecting", "the connection could not be made"),
        Trouble::Exchanging(error) => (error, "connection closed before an answer", "the connection broke before an answer"),
        Trouble::Informed => return "too many informational answers (1xx)".to_owned(),
        Trouble::Late(what) => return format!("{what} within {} s", deadline.as_secs_f64()),
    };
    let cause = find_cause(error, closed).unwrap_or_else(|| {
        tracing::debug!(?error, "a delivery failed with an error that has no description");
        otherwise.to_owned()
    });
    if cause == NONE_TO_SPARE {
        tracing::warn!(?error, "failed to send a webhook; out of file descriptors (ulimit -n), ports or memory");
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
        // `source()` of an I/O error skips the error that it wraps.
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
            // A bad signature means that a certificate names a trusted issuer whose key did not sign it.
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
