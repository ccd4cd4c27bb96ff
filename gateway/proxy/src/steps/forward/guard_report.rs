//! Reads a guard's report about a dispatch out of its answer.

use fencegate_protocol::headers::{FENCING_OUTCOME, FENCING_REFUSAL};
use fencegate_refusal::{DispatchOutcome, Refusal, RefusalAudience, RefusalReason};
use hyper::{HeaderMap, StatusCode};

use crate::request_context::ResponseReplayExtent;

/// The guard's report about one dispatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GuardDispatchReport {
    /// `None` if the answer has no report. Then no guard has seen the request.
    outcome: Option<DispatchOutcome>,
    reason: Option<RefusalReason>,
    /// The guard's own reason for its refusal. If there is one, the guard has not let this request in.
    refusal: Option<RefusalReason>,
    reference: Option<String>,
    pub(super) replayed: Option<ResponseReplayExtent>,
    /// The reason for which the guard would have refused, if it did more than observe.
    pub(super) observed: Option<RefusalReason>,
    /// True if the guard has passed on an answer that may not be the service's: a proxy between guard and service
    /// gives answers with this status itself. The guard keeps the key closed.
    pub(super) unfinished: bool,
    /// True if a proxy has forwarded the request between the gateway and the guard.
    pub(super) hop_seen: bool,
}

impl GuardDispatchReport {
    pub(super) fn parse(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let mut parts = text(FENCING_OUTCOME).unwrap_or_default().split(';').map(str::trim);
        let word = parts.next().unwrap_or_default();
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter = |name| parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let omitted = parameter("body") == Some("omitted");
        let reason = parameter("reason").and_then(RefusalReason::parse);
        let ends_unseen = reason.is_none() && parameter("end") == Some("unseen");
        Self {
            outcome: DispatchOutcome::parse(word),
            reason,
            unfinished: word == DispatchOutcome::Unknown.as_str() && ends_unseen,
            refusal: text(FENCING_REFUSAL).and_then(RefusalReason::parse),
            reference: parameter("ref").map(str::to_owned),
            replayed: (word == DispatchOutcome::Replayed.as_str()).then_some(if omitted {
                ResponseReplayExtent::WithoutBody
            } else {
                ResponseReplayExtent::Whole
            }),
            observed: parameter("observe").and_then(RefusalReason::parse),
            hop_seen: parameter("hop") == Some("seen"),
        }
    }

    /// Decides what the report means for the client. `direct` is true if no proxy between here and the guard sends a
    /// request twice. Otherwise a refusal may be about the second copy while the first one is being executed.
    ///
    /// # Errors
    /// Returns the refusal for the client if no answer of the upstream can be passed on.
    pub(super) fn check_outcome(&self, status: StatusCode, direct: bool) -> Result<(), Refusal> {
        match (self.outcome, self.refusal) {
            (_, Some(refusal)) => Err(self.to_guard_refusal(refusal, direct)),
            (Some(DispatchOutcome::Done | DispatchOutcome::Replayed), None) => Ok(()),
            (Some(DispatchOutcome::Unknown), None) if self.unfinished => Ok(()),
            (Some(DispatchOutcome::NotDispatched), None) if direct => {
                // None of these reasons is the guard's fault, and a retry ends none of them. For `ClientLimit` the
                // guard has counted our client, by the name that we have sent.
                let passed_on = self.reason.filter(|reason| {
                    use RefusalReason::{
                        BodyTooLarge, ClientLimit, SlowRequest, UpstreamConnect, UpstreamRefused,
                    };
                    matches!(
                        reason,
                        UpstreamConnect | UpstreamRefused | BodyTooLarge | SlowRequest | ClientLimit
                    )
                });
                let refusal = Refusal::new(passed_on.unwrap_or(RefusalReason::Guard), self.detail(status));
                Err(match passed_on {
                    Some(RefusalReason::UpstreamConnect) => {
                        refusal.with_advice("The guard was reached, and could not reach the service.")
                    }
                    _ => refusal,
                })
            }
            // An answer without a report does not come from a guard, so the outcome is unknown. If it is successful,
            // it is still passed on.
            (None, None) if status.is_success() => Ok(()),
            (Some(DispatchOutcome::NotDispatched | DispatchOutcome::Unknown) | None, None) => {
                let late = status == StatusCode::GATEWAY_TIMEOUT;
                let reason = if late { RefusalReason::OutcomeLate } else { RefusalReason::OutcomeUnknown };
                Err(Refusal::new(reason, self.detail(status)))
            }
        }
    }

