//! Reads the report of another gateway about a forwarded request.

use fencegate_http::body::Reply;
use fencegate_policies::token::FencingToken;
use fencegate_protocol::headers::{FENCING_OUTCOME, FENCING_TOKEN};
use fencegate_refusal::{DispatchOutcome, RefusalReason};
use hyper::{
    HeaderMap,
    header::{CONTENT_TYPE, HeaderName, TRAILER},
};

/// The outcome of a forwarded request, and the reason if it was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerReportedOutcome {
    pub outcome: DispatchOutcome,
    pub reason: Option<RefusalReason>,
    pub token: Option<FencingToken>,
}

impl PeerReportedOutcome {
    /// Reads the report in an answer. `None` if no gateway gives such an answer; then the outcome of the request is
    /// unknown.
    pub fn parse(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(FENCING_OUTCOME).iter();
        let line = lines.next().filter(|_| lines.next().is_none())?.to_str().ok()?;
        let mut parts = line.split(';').map(str::trim);
        let outcome = DispatchOutcome::parse(parts.next()?)?;
        let reason = parts.find_map(|part| part.strip_prefix("reason=")).and_then(RefusalReason::parse);
        let token = headers.get(FENCING_TOKEN).and_then(|token| token.to_str().ok());
        Some(Self { outcome, reason, token: token.and_then(|token| FencingToken::parse(token).ok()) })
    }

    /// True if the peer has dispatched nothing and another gateway may succeed: the peer does not hold the key, has
    /// failed, cannot reach its upstream, or rejects a request that the plan of this gateway has accepted.
    pub fn is_peer_failure(&self) -> bool {
        self.outcome == DispatchOutcome::NotDispatched && !self.reason.is_some_and(is_gateway_independent)
    }

    /// True if the peer cannot reach its upstream. This gateway may be able to reach it; if no time is left to try,
    /// the peer's answer is passed on.
    pub fn is_upstream_failure(&self) -> bool {
        matches!(
            self.reason,
            Some(RefusalReason::UpstreamConnect | RefusalReason::Guard | RefusalReason::GuardSplit)
        )
    }
}

/// Announces the trailers of a reply that does not announce them itself. Over HTTP/1.1 only announced trailers are
/// sent, and an upstream that speaks HTTP/2 announces none. The trailers of a body in memory are known; of a body
/// that is still being received only those of gRPC are certain in advance.
pub fn announce_trailers(reply: &mut Reply) {
    if reply.headers().contains_key(TRAILER) {
        return;
    }
    let names: Vec<HeaderName> = reply.body().trailers().map_or_else(
        || if is_grpc(reply.headers()) { GRPC.map(HeaderName::from_static).into() } else { Vec::new() },
        |trailers| trailers.keys().cloned().collect(),
    );
    for name in names {
        reply.headers_mut().append(TRAILER, name.into());
    }
}

