//! Every answer that is no success: which status it has and what the client reads.

use axum::Json;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::order::BadOrder;
use crate::stamp::BadStamp;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error(transparent)]
    Stamp(#[from] BadStamp),
    #[error("the body is not the expected JSON: {0}")]
    Body(#[from] serde_json::Error),
    #[error(transparent)]
    Order(#[from] BadOrder),
    #[error("{available} are there, which is not enough")]
    Insufficient { available: i64 },
    #[error("this request is older than what was last done here")]
    Stale,
    #[error("nothing is here")]
    NotFound,
    /// The cause goes to the log, not to the client.
    #[error("the database failed")]
    Database(#[from] rusqlite::Error),
}

impl Problem {
    fn status(&self) -> StatusCode {
        match self {
            Self::Stamp(_) | Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::Order(_) | Self::Insufficient { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Stale => StatusCode::PRECONDITION_FAILED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Database(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Stamp(BadStamp::Missing(_)) => "token-missing",
            Self::Stamp(_) => "token-malformed",
            Self::Body(_) => "malformed",
            Self::Order(_) => "order-invalid",
            Self::Insufficient { .. } => "insufficient",
            Self::Stale => "stale",
            Self::NotFound => "not-found",
            Self::Database(_) => "database",
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        if let Self::Database(cause) = &self {
            eprintln!("the database failed: {cause}");
        }
        let (status, reason) = (self.status(), self.reason());
        let body = json!({
            "type": format!("urn:fencegate-ledger:{reason}"),
            "title": self.to_string(),
            "status": status.as_u16(),
            "reason": reason,
        });
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, "application/problem+json".parse().expect("a plain literal"));
        if matches!(self, Self::Stale) {
            // Tells the gateway that this 412 is about the fence and not about a client's `If-Match`.
            let field = HeaderName::from_static("fencing-refusal");
            headers.insert(field, "stale".parse().expect("a plain literal"));
        }
        response
    }
}
