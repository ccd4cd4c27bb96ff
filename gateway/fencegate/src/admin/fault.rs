//! Why the admin listener does not do what it was asked: a word for programs, a sentence for people.

use axum::{
    Extension, Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use fencegate_lock::tenures::question::Untold;
use serde_json::json;

use crate::admin::deed::Deed;

/// An answer that is none. Told as `{"error": ..., "reason": ...}`.
#[derive(Debug)]
pub struct Fault {
    pub word: Word,
    pub said: String,
    /// What was done, or may have been done, although the answer is a fault.
    pub did: Option<Deed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Host,
    CrossOrigin,
    Credentials,
    /// What is asked for is for those only who have shown who they are, and this listener asks nobody.
    Open,
    Confirm,
    Malformed,
    NotFound,
    /// What the operator saw has changed meanwhile.
    Changed,
    /// What is asked for is unsafe, and the operator has not said `force`.
    Force,
    /// It is done by somebody else.
    Elsewhere,
    /// Nobody who could do it answers.
    Away,
    Late,
    /// What is asked for may have been done.
    Unknown,
}

impl Word {
    fn text(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::CrossOrigin => "cross-origin",
            Self::Credentials => "credentials",
            Self::Open => "open",
            Self::Confirm => "confirm",
            Self::Malformed => "malformed",
            Self::NotFound => "not-found",
            Self::Changed => "changed",
            Self::Force => "force",
            Self::Elsewhere => "elsewhere",
            Self::Away => "away",
            Self::Late => "late",
            Self::Unknown => "unknown",
        }
    }

    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::CrossOrigin | Self::Open => StatusCode::FORBIDDEN,
            Self::Credentials => StatusCode::UNAUTHORIZED,
            Self::Confirm | Self::Malformed => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
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

    /// The same fault, with what the line in the log is to say was done.
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
        let told = Json(json!({ "error": self.said, "reason": self.word.text() }));
        (self.word.status(), self.did.map(Extension), told).into_response()
    }
}
