//! Finds out how much of a request was sent, if its exchange got no answer. The write gate counts the written bytes;
//! the HTTP library does not.

use fencegate_http::{
    body::Body,
    connection_state::{RequestBodyState, ServerExchange},
};
use fencegate_http_client::upstream::{
    checkout::CheckedOutConnection,
    client_connection::SendRequestError,
    gate::{GateShutReason, WriteGate},
    pool::ConnectError,
};
use fencegate_metrics::WorkerMetrics;
use fencegate_policies::{
    plan::FencingLevel,
    retry::{self, AttemptFailureKind, RequestSendState, RetryDecision},
};
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::Request;

use super::retry::RetryRequestHead;

/// The result of an attempt that got no answer.
pub(super) enum UpstreamAttemptError {
    /// The request can be sent again: not one byte was written, or it is safe to repeat. `reused` is true if the
    /// connection had carried other requests before, `unprocessed` if the upstream has said that it has processed
    /// nothing of the request.
    Retry {
        back: Box<Request<Body>>,
        reused: bool,
        unprocessed: bool,
    },
    Refused(Refusal),
}

/// The copies and facts of an attempt that decide whether the next one is possible.
pub(super) struct RetryMaterial<'a> {
    /// The exchange with the client, if the body is sent while the client still uploads it.
    pub(super) upload: Option<&'a ServerExchange>,
    /// A copy of the request, if it may be sent twice.
    pub(super) spare: Option<RetryRequestHead>,
    /// A copy of the request, to be sent once more if the upstream says that it has processed nothing of it.
    pub(super) unprocessed: Option<Box<Request<Body>>>,
}

/// Decides what follows from an exchange that broke before its answer.
pub(super) fn classify_failure(
    failed: SendRequestError,
    checkout: &mut CheckedOutConnection,
    RetryMaterial { upload, spare, unprocessed }: RetryMaterial<'_>,
    metrics: &WorkerMetrics,
) -> UpstreamAttemptError {
    // Once the gate is shut, the count of written bytes cannot grow. If the body broke off, the gate was shut before,
    // and its first reason stays.
    checkout.gate().shut(if failed.why.is_parse() { GateShutReason::Cut } else { GateShutReason::Abandoned });
    let silent = checkout.pooled().is_reused_unanswered();
    let sent = match checkout.gate().written_bytes() {
        0 => RequestSendState::Nothing,
        _ if checkout.pooled().is_request_unprocessed() => RequestSendState::Unprocessed,
        _ if silent && spare.is_some() => RequestSendState::Harmless,
        _ => RequestSendState::Something,
    };
    let cause = if checkout.gate().is_permission_lost() {
        AttemptFailureKind::ProofLost
    } else {
        AttemptFailureKind::Closed
    };
    let detail = format!("{}: {}", checkout.endpoint(), failed.why);
    if let Some(reason) = client_upload_failure(upload, sent) {
        return UpstreamAttemptError::Refused(Refusal::new(reason, detail));
    }
    if upload.is_some_and(|upload| upload.body_state() == RequestBodyState::Overdue) {
        metrics.record_upstream_error(&checkout.upstream().name, "timeout");
        checkout.record_failure();
        return UpstreamAttemptError::Refused(abandoned_refusal(
            checkout.gate(),
            RefusalReason::OutcomeLate,
            detail,
        ));
    }
    metrics.record_upstream_error(
        &checkout.upstream().name,
        match sent {
            RequestSendState::Nothing | RequestSendState::Unprocessed => "unsent",
            RequestSendState::Harmless | RequestSendState::Something => "broken",
        },
    );
    let reused = checkout.pooled().reused;
    if cause == AttemptFailureKind::Closed && !(reused && sent != RequestSendState::Something) {
        checkout.record_failure();
    }
    // The library gives a request back only if it has not begun to send it. A request whose body was begun could only
    // be continued in the middle.
    let back = match sent {
        RequestSendState::Harmless => spare.and_then(RetryRequestHead::into_request),
        RequestSendState::Unprocessed => unprocessed,
        RequestSendState::Nothing | RequestSendState::Something => {
            failed.request.filter(|_| is_body_untouched(upload))
        }
    };
    match (retry::decide_retry(cause, sent), sent, back) {
        (RetryDecision::FreshConnection | RetryDecision::NextEndpoint, _, Some(back)) => {
            UpstreamAttemptError::Retry { back, reused, unprocessed: sent == RequestSendState::Unprocessed }
        }
        (_, RequestSendState::Something | RequestSendState::Harmless, _) => {
            UpstreamAttemptError::Refused(Refusal::new(RefusalReason::OutcomeUnknown, detail))
        }
        (_, RequestSendState::Nothing | RequestSendState::Unprocessed, _)
            if cause == AttemptFailureKind::ProofLost =>
        {
            UpstreamAttemptError::Refused(Refusal::new(RefusalReason::Suspended, detail))
        }
        (_, RequestSendState::Unprocessed, _) => {
            UpstreamAttemptError::Refused(Refusal::new(RefusalReason::UpstreamRefused, detail))
        }
        (_, RequestSendState::Nothing, _) => {
            UpstreamAttemptError::Refused(Refusal::new(RefusalReason::UpstreamConnect, detail))
        }
    }
}

