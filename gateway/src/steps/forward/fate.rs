//! What is known of an exchange that got no answer: the write gate, not the HTTP library, knows what was written.

use std::{error::Error as _, future::Future, time::Duration};

use fencegate_policies::{
    plan::Level,
    retry::{self, Again, Cause, Sent},
};
use hyper::Request;
use tokio::time::{Instant, sleep_until};

use crate::{
    admin::metrics::WorkerMetrics,
    body::{Body, BodyError},
    refusal::{Reason, Refusal},
    session::{clock::SharedClock, evidence::Evidence},
    upstream::{
        gate::{Gate, Why},
        guards::Distrust,
        link::{Lend, Progress},
        pool::NotConnected,
        speak::NotAnswered,
    },
};

/// An attempt that got no answer.
pub(super) enum Failed {
    /// Not one byte was written, and the request is still here. `reused`: the connection had carried others before.
    Unsent {
        back: Box<Request<Body>>,
        reused: bool,
    },
    Refused(Refusal),
}

/// The exchange broke before its answer.
pub(super) fn failed(failed: NotAnswered, lend: &mut Lend, metrics: &WorkerMetrics) -> Failed {
    // From here on the count cannot grow.
    lend.gate().shut(Why::Abandoned);
    let sent = if lend.gate().written() == 0 { Sent::Nothing } else { Sent::Something };
    let cause = if lend.gate().lost_its_proof() { Cause::ProofLost } else { Cause::Closed };
    let detail = format!("{}: {}", lend.endpoint(), failed.why);
    if is_of_the_client(&failed.why) {
        let reason = if sent == Sent::Nothing { Reason::Malformed } else { Reason::BodyBroken };
        return Failed::Refused(Refusal::new(reason, detail));
    }
    metrics.upstream_error(&lend.upstream().name, if sent == Sent::Nothing { "unsent" } else { "broken" });
    let reused = lend.link().reused;
    if cause == Cause::Closed && !(reused && sent == Sent::Nothing) {
        lend.failed();
    }
    match (retry::again(cause, sent), sent, failed.back) {
        (Again::FreshConnection | Again::OtherEndpoint, _, Some(back)) => {
            Failed::Unsent { back: Box::new(back), reused }
        }
        (_, Sent::Something, _) => Failed::Refused(Refusal::new(Reason::OutcomeUnknown, detail)),
        (_, Sent::Nothing, _) if cause == Cause::ProofLost => {
            Failed::Refused(Refusal::new(Reason::Suspended, detail))
        }
        (_, Sent::Nothing, _) => Failed::Refused(Refusal::new(Reason::UpstreamConnect, detail)),
    }
}

/// It was the body of the request that broke or did not come, not the service: slow clients must not look like an
/// endpoint that is ill.
fn is_of_the_client(error: &hyper::Error) -> bool {
    let body = error.source().and_then(|cause| cause.downcast_ref::<BodyError>());
    error.is_user() && matches!(body, Some(BodyError::Http(_) | BodyError::Stalled(_)))
}

/// Given up before an answer: what was written decides what is known.
pub(super) fn given_up(gate: &Gate, reason: Reason, detail: String) -> Refusal {
    gate.shut(Why::Abandoned);
    match gate.written() {
        0 if reason == Reason::OutcomeUnknown => Refusal::new(Reason::Suspended, detail),
        0 => Refusal::new(Reason::UpstreamConnect, format!("not a byte could be written; {detail}")),
        _ => Refusal::new(reason, detail),
    }
}

/// Returns when the hold may be over and nobody at the upstream would notice. Where the upstream compares tokens, what
/// was written in full is waited for: its answer is the truth.
pub async fn evidence_needed(evidence: Option<&Evidence>, level: Level, clock: &SharedClock) {
    match (evidence, level) {
        (Some(evidence), Level::None) => evidence.lapsed(clock).await,
        (None, _) | (_, Level::Guard | Level::Upstream) => std::future::pending().await,
    }
}

/// A fenced request was here in full, so its time runs from its dispatch. An unfenced one may be a long upload: its
/// time runs from the last byte that went up.
pub(super) fn too_late(progress: Progress, limit: Duration, fenced: bool) -> impl Future<Output = ()> {
    let began = Instant::now();
    async move {
        let mut last = began;
        loop {
            sleep_until(last + limit).await;
            let moved = progress.last().max(began);
            if fenced || moved == last {
                return;
            }
            last = moved;
        }
    }
}

/// For a metric.
pub(super) fn not_connected_kind(error: &NotConnected) -> &'static str {
    match error {
        NotConnected::Full => "full",
        NotConnected::Io { .. } | NotConnected::Distrusted { .. } | NotConnected::Everywhere => "connect",
    }
}

pub(super) fn not_connected(error: &NotConnected) -> Refusal {
    let reason = match error {
        NotConnected::Io { .. } | NotConnected::Everywhere => Reason::UpstreamConnect,
        NotConnected::Full => Reason::Overloaded,
        NotConnected::Distrusted { why: Distrust::Split, .. } => Reason::GuardSplit,
        NotConnected::Distrusted { .. } => Reason::Guard,
    };
    Refusal::new(reason, error.to_string())
}
