//! `traceparent` of W3C Trace Context, and the trace that the current task works for.

use std::fmt;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// Length of a `traceparent` of version 00.
const LENGTH: usize = 55;
/// Bit of the flags that says that the trace is sampled.
const SAMPLED: u8 = 0x01;
/// Flags that version 00 knows: sampled, and random trace id. Others are not passed on.
const KNOWN_FLAGS: u8 = 0x03;

tokio::task_local! {
    static CURRENT: Option<TraceParent>;
}

/// Place in a trace: the trace's id, the id of a span in it, and the decision whether the trace is sampled.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
}

impl TraceParent {
    /// Parses a `traceparent`. Returns none for a malformed one, which W3C Trace Context tells receivers to ignore. A later
    /// version may have more fields at its end.
    pub fn parse(text: &str) -> Option<TraceParent> {
        let bytes = text.as_bytes();
        let is_lower_hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let (version, further) = (bytes.get(..2)?, bytes.get(LENGTH..)?);
        let is_known_length = further.is_empty() || (version != b"00" && further.starts_with(b"-"));
        let has_dashes = [2, 35, 52].into_iter().all(|at| bytes[at] == b'-');
        let parts = [version, &bytes[3..35], &bytes[36..52], &bytes[53..LENGTH]];
        if !is_known_length || !has_dashes || version == b"ff" || !parts.into_iter().all(is_lower_hex) {
            return None;
        }
        let (mut trace_id, mut span_id, mut flags) = ([0; 16], [0; 8], [0; 1]);
        hex::decode_to_slice(parts[1], &mut trace_id).ok()?;
        hex::decode_to_slice(parts[2], &mut span_id).ok()?;
        hex::decode_to_slice(parts[3], &mut flags).ok()?;
        let is_valid = trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(TraceParent { trace_id, span_id, flags: flags[0] & KNOWN_FLAGS })
    }

    /// Returns whether spans of the trace are exported.
    pub fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Returns the id of the trace, as logs show it.
    pub fn trace_id(self) -> String {
        hex::encode(self.trace_id)
    }

    pub(super) fn of(context: &SpanContext) -> TraceParent {
        TraceParent {
            trace_id: context.trace_id().to_bytes(),
            span_id: context.span_id().to_bytes(),
            flags: context.trace_flags().to_u8() & KNOWN_FLAGS,
        }
    }

    pub(super) fn context(self) -> SpanContext {
        let (trace_id, span_id) = (TraceId::from_bytes(self.trace_id), SpanId::from_bytes(self.span_id));
        SpanContext::new(trace_id, span_id, TraceFlags::new(self.flags), true, TraceState::default())
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", hex::encode(self.trace_id), hex::encode(self.span_id), self.flags)
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceParent({self})")
    }
}

/// Returns the trace that the current task works for, if any. A task that it spawns does not inherit the trace.
pub fn current() -> Option<TraceParent> {
    CURRENT.try_with(|current| *current).ok().flatten()
}

/// Runs work for a trace: its commands belong to the trace, and its log lines name it.
pub fn within<F: Future>(trace: Option<TraceParent>, work: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(trace, work)
}

/// Calls a function for a trace, like [`within`].
pub fn during<R>(trace: Option<TraceParent>, call: impl FnOnce() -> R) -> R {
    CURRENT.sync_scope(trace, call)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn a_valid_traceparent_is_read_and_written_again() {
        let text = format!("00-{TRACE}-{SPAN}-01");
        let read = TraceParent::parse(&text).unwrap();
        assert_eq!((read.to_string(), read.trace_id(), read.is_sampled()), (text, TRACE.to_owned(), true));
        assert_eq!(TraceParent::of(&read.context()), read);
        let unsampled = TraceParent::parse(&format!("00-{TRACE}-{SPAN}-00")).unwrap();
        assert!(!unsampled.is_sampled());
        // A later version may have more fields and flags. The service speaks version 00, and passes on what that knows.
        for later in [format!("01-{TRACE}-{SPAN}-ff"), format!("cc-{TRACE}-{SPAN}-fb-more")] {
            assert_eq!(TraceParent::parse(&later).unwrap().to_string(), format!("00-{TRACE}-{SPAN}-03"), "{later}");
        }
    }

    #[test]
    fn a_malformed_traceparent_is_ignored() {
        let (none, short) = ("0".repeat(32), &TRACE[..31]);
        for text in [
            String::new(),
            "é".repeat(40),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-0"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("01-{TRACE}-{SPAN}-01more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("0-0{TRACE}-{SPAN}-01"),
            format!("00-{none}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{short}g-{SPAN}-01"),
            format!("00-{TRACE}_{SPAN}-01"),
            format!(" 00-{TRACE}-{SPAN}-01"),
        ] {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }
}