const GRPC: [&str; 3] = ["grpc-status", "grpc-message", "grpc-status-details-bin"];

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// True for a reason that concerns the key or its client, and that every gateway would give.
fn is_gateway_independent(reason: RefusalReason) -> bool {
    reason.is_guard_reason()
        || matches!(reason, RefusalReason::DeadlockAvoided | RefusalReason::StaleToken)
        || matches!(reason, RefusalReason::LeaseForbidden | RefusalReason::LeaseRequired)
        || matches!(
            reason,
            RefusalReason::Locked
                | RefusalReason::QueueFull
                | RefusalReason::ClientLimit
                | RefusalReason::Fenced
        )
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::{Response, header::HeaderValue};
    use proptest::prelude::*;

    use super::*;
    use fencegate_http::body::Body;

    fn read(lines: &[&str]) -> Option<PeerReportedOutcome> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FENCING_OUTCOME, HeaderValue::from_str(line).expect("a value"));
        }
        PeerReportedOutcome::parse(&headers)
    }

    /// Only `not-dispatched` with a reason that concerns the peer itself sends a request back to the queue.
    #[test]
    fn only_undispatched_peer_failure_requeues() {
        for (line, back) in [
            ("not-dispatched; reason=not-holder", true),
            ("not-dispatched; reason=peer-forbidden; waited=3", true),
            ("not-dispatched; reason=draining", true),
            ("not-dispatched; reason=suspended", true),
            ("not-dispatched; reason=lock-service", true),
            ("not-dispatched; reason=overloaded", true),
            ("not-dispatched; reason=config-mismatch", true),
            ("not-dispatched; reason=no-route", true),
            ("not-dispatched; reason=of-a-later-build", true),
            ("not-dispatched", true),
            ("not-dispatched; reason=upstream-connect; waited=3", true),
            ("not-dispatched; reason=guard", true),
            ("not-dispatched; reason=guard-split", true),
            ("unknown; reason=upstream-connect", false),
            ("not-dispatched; reason=locked; waited=100", false),
            ("not-dispatched; reason=queue-full", false),
            ("not-dispatched; reason=client-limit", false),
            ("not-dispatched; reason=busy", false),
            ("done; waited=0", false),
            ("replayed; body=omitted", false),
            ("unknown; reason=outcome-unknown", false),
            ("unknown; reason=not-holder", false),
        ] {
            let report = read(&[line]).expect("of a gateway");
            assert_eq!(report.is_peer_failure(), back, "{line}");
        }
    }

    /// The trailers of a complete answer, and those of gRPC, are announced if the answer does not announce them
    /// itself.
    #[test]
    fn unannounced_trailers_are_announced() {
        let announced = |reply: &Reply| {
            let lines = reply.headers().get_all(TRAILER).iter().map(|line| line.to_str().expect("a name"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("1"));
        let mut whole = Response::new(Body::with_trailers(Bytes::from_static(b"a"), Some(trailers)));
        announce_trailers(&mut whole);
        assert_eq!(announced(&whole), ["x-sum"]);
        let (_feed, pieces) = tokio::sync::mpsc::channel(1);
        let mut coming = Response::new(Body::from_channel(pieces));
        announce_trailers(&mut coming);
        assert!(announced(&coming).is_empty());
        coming.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc+proto"));
        announce_trailers(&mut coming);
        assert_eq!(announced(&coming), GRPC);
    }

    /// An answer with an outcome that no gateway writes has no outcome.
    #[test]
    fn foreign_outcome_is_ignored() {
        for lines in [&[][..], &["not-dispatched", "done"], &["not-dispatched2"], &["; reason=not-holder"]] {
            assert_eq!(read(lines), None, "{lines:?}");
        }
    }

    proptest! {
        /// Only an outcome `not-dispatched` sends a request back to the queue: one that was dispatched could be
        /// executed twice.
        #[test]
        fn only_not_dispatched_requeues(
            line in "[ -~]{0,30}|(not-dispatched|done|unknown|replayed|Not-dispatched|not-dispatched2)?(; ?(reason=[a-z-]{0,12}|waited=[0-9]{0,4}|not-dispatched)){0,3}",
            reason in prop::option::of(prop::sample::select(vec!["not-holder", "locked", "draining", "outcome-unknown"])),
        ) {
            let line = reason.map_or(line.clone(), |reason| format!("{line}; reason={reason}"));
            let first = line.split(';').next().unwrap_or_default().trim();
            match read(&[&line]) {
                Some(report) if report.is_peer_failure() => prop_assert_eq!(first, "not-dispatched", "{}", line),
                Some(report) => prop_assert_eq!(DispatchOutcome::parse(first), Some(report.outcome)),
                None => prop_assert_eq!(DispatchOutcome::parse(first), None),
            }
        }

        #[test]
        fn any_bytes_parse_without_panic(outcome: Vec<u8>, token: Vec<u8>) {
            let fields = [(FENCING_OUTCOME, outcome), (FENCING_TOKEN, token)];
            let values = fields.into_iter().filter_map(|(name, bytes)| Some((name, HeaderValue::from_bytes(&bytes).ok()?)));
            if let Some(report) = PeerReportedOutcome::parse(&values.collect()) {
                prop_assert_eq!(report.token, None, "no such bytes are a token");
            }
        }
    }
}
