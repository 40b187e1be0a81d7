//! The span of a request.

use poem::http::{HeaderMap, HeaderName, StatusCode};

use crate::telemetry::Metrics;
use crate::telemetry::traces::{OpenSpan, SpanKind, TraceParent};

/// Header of the caller's place in a trace (W3C Trace Context). `tracestate` is ignored.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Classes of routes without spans: programs ask for them every few seconds, or by the dozen for each page.
const WITHOUT_SPANS: [&str; 2] = ["probe", "assets"];

/// Part of a request in a trace.
pub(super) struct RequestTrace {
    /// Place that commands and log lines of the request belong to: its span, or else the caller's. None outside of a trace.
    pub place: Option<TraceParent>,
    /// Span of the request, on a node that exports traces.
    span: Option<OpenSpan>,
}

impl RequestTrace {
    /// Begins the span of a request, in the trace of its caller or in a new one. `class` is the class of its route.
    pub fn begin(metrics: Option<&Metrics>, headers: &HeaderMap, class: &str) -> RequestTrace {
        let parent = parent(headers);
        let traces = metrics.map(Metrics::traces).filter(|_| !WITHOUT_SPANS.contains(&class));
        let span = traces.and_then(|traces| traces.begin("request", SpanKind::Server, parent));
        RequestTrace { place: span.as_ref().map(OpenSpan::place).or(parent), span }
    }

    /// Ends the span. It is named by its route, which is the template of its path: a path has ids, and the query may have secrets.
    pub fn end(self, method: &'static str, route: &str, status: StatusCode) {
        let Some(mut span) = self.span else { return };
        span.rename(format!("{method} {route}"));
        span.set("http.request.method", method);
        span.set("http.route", route.to_owned());
        span.set("http.response.status_code", i64::from(status.as_u16()));
        if status.is_server_error() {
            span.fail("the request failed");
        }
    }
}

/// Returns the caller's place in a trace. A malformed header, and more than one, count as none.
fn parent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut given = headers.get_all(TRACEPARENT).iter();
    match (given.next(), given.next()) {
        (Some(only), None) => TraceParent::parse(only.to_str().ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_valid_header_names_a_trace() {
        let place = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let given = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(TRACEPARENT, value.parse().unwrap());
            }
            let trace = RequestTrace::begin(None, &headers, "orders");
            trace.place.map(|place| place.to_string())
        };
        assert_eq!(given(&[place]).as_deref(), Some(place));
        for values in [&[][..], &["00-0"], &[place, place], &["none"]] {
            assert_eq!(given(values), None, "{values:?}");
        }
    }
}
