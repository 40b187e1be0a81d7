//! Announcement of the end of `/api/v1`, by the headers `Deprecation` (RFC 9745) and `Sunset` (RFC 8594).

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use poem::http::{HeaderMap, HeaderName, HeaderValue};

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const SUNSET: HeaderName = HeaderName::from_static("sunset");

/// The deprecation and sunset dates that every response of the version announces. None by default.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle {
    deprecation: Option<HeaderValue>,
    sunset: Option<HeaderValue>,
}

impl Lifecycle {
    /// Creates a lifecycle in which the version is deprecated, and ends, at the start of these days (UTC).
    pub fn new(deprecation: Option<NaiveDate>, sunset: Option<NaiveDate>) -> Self {
        let value = |text: String| HeaderValue::try_from(text).ok();
        Self {
            deprecation: deprecation.and_then(|day| value(format!("@{}", begin(day).timestamp()))),
            sunset: sunset.and_then(|day| value(begin(day).format("%a, %d %b %Y %H:%M:%S GMT").to_string())),
        }
    }

    /// Adds the headers to a response, if the request's `path` belongs to the version.
    pub fn announce(&self, path: &str, headers: &mut HeaderMap) {
        if !path.strip_prefix("/api/v1").is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            return;
        }
        for (name, value) in [(DEPRECATION, &self.deprecation), (SUNSET, &self.sunset)] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
    }
}

fn begin(day: NaiveDate) -> DateTime<Utc> {
    day.and_time(NaiveTime::MIN).and_utc()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(path: &str) -> HeaderMap {
        let day = |year| NaiveDate::from_ymd_opt(year, 6, 30);
        let mut headers = HeaderMap::new();
        Lifecycle::new(day(2027), day(2028)).announce(path, &mut headers);
        headers
    }

    #[test]
    fn the_headers_have_the_formats_of_their_rfcs() {
        let headers = announced("/api/v1/orders");
        // RFC 9745 uses the date of structured fields, RFC 8594 an HTTP date.
        assert_eq!(headers["deprecation"], "@1814313600");
        assert_eq!(headers["sunset"], "Fri, 30 Jun 2028 00:00:00 GMT");
    }

    #[test]
    fn only_responses_of_the_version_have_the_headers() {
        for path in ["/api/v1", "/api/v1/", "/api/v1/nowhere"] {
            assert_eq!(announced(path).len(), 2, "{path}");
        }
        for path in ["/api/v10/orders", "/api/v2/orders", "/admin/v1/orders", "/docs", "/healthz", "/auth/login"] {
            assert!(announced(path).is_empty(), "{path}");
        }
        let mut headers = HeaderMap::new();
        Lifecycle::default().announce("/api/v1/orders", &mut headers);
        assert!(headers.is_empty());
    }
}
