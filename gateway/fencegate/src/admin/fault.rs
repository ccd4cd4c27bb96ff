//! Why the admin listener refuses a request: a word for programs and a sentence for people.

use axum::{
    Extension, Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use fencegate_lock::tenures::question::Untold;
use serde::Serialize;

use crate::admin::deed::Deed;

/// A refusal. Sent as `{"error": ..., "reason": ...}`.
#[derive(Debug)]
pub struct Fault {
    pub word: Word,
    pub said: String,
    /// What was done, or may have been done, in spite of the refusal.
    pub did: Option<Deed>,
}

/// The body of a refusal.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Fault))]
pub(crate) struct FaultTold {
    /// A sentence for people.
    error: String,
    /// A word for programs.
    reason: Word,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = FaultReason))]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    Host,
    CrossOrigin,
    Credentials,
    /// Only authenticated callers may do this, but this listener asks for no credentials.
    Open,
    Confirm,
    Malformed,
    /// The body is too large.
    TooLarge,
    NotFound,
    /// The path does not have this method.
    Method,
    /// What the operator saw has changed meanwhile.
    Changed,
    /// The request is unsafe and lacks `force`.
    Force,
    /// Another process does this.
    Elsewhere,
    /// The process that could do this does not answer.
    Away,
    Late,
    /// The request may have been carried out.
    Unknown,
}

impl Word {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::CrossOrigin | Self::Open => StatusCode::FORBIDDEN,
            Self::Credentials => StatusCode::UNAUTHORIZED,
            Self::Confirm | Self::Malformed => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Changed | Self::Force | Self::Elsewhere => StatusCode::CONFLICT,
            Self::Away => StatusCode::SERVICE_UNAVAILABLE,
            Self::Late | Self::Unknown => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

impl Fault {
    pub fn new(word: Word, said: impl Into<String>) -> Self {
        Self { word, said: said.into(), did: None }
    }

    /// Adds what was done, for the line in the log.
    pub fn having(mut self, did: Deed) -> Self {
        self.did = Some(did);
        self
    }
}

impl From<Untold> for Fault {
    fn from(untold: Untold) -> Self {
        let word = match untold {
            Untold::Away | Untold::Ended | Untold::Fault(_) => Word::Away,
            Untold::Late(_) => Word::Late,
            Untold::Unknown => Word::Unknown,
        };
        Self::new(word, untold.to_string())
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let told = Json(FaultTold { error: self.said, reason: self.word });
        (self.word.status(), self.did.map(Extension), told).into_response()
    }
}
