//! Answers requests to the lease interface. Such a request is for the gateway itself and has no route.

use std::time::Duration;

use axum::{
    Router,
    body::{Body as Said, to_bytes},
    extract::DefaultBodyLimit,
    http::{Request, Response},
};
use bytes::Bytes;
use fencegate_http::body::{Body, BodyChunk, Reply};
use fencegate_leases::{LeaseApiState, LeaseCaller, PREFIX, api::routes};
use fencegate_protocol::headers::{FENCING_AUTHORIZATION, FENCING_LEASE};
use fencegate_refusal::{Refusal, RefusalReason};
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    HeaderMap,
    body::Frame,
    header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, ORIGIN},
};
use tokio::{sync::mpsc, task::spawn_local, time::timeout};
use tower::ServiceExt as _;

use super::{forward_auth, hop::IdentifiedRequest, trace::TracedRequest};
use crate::handler::Handler;

/// The settings and state of the step that answers the lease interface.
#[derive(Clone)]
pub struct LeaseApiRouter {
    interface: LeaseApiState,
    routes: Router,
    /// The longest time for the body of a request.
    patience: Duration,
}

/// The first path segments below [`PREFIX`] that this interface answers. `guard` is not among them: it belongs
/// to a guard.
const PATHS: [&str; 4] = ["leases", "keys", "elections", forward_auth::PATH];
/// The most bytes of a body. It is far above the length of 16 long keys.
const MAX_BODY: usize = 16 << 10;
/// The most pieces of an answer that wait for the client.
const PIPE_CAPACITY: usize = 4;

impl LeaseApiRouter {
    pub fn new(interface: LeaseApiState, patience: Duration) -> Self {
        let routes = routes(interface.clone()).layer(DefaultBodyLimit::max(MAX_BODY));
        Self { interface, routes, patience }
    }

    fn matches(&self, path: &str) -> bool {
        let ours = first_segment(path).is_some_and(|first| PATHS.contains(&first));
        ours && self.interface.leases.settings().bounds.is_some()
    }

    /// Reads the credential of the caller. It may stand in `Fencing-Authorization`, because another proxy may
    /// forward its client's `Authorization` beside its own credential.
    fn lease_caller(&self, request: &IdentifiedRequest) -> LeaseCaller {
        let IdentifiedRequest { http, presented, source, .. } = request;
        let peer = &source.arrival.peer;
        let authority = &self.interface.leases.settings().authority;
        let principal = match presented.get(FENCING_AUTHORIZATION) {
            Some(shown) => {
                let shown = HeaderMap::from_iter([(AUTHORIZATION, shown.clone())]);
                authority.principal(&shown, peer)
            }
            None => authority.principal(http.headers(), peer),
        };
        LeaseCaller { principal, sent_on: source.forwarded.is_some(), client: Some(source.client) }
    }
}

/// The first path segment below [`PREFIX`].
fn first_segment(path: &str) -> Option<&str> {
    path.strip_prefix(PREFIX).and_then(|below| below.split('/').next())
}

pub async fn answer_lease_api<S: Handler<TracedRequest>>(
    step: &Option<LeaseApiRouter>,
    traced: TracedRequest,
    next: &S,
) -> Result<Reply, Refusal> {
    match step {
        Some(step) if step.matches(traced.request.http.uri().path()) => {
            Box::pin(respond(step, traced.request)).await
        }
        _ => next.handle(traced).await,
    }
}

async fn respond(step: &LeaseApiRouter, request: IdentifiedRequest) -> Result<Reply, Refusal> {
    // A request with this field comes from another proxy, which may forward requests of browsers. No web page
    // can make a browser send this field, so the request is not a forged one.
    let of_a_proxy = request.presented.contains_key(FENCING_AUTHORIZATION);
    if !of_a_proxy && is_cross_site(request.http.headers()) {
        return Err(Refusal::new(
            RefusalReason::LeaseForbidden,
            "a page of another site asks in the name of its visitor",
        ));
    }
    let caller = step.lease_caller(&request);
    let IdentifiedRequest { http, presented, entry, .. } = request;
    // The request has no route, so the entry is dropped: a reload must not wait for a client that watches a
    // lease.
    drop(entry);
    let (mut head, body) = http.into_parts();
    if first_segment(head.uri.path()) == Some(forward_auth::PATH) {
        for lease in presented.get_all(FENCING_LEASE) {
            head.headers.append(FENCING_LEASE, lease.clone());
        }
        // The body is not read: a proxy may announce the body of its client's request and send none.
        return forward_auth::answer_forward_auth(&step.interface, &caller, &head).await.map(with_no_store);
    }
    let body = timeout(step.patience, Limited::new(body, MAX_BODY).collect()).await;
    let body = body.map_err(|_| Refusal::new(RefusalReason::SlowRequest, "no complete body in time"))?;
    let body =
        body.map_err(|_| Refusal::new(RefusalReason::BodyTooLarge, "more than a question about leases has"))?;
    for lease in presented.get_all(FENCING_LEASE) {
        head.headers.append(FENCING_LEASE, lease.clone());
    }
    let mut subrequest = Request::new(Said::from(body.to_bytes()));
    (*subrequest.method_mut(), *subrequest.uri_mut(), *subrequest.headers_mut()) =
        (head.method, head.uri, head.headers);
    subrequest.extensions_mut().insert(caller);
    let answer = step.routes.clone().oneshot(subrequest).await.unwrap_or_else(|never| match never {});
    to_reply(answer).await
}

/// True for a request that a page of another site makes; browsers mark such requests. A browser would show its
/// client certificate for them without a prompt.
fn is_cross_site(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) || headers.get("sec-fetch-site").is_some_and(|site| site != "none")
}

/// # Errors
/// Returns the refusal if the answer is one.
async fn to_reply(answer: Response<Said>) -> Result<Reply, Refusal> {
    let (mut head, body) = answer.into_parts();
    if let Some(refusal) = head.extensions.remove::<Refusal>() {
        return Err(match head.headers.remove(ALLOW) {
            Some(methods) => refusal.with_allow(methods),
            None => refusal,
        });
    }
    if head.status.is_client_error() && content_type(&head.headers) != Some("application/problem+json") {
        // This answer comes from the web library, which refused the path or the query.
        return Err(Refusal::new(
            RefusalReason::Malformed,
            format!("a question about leases: {}", head.status),
        ));
    }
    head.extensions.clear();
    let body = match content_type(&head.headers) {
        Some("text/event-stream") => stream_body(body),
        _ => Body::from_bytes(to_bytes(body, usize::MAX).await.unwrap_or_default()),
    };
    Ok(with_no_store(Reply::from_parts(head, body)))
}

/// Forbids caches to store the answer: it is true only now, and may contain a secret.
fn with_no_store(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_TYPE)?.to_str().ok()?.split(';').next()
}

/// Streams the answer as long as the client reads it; the answer of a watch goes on without end.
fn stream_body(mut body: Said) -> Body {
    let (pieces, read) = mpsc::channel(PIPE_CAPACITY);
    drop(spawn_local(async move {
        loop {
            let next = tokio::select! {
                next = body.frame() => next,
                () = pieces.closed() => return,
            };
            let piece = match next {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => BodyChunk::Frame(Frame::<Bytes>::data(data)),
                    Err(_trailers) => continue,
                },
                Some(Err(_)) | None => BodyChunk::End,
            };
            let ends = matches!(piece, BodyChunk::End);
            if pieces.send(piece).await.is_err() || ends {
                return;
            }
        }
    }));
    Body::from_channel(read)
}
