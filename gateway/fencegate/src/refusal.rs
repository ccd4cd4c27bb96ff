//! Every reason for which the gateway itself answers a request, and the one place that turns reasons into HTTP.

mod of_guards;
mod of_keys;
mod of_listeners;
mod of_locks;
mod of_once;

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use fencegate_http::body::{Body, Reply};
use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use serde::Serialize;

use crate::headers::FENCING_OUTCOME;

/// Whether a request reached an upstream, which is what a payment client needs to know. RFC 9457 bodies and the field
/// `Fencing-Outcome` say it in the same words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The upstream answered in full.
    Done,
    /// It did before, and the answer is given again.
    Replayed,
    /// Nothing was sent: repeat it as you like.
    NotDispatched,
    /// Something was sent and no complete answer came back.
    Unknown,
}

impl Outcome {
    /// Reads [`Outcome::word`] back.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Done, Self::Replayed, Self::NotDispatched, Self::Unknown]
            .into_iter()
            .find(|outcome| outcome.word() == word)
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Replayed => "replayed",
            Self::NotDispatched => "not-dispatched",
            Self::Unknown => "unknown",
        }
    }
}

macro_rules! reasons {
    ($($name:ident = $word:literal, $status:literal, $outcome:ident, $title:literal;)*) => {
        /// Why the gateway refuses, or cannot tell what came of a request. One list for metrics, logs, and answers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason { $(#[doc = $title] $name,)* }

        impl Reason {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The reason as it stands in metrics, logs, and problem bodies.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// Reads [`Reason::word`] back. Of reasons with one word the first: the recorded one is what guards send.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.word() == word)
            }

            fn status(self) -> StatusCode {
                let code: u16 = match self { $(Self::$name => $status,)* };
                StatusCode::from_u16(code).expect("every status of the table is one")
            }

            pub fn outcome(self) -> Outcome {
                match self { $(Self::$name => Outcome::$outcome,)* }
            }

            /// For the client: nothing in it tells of hosts, holders, or keys.
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

// 409 is never used for a stale token, because service meshes retry it; "maybe dispatched" is never 503, because
// clients do.
reasons! {
    AmbiguousPath = "ambiguous-path", 400, NotDispatched, "the path can be read in more than one way";
    KeyMissing = "key-missing", 400, NotDispatched, "a value that names the resource is missing";
    KeyInvalid = "key-invalid", 400, NotDispatched, "a value that names the resource is not acceptable";
    IdempotencyKeyRequired = "idempotency-key-required", 400, NotDispatched, "an Idempotency-Key is required";
    Malformed = "malformed", 400, NotDispatched, "the request is malformed";
    BodyBroken = "malformed", 400, Unknown, "the body of the request broke off after a part of it was sent on";
    PeerForbidden = "peer-forbidden", 403, NotDispatched, "this listener is for gateways";
    NoRoute = "no-route", 404, NotDispatched, "nothing is served here";
    Method = "method", 405, NotDispatched, "the method is not served";
    SlowRequest = "slow-request", 408, NotDispatched, "the request did not arrive in time";
    SlowUpload = "slow-request", 408, Unknown, "the rest of the request did not arrive in time";
    AlreadyDone = "already-done", 409, Done, "the operation was done before";
    AlreadyRefused = "already-refused", 409, Replayed, "the service has answered this operation before, with this status";
    InProgress = "in-progress", 409, Unknown, "the same operation is running";
    OutcomeRecordedUnknown = "outcome-unknown", 409, Unknown, "what came of this operation is not known";
    BodyTooLarge = "body-too-large", 413, NotDispatched, "the body is too large";
    TargetTooLarge = "target-too-large", 414, NotDispatched, "the request target is too large";
    Expectation = "expectation", 417, NotDispatched, "the expectation is not supported";
    Misdirected = "misdirected", 421, NotDispatched, "this host is not served here";
    NotHolder = "not-holder", 421, NotDispatched, "this gateway does not keep the resource";
    IdempotencyMismatch = "idempotency-mismatch", 422, NotDispatched, "the Idempotency-Key was used for another request";
    Locked = "locked", 423, NotDispatched, "the resource is busy";
    EarlyData = "early-data", 425, NotDispatched, "not accepted as early data";
    QueueFull = "queue-full", 429, NotDispatched, "too many requests wait for the resource";
    ClientLimit = "client-limit", 429, NotDispatched, "too many requests of this client";
    ClientOperations = "client-operations", 429, NotDispatched, "too many operations of this client are remembered";
    HeaderTooLarge = "header-too-large", 431, NotDispatched, "the header is too large";
    TransferEncoding = "transfer-encoding", 501, NotDispatched, "the transfer coding is not supported";
    UpstreamConnect = "upstream-connect", 502, NotDispatched, "the service could not be reached";
    Stale = "stale", 412, NotDispatched, "a newer token was announced";
    Floor = "floor", 412, NotDispatched, "the token is older than what is remembered";
    Duplicate = "duplicate", 412, Unknown, "the token was announced before";
    TokenFuture = "token-future", 412, NotDispatched, "the token is far above all others";
    TokenMalformed = "token-malformed", 400, NotDispatched, "the token cannot be read";
    TokenMissing = "token-missing", 403, NotDispatched, "there is no token: the way in is the gateway";
    TicketMissing = "ticket-missing", 403, NotDispatched, "there is no ticket";
    TicketInvalid = "ticket-invalid", 403, NotDispatched, "the ticket is not valid";
    TicketExpired = "ticket-expired", 403, NotDispatched, "the ticket has expired";
    TicketKey = "ticket-key", 403, NotDispatched, "the ticket is of another dispatch";
    OutcomeUnknown = "outcome-unknown", 502, Unknown, "the service broke off; what came of the request is not known";
    OutcomeLate = "outcome-unknown", 504, Unknown, "the service did not answer in time; what came of the request is not known";
    OutcomeRefused = "outcome-unknown", 502, Unknown, "the guard refused it; whether a copy of it passed before is not known";
    Fenced = "fenced", 503, NotDispatched, "a newer holder has the resource";
    Busy = "busy", 503, NotDispatched, "an older request still works on the resource";
    InDoubt = "in-doubt", 503, NotDispatched, "what came of an older request is not known yet";
    Quarantine = "quarantine", 503, NotDispatched, "the guard waits until older requests are over";
    KeyLimit = "key-limit", 503, NotDispatched, "no more locks can be taken";
    LockService = "lock-service", 503, NotDispatched, "the lock service is away";
    Suspended = "suspended", 503, NotDispatched, "the hold of the resource could not be proven in time";
    NotInitialised = "not-initialised", 503, NotDispatched, "the lock service was not set up for this gateway yet";
    RolledBack = "rolled-back", 503, NotDispatched, "the lock service was restored to an older state";
    Guard = "guard", 503, NotDispatched, "the guard is away or refused";
    GuardSplit = "guard-split", 503, NotDispatched, "the guards of the service do not share a store";
    Store = "store", 503, NotDispatched, "the record of operations is away";
    RouteOperations = "route-operations", 503, NotDispatched, "too many operations of this kind are remembered";
    OperationsFull = "operations-full", 503, NotDispatched, "too many operations are remembered";
    Draining = "draining", 503, NotDispatched, "the gateway is stopping";
    Overloaded = "overloaded", 503, NotDispatched, "too many requests at once";
    Loop = "loop", 508, NotDispatched, "the request came back to where it was sent from";
}

/// An answer of our own, instead of an upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", .reason.word())]
pub struct Refusal {
    pub reason: Reason,
    /// For the log: may name hosts, keys, and causes. The client gets the reason's title.
    pub detail: Cow<'static, str>,
    /// Where the route says otherwise than the reason.
    status: Option<StatusCode>,
    /// What an operator finds the operation by.
    reference: Option<String>,
    /// What the service answered when the operation was carried out.
    recorded: Option<u16>,
    /// Nothing was dispatched, and yet nothing may be under the same tenure any more.
    retires: bool,
}

impl Refusal {
    pub fn new(reason: Reason, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, detail: detail.into(), status: None, reference: None, recorded: None, retires: false }
    }

    /// About the operation with this reference.
    pub fn about(self, reference: String) -> Self {
        Self { reference: Some(reference), ..self }
    }

    /// The service answered the operation with this status, before.
    pub fn recorded(self, status: u16) -> Self {
        Self { recorded: Some(status), ..self }
    }

    /// The tenure is over, although nothing of this request was dispatched.
    pub fn retiring(self) -> Self {
        Self { retires: true, ..self }
    }

    pub fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    /// Nothing may be dispatched any more under the tenure that met this.
    pub fn retires(&self) -> bool {
        self.retires || self.outcome() == Outcome::Unknown
    }

    /// Answers with `status` where it is a valid one.
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = StatusCode::from_u16(status).ok();
        self
    }

    pub fn outcome(&self) -> Outcome {
        self.reason.outcome()
    }

    pub fn status(&self) -> StatusCode {
        self.status.unwrap_or_else(|| self.reason.status())
    }

    /// `Fencing-Refusal`: the words in which a guard tells a gateway that it let nothing through, or told before what
    /// came of it. `None` for what ends a request before the guard's own question.
    pub fn word_of_guard(&self) -> Option<&'static str> {
        self.reason.is_of_a_guard().then(|| self.reason.word())
    }

    /// When it may help to ask again: seconds, for a refusal that time can change. Never where the outcome is unknown:
    /// a client that obeyed would pay twice.
    fn retry_after(&self) -> Option<Duration> {
        let later =
            matches!(self.status().as_u16(), 423 | 429 | 503) && self.outcome() == Outcome::NotDispatched;
        let seconds = match self.reason {
            // Room comes when something has been kept long enough.
            Reason::ClientOperations | Reason::RouteOperations | Reason::OperationsFull => 60,
            Reason::InProgress => 1,
            _ if later => 1,
            _ => return None,
        };
        Some(Duration::from_secs(seconds))
    }

    /// The answer: `application/problem+json` (RFC 9457).
    pub fn into_reply(self) -> Reply {
        let problem = Problem {
            kind: format!("urn:fencegate:{}", self.reason.word()),
            title: self.reason.title(),
            status: self.status().as_u16(),
            reason: self.reason.word(),
            outcome: self.outcome().word(),
            operation_ref: self.reference.as_deref(),
            recorded_status: self.recorded,
        };
        let body = serde_json::to_vec(&problem).expect("plain fields serialise");
        let mut reply = Response::new(Body::whole(Bytes::from(body)));
        *reply.status_mut() = self.status();
        let headers = reply.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(FENCING_OUTCOME, HeaderValue::from_static(self.outcome().word()));
        if let Some(after) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
        }
        reply
    }
}

