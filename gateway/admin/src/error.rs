//! The reason for which the admin listener refuses a request: a word for programs and a sentence for people. A
//! refusal may also carry the action of the operator, for the audit line in the log.

use axum::{
    Extension, Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use fencegate_lock::manager::admin_query::AdminQueryError;
use serde::Serialize;

/// A refusal. Sent as `{"error": ..., "reason": ...}`.
#[derive(Debug)]
pub struct AdminRefusal {
    pub code: AdminErrorCode,
    pub message: String,
    /// The action that was done, or may have been done, in spite of the refusal.
    pub action: Option<AuditAction>,
}

/// The body of a refusal.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Fault))]
pub(crate) struct AdminErrorBody {
    /// A sentence for people.
    error: String,
    /// A word for programs.
    reason: AdminErrorCode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = FaultReason))]
#[serde(rename_all = "kebab-case")]
pub enum AdminErrorCode {
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

impl AdminErrorCode {
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

impl AdminRefusal {
    pub fn new(code: AdminErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), action: None }
    }

    /// Adds the action, for the line in the log.
    pub(crate) fn with_action(mut self, did: AuditAction) -> Self {
        self.action = Some(did);
        self
    }
}

impl From<AdminQueryError> for AdminRefusal {
    fn from(error: AdminQueryError) -> Self {
        let code = match error {
            AdminQueryError::NoSession | AdminQueryError::ShuttingDown | AdminQueryError::Fault(_) => {
                AdminErrorCode::Away
            }
            AdminQueryError::Timeout(_) => AdminErrorCode::Late,
            AdminQueryError::Unknown => AdminErrorCode::Unknown,
        };
        Self::new(code, error.to_string())
    }
}

impl IntoResponse for AdminRefusal {
    fn into_response(self) -> Response {
        let body = Json(AdminErrorBody { error: self.message, reason: self.code });
        (self.code.status(), self.action.map(Extension), body).into_response()
    }
}

/// The action of an operator, as the log shows it.
#[derive(Debug, Clone)]
pub struct AuditAction(pub String);
