//! The URI that HMAC signs.

use poem::http::Uri;

/// The URI as it came over the wire, before its trailing slash was stripped: what HMAC signs.
/// In every request's extensions.
#[derive(Debug, Clone)]
pub struct WireUri(pub Uri);