#[derive(Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    reason: &'static str,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation_ref: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded_status: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maybe_dispatched_is_never_503_and_never_invites_a_retry() {
        for reason in Reason::ALL.iter().filter(|reason| reason.outcome() == Outcome::Unknown) {
            let refusal = Refusal::new(*reason, "");
            assert_ne!(refusal.status(), StatusCode::SERVICE_UNAVAILABLE, "{reason:?}");
            if *reason != Reason::InProgress {
                assert_eq!(refusal.retry_after(), None, "{reason:?}");
            }
        }
    }

    #[test]
    fn every_refusal_is_a_client_or_server_error() {
        for reason in Reason::ALL {
            let status = Refusal::new(*reason, "").status();
            assert!(status.is_client_error() || status.is_server_error(), "{reason:?}");
        }
    }

    #[test]
    fn words_are_shared_only_by_what_means_the_same() {
        let mut words: Vec<_> = Reason::ALL.iter().map(|reason| reason.word()).collect();
        words.sort_unstable();
        words.dedup();
        // outcome-unknown has three statuses: broken, late, recorded; and it may be a refusal that proves nothing. Of a slow request, and of one whose body breaks off,
        // a part may have been sent on.
        assert_eq!(words.len(), Reason::ALL.len() - 5);
    }
}
