//! Decides whether a request that failed on its way up may be sent again.

/// How much of the request the upstream may have seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BytesSent {
    /// Not one byte was written.
    Nothing,
    /// A part of a request that is safe to repeat: a GET or HEAD without a body, on a route without a fence, over a
    /// pooled connection, without one byte of an answer (RFC 9110, 9.2.2).
    Harmless,
    /// At least one byte was written: the upstream may have acted on it.
    Something,
}

/// Why the attempt ended without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection to the endpoint.
    Connect,
    /// A pooled connection had been closed by the upstream before it was used again.
    Closed,
    /// The session deadline had passed, or was no longer certain.
    ProofLost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    NextEndpoint,
    /// The same endpoint, over a new connection: other pooled connections may be dead as well.
    FreshConnection,
    Never,
}

/// Decides whether a failed request is sent again. After one written byte it is not, unless by its own definition
/// sending it twice is as sending it once: only the client knows whether another request may take effect twice. A
/// fenced request is never harmless in this sense.
pub fn decide_retry(cause: FailureKind, sent: BytesSent) -> RetryDecision {
    match (sent, cause) {
        (BytesSent::Something, _) => RetryDecision::Never,
        (BytesSent::Nothing, FailureKind::Connect) => RetryDecision::NextEndpoint,
        (BytesSent::Nothing | BytesSent::Harmless, FailureKind::Closed) => RetryDecision::FreshConnection,
        (BytesSent::Harmless, FailureKind::Connect | FailureKind::ProofLost) => RetryDecision::Never,
        // The next attempt would need the same session deadline.
        (BytesSent::Nothing, FailureKind::ProofLost) => RetryDecision::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of which a byte was written is never sent again.
    #[test]
    fn partly_written_request_is_never_resent() {
        for cause in [FailureKind::Connect, FailureKind::Closed, FailureKind::ProofLost] {
            assert_eq!(decide_retry(cause, BytesSent::Something), RetryDecision::Never);
        }
    }

    /// An unsent request is sent again only where that can help.
    #[test]
    fn unsent_request_is_resent_if_useful() {
        assert_eq!(decide_retry(FailureKind::Connect, BytesSent::Nothing), RetryDecision::NextEndpoint);
        assert_eq!(decide_retry(FailureKind::Closed, BytesSent::Nothing), RetryDecision::FreshConnection);
        assert_eq!(decide_retry(FailureKind::ProofLost, BytesSent::Nothing), RetryDecision::Never);
    }

    /// A request that may be sent twice is sent again over a fresh connection only.
    #[test]
    fn repeatable_request_needs_fresh_connection() {
        assert_eq!(decide_retry(FailureKind::Closed, BytesSent::Harmless), RetryDecision::FreshConnection);
        assert_eq!(decide_retry(FailureKind::Connect, BytesSent::Harmless), RetryDecision::Never);
        assert_eq!(decide_retry(FailureKind::ProofLost, BytesSent::Harmless), RetryDecision::Never);
    }
}
