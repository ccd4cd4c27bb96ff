//! The answers that a gateway or guard gives by itself. This is the one place that turns reasons into HTTP.
//!
//! [`Refusal`] is such an answer. `reason` is the table of all reasons, each with its status, its texts and the errors
//! of `source` that it stands for; `convert` keeps the further facts of such an error. The lists in `CLIENTS.md` and
//! `PROBLEMS.md` are written from this table by `tests/reasons.rs`.
//!
//! When to refuse is decided elsewhere: in the steps of `fencegate-proxy` and in `fencegate-leases`. `fencegate-peers`
//! reads the reasons in answers of other gateways.

// `println!` panics when the reader of the output is gone, so this crate does not use it.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod convert;
mod reason;
mod source;

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use fencegate_http::body::{Body, Reply};
use fencegate_protocol::headers::{FENCING_OUTCOME, SERVED_METHODS};
use hyper::{
    Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde::Serialize;

pub use self::{
    reason::{DispatchOutcome, RefusalAudience, RefusalReason},
    source::RefusalSourceError,
};

/// The page with a section for each reason: `deploy/docs/PROBLEMS.md`. The host is the one of all links to documents,
/// as in the runbook links of the alerts. An operator who publishes the page replaces the host. Programs read `reason`,
/// which does not depend on the address.
pub const PROBLEMS: &str = "https://fencegate.example/PROBLEMS.md";

/// An answer of the process itself, in place of an upstream's answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", .reason.word())]
pub struct Refusal {
    pub reason: RefusalReason,
    /// The text for the log, which may name hosts, keys and causes. The client gets it only if its own request is at
    /// fault, see [`Refusal::client_detail`].
    pub detail: Cow<'static, str>,
    /// The status that the route sets; `None` for the status of the reason.
    status: Option<StatusCode>,
    /// The reference by which an operator finds the operation.
    reference: Option<String>,
    /// What the client can do, beside the title.
    advice: Option<Cow<'static, str>>,
    /// The status that the service answered when it executed the operation.
    recorded: Option<u16>,
    /// The permitted methods, if the method was wrong; `None` if all methods that are served are permitted.
    allow: Option<Box<HeaderValue>>,
    /// The time after which another attempt can help, if that is known.
    after: Option<Duration>,
    /// Whether the grant must not be used any more, although nothing was dispatched.
    retires: bool,
}

impl Refusal {
    pub fn new(reason: RefusalReason, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reason,
            detail: detail.into(),
            status: None,
            reference: None,
            advice: None,
            recorded: None,
            allow: None,
            after: None,
            retires: false,
        }
    }

    /// Adds the reference by which an operator finds the operation.
    pub fn with_operation_reference(self, reference: String) -> Self {
        Self { reference: Some(reference), ..self }
    }

    /// Adds advice for the client.
    pub fn with_advice(self, advice: impl Into<Cow<'static, str>>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// Adds the status that the service answered when it executed the operation.
    pub fn with_recorded_status(self, status: u16) -> Self {
        Self { recorded: Some(status), ..self }
    }

    /// Adds the permitted methods.
    pub fn with_allow(self, methods: HeaderValue) -> Self {
        Self { allow: Some(Box::new(methods)), ..self }
    }

    /// Adds the time before which another attempt cannot help.
    pub fn with_retry_after(self, rest: Duration) -> Self {
        Self { after: Some(rest), ..self }
    }

    /// Ends the grant, although nothing of this request was dispatched.
    pub fn with_grant_retirement(self) -> Self {
        Self { retires: true, ..self }
    }

    pub fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    /// True if nothing may be dispatched any more under the grant of this request.
    pub fn retires_grant(&self) -> bool {
        self.retires || self.outcome() == DispatchOutcome::Unknown
    }

    /// Sets `status` as the status of the answer, if it is valid.
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = StatusCode::from_u16(status).ok();
        self
    }

    pub fn outcome(&self) -> DispatchOutcome {
        self.reason.outcome()
    }

    pub fn status(&self) -> StatusCode {
        self.status.unwrap_or_else(|| self.reason.status())
    }

    /// The word for the field `Fencing-Refusal`, with which a guard reports to a gateway that it dispatched nothing, or
    /// how an earlier request ended. `None` for a refusal that came before the guard's own decision.
    pub fn guard_refusal_word(&self) -> Option<&'static str> {
        self.reason.is_guard_reason().then(|| self.reason.word())
    }

    /// The time after which another attempt may help, for a refusal that ends by itself. There is none for an unknown
    /// outcome, because a client that obeyed could pay twice.
    fn retry_after(&self) -> Option<Duration> {
        let later = matches!(self.status().as_u16(), 423 | 429 | 503)
            && self.outcome() == DispatchOutcome::NotDispatched;
        if let Some(rest) = self.after {
            return Some(Duration::from_secs(rest.as_secs() + 1));
        }
        let seconds = match self.reason {
            // Capacity becomes free only when the record of an operation has expired, so the time is long.
            RefusalReason::ClientOperations
            | RefusalReason::RouteOperations
            | RefusalReason::OperationsFull => 60,
            RefusalReason::InProgress | RefusalReason::LeaseInProgress | RefusalReason::DeadlockAvoided => 1,
            _ if later => 1,
            _ => return None,
        };
        Some(Duration::from_secs(seconds))
    }

    /// The `detail` of the answer: the fault of this request, if the client may know it, and the action for the client.
    fn client_detail(&self) -> String {
        let cause = self.advice.as_deref().or_else(|| self.reason.shows_cause().then_some(&*self.detail));
        let action = self.reason.client_action();
        match cause.unwrap_or_default().trim() {
            "" => action.to_owned(),
            cause => format!("{} {action}", sentence(cause)),
        }
    }

    /// The challenge for the client (RFC 9110, 11.6.1), with the error of its token (RFC 6750, 3).
    fn challenge(&self) -> Option<HeaderValue> {
        let error = match self.reason {
            RefusalReason::LeaseCredentials => return Some(HeaderValue::from_static("Bearer")),
            // For a request without a token the challenge names no error (RFC 6750, 3).
            RefusalReason::BearerMissing => {
                return Some(HeaderValue::from_static("Bearer realm=\"gateway\""));
            }
            RefusalReason::BearerInvalid => "invalid_token",
            RefusalReason::BearerMalformed => "invalid_request",
            _ => return None,
        };
        // Only these characters are allowed in an error description (RFC 6750, 3).
        let is_shown = |char: &char| matches!(char, ' '..='~') && !['"', '\\'].contains(char);
        let description: String = self.detail.chars().filter(is_shown).collect();
        let challenge =
            format!("Bearer realm=\"gateway\", error=\"{error}\", error_description=\"{description}\"");
        HeaderValue::try_from(challenge).ok()
    }

    /// The answer: `application/problem+json` (RFC 9457).
    pub fn into_reply(self) -> Reply {
        let problem = RefusalProblemJson {
            kind: format!("{PROBLEMS}#{}", self.reason.word()),
            title: self.reason.title(),
            status: self.status().as_u16(),
            reason: self.reason.word(),
            outcome: self.outcome().as_str(),
            detail: &self.client_detail(),
            operation_ref: self.reference.as_deref(),
            recorded_status: self.recorded,
        };
        let body = serde_json::to_vec(&problem).expect("plain fields serialise");
        let mut reply = Response::new(Body::from_bytes(Bytes::from(body)));
        *reply.status_mut() = self.status();
        let headers = reply.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(FENCING_OUTCOME, HeaderValue::from_static(self.outcome().as_str()));
        if let Some(challenge) = self.challenge() {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        // A response 405 must list the permitted methods (RFC 9110, 15.5.6).
        if self.status() == StatusCode::METHOD_NOT_ALLOWED {
            let served = || HeaderValue::from_static(SERVED_METHODS);
            headers.insert(ALLOW, self.allow.as_deref().cloned().unwrap_or_else(served));
        }
        if let Some(after) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
        }
        reply
    }
}

