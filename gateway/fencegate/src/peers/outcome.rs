//! Reads the report of another gateway about a forwarded request.

use fencegate_http::body::Reply;
use fencegate_policies::token::Token;
use hyper::{
    HeaderMap,
    header::{CONTENT_TYPE, HeaderName, TRAILER},
};

use crate::{
    headers::{FENCING_OUTCOME, FENCING_TOKEN},
    refusal::{Outcome, Reason},
};

/// The outcome of the request, and the reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerOutcome {
    pub outcome: Outcome,
    pub reason: Option<Reason>,
    pub token: Option<Token>,
}

impl PeerOutcome {
    /// `None` for an answer that no gateway gives. Then nothing is known about the request.
    pub fn parse(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(FENCING_OUTCOME).iter();
        let line = lines.next().filter(|_| lines.next().is_none())?.to_str().ok()?;
        let mut parts = line.split(';').map(str::trim);
        let outcome = Outcome::parse(parts.next()?)?;
        let reason = parts.find_map(|part| part.strip_prefix("reason=")).and_then(Reason::parse);
        let token = headers.get(FENCING_TOKEN).and_then(|token| token.to_str().ok());
        Some(Self { outcome, reason, token: token.and_then(|token| Token::parse(token).ok()) })
    }

    /// Nothing was dispatched, and another gateway may do better: this one does not hold the key, is in trouble, does not
    /// reach its upstream, or does not take what our own plan has taken.
    pub fn is_peer_failure(&self) -> bool {
        self.outcome == Outcome::NotDispatched && !self.reason.is_some_and(is_resource_reason)
    }

    /// It does not reach what stands behind it. So may we, or not: who has no time left to find out passes this on.
    pub fn is_upstream_failure(&self) -> bool {
        matches!(self.reason, Some(Reason::UpstreamConnect | Reason::Guard | Reason::GuardSplit))
    }
}

/// Over HTTP/1.1 only those trailers leave that were announced, and an upstream that speaks HTTP/2 announces none. What
/// is here in full announces its own; of what is still coming only gRPC says beforehand what will be there.
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

/// True for a reason about the key or its client, which every gateway would give.
fn is_resource_reason(reason: Reason) -> bool {
    reason.is_guard_reason()
        || matches!(reason, Reason::DeadlockAvoided | Reason::StaleToken)
        || matches!(reason, Reason::LeaseForbidden | Reason::LeaseRequired)
        || matches!(reason, Reason::Locked | Reason::QueueFull | Reason::ClientLimit | Reason::Fenced)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::{Response, header::HeaderValue};
    use proptest::prelude::*;

    use super::*;
    use fencegate_http::body::Body;

    fn read(lines: &[&str]) -> Option<PeerOutcome> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FENCING_OUTCOME, HeaderValue::from_str(line).expect("a value"));
        }
        PeerOutcome::parse(&headers)
    }

    #[test]
    fn only_a_word_that_nothing_was_dispatched_leads_back() {
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
            let told = read(&[line]).expect("of a gateway");
            assert_eq!(told.is_peer_failure(), back, "{line}");
        }
    }

    #[test]
    fn trailers_that_nobody_announced_are_announced() {
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

    #[test]
    fn an_answer_that_no_gateway_gives_tells_nothing() {
        for lines in [&[][..], &["not-dispatched", "done"], &["not-dispatched2"], &["; reason=not-holder"]] {
            assert_eq!(read(lines), None, "{lines:?}");
        }
    }

    proptest! {
        /// Sent again although it was dispatched, a request could happen twice.
        #[test]
        fn nothing_but_that_word_leads_back(
            line in "[ -~]{0,30}|(not-dispatched|done|unknown|replayed|Not-dispatched|not-dispatched2)?(; ?(reason=[a-z-]{0,12}|waited=[0-9]{0,4}|not-dispatched)){0,3}",
            reason in prop::option::of(prop::sample::select(vec!["not-holder", "locked", "draining", "outcome-unknown"])),
        ) {
            let line = reason.map_or(line.clone(), |reason| format!("{line}; reason={reason}"));
            let first = line.split(';').next().unwrap_or_default().trim();
            match read(&[&line]) {
                Some(told) if told.is_peer_failure() => prop_assert_eq!(first, "not-dispatched", "{}", line),
                Some(told) => prop_assert_eq!(Outcome::parse(first), Some(told.outcome)),
                None => prop_assert_eq!(Outcome::parse(first), None),
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(outcome: Vec<u8>, token: Vec<u8>) {
            let fields = [(FENCING_OUTCOME, outcome), (FENCING_TOKEN, token)];
            let values = fields.into_iter().filter_map(|(name, bytes)| Some((name, HeaderValue::from_bytes(&bytes).ok()?)));
            if let Some(told) = PeerOutcome::parse(&values.collect()) {
                prop_assert_eq!(told.token, None, "no such bytes are a token");
            }
        }
    }
}
