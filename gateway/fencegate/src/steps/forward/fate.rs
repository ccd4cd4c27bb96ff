//! What is known of an exchange that got no answer: the write gate, not the HTTP library, knows what was written.

use fencegate_http::{
    body::Body,
    course::{Coming, Exchange},
    upstream::{
        gate::{Gate, Why},
        lend::Lend,
        pool::NotConnected,
        speak::NotAnswered,
    },
};
use fencegate_policies::retry::{self, Again, Cause, Sent};
use hyper::Request;

use super::once_more::Spare;
use crate::{
    metrics::WorkerMetrics,
    refusal::{Reason, Refusal},
};

/// An attempt that got no answer.
pub(super) enum Failed {
    /// Not one byte was written, or only of what may be sent twice, and the request is still here. `reused`: the
    /// connection had carried others before.
    Again {
        back: Box<Request<Body>>,
        reused: bool,
    },
    Refused(Refusal),
}

/// What an attempt leaves behind for the next one.
pub(super) struct Attempt<'a> {
    /// Of a body that goes up while its client sends it.
    pub(super) upload: Option<&'a Exchange>,
    /// The request once more, where it may be sent twice.
    pub(super) spare: Option<Spare>,
}

/// The exchange broke before its answer.
pub(super) fn failed(
    failed: NotAnswered,
    lend: &mut Lend,
    Attempt { upload, spare }: Attempt<'_>,
    metrics: &WorkerMetrics,
) -> Failed {
    // From here on the count cannot grow. A body that broke has shut the gate before.
    lend.gate().shut(if failed.why.is_parse() { Why::Cut } else { Why::Abandoned });
    let silent = lend.pooled().has_died_silently();
    let sent = match lend.gate().written() {
        0 => Sent::Nothing,
        _ if silent && spare.is_some() => Sent::Harmless,
        _ => Sent::Something,
    };
    let cause = if lend.gate().lost_its_proof() { Cause::ProofLost } else { Cause::Closed };
    let detail = format!("{}: {}", lend.endpoint(), failed.why);
    if let Some(reason) = of_the_client(upload, sent) {
        return Failed::Refused(Refusal::new(reason, detail));
    }
    if upload.is_some_and(|upload| upload.coming() == Coming::Overdue) {
        metrics.upstream_error(&lend.upstream().name, "timeout");
        lend.failed();
        return Failed::Refused(given_up(lend.gate(), Reason::OutcomeLate, detail));
    }
    metrics.upstream_error(&lend.upstream().name, if sent == Sent::Nothing { "unsent" } else { "broken" });
    let reused = lend.pooled().reused;
    if cause == Cause::Closed && !(reused && sent != Sent::Something) {
        lend.failed();
    }
    // The library gives back only what it has not begun with; a body that was begun would go on in its middle.
    let back = match sent {
        Sent::Harmless => spare.and_then(Spare::request),
        Sent::Nothing | Sent::Something => failed.back.filter(|_| is_untouched(upload)).map(Box::new),
    };
    match (retry::again(cause, sent), sent, back) {
        (Again::FreshConnection | Again::OtherEndpoint, _, Some(back)) => Failed::Again { back, reused },
        (_, Sent::Something | Sent::Harmless, _) => {
            Failed::Refused(Refusal::new(Reason::OutcomeUnknown, detail))
        }
        (_, Sent::Nothing, _) if cause == Cause::ProofLost => {
            Failed::Refused(Refusal::new(Reason::Suspended, detail))
        }
        (_, Sent::Nothing, _) => Failed::Refused(Refusal::new(Reason::UpstreamConnect, detail)),
    }
}

/// Where it was the body of the request that broke or did not come, and not the service: slow clients must not look like
/// an endpoint that is ill.
fn of_the_client(upload: Option<&Exchange>, sent: Sent) -> Option<Reason> {
    let upload = upload?;
    match (upload.coming(), sent) {
        (Coming::Broken, Sent::Nothing) => Some(Reason::Malformed),
        (Coming::Broken, Sent::Something) => Some(Reason::BodyBroken),
        // It was there, and taken too slowly.
        (Coming::Overdue, _) if !upload.stalled.get() => None,
        (Coming::Overdue, Sent::Nothing) => Some(Reason::SlowRequest),
        (Coming::Overdue, Sent::Something) => Some(Reason::OutcomeLate),
        _ => None,
    }
}

/// Nothing of it was taken for an attempt: it can be given to another one.
fn is_untouched(upload: Option<&Exchange>) -> bool {
    upload.is_none_or(|upload| matches!(upload.coming(), Coming::Untouched | Coming::HeldBack))
}

/// Given up before an answer: what was written decides what is known.
pub(super) fn given_up(gate: &Gate, reason: Reason, detail: String) -> Refusal {
    gate.shut(Why::Cut);
    match gate.written() {
        0 if reason == Reason::OutcomeUnknown => Refusal::new(Reason::Suspended, detail),
        0 => Refusal::new(Reason::UpstreamConnect, format!("not a byte could be written; {detail}")),
        _ => Refusal::new(reason, detail),
    }
}

/// For a metric.
pub(super) fn not_connected_kind(error: &NotConnected) -> &'static str {
    match error {
        NotConnected::Full => "full",
        NotConnected::Io { .. } | NotConnected::Distrusted { .. } | NotConnected::Everywhere => "connect",
    }
}
