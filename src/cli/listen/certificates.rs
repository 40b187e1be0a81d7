//! Certificates of servers that no retry makes acceptable.

use std::error::Error;
use std::io;

use rustls::CertificateError as Bad;

/// Returns the reason why a server's certificate is refused, if the chain of causes has one that does not pass by itself.
pub fn lasting_problem(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(rustls::Error::InvalidCertificate(bad)) = error.downcast_ref() {
        return describe(bad);
    }
    // `source()` of an I/O error skips the error that it wraps.
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => lasting_problem(inner),
        None => lasting_problem(error.source()?),
    }
}

fn describe(bad: &Bad) -> Option<&'static str> {
    match bad {
        // Servers renew their certificates, and a clock is set right.
        Bad::Expired
        | Bad::ExpiredContext { .. }
        | Bad::NotValidYet
        | Bad::NotValidYetContext { .. }
        | Bad::UnknownRevocationStatus
        | Bad::ExpiredRevocationList
        | Bad::ExpiredRevocationListContext { .. } => None,
        Bad::NotValidForName | Bad::NotValidForNameContext { .. } => Some("its certificate is for another name"),
        Bad::Revoked => Some("its certificate is revoked"),
        // A bad signature means that a certificate names a trusted issuer whose key did not sign it.
        Bad::UnknownIssuer | Bad::BadSignature => {
            Some("its certificate is not trusted; SSL_CERT_FILE can name a file with the authorities to trust")
        }
        _ => Some("its certificate is not acceptable"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_problem_that_lasts_ends_the_retries() {
        let wrapped = |bad| io::Error::other(io::Error::other(rustls::Error::InvalidCertificate(bad)));
        assert_eq!(lasting_problem(&wrapped(Bad::NotValidForName)), Some("its certificate is for another name"));
        assert!(lasting_problem(&wrapped(Bad::UnknownIssuer)).is_some_and(|problem| problem.contains("not trusted")));
        assert_eq!(lasting_problem(&wrapped(Bad::Expired)), None);
        assert_eq!(lasting_problem(&io::Error::from(io::ErrorKind::ConnectionRefused)), None);
    }
}