/// The reason for the refusal, if the client's body broke off or was late. A slow client must not count as a failure
/// of the endpoint.
fn client_upload_failure(upload: Option<&ServerExchange>, sent: RequestSendState) -> Option<RefusalReason> {
    let upload = upload?;
    match (upload.body_state(), sent) {
        (RequestBodyState::Broken, RequestSendState::Nothing | RequestSendState::Unprocessed) => {
            Some(RefusalReason::Malformed)
        }
        (RequestBodyState::Broken, RequestSendState::Something) => Some(RefusalReason::BodyBroken),
        // The client has sent its body in time, and the upstream was too slow to read it.
        (RequestBodyState::Overdue, _) if !upload.stalled.get() => None,
        (RequestBodyState::Overdue, RequestSendState::Nothing | RequestSendState::Unprocessed) => {
            Some(RefusalReason::SlowRequest)
        }
        (RequestBodyState::Overdue, RequestSendState::Something) => Some(RefusalReason::OutcomeLate),
        _ => None,
    }
}

/// True if nothing of the body was read for this attempt, so that the next attempt can send it.
fn is_body_untouched(upload: Option<&ServerExchange>) -> bool {
    upload.is_none_or(|upload| {
        matches!(upload.body_state(), RequestBodyState::Untouched | RequestBodyState::HeldBack)
    })
}

/// Refuses a request for which there is no connection. It tells a guard that cannot be reached from a service that
/// its guard cannot reach.
pub(super) fn connect_refusal(error: &ConnectError, level: FencingLevel) -> Refusal {
    let refusal = Refusal::from(error);
    match (error, level) {
        (ConnectError::Io { .. } | ConnectError::Exhausted, FencingLevel::Guard) => {
            refusal.with_advice("The guard before the service could not be reached.")
        }
        _ => refusal,
    }
}

/// Refuses a request that got no answer. The count of written bytes decides whether its outcome is known.
pub(super) fn abandoned_refusal(gate: &WriteGate, reason: RefusalReason, detail: String) -> Refusal {
    gate.shut(GateShutReason::Cut);
    match gate.written_bytes() {
        0 if reason == RefusalReason::OutcomeUnknown => Refusal::new(RefusalReason::Suspended, detail),
        0 => Refusal::new(RefusalReason::UpstreamConnect, format!("not a byte could be written; {detail}")),
        _ => Refusal::new(reason, detail),
    }
}

/// The label of a connect error in metrics.
pub(super) fn connect_error_label(error: &ConnectError) -> &'static str {
    match error {
        ConnectError::LimitReached => "full",
        ConnectError::Io { .. } | ConnectError::Distrusted { .. } | ConnectError::Exhausted => "connect",
    }
}
