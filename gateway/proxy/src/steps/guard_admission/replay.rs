//! Selects the stored part of the answer to an operation, and replays the answer.

use fencegate_guard_store::operation::StoredResponse;
use fencegate_http::body::{Body, Reply};
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{self, HeaderName, HeaderValue},
};

use crate::request_context::{ObservedOrReplayed, RequestContext, ResponseReplayExtent};

/// The record of an operation that was done, but whose answer the guard has not seen.
pub(super) fn unseen_response_placeholder() -> StoredResponse {
    StoredResponse { status: 0, fields: Vec::new(), body: None }
}

/// Makes the reply from the stored answer of an earlier execution.
pub(super) fn replay(stored: StoredResponse, context: &RequestContext) -> Result<Reply, Refusal> {
    let Some(status) = StatusCode::from_u16(stored.status).ok() else {
        return Err(Refusal::new(
            RefusalReason::AlreadyDone,
            "done before, and its answer was not seen here",
        ));
    };
    let extent =
        if stored.body.is_some() { ResponseReplayExtent::Whole } else { ResponseReplayExtent::WithoutBody };
    context.admission.get_or_init(|| ObservedOrReplayed::Replayed(extent));
    let mut reply = Response::new(Body::from_bytes(stored.body.unwrap_or_default()));
    *reply.status_mut() = status;
    for (name, value) in &stored.fields {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            reply.headers_mut().append(name, value);
        }
    }
    Ok(reply)
}

/// True for a field that would be wrong in a replayed answer. Hop-by-hop fields were removed by an earlier step.
fn is_per_response_header(name: &HeaderName) -> bool {
    // A replay gets the length of the stored body, and has no trailers.
    const FRAMING: [HeaderName; 2] = [header::CONTENT_LENGTH, header::TRAILER];
    // These fields are about the moment of the first answer; a replay does not change when it is repeated.
    const OF_ITS_TIME: [HeaderName; 3] = [header::DATE, header::AGE, header::RETRY_AFTER];
    // These fields describe the connection or the request with which the recorded answer was sent, so they are not
    // replayed.
    const NOT_REPLAYED_FIELDS: [&str; 6] =
        ["alt-svc", "server-timing", "x-request-id", "traceparent", "tracestate", "via"];
    // `Set-Cookie` has a secret, which must not be stored in a journal and its backups.
    FRAMING.contains(name)
        || OF_ITS_TIME.contains(name)
        || NOT_REPLAYED_FIELDS.contains(&name.as_str())
        || *name == header::SET_COOKIE
}

/// The most bytes of the fields of one answer that are stored.
const MOST: usize = 8 << 10;

/// Returns the fields of an answer that are stored: those that are right in a replay too, up to [`MOST`] bytes.
pub(super) fn replayable_fields(headers: &HeaderMap) -> Vec<(String, String)> {
    let fields = headers.iter().filter(|(name, _)| !is_per_response_header(name));
    let fields = fields.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let mut room = MOST;
    let fits = |(name, value): &(&str, &str)| {
        let left = room.checked_sub(name.len() + value.len());
        room = left.unwrap_or(room);
        left.is_some()
    };
    fields.filter(fits).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_names(fields: &[(&'static str, &str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        replayable_fields(&headers).into_iter().map(|(name, _)| name).collect()
    }

    /// A replay has the fields that describe the result, and none about the connection, the moment or the request.
    #[test]
    fn replay_keeps_fields_of_the_result() {
        for name in [
            "content-type",
            "location",
            "content-location",
            "preference-applied",
            "etag",
            "vary",
            "content-disposition",
            "x-total-count",
            "x-ratelimit-remaining",
            "deprecation",
            "digest",
        ] {
            assert_eq!(kept_names(&[(name, "x")]), [name]);
        }
        for name in [
            "content-length",
            "date",
            "age",
            "retry-after",
            "set-cookie",
            "x-request-id",
            "alt-svc",
            "server-timing",
            "traceparent",
        ] {
            assert!(kept_names(&[(name, "x")]).is_empty(), "{name}");
        }
        assert_eq!(kept_names(&[("link", "a"), ("link", "b")]).len(), 2);
    }

    /// A field that is larger than the limit is not stored, and the shorter ones beside it are.
    #[test]
    fn kept_fields_are_bounded() {
        let long = "x".repeat(MOST);
        assert_eq!(kept_names(&[("x-a", &long), ("location", "/v1/a")]), ["location"]);
    }
}
