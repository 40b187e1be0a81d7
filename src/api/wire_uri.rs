//! The URI that HMAC signs.

use poem::http::Uri;

/// The URI as received, before its trailing slash is stripped. The HMAC signature covers this form.
/// Every request's extensions have it.
#[derive(Debug, Clone)]
pub struct WireUri(pub Uri);
