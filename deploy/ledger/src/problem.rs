//! All answers other than a success, with their status and text.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fencegate_upstream::{Answers, Refusal};
use serde_json::json;

use crate::order::ParseOrderError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// A refusal of the fencing layer.
    #[error("{}", .0.title())]
    Fence(Refusal),
    #[error("the body is not the expected JSON: {0}")]
    Body(#[from] serde_json::Error),
    #[error(transparent)]
    Order(#[from] ParseOrderError),
    #[error("{available} are available, which is not enough")]
    Insufficient { available: i64 },
    #[error("nothing is here")]
    NotFound,
    /// The cause goes to the log, not to the client.
    #[error("the database failed")]
    Database(#[from] rusqlite::Error),
}

impl ApiError {
    fn status(&self) -> StatusCode {
        match self {
            // A request without a token gets the same status as one with a broken token, because all requests
            // should come through the gateway.
            Self::Fence(Refusal::TokenMissing) | Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::Fence(refusal) => refusal.status(),
            Self::Order(_) | Self::Insufficient { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Database(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Fence(refusal) => refusal.reason(),
            Self::Body(_) => "malformed",
            Self::Order(_) => "order-invalid",
            Self::Insufficient { .. } => "insufficient",
            Self::NotFound => "not-found",
            Self::Database(_) => "database",
        }
    }
}

/// Answers the refusals of the fencing layer with the texts of this service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProblemResponder;

impl Answers<Body> for ProblemResponder {
    fn answer(&self, refusal: Refusal) -> Response {
        ApiError::Fence(refusal).into_response()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if let Self::Database(cause) = &self {
            eprintln!("the database failed: {cause}");
        }
        let status = self.status();
        let reason = self.reason();
        let body = json!({
            "type": format!("urn:fencegate-ledger:{reason}"),
            "title": self.to_string(),
            "status": status.as_u16(),
            "reason": reason,
        });
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, "application/problem+json".parse().expect("a plain literal"));
        if let Self::Fence(refusal @ (Refusal::Stale | Refusal::Expired)) = self {
            // Shows the gateway that this 412 is about the fence and not about a client's `If-Match`.
            let field = HeaderName::from_static("fencing-refusal");
            headers.insert(field, HeaderValue::from_static(refusal.reason()));
        }
        response
    }
}
