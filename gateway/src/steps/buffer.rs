//! Takes the body of a fenced request in full before the lock is asked for: a slow client never holds a key.

use std::{future::poll_fn, mem, pin::Pin, sync::Arc};

use bytes::Bytes;
use fencegate_policies::plan::Plan;
use hyper::{
    HeaderMap, Request,
    body::Body as _,
    header::{CONTENT_LENGTH, HeaderName, HeaderValue},
};
use tokio::time::timeout;

use crate::{
    body::{Body, Reply},
    pieces::Pieces,
    refusal::{Reason, Refusal},
    stage::{Incoming, Loaded},
    step::Serve,
};

pub async fn buffer<R: Incoming, S: Serve<Loaded<R>>>(
    plan: &Arc<Plan>,
    mut request: R,
    next: &S,
) -> Result<Reply, Refusal> {
    if request.is_fenced() {
        late_enough(request.http().headers())?;
        let (mut head, body) = mem::replace(request.http(), Request::new(Body::empty())).into_parts();
        let most = plan.listener.limits.max_body;
        let limit = plan.listener.timeouts.request_body;
        let whole = timeout(limit, whole(body, most))
            .await
            .map_err(|_| Refusal::new(Reason::SlowRequest, format!("no complete body within {limit:?}")))??;
        // A body that came in chunks has a length now; one that had a length has the same.
        if !whole.is_empty() {
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(whole.len()));
        }
        *request.http() = Request::from_parts(head, Body::whole(whole));
    }
    next.serve(Loaded(request)).await
}

/// A proxy before us took the request before its handshake was complete: anybody who has seen it can send it again
/// (RFC 8470, 5.1).
fn late_enough(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.contains_key(EARLY_DATA) {
        return Err(Refusal::new(Reason::EarlyData, "the request was early data"));
    }
    Ok(())
}

const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

async fn whole(mut body: Body, most: usize) -> Result<Bytes, Refusal> {
    let too_large = || Refusal::new(Reason::BodyTooLarge, format!("more than {most} bytes"));
    // What is announced as too large is not read at all.
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let mut taken = Pieces::default();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| Refusal::new(Reason::Malformed, error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            taken.add(data);
        }
        if taken.len() > most {
            return Err(too_large());
        }
    }
    Ok(taken.into_bytes())
}
