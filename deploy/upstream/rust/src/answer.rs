//! What a request is told in the place of its handler's answer, and where the log hears of it.

use std::fmt;

use http::{HeaderValue, Method, Response, StatusCode, header::CONTENT_TYPE};

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The field that is compared is not there.
    TokenMissing,
    /// No gateway has written these fields.
    TokenMalformed,
    /// A newer request was let in; nothing was done.
    Stale,
    /// The handler says that it is done, and has compared nothing.
    Unclaimed,
    /// One claim has passed and another one was stale: nobody knows which of their transactions was committed.
    ClaimedTwice,
}

/// Makes answers of refusals. [`Problems`] does as the contract says; a service with answers of its own brings another.
pub trait Answers<B> {
    fn answer(&self, refusal: Refusal) -> Response<B>;

    /// What a developer has to mend.
    fn log(&self, unclaimed: &Unclaimed<'_>) {
        eprintln!("{unclaimed}");
    }
}

/// `application/problem+json` (RFC 9457).
#[derive(Debug, Clone, Copy, Default)]
pub struct Problems;

/// A handler that says that it is done, and has compared nothing.
#[derive(Debug, Clone, Copy)]
pub struct Unclaimed<'a> {
    pub method: &'a Method,
    /// Without the query.
    pub path: &'a str,
    pub status: StatusCode,
    /// The token, or the number where there is none.
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
        }
    }

    pub fn status(self) -> StatusCode {
        match self {
            Self::TokenMissing => StatusCode::FORBIDDEN,
            Self::TokenMalformed => StatusCode::BAD_REQUEST,
            Self::Stale => StatusCode::PRECONDITION_FAILED,
            Self::Unclaimed | Self::ClaimedTwice => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::TokenMissing => "there is no token: the way in is the gateway",
            Self::TokenMalformed => "the token cannot be read",
            Self::Stale => "a newer request was let in; nothing was done",
            Self::Unclaimed => "the service compared nothing; what came of the request is not known",
            Self::ClaimedTwice => "the service tried twice; what came of the first time is not known",
        }
    }
}

impl<B: From<String>> Answers<B> for Problems {
    fn answer(&self, refusal: Refusal) -> Response<B> {
        let (status, reason, title) = (refusal.status(), refusal.reason(), refusal.title());
        // Plain words: nothing in them has to be escaped.
        let body = format!(r#"{{"title":"{title}","status":{},"reason":"{reason}"}}"#, status.as_u16());
        let mut answer = Response::new(B::from(body));
        *answer.status_mut() = status;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if refusal == Refusal::Stale {
            // Tells the gateway that this 412 is about the fence and not about a client's `If-Match`.
            answer.headers_mut().insert("fencing-refusal", HeaderValue::from_static("stale"));
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
