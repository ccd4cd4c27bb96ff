//! How far an exchange without an answer got. The write gate knows what was written; the HTTP library does not.

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
    /// The request can be sent again: not one byte was written, or it is safe to repeat. `reused`: the connection had
    /// carried other requests before.
    Again {
        back: Box<Request<Body>>,
        reused: bool,
    },
    Refused(Refusal),
}

/// What one attempt leaves for the next.
pub(super) struct Attempt<'a> {
    /// A body that is sent while the client still uploads it.
    pub(super) upload: Option<&'a Exchange>,
    /// A copy of the request, if it may be sent twice.
    pub(super) spare: Option<Spare>,
}

/// The exchange broke before its answer.
pub(super) fn failed(
    failed: NotAnswered,
    lend: &mut Lend,
    Attempt { upload, spare }: Attempt<'_>,
    metrics: &WorkerMetrics,
) -> Failed {
    // After this the count of written bytes cannot grow. A body that broke off has shut the gate before.
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
    // The library gives a request back only if it has not begun to send it. Otherwise its body would go on in the
    // middle.
    let back = match sent {
        Sent::Harmless => spare.and_then(Spare::request),
        Sent::Nothing | Sent::Something => failed.back.filter(|_| is_untouched(upload)),
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

/// The reason, if the client's body broke off or was late. A slow client must not look like a sick endpoint.
fn of_the_client(upload: Option<&Exchange>, sent: Sent) -> Option<Reason> {
    let upload = upload?;
    match (upload.coming(), sent) {
        (Coming::Broken, Sent::Nothing) => Some(Reason::Malformed),
        (Coming::Broken, Sent::Something) => Some(Reason::BodyBroken),
        // The body was here, and the upstream was too slow to read it.
        (Coming::Overdue, _) if !upload.stalled.get() => None,
        (Coming::Overdue, Sent::Nothing) => Some(Reason::SlowRequest),
        (Coming::Overdue, Sent::Something) => Some(Reason::OutcomeLate),
        _ => None,
    }
}

/// Nothing of the body was read for this attempt, so the next attempt can have it.
fn is_untouched(upload: Option<&Exchange>) -> bool {
    upload.is_none_or(|upload| matches!(upload.coming(), Coming::Untouched | Coming::HeldBack))
}

/// A refusal before an answer. What was written decides whether the outcome is known.
pub(super) fn given_up(gate: &Gate, reason: Reason, detail: String) -> Refusal {
    gate.shut(Why::Cut);
    match gate.written() {
        0 if reason == Reason::OutcomeUnknown => Refusal::new(Reason::Suspended, detail),
        0 => Refusal::new(Reason::UpstreamConnect, format!("not a byte could be written; {detail}")),
        _ => Refusal::new(reason, detail),
    }
}

/// The label of a metric.
pub(super) fn not_connected_kind(error: &NotConnected) -> &'static str {
    match error {
        NotConnected::Full => "full",
        NotConnected::Io { .. } | NotConnected::Distrusted { .. } | NotConnected::Everywhere => "connect",
    }
}
