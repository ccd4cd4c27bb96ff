//! The answers that replace a handler's answer, and the log entry of a missing claim.

use std::{fmt, future::ready, pin::Pin};

use http::{HeaderValue, Method, Response, StatusCode, header::CONTENT_TYPE};

/// The reason for which a request is refused, or the answer of its handler replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The field that is to be compared is missing.
    TokenMissing,
    /// The fields do not have the form that a gateway writes.
    TokenMalformed,
    /// A newer request was executed before. This one has changed nothing.
    Stale,
    /// The handler answered with a success, but has not claimed the fence.
    Unclaimed,
    /// One claim has passed and another one was stale, so it is not known whether a transaction was committed.
    ClaimedTwice,
    /// The request came after its `Fencing-Not-After`. This copy of it was not begun.
    Expired,
    /// `Fencing-Not-After` is missing.
    NotAfterMissing,
    /// `Fencing-Not-After` does not have the form that a gateway writes.
    NotAfterMalformed,
}

/// Turns refusals into answers. [`Problems`] follows the contract; a service can bring answers of its own.
pub trait Answers<B> {
    fn answer(&self, refusal: Refusal) -> Response<B>;

    /// Logs a missing claim, which is a mistake in the service.
    fn log(&self, unclaimed: &Unclaimed<'_>) {
        eprintln!("{unclaimed}");
    }
}

/// The future of a layered service.
pub(crate) type Answered<B, E> = Pin<Box<dyn Future<Output = Result<Response<B>, E>> + Send>>;

/// Completes at once with an answer that no handler has made.
pub(crate) fn answered<B: Send + 'static, E: Send + 'static>(answer: Response<B>) -> Answered<B, E> {
    Box::pin(ready(Ok(answer)))
}

/// Answers as `application/problem+json` (RFC 9457).
#[derive(Debug, Clone, Copy, Default)]
pub struct Problems;

/// Describes a request whose handler answered with a success and has not claimed the fence.
#[derive(Debug, Clone, Copy)]
pub struct Unclaimed<'a> {
    pub method: &'a Method,
    /// The path, without the query.
    pub path: &'a str,
    pub status: StatusCode,
    /// The token of the request, or its number if it has no token.
    pub mark: &'a str,
}

impl Refusal {
    pub fn reason(self) -> &'static str {
        match self {
            Self::TokenMissing => "token-missing",
            Self::TokenMalformed => "token-malformed",
            Self::Stale => "stale",
            Self::Unclaimed => "unclaimed",
            Self::ClaimedTwice => "claimed-twice",
            Self::Expired => "expired",
            Self::NotAfterMissing => "not-after-missing",
            Self::NotAfterMalformed => "not-after-malformed",
        }
    }

    pub fn status(self) -> StatusCode {
        match self {
            Self::TokenMissing | Self::NotAfterMissing => StatusCode::FORBIDDEN,
            Self::TokenMalformed | Self::NotAfterMalformed => StatusCode::BAD_REQUEST,
            Self::Stale | Self::Expired => StatusCode::PRECONDITION_FAILED,
            Self::Unclaimed | Self::ClaimedTwice => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::TokenMissing => "there is no token: the way in is the gateway",
            Self::TokenMalformed => "the token cannot be read",
            Self::Stale => "a newer request was let in; nothing was done",
            Self::Unclaimed => "the service did not compare the token; the outcome of the request is unknown",
            Self::ClaimedTwice => "the service claimed twice; the outcome of the first claim is unknown",
            Self::Expired => "the request came too late to be begun",
            Self::NotAfterMissing => "there is no Fencing-Not-After: the way in is the gateway",
            Self::NotAfterMalformed => "Fencing-Not-After cannot be read",
        }
    }
}

impl<B: From<String>> Answers<B> for Problems {
    fn answer(&self, refusal: Refusal) -> Response<B> {
        let status = refusal.status();
        let reason = refusal.reason();
        let title = refusal.title();
        // The texts contain no quotes, backslashes or control characters, so nothing has to be escaped.
        let body = format!(r#"{{"title":"{title}","status":{},"reason":"{reason}"}}"#, status.as_u16());
        let mut answer = Response::new(B::from(body));
        *answer.status_mut() = status;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(refusal, Refusal::Stale | Refusal::Expired) {
            // Shows the gateway that this 412 is about the fence and not about a client's `If-Match`.
            answer.headers_mut().insert("fencing-refusal", HeaderValue::from_static(reason));
        }
        answer
    }
}

impl fmt::Display for Unclaimed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, path, status, mark } = self;
        write!(
            f,
            "{method} {path} ({mark}) answered {} without a claim: it may have taken effect, and a stale request would \
             have as well; call claim() in the transaction of the effect",
            status.as_u16()
        )
    }
}
