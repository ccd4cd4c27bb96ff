//! Reads what operators send to both roles: paths, queries, bodies and forms. Bad input becomes an [`AdminRefusal`] like
//! any other, because the refusals of the web library are plain texts that no program parses.

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{StatusCode, request::Parts},
};
use clap::ValueEnum;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::error::{AdminErrorCode, AdminRefusal};

/// The outcome that an operator gives to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ResolvedAs))]
pub enum ResolvedOutcome {
    /// The operation took effect.
    Done,
    /// The operation did not take effect, and never will.
    NotDone,
}

/// The subject in the path of a request.
pub(super) struct PathParam(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PathParam {
    type Rejection = AdminRefusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, AdminRefusal> {
        let named = Path::<String>::from_request_parts(parts, state).await;
        named
            .map(|Path(name)| Self(name))
            .map_err(|bad| AdminRefusal::new(AdminErrorCode::Malformed, bad.body_text()))
    }
}

/// The query of a request.
pub(super) struct QueryParams<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = AdminRefusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, AdminRefusal> {
        let asked = Query::<T>::from_request_parts(parts, state).await;
        asked
            .map(|Query(asked)| Self(asked))
            .map_err(|bad| AdminRefusal::new(AdminErrorCode::Malformed, bad.body_text()))
    }
}

/// The body of a request.
pub(super) struct RequestBodyBytes(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for RequestBodyBytes {
    type Rejection = AdminRefusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, AdminRefusal> {
        let given = Bytes::from_request(request, state).await;
        given.map(Self).map_err(|bad| {
            let large = bad.status() == StatusCode::PAYLOAD_TOO_LARGE;
            AdminRefusal::new(
                if large { AdminErrorCode::TooLarge } else { AdminErrorCode::Malformed },
                format!("the body: {}", bad.body_text()),
            )
        })
    }
}

/// Reads the body of a request. Its media type is not checked: a request from another site was refused before.
pub(super) fn parse_body<T: DeserializeOwned>(
    RequestBodyBytes(body): &RequestBodyBytes,
) -> Result<T, AdminRefusal> {
    serde_json::from_slice(body)
        .map_err(|bad| AdminRefusal::new(AdminErrorCode::Malformed, format!("the body: {bad}")))
}
