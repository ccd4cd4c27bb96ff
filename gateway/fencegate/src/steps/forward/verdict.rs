//! What a guard says about a dispatch, in the words of its answer.

use hyper::{HeaderMap, StatusCode};

use crate::{
    headers::{FENCING_OUTCOME, FENCING_REFUSAL},
    notes::Replayed,
    refusal::{Hearers, Outcome, Reason, Refusal},
};

/// The guard's account of one dispatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    /// `None` where the answer does not say: no guard has seen it.
    outcome: Option<Outcome>,
    reason: Option<Reason>,
    /// In the guard's own words: it decided, and nothing was let in by this request.
    refusal: Option<Reason>,
    reference: Option<String>,
    pub(super) replayed: Option<Replayed>,
    /// It would have been refused, were the guard not looking on only.
    pub(super) observed: Option<Reason>,
    /// Somebody else has forwarded the request on its way.
    pub(super) hop_seen: bool,
}

impl Account {
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let mut parts = text(FENCING_OUTCOME).unwrap_or_default().split(';').map(str::trim);
        let word = parts.next().unwrap_or_default();
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter = |name| parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let omitted = parameter("body") == Some("omitted");
        Self {
            outcome: Outcome::parse(word),
            reason: parameter("reason").and_then(Reason::parse),
            refusal: text(FENCING_REFUSAL).and_then(Reason::parse),
            reference: parameter("ref").map(str::to_owned),
            replayed: (word == Outcome::Replayed.word()).then_some(if omitted {
                Replayed::WithoutBody
            } else {
                Replayed::Whole
            }),
            observed: parameter("observe").and_then(Reason::parse),
            hop_seen: parameter("hop") == Some("seen"),
        }
    }

    /// What the gateway makes of it. `direct`: nothing between here and the guard sends a request twice; else a refusal
    /// may be about the second copy, while the first is being executed.
    ///
    /// # Errors
    /// The upstream has not answered.
    pub(super) fn judge(&self, status: StatusCode, direct: bool) -> Result<(), Refusal> {
        match (self.outcome, self.refusal) {
            (_, Some(refusal)) => Err(self.refused(refusal, direct)),
            (Some(Outcome::Done | Outcome::Replayed), None) => Ok(()),
            (Some(Outcome::NotDispatched), None) if direct => {
                // None is the guard's fault, and none ends by asking again. The client that a guard counts is ours, as we
                // have named it.
                let passed_on = self.reason.filter(|reason| {
                    use Reason::{BodyTooLarge, ClientLimit, SlowRequest, UpstreamConnect};
                    matches!(reason, UpstreamConnect | BodyTooLarge | SlowRequest | ClientLimit)
                });
                Err(Refusal::new(passed_on.unwrap_or(Reason::Guard), self.detail(status)))
            }
            // It says nothing, so it is not a guard's, and what came of the request is not known. A successful answer
            // stays one.
            (None, None) if status.is_success() => Ok(()),
            (Some(Outcome::NotDispatched | Outcome::Unknown) | None, None) => {
                let late = status == StatusCode::GATEWAY_TIMEOUT;
                let reason = if late { Reason::OutcomeLate } else { Reason::OutcomeUnknown };
                Err(Refusal::new(reason, self.detail(status)))
            }
        }
    }

    /// The guard has let this very dispatch in and remembers its token. It does not for an answer that it has given
    /// again, nor for what only passes it while it looks on.
    pub(super) fn has_let_in(&self) -> bool {
        self.outcome == Some(Outcome::Done) && self.refusal.is_none() && self.observed.is_none()
    }

    /// The guard's own word for its refusal.
    pub(super) fn word(&self) -> Option<Reason> {
        self.refusal
    }

    /// Did a guard say anything at all?
    pub(super) fn is_of_a_guard(&self) -> bool {
        self.outcome.is_some() || self.refusal.is_some()
    }

    fn refused(&self, word: Reason, direct: bool) -> Refusal {
        let detail = format!("the guard refused: {}", word.word());
        // These say what came of an earlier request, whoever asks.
        match word {
            Reason::OutcomeRecordedUnknown => {
                let refusal = Refusal::new(Reason::OutcomeRecordedUnknown, detail);
                return match &self.reference {
                    Some(reference) => refusal.about(reference.clone()),
                    None => refusal,
                };
            }
            // No copy of this request can have been let in: they all have the same fingerprint.
            Reason::IdempotencyMismatch => return Refusal::new(word, detail),
            Reason::InProgress if direct => return Refusal::new(word, detail),
            _ => {}
        }
        if !direct || word == Reason::Duplicate {
            return Refusal::new(Reason::OutcomeRefused, detail);
        }
        match word {
            Reason::Stale | Reason::Floor => Refusal::new(Reason::Fenced, detail).retiring(),
            // Of the resource, and not of this tenure: it may be let in yet, and clients know the word.
            _ if word.is_of_a_guard() && word.hearers() == Hearers::Clients => Refusal::new(word, detail),
            // Token or ticket: this tenure will never be let in.
            _ => Refusal::new(Reason::Guard, detail).retiring(),
        }
    }

    fn detail(&self, status: StatusCode) -> String {
        let reason = self.reason.map_or("no reason", Reason::word);
        format!("the guard answered {} and gave as reason: {reason}", status.as_u16())
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn account(outcome: &'static str, refusal: &'static str) -> Account {
        let mut headers = HeaderMap::new();
        if !outcome.is_empty() {
            headers.insert(FENCING_OUTCOME, HeaderValue::from_static(outcome));
        }
        if !refusal.is_empty() {
            headers.insert(FENCING_REFUSAL, HeaderValue::from_static(refusal));
        }
        Account::read(&headers)
    }

    #[track_caller]
    fn judged(outcome: &'static str, refusal: &'static str, direct: bool) -> (Reason, bool) {
        let refused = account(outcome, refusal).judge(StatusCode::SERVICE_UNAVAILABLE, direct);
        let refused = refused.expect_err("not answered by the upstream");
        (refused.reason, refused.retires())
    }

    #[test]
    fn a_refusal_is_believed_only_where_nothing_stands_between() {
        for (word, reason, retires) in [
            ("stale", Reason::Fenced, true),
            ("floor", Reason::Fenced, true),
            ("busy", Reason::Busy, false),
            ("in-doubt", Reason::InDoubt, false),
            ("quarantine", Reason::Quarantine, false),
            ("store", Reason::Store, false),
            ("token-malformed", Reason::Guard, true),
            ("token-future", Reason::Guard, true),
            ("ticket-expired", Reason::Guard, true),
        ] {
            assert_eq!(judged("not-dispatched", word, true), (reason, retires), "{word}");
            assert_eq!(judged("not-dispatched", word, false), (Reason::OutcomeRefused, true), "{word}");
        }
    }

    #[test]
    fn a_duplicate_is_unknown_to_everybody() {
        for direct in [true, false] {
            assert_eq!(judged("unknown", "duplicate", direct), (Reason::OutcomeRefused, true));
        }
    }

    #[test]
    fn an_answer_of_the_upstream_passes_and_a_broken_one_is_unknown() {
        for outcome in ["done", "replayed", "done; observe=stale", ""] {
            assert_eq!(account(outcome, "").judge(StatusCode::OK, false), Ok(()), "{outcome}");
        }
        assert_eq!(judged("unknown; reason=outcome-unknown", "", true), (Reason::OutcomeUnknown, true));
        for status in [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::NOT_FOUND] {
            let refused = account("", "").judge(status, true).expect_err("nobody's answer");
            assert_eq!(refused.reason, Reason::OutcomeUnknown, "{status}");
        }
        let connect = judged("not-dispatched; reason=upstream-connect", "", true);
        assert_eq!(connect, (Reason::UpstreamConnect, false));
        for (word, reason) in [
            ("not-dispatched; reason=body-too-large", Reason::BodyTooLarge),
            ("not-dispatched; reason=slow-request", Reason::SlowRequest),
            ("not-dispatched; reason=client-limit", Reason::ClientLimit),
            ("not-dispatched; reason=overloaded", Reason::Guard),
        ] {
            assert_eq!(judged(word, "", true), (reason, false));
            assert_eq!(judged(word, "", false), (Reason::OutcomeUnknown, true));
        }
        assert_eq!(judged("not-dispatched; reason=overloaded", "", false), (Reason::OutcomeUnknown, true));
    }

    #[test]
    fn only_a_dispatch_that_ran_now_is_known_to_have_raised_a_mark() {
        assert!(account("done", "").has_let_in());
        for outcome in ["replayed", "done; observe=token-future", "unknown", "not-dispatched", ""] {
            assert!(!account(outcome, "").has_let_in(), "{outcome}");
        }
        assert!(!account("done", "stale").has_let_in());
    }

    #[test]
    fn what_was_recorded_is_told_with_its_reference() {
        let account = account("unknown; reason=outcome-unknown; ref=0123456789abcdef", "outcome-unknown");
        let refused = account.judge(StatusCode::CONFLICT, false).expect_err("recorded as unknown");
        assert_eq!(refused.reason, Reason::OutcomeRecordedUnknown);
        assert_eq!(refused.reference(), Some("0123456789abcdef"));
    }
}
