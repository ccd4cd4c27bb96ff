//! Answers what is asked about leases: such a request is for us, and is routed nowhere.

use std::time::Duration;

use axum::{
    Router,
    body::{Body as Said, to_bytes},
    extract::DefaultBodyLimit,
    http::{Request, Response},
};
use bytes::Bytes;
use fencegate_http::body::{Body, Piece, Reply};
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    body::Frame,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use tokio::{sync::mpsc, task::spawn_local, time::timeout};
use tower::ServiceExt as _;

use super::{hygiene::Clean, screen::Screened};
use crate::{
    headers::FENCING_LEASE,
    leases::{Applicant, Interface, PREFIX, interface::routes},
    refusal::{Reason, Refusal},
    step::Serve,
};

/// What the step works with, where the process grants leases.
#[derive(Clone)]
pub struct LeaseQuestions {
    interface: Interface,
    routes: Router,
    /// How long the body of a question may take.
    patience: Duration,
}

/// What is below [`PREFIX`] and ours; `guard`, which is a guard's, is not.
const OURS: [&str; 3] = ["leases", "keys", "elections"];
/// Far above 16 keys of the longest.
const LONGEST: usize = 16 << 10;
/// Pieces of an answer that nobody has read yet.
const AHEAD: usize = 4;

impl LeaseQuestions {
    pub fn of(interface: Interface, patience: Duration) -> Self {
        let routes = routes(interface.clone()).layer(DefaultBodyLimit::max(LONGEST));
        Self { interface, routes, patience }
    }

    fn is_ours(&self, path: &str) -> bool {
        let first = path.strip_prefix(PREFIX).and_then(|below| below.split('/').next());
        first.is_some_and(|first| OURS.contains(&first)) && self.interface.leases.terms().bounds.is_some()
    }
}

pub async fn answer<S: Serve<Clean>>(
    asking: &Option<LeaseQuestions>,
    request: Clean,
    next: &S,
) -> Result<Reply, Refusal> {
    match asking {
        Some(asking) if asking.is_ours(request.request.http.uri().path()) => {
            Box::pin(answered(asking, request)).await
        }
        _ => next.serve(request).await,
    }
}

async fn answered(asking: &LeaseQuestions, request: Clean) -> Result<Reply, Refusal> {
    let Clean { request: Screened { http, notes, peer, .. }, presented } = request;
    // It is of no plan: whoever takes the next one over does not wait for a client that watches.
    notes.entrance.take();
    let (head, body) = http.into_parts();
    let body = timeout(asking.patience, Limited::new(body, LONGEST).collect()).await;
    let body = body.map_err(|_| Refusal::new(Reason::SlowRequest, "no complete body in time"))?;
    let body =
        body.map_err(|_| Refusal::new(Reason::BodyTooLarge, "more than a question about leases has"))?;
    let applicant = Applicant {
        principal: asking.interface.leases.terms().authority.principal(&head.headers, &peer),
        sent_on: notes.forwarded.get().is_some(),
    };
    let mut asked = Request::new(Said::from(body.to_bytes()));
    (*asked.method_mut(), *asked.uri_mut(), *asked.headers_mut()) = (head.method, head.uri, head.headers);
    for lease in presented.get_all(FENCING_LEASE) {
        asked.headers_mut().append(FENCING_LEASE, lease.clone());
    }
    asked.extensions_mut().insert(applicant);
    let answer = asking.routes.clone().oneshot(asked).await.unwrap_or_else(|never| match never {});
    reply(answer).await
}

/// # Errors
/// It is a refusal.
async fn reply(answer: Response<Said>) -> Result<Reply, Refusal> {
    let (mut head, body) = answer.into_parts();
    if let Some(refusal) = head.extensions.remove::<Refusal>() {
        return Err(match head.headers.remove(ALLOW) {
            Some(methods) => refusal.allowing(methods),
            None => refusal,
        });
    }
    if head.status.is_client_error() && body_kind(&head.headers) != Some("application/problem+json") {
        // Of the library, which reads path and query.
        return Err(Refusal::new(Reason::Malformed, format!("a question about leases: {}", head.status)));
    }
    head.extensions.clear();
    // Whatever stands between: what it says is true now, and may be a secret.
    head.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let body = match body_kind(&head.headers) {
        Some("text/event-stream") => piped(body),
        _ => Body::whole(to_bytes(body, usize::MAX).await.unwrap_or_default()),
    };
    Ok(Reply::from_parts(head, body))
}

fn body_kind(headers: &hyper::HeaderMap) -> Option<&str> {
    headers.get(CONTENT_TYPE)?.to_str().ok()?.split(';').next()
}

/// Events, while somebody reads them.
fn piped(mut body: Said) -> Body {
    let (pieces, read) = mpsc::channel(AHEAD);
    drop(spawn_local(async move {
        loop {
            let next = tokio::select! {
                next = body.frame() => next,
                () = pieces.closed() => return,
            };
            let piece = match next {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => Piece::Frame(Frame::<Bytes>::data(data)),
                    Err(_trailers) => continue,
                },
                Some(Err(_)) | None => Piece::End,
            };
            let ends = matches!(piece, Piece::End);
            if pieces.send(piece).await.is_err() || ends {
                return;
            }
        }
    }));
    Body::piped(read)
}