/// The body of a refusal.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Problem))]
pub struct RefusalProblemJson<'a> {
    /// The address of a section of `deploy/docs/PROBLEMS.md`.
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    /// The word of the reason, and the name of that section.
    reason: &'static str,
    /// `done`, `replayed`, `not-dispatched` or `unknown`.
    outcome: &'static str,
    /// What is wrong with this request, and what to do.
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation_ref: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded_status: Option<u16>,
}

/// Makes a sentence of a text: with a capital letter at its beginning, and a full stop at its end.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase()).into_iter();
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    first.chain(letters).chain(end.chars()).collect()
}

/// The form for handlers of `axum`. The response carries the refusal, so that one place makes its body.
impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        let mut response = axum::response::IntoResponse::into_response(self.status());
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refusal of the method has to name the permitted methods (RFC 9110, 15.5.6).
    #[test]
    fn method_refusal_lists_served_methods() {
        let allow = |reason| Refusal::new(reason, "").into_reply().headers().get(ALLOW).cloned();
        assert_eq!(allow(RefusalReason::Method).expect("a field"), SERVED_METHODS);
        assert_eq!(allow(RefusalReason::NoRoute), None);
    }

    /// Each answer tells the client what to do.
    #[test]
    fn every_problem_has_detail() {
        for reason in RefusalReason::ALL {
            let detail = Refusal::new(*reason, "").client_detail();
            assert!(detail.len() > 20 && detail.ends_with('.'), "{reason:?}: {detail}");
            assert!(detail.starts_with(|first: char| first.is_ascii_uppercase()), "{reason:?}: {detail}");
        }
    }

    /// A client is told what is wrong with its own request, and nothing of hosts, holders or other requests.
    #[test]
    fn detail_names_only_faults_of_request() {
        let found = "the body is not declared as JSON";
        for reason in [RefusalReason::KeyInvalid, RefusalReason::Malformed, RefusalReason::LeaseForbidden] {
            let detail = Refusal::new(reason, found).client_detail();
            assert!(detail.starts_with("The body is not declared as JSON. "), "{detail}");
        }
        for reason in RefusalReason::ALL.iter().filter(|reason| {
            reason.outcome() != DispatchOutcome::NotDispatched || reason.status().is_server_error()
        }) {
            let detail = Refusal::new(*reason, "10.0.0.7:8080: secret").client_detail();
            assert!(
                *reason == RefusalReason::TransferEncoding || !detail.contains("10.0.0.7"),
                "{reason:?}: {detail}"
            );
        }
        for reason in [RefusalReason::SlowRequest, RefusalReason::Locked, RefusalReason::IdempotencyMismatch]
        {
            assert!(
                !Refusal::new(reason, "10.0.0.7:8080: secret").client_detail().contains("10.0.0.7"),
                "{reason:?}"
            );
        }
    }

    /// A refusal after a possible dispatch never has status 503, nor `Retry-After` unless the request is in progress.
    #[test]
    fn unknown_outcome_is_never_503() {
        for reason in RefusalReason::ALL.iter().filter(|reason| reason.outcome() == DispatchOutcome::Unknown)
        {
            let refusal = Refusal::new(*reason, "");
            assert_ne!(refusal.status(), StatusCode::SERVICE_UNAVAILABLE, "{reason:?}");
            if *reason != RefusalReason::InProgress {
                assert_eq!(refusal.retry_after(), None, "{reason:?}");
            }
        }
    }

    /// Every refusal has a status of the classes 4xx and 5xx.
    #[test]
    fn refusals_have_error_status() {
        for reason in RefusalReason::ALL {
            let status = Refusal::new(*reason, "").status();
            assert!(status.is_client_error() || status.is_server_error(), "{reason:?}");
        }
    }

    /// A refusal of a bearer token has the challenge of RFC 6750, whatever its detail is.
    #[test]
    fn bearer_refusal_has_challenge() {
        let challenge = |reason, detail: &'static str| {
            Refusal::new(reason, detail).into_reply().headers().get(WWW_AUTHENTICATE).cloned()
        };
        assert_eq!(
            challenge(RefusalReason::BearerInvalid, "the token has expired").expect("a field"),
            "Bearer realm=\"gateway\", error=\"invalid_token\", error_description=\"the token has expired\""
        );
        assert_eq!(
            challenge(RefusalReason::BearerMalformed, "a \"b\\\r\nc\u{e9}").expect("a field"),
            "Bearer realm=\"gateway\", error=\"invalid_request\", error_description=\"a bc\""
        );
        assert_eq!(challenge(RefusalReason::BearerMissing, "").expect("a field"), "Bearer realm=\"gateway\"");
        assert_eq!(challenge(RefusalReason::CertificateRequired, ""), None);
    }
}