    /// True if the guard has let in this dispatch and stored its token. It does neither for a replayed answer, nor
    /// for an operation that was done before, nor for a request that passes only because the guard observes. If the
    /// gateway stored a token that the guard has not, the store of the guard would look as if it had gone back.
    pub(super) fn has_admitted(&self) -> bool {
        let runs_now = self.outcome == Some(DispatchOutcome::Done) && self.reason.is_none();
        runs_now && self.refusal.is_none() && self.observed.is_none()
    }

    /// The guard's own word for its refusal.
    pub(super) fn refusal_reason(&self) -> Option<RefusalReason> {
        self.refusal
    }

    /// True if the answer has a report.
    pub(super) fn has_outcome_or_refusal(&self) -> bool {
        self.outcome.is_some() || self.refusal.is_some()
    }

    fn to_guard_refusal(&self, word: RefusalReason, direct: bool) -> Refusal {
        let clocks = match word {
            RefusalReason::TicketInvalid | RefusalReason::TicketExpired | RefusalReason::Expired => {
                "; where it says so to every request, compare its clock with the one of this machine"
            }
            _ => "",
        };
        let detail = format!("the guard refused: {}{clocks}", word.word());
        // These reasons report the outcome of an earlier request with the same operation, so every client gets them.
        match word {
            RefusalReason::OutcomeRecordedUnknown => {
                let refusal = Refusal::new(RefusalReason::OutcomeRecordedUnknown, detail);
                return match &self.reference {
                    Some(reference) => refusal.with_operation_reference(reference.clone()),
                    None => refusal,
                };
            }
            // No other copy of this request can have been let in: all copies have the same fingerprint.
            RefusalReason::IdempotencyMismatch => return Refusal::new(word, detail),
            RefusalReason::InProgress if direct => return Refusal::new(word, detail),
            _ => {}
        }
        if !direct || word == RefusalReason::Duplicate {
            return Refusal::new(RefusalReason::OutcomeRefused, detail);
        }
        match word {
            RefusalReason::Stale | RefusalReason::Floor | RefusalReason::Expired => {
                Refusal::new(RefusalReason::Fenced, detail).with_grant_retirement()
            }
            // The reason is about the resource and not about this tenure, and it is one that clients get. A later
            // attempt may be let in.
            _ if word.is_guard_reason() && word.hearers() == RefusalAudience::Clients => {
                Refusal::new(word, detail)
            }
            // The reason is about the token or the ticket, so this tenure will never be let in.
            _ => Refusal::new(RefusalReason::Guard, detail).with_grant_retirement(),
        }
    }

