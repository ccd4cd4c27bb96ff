//! The stored part of the answer to an operation, and how the answer is replayed.

use fencegate_guard_store::operation::StoredResponse;
use fencegate_http::body::{Body, Reply};
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{self, HeaderName, HeaderValue},
};

use crate::request_context::{AdmissionFacts, ReplayExtent, RequestContext};

/// The operation was done, but its answer was not seen here.
pub(super) fn unseen_answer() -> StoredResponse {
    StoredResponse { status: 0, fields: Vec::new(), body: None }
}

/// The answer of an earlier execution.
pub(super) fn replay(kept: StoredResponse, context: &RequestContext) -> Result<Reply, Refusal> {
    let Some(status) = StatusCode::from_u16(kept.status).ok() else {
        return Err(Refusal::new(
            RefusalReason::AlreadyDone,
            "done before, and its answer was not seen here",
        ));
    };
    let extent = if kept.body.is_some() { ReplayExtent::Whole } else { ReplayExtent::WithoutBody };
    context.admission.get_or_init(|| AdmissionFacts::Replayed(extent));
    let mut reply = Response::new(Body::from_bytes(kept.body.unwrap_or_default()));
    *reply.status_mut() = status;
    for (name, value) in &kept.fields {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            reply.headers_mut().append(name, value);
        }
    }
    Ok(reply)
}

/// Fields of an answer that mean the same when it is replayed. `Retry-After` does not: this answer will not change.
const REPLAYED_FIELDS: [HeaderName; 8] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::LOCATION,
    header::ETAG,
    header::LAST_MODIFIED,
    header::CACHE_CONTROL,
    header::LINK,
];

/// The stored part of an answer's fields.
pub(super) fn replayable_fields(headers: &HeaderMap) -> Vec<(String, String)> {
    let values = REPLAYED_FIELDS
        .iter()
        .flat_map(|name| headers.get_all(name).into_iter().map(move |value| (name.as_str(), value)));
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    values.filter_map(|(name, value)| Some((name.to_owned(), text(value)?))).collect()
}
