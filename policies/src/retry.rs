//! Decides whether a request is sent again after an attempt to send it upstream has failed.

/// The part of the request that the upstream may have seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSendState {
    /// Not one byte was written.
    Nothing,
    /// A part of a request that is safe to repeat: a GET or HEAD without a body, on a route without a fence, over a
    /// pooled connection that has returned no byte of a response (RFC 9110, section 9.2.2).
    Harmless,
    /// Bytes were written, and the upstream has reported that it has not processed the request (RFC 9113, section
    /// 8.7).
    Unprocessed,
    /// At least one byte was written, so the upstream may have acted on it.
    Something,
}

/// The reason for which the attempt ended without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptFailureKind {
    /// No connection to the endpoint could be made.
    Connect,
    /// A pooled connection had been closed by the upstream before it was used again.
    Closed,
    /// The session deadline had passed, or was no longer certain.
    ProofLost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    NextEndpoint,
    /// The request is sent to the same endpoint over a new connection, because other pooled connections may be
    /// closed as well.
    FreshConnection,
    Never,
}

/// Decides whether a failed request is sent again.
///
/// Once a byte was written, only a request that is safe to repeat by the definition of its method is sent again,
/// because only the client knows whether another request may take effect twice. A fenced request is never safe in
/// this sense. A request that the upstream has not processed is treated as if nothing had been written.
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

    /// A request of which at least one byte was written is never sent again.
    #[test]
    fn partly_written_request_is_never_resent() {
        for cause in [AttemptFailureKind::Connect, AttemptFailureKind::Closed, AttemptFailureKind::ProofLost]
        {
            assert_eq!(decide_retry(cause, RequestSendState::Something), RetryDecision::Never);
        }
    }

    /// An unsent request is sent again only if another attempt can help.
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

    /// A request that the upstream has not processed is sent again while the lock is proven, and not otherwise.
    #[test]
    fn unprocessed_request_is_resent_under_proof() {
        let decide = |cause| decide_retry(cause, RequestSendState::Unprocessed);
        assert_eq!(decide(AttemptFailureKind::Closed), RetryDecision::FreshConnection);
        assert_eq!(decide(AttemptFailureKind::ProofLost), RetryDecision::Never);
    }

    /// A request that is safe to repeat is sent again only over a new connection.
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
