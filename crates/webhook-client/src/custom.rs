//! Headers that the owner of a webhook adds to its deliveries.

use std::collections::HashSet;
use std::fmt;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

/// Maximum number of custom headers of a webhook.
pub const MAX_HEADERS: usize = 10;
/// Maximum length of the name of a custom header.
pub const MAX_NAME_CHARACTERS: usize = 64;
/// Maximum length of the value of a custom header.
pub const MAX_VALUE_CHARACTERS: usize = 1_024;

/// Names that HTTP, a proxy or the sender sets, so that a receiver can rely on them, and names that unlock metadata services.
const RESERVED: [&str; 33] = [
    "accept-encoding",
    "baggage",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "metadata",
    "metadata-flavor",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "x-google-metadata-request",
    "x-event-id",
    "x-event-sequence",
    "x-event-type",
    "x-real-ip",
    "x-request-id",
    "x-signature",
    "x-signature-previous",
    "x-timestamp",
    "x-webhook-id",
    "x-http-method-override",
];
/// Beginnings of further reserved names.
const RESERVED_PREFIXES: [&str; 4] = ["proxy-", "sec-", "x-aws-ec2-metadata-", "x-forwarded-"];
/// End of the names of headers that carry a token of the sender.
const TOKEN_SUFFIX: &str = "-webhook-token";

/// Reason that a custom header is refused. The text completes a sentence that begins with the name of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderRefused {
    /// The name is no header name.
    #[error("must be the name of a header: 1 to 64 letters, digits, hyphens and underscores")]
    Name,
    /// The name belongs to HTTP, to proxies, to metadata services of clouds, or to the sender.
    #[error("is reserved for HTTP, proxies, cloud metadata or this service")]
    Reserved,
    /// The value cannot be sent in a header.
    #[error("must be 1 to 1024 printable ASCII characters, without spaces at its ends")]
    Value,
    /// A name appears twice.
    #[error("must not have a name twice")]
    Repeated,
    /// There are more than [`MAX_HEADERS`].
    #[error("must have at most 10 headers")]
    TooMany,
}

/// Checks the name of a custom header. Returns it in lower case.
///
/// # Errors
/// [`HeaderRefused::Name`] and [`HeaderRefused::Reserved`].
pub fn check_name(name: &str) -> Result<String, HeaderRefused> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !(1..=MAX_NAME_CHARACTERS).contains(&name.len()) || !name.bytes().all(is_plain) {
        return Err(HeaderRefused::Name);
    }
    let name = name.to_ascii_lowercase();
    // Servers that pass headers on as variables (CGI, WSGI) do not tell an underscore from a hyphen.
    let hyphenated = name.replace('_', "-");
    let is_reserved = RESERVED.contains(&&*hyphenated)
        || RESERVED_PREFIXES.iter().any(|prefix| hyphenated.starts_with(prefix))
        || (hyphenated.starts_with("x-") && hyphenated.ends_with(TOKEN_SUFFIX));
    if is_reserved { Err(HeaderRefused::Reserved) } else { Ok(name) }
}

/// Checks the value of a custom header.
///
/// # Errors
/// [`HeaderRefused::Value`].
pub fn check_value(value: &str) -> Result<(), HeaderRefused> {
    let is_sendable = value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && value.trim() == value;
    if (1..=MAX_VALUE_CHARACTERS).contains(&value.len()) && is_sendable { Ok(()) } else { Err(HeaderRefused::Value) }
}

/// Checked headers. `Debug` shows their names only: a value may be a secret.
#[derive(Clone, Default)]
pub struct CustomHeaders(Vec<(HeaderName, HeaderValue)>);

static NONE: CustomHeaders = CustomHeaders(Vec::new());

impl CustomHeaders {
    /// Returns no headers.
    pub fn none() -> &'static CustomHeaders {
        &NONE
    }

    /// Checks headers, given as names and values.
    ///
    /// # Errors
    /// See [`HeaderRefused`].
    pub fn new<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<CustomHeaders, HeaderRefused> {
        let (mut checked, mut names) = (vec![], HashSet::new());
        for (name, value) in headers {
            let name = check_name(name)?;
            check_value(value)?;
            let mut value = HeaderValue::from_str(value).map_err(|_| HeaderRefused::Value)?;
            value.set_sensitive(true);
            checked.push((HeaderName::try_from(&*name).map_err(|_| HeaderRefused::Name)?, value));
            if !names.insert(name) {
                return Err(HeaderRefused::Repeated);
            }
        }
        if checked.len() > MAX_HEADERS { Err(HeaderRefused::TooMany) } else { Ok(CustomHeaders(checked)) }
    }

    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        headers.extend(self.0.iter().cloned());
    }
}

impl fmt::Debug for CustomHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_of_http_and_of_the_sender_are_refused() {
        for name in [
            "Host",
            "connection",
            "Transfer-Encoding",
            "X-Signature",
            "X-Event-ID",
            "X-Shop-Webhook-Token",
            "Proxy-Authorization",
            "X_Signature",
            "x-shop_webhook-token",
            "Metadata-Flavor",
            "X-aws-ec2-metadata-token",
        ] {
            assert_eq!(check_name(name), Err(HeaderRefused::Reserved), "{name}");
        }
        for name in ["", "a b", "a:b", "ä", "x\r\ny", &"n".repeat(65)] {
            assert_eq!(check_name(name), Err(HeaderRefused::Name), "{name}");
        }
        assert_eq!(check_name("Authorization").unwrap(), "authorization");
        assert_eq!(check_name("X_Shop").unwrap(), "x_shop");
        assert_eq!(check_name(&"N".repeat(64)).unwrap(), "n".repeat(64));
    }

    #[test]
    fn a_value_cannot_begin_another_header() {
        for value in ["", " a", "a ", "a\r\nX-Evil: 1", "a\0", "ä", &"v".repeat(1_025)] {
            assert_eq!(check_value(value), Err(HeaderRefused::Value), "{value:?}");
        }
        assert_eq!(check_value("Bearer a b"), Ok(()));
    }

    #[test]
    fn headers_are_few_and_distinct_and_stay_out_of_debug() {
        assert_eq!(CustomHeaders::new([("a", "1"), ("A", "2")]).unwrap_err(), HeaderRefused::Repeated);
        let names: Vec<String> = (0..=MAX_HEADERS).map(|n| format!("x-{n}")).collect();
        let many = CustomHeaders::new(names.iter().map(|name| (&**name, "v")));
        assert_eq!(many.unwrap_err(), HeaderRefused::TooMany);
        let headers = CustomHeaders::new([("Authorization", "Bearer hidden")]).unwrap();
        assert_eq!(format!("{headers:?}"), "{\"authorization\"}");
    }
}
