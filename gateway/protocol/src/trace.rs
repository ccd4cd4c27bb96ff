//! The trace of a request (W3C Trace Context), which its caller has begun or this process begins.

use bytes::Bytes;
use fencegate_policies::{hex, plan::LogSettings};
use hyper::header::{HeaderMap, HeaderValue};

use crate::headers::{TRACEPARENT, TRACESTATE};

/// A trace, and the spans that this process adds to it (W3C Trace Context, version 00).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub id: u128,
    /// The caller's span; `None` if this process has begun the trace.
    pub parent: Option<u64>,
    /// The span of this request at this process.
    pub span: u64,
    /// The span that an upstream gets as its parent: that of the exchange with the upstream if it is recorded,
    /// otherwise that of the request.
    pub below: u64,
    /// Bit 0: the caller may have recorded the trace.
    pub flags: u8,
    recorded: bool,
}

/// Decides which traces this process records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceSamplingRate {
    Off,
    /// Traces that their callers record, and one in this many of the traces that begin here.
    OneIn(u32),
}

/// The caller's own trace context.
#[derive(Clone, Copy)]
struct TraceParent {
    id: u128,
    span: u64,
    flags: u8,
}

/// The length of a `traceparent` in bytes.
const TRACEPARENT_LEN: usize = 55;
const SAMPLED: u8 = 1;

impl TraceSamplingRate {
    pub fn from_trace_settings(log: &LogSettings) -> Self {
        log.traces.as_ref().map_or(Self::Off, |traces| Self::OneIn(traces.one_in))
    }
}

impl TraceContext {
    /// Reads the caller's trace, or begins a new one if the caller's is missing or cannot be read. `tracestate`
    /// belongs to the caller's trace, so it is removed when a new trace begins.
    pub fn from_headers(headers: &mut HeaderMap, recording: TraceSamplingRate) -> Self {
        let mut parents = headers.get_all(TRACEPARENT).iter();
        let parent = parents.next().filter(|_| parents.next().is_none());
        let parent = parent.and_then(|parent| TraceParent::parse(parent.as_bytes()));
        if parent.is_none() {
            headers.remove(TRACESTATE);
        }
        let flags = match (parent, recording) {
            (Some(parent), _) => parent.flags,
            (None, TraceSamplingRate::Off) => 0,
            (None, TraceSamplingRate::OneIn(many)) => u8::from(fastrand::u32(..many.max(1)) == 0),
        };
        let recorded = recording != TraceSamplingRate::Off && flags & SAMPLED != 0;
        let span = fastrand::u64(1..);
        Self {
            id: parent.map_or_else(|| fastrand::u128(1..), |parent| parent.id),
            parent: parent.map(|parent| parent.span),
            span,
            below: if recorded { fastrand::u64(1..) } else { span },
            flags,
            recorded,
        }
    }

    /// True if this process sends the spans of the trace to its collector.
    pub fn is_recorded(&self) -> bool {
        self.recorded
    }

    /// The id of the trace, as 32 hex digits.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.id)
    }

    /// The id of the request's span, as 16 hex digits.
    pub fn span_id(&self) -> String {
        format!("{:016x}", self.span)
    }

    /// Returns the `traceparent` for the next service, and an id for the request if the caller has given none. Both
    /// share one allocation.
    pub fn traceparent_and_request_id(&self) -> (HeaderValue, HeaderValue) {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-000000000000000000";
        hex::write_digits(&self.id.to_be_bytes(), &mut text[3..35]);
        hex::write_digits(&self.below.to_be_bytes(), &mut text[36..52]);
        hex::write_digits(&[self.flags], &mut text[53..TRACEPARENT_LEN]);
        hex::write_digits(&self.span.to_be_bytes(), &mut text[TRACEPARENT_LEN..]);
        let mut name = Bytes::copy_from_slice(&text);
        let parent = name.split_to(TRACEPARENT_LEN);
        let value = |bytes| HeaderValue::from_maybe_shared(bytes).expect("hex digits");
        (value(parent), value(name))
    }
}

impl TraceParent {
    /// Parses version, trace, span and flags, with `-` between them. In a later version than `00` the rest is
    /// ignored.
    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let mut parts = text.splitn(5, '-');
        let version = parts.next()?;
        let id = parts.next()?;
        let span = parts.next()?;
        let flags = parts.next()?;
        let sized = (version.len(), id.len(), span.len(), flags.len()) == (2, 32, 16, 2);
        let later = parts.next().is_some();
        if !sized
            || ![version, id, span, flags].into_iter().all(hex)
            || version == "ff"
            || (version == "00" && later)
        {
            return None;
        }
        let id = u128::from_str_radix(id, 16).ok().filter(|id| *id != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        Some(Self { id, span, flags: u8::from_str_radix(flags, 16).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace_from_parent(parent: &str) -> (TraceContext, HeaderMap) {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_str(parent).expect("a value"));
        headers.insert(TRACESTATE, HeaderValue::from_static("vendor=1"));
        (TraceContext::from_headers(&mut headers, TraceSamplingRate::Off), headers)
    }

    /// A trace that a client has begun is continued with a span of the gateway.
    #[test]
    fn trace_continues_with_own_span() {
        let (trace, headers) = trace_from_parent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        assert_eq!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_ne!(trace.span_id(), "00f067aa0ba902b7");
        let expected = format!("00-{}-{}-01", trace.trace_id(), trace.span_id());
        let (value, name) = trace.traceparent_and_request_id();
        assert_eq!(value, expected);
        assert_eq!(name, trace.span_id());
        assert!(headers.contains_key(TRACESTATE));
        let (later, _) =
            trace_from_parent("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-what-follows");
        assert_eq!(later.trace_id(), trace.trace_id());
    }

    /// A trace that cannot be read is replaced by one of the gateway, and its `tracestate` is removed.
    #[test]
    fn unreadable_trace_is_not_forwarded() {
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            let (trace, headers) = trace_from_parent(bad);
            assert!(trace.trace_id() != "4bf92f3577b34da6a3ce929d0e0e4736" && trace.flags == 0, "{bad}");
            assert!(!headers.contains_key(TRACESTATE), "{bad}");
        }
    }

    /// A trace is recorded if its caller records it; without a caller's trace, at the configured rate.
    #[test]
    fn recording_follows_parent_or_sampling() {
        let count = |parent: Option<&'static str>, recording| {
            let mut recorded = 0;
            for _ in 0..1000 {
                let mut headers = HeaderMap::new();
                if let Some(parent) = parent {
                    headers.insert(TRACEPARENT, HeaderValue::from_static(parent));
                }
                let trace = TraceContext::from_headers(&mut headers, recording);
                assert_eq!(trace.below != trace.span, trace.is_recorded());
                recorded += usize::from(trace.is_recorded());
            }
            recorded
        };
        let yes = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let no = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
        assert_eq!(
            (count(yes, TraceSamplingRate::OneIn(100)), count(no, TraceSamplingRate::OneIn(1))),
            (1000, 0)
        );
        assert_eq!((count(yes, TraceSamplingRate::Off), count(None, TraceSamplingRate::Off)), (0, 0));
        assert_eq!(count(None, TraceSamplingRate::OneIn(1)), 1000);
        // The expected count is 500, with a standard deviation of 16.
        assert!((400..600).contains(&count(None, TraceSamplingRate::OneIn(2))));
    }
}
