//! Decides whether a request that failed on its way up may be sent again.

/// How much of the request the upstream may have seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSendState {
    /// Not one byte was written.
    Nothing,
    /// A part of a request that is safe to repeat: a GET or HEAD without a body, on a route without a fence, over a
    /// pooled connection, without one byte of an answer (RFC 9110, 9.2.2).
    Harmless,
    /// Bytes were written, and the upstream has said that it has processed none of them (RFC 9113, 8.7).
    Unprocessed,
    /// At least one byte was written: the upstream may have acted on it.
    Something,
}

/// Why the attempt ended without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptFailureKind {
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
/// fenced request is never harmless in this sense. What the upstream has not processed is sent again, as if nothing
/// had been written.
pub fn decide_retry(cause: AttemptFailureKind, sent: RequestSendState) -> RetryDecision {
    match (sent, cause) {
        (RequestSendState::Something, _) => RetryDecision::Never,
        (RequestSendState::Nothing, AttemptFailureKind::Connect) => RetryDecision::NextEndpoint,
        (
            RequestSendState::Nothing | RequestSendState::Harmless | RequestSendState::Unprocessed,
            AttemptFailureKind::Closed,
        ) => RetryDecision::FreshConnection,
        (
            RequestSendState::Harmless | RequestSendState::Unprocessed,
            AttemptFailureKind::Connect | AttemptFailureKind::ProofLost,
        ) => RetryDecision::Never,
        // The next attempt would need the same session deadline.
        (RequestSendState::Nothing, AttemptFailureKind::ProofLost) => RetryDecision::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of which a byte was written is never sent again.
    #[test]
    fn partly_written_request_is_never_resent() {
        for cause in [AttemptFailureKind::Connect, AttemptFailureKind::Closed, AttemptFailureKind::ProofLost]
        {
            assert_eq!(decide_retry(cause, RequestSendState::Something), RetryDecision::Never);
        }
    }

    /// An unsent request is sent again only where that can help.
    #[test]
    fn unsent_request_is_resent_if_useful() {
        assert_eq!(
            decide_retry(AttemptFailureKind::Connect, RequestSendState::Nothing),
            RetryDecision::NextEndpoint
        );
        assert_eq!(
            decide_retry(AttemptFailureKind::Closed, RequestSendState::Nothing),
            RetryDecision::FreshConnection
        );
        assert_eq!(
            decide_retry(AttemptFailureKind::ProofLost, RequestSendState::Nothing),
            RetryDecision::Never
        );
    }

    /// What the upstream has not processed is sent again while the lock is proven, and not otherwise.
    #[test]
    fn unprocessed_request_is_resent_under_proof() {
        let decide = |cause| decide_retry(cause, RequestSendState::Unprocessed);
        assert_eq!(decide(AttemptFailureKind::Closed), RetryDecision::FreshConnection);
        assert_eq!(decide(AttemptFailureKind::ProofLost), RetryDecision::Never);
    }

    /// A request that may be sent twice is sent again over a fresh connection only.
    #[test]
    fn repeatable_request_needs_fresh_connection() {
        assert_eq!(
            decide_retry(AttemptFailureKind::Closed, RequestSendState::Harmless),
            RetryDecision::FreshConnection
        );
        assert_eq!(
            decide_retry(AttemptFailureKind::Connect, RequestSendState::Harmless),
            RetryDecision::Never
        );
        assert_eq!(
            decide_retry(AttemptFailureKind::ProofLost, RequestSendState::Harmless),
            RetryDecision::Never
        );
    }
}