    fn detail(&self, status: StatusCode) -> String {
        let reason = self.reason.map_or("no reason", RefusalReason::word);
        format!("the guard answered {} and gave as reason: {reason}", status.as_u16())
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn parse_report(outcome: &'static str, refusal: &'static str) -> GuardDispatchReport {
        let mut headers = HeaderMap::new();
        if !outcome.is_empty() {
            headers.insert(FENCING_OUTCOME, HeaderValue::from_static(outcome));
        }
        if !refusal.is_empty() {
            headers.insert(FENCING_REFUSAL, HeaderValue::from_static(refusal));
        }
        GuardDispatchReport::parse(&headers)
    }

    #[track_caller]
    fn check_report(outcome: &'static str, refusal: &'static str, direct: bool) -> (RefusalReason, bool) {
        let refused = parse_report(outcome, refusal).check_outcome(StatusCode::SERVICE_UNAVAILABLE, direct);
        let refused = refused.expect_err("not answered by the upstream");
        (refused.reason, refused.retires_grant())
    }

    /// A refusal of the guard counts as not executed only where no proxy stands between guard and gateway.
    #[test]
    fn refusal_counts_only_without_proxy() {
        for (word, reason, retires) in [
            ("stale", RefusalReason::Fenced, true),
            ("floor", RefusalReason::Fenced, true),
            ("expired", RefusalReason::Fenced, true),
            ("busy", RefusalReason::Busy, false),
            ("in-doubt", RefusalReason::InDoubt, false),
            ("quarantine", RefusalReason::Quarantine, false),
            ("store", RefusalReason::Store, false),
            ("token-malformed", RefusalReason::Guard, true),
            ("token-future", RefusalReason::Guard, true),
            ("ticket-expired", RefusalReason::Guard, true),
        ] {
            assert_eq!(check_report("not-dispatched", word, true), (reason, retires), "{word}");
            assert_eq!(
                check_report("not-dispatched", word, false),
                (RefusalReason::OutcomeRefused, true),
                "{word}"
            );
        }
    }

    /// The refusal `duplicate` means an unknown outcome, with and without a proxy between gateway and guard.
    #[test]
    fn duplicate_has_unknown_outcome() {
        for direct in [true, false] {
            assert_eq!(check_report("unknown", "duplicate", direct), (RefusalReason::OutcomeRefused, true));
        }
    }

    /// An answer of the upstream passes, and one that broke off means an unknown outcome.
    #[test]
    fn broken_answer_is_unknown() {
        for outcome in ["done", "replayed", "done; observe=stale", ""] {
            assert_eq!(parse_report(outcome, "").check_outcome(StatusCode::OK, false), Ok(()), "{outcome}");
        }
        for (outcome, unfinished) in [
            ("unknown; end=unseen", true),
            ("unknown; waited=3; end=unseen", true),
            ("unknown; reason=outcome-unknown; end=unseen", false),
            ("not-dispatched; end=unseen", false),
            ("unknown", false),
        ] {
            let account = parse_report(outcome, "");
            assert_eq!(account.unfinished, unfinished, "{outcome}");
            assert_eq!(
                account.check_outcome(StatusCode::GATEWAY_TIMEOUT, false).is_ok(),
                unfinished,
                "{outcome}"
            );
            assert!(!account.has_admitted(), "{outcome}");
        }
        assert_eq!(
            check_report("unknown; reason=outcome-unknown", "", true),
            (RefusalReason::OutcomeUnknown, true)
        );
        for status in [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::NOT_FOUND] {
            let refused = parse_report("", "").check_outcome(status, true).expect_err("nobody's answer");
            assert_eq!(refused.reason, RefusalReason::OutcomeUnknown, "{status}");
        }
        let connect = check_report("not-dispatched; reason=upstream-connect", "", true);
        assert_eq!(connect, (RefusalReason::UpstreamConnect, false));
        for (word, reason) in [
            ("not-dispatched; reason=body-too-large", RefusalReason::BodyTooLarge),
            ("not-dispatched; reason=slow-request", RefusalReason::SlowRequest),
            ("not-dispatched; reason=client-limit", RefusalReason::ClientLimit),
            ("not-dispatched; reason=overloaded", RefusalReason::Guard),
        ] {
            assert_eq!(check_report(word, "", true), (reason, false));
            assert_eq!(check_report(word, "", false), (RefusalReason::OutcomeUnknown, true));
        }
        assert_eq!(
            check_report("not-dispatched; reason=overloaded", "", false),
            (RefusalReason::OutcomeUnknown, true)
        );
    }

    /// Only a dispatch that the guard has executed now is certain to have raised a watermark.
    #[test]
    fn only_fresh_dispatch_raises_watermark() {
        assert!(parse_report("done", "").has_admitted());
        for outcome in [
            "replayed",
            "done; reason=already-done",
            "done; observe=token-future",
            "unknown",
            "not-dispatched",
            "",
        ] {
            assert!(!parse_report(outcome, "").has_admitted(), "{outcome}");
        }
        assert!(!parse_report("done", "stale").has_admitted());
    }

    /// An outcome that was recorded as unknown is refused with its reference.
    #[test]
    fn recorded_outcome_keeps_reference() {
        let account =
            parse_report("unknown; reason=outcome-unknown; ref=0123456789abcdef", "outcome-unknown");
        let refused = account.check_outcome(StatusCode::CONFLICT, false).expect_err("recorded as unknown");
        assert_eq!(refused.reason, RefusalReason::OutcomeRecordedUnknown);
        assert_eq!(refused.reference(), Some("0123456789abcdef"));
    }
}
