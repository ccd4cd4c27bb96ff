//! Buffers the body of a fenced request in full before the lock is requested, so that a slow client never holds a key.
//! A body that a route condition has read is buffered already. Where the route streams large bodies, the rest of such
//! a body stays unread until the request has its key.

use std::{future::poll_fn, mem, pin::Pin, sync::Arc};

use bytes::Bytes;
use fencegate_http::{
    body::{Body, Reply},
    buffered::{AddChunkError, ChunkBuffer, MemoryBudget},
};
use fencegate_policies::plan::{CommonServingPlan, LargeBodyPolicy};
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::{
    HeaderMap, Request,
    body::Body as _,
    header::{CONTENT_LENGTH, HeaderName, HeaderValue},
};
use tokio::time::timeout;

use crate::{handler::Handler, plan_context::WorkerPlanContext, steps::bufferable::BufferableRequest};

/// A request whose body was buffered in full, or whose large body was buffered at its beginning and is streamed.
pub(crate) struct BufferedRequest<R>(pub R);

impl<R: BufferableRequest> BufferableRequest for BufferedRequest<R> {
    fn http(&mut self) -> &mut Request<Body> {
        self.0.http()
    }

    fn needs_full_body(&self) -> bool {
        self.0.needs_full_body()
    }
}

/// The limits for bodies.
#[derive(Clone)]
pub struct BodyBufferConfig {
    plan: Arc<CommonServingPlan>,
    budget: MemoryBudget,
}

impl BodyBufferConfig {
    pub fn new(context: &WorkerPlanContext) -> Self {
        Self { plan: context.config.plan.clone(), budget: context.process.budget.clone() }
    }
}

pub(crate) async fn buffer_request<R: BufferableRequest, S: Handler<BufferedRequest<R>>>(
    buffering: &BodyBufferConfig,
    mut request: R,
    next: &S,
) -> Result<Reply, Refusal> {
    if request.needs_full_body() {
        refuse_early_data(request.http().headers())?;
        // Most requests have no body. The large future that reads a body is made only for the others.
        if !request.is_buffered() && request.http().body().bytes() != Some(&[]) {
            let large = request.large_body_policy();
            Box::pin(buffer_body(buffering, request.http(), large)).await?;
        }
    }
    next.handle(BufferedRequest(request)).await
}

/// # Errors
/// Returns an error if the body is too large, too slow or broken, or if there is no memory for it.
pub(super) async fn buffer_body(
    BodyBufferConfig { plan, budget }: &BodyBufferConfig,
    http: &mut Request<Body>,
    large: LargeBodyPolicy,
) -> Result<(), Refusal> {
    let mut body = mem::replace(http.body_mut(), Body::empty());
    let max_body = plan.listener.limits.max_body;
    let most = body_limit(max_body, budget.largest_body(), large);
    let limit_note = if most < max_body { ", all that one body may take of `limits.buffered`" } else { "" };
    let too_large =
        || Refusal::new(RefusalReason::BodyTooLarge, format!("more than {most} bytes{limit_note}"));
    // A body that announces too large a length is not read at all.
    if large == LargeBodyPolicy::Refuse && body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let limit = plan.listener.timeouts.request_body;
    // The time limit also applies to the beginning of a large body: a client that is slow from the start never gets
    // the key.
    let taken = timeout(limit, read_body(&mut body, most, large, budget)).await;
    let slow = |_| Refusal::new(RefusalReason::SlowRequest, format!("no complete body within {limit:?}"));
    let body = match (taken.map_err(slow)??, large) {
        (BufferedBody::Whole(whole), _) => {
            // A body that came in chunks had no length, so its length is announced now.
            if !whole.is_empty() {
                http.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(whole.len()));
            }
            Body::from_bytes(whole)
        }
        (BufferedBody::Prefix(begun), LargeBodyPolicy::Stream { .. }) => body.prepend(begun),
        (BufferedBody::Prefix(_), LargeBodyPolicy::Refuse) => return Err(too_large()),
    };
    *http.body_mut() = body;
    Ok(())
}

/// The most bytes of a body that are buffered. It is at most `largest`, which fits into an empty budget: a larger body
/// would be refused as a lack of memory, which no retry could change.
fn body_limit(max_body: usize, largest: usize, large: LargeBodyPolicy) -> usize {
    match large {
        LargeBodyPolicy::Refuse => max_body.min(largest),
        // The piece that passes the limit needs memory of its own, beside the bytes before it.
        LargeBodyPolicy::Stream { .. } => max_body.min(largest / 2),
    }
}

/// Refuses a request that a proxy accepted before the TLS handshake was complete: an attacker who has recorded such a
/// request can send it again (RFC 8470, 5.1).
pub(super) fn refuse_early_data(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.contains_key(EARLY_DATA) {
        return Err(Refusal::new(RefusalReason::EarlyData, "the request was early data"));
    }
    Ok(())
}

const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// The buffered part of a body.
enum BufferedBody {
    Whole(Bytes),
    /// The beginning of a body that exceeds the limit, up to the piece that exceeds it. Empty where large bodies are
    /// refused.
    Prefix(Bytes),
}

async fn read_body(
    body: &mut Body,
    most: usize,
    large: LargeBodyPolicy,
    budget: &MemoryBudget,
) -> Result<BufferedBody, Refusal> {
    let announced = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let mut taken = ChunkBuffer::new(budget, announced.map_or(most, |length| length.min(most)));
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| Refusal::new(RefusalReason::Malformed, error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            if large == LargeBodyPolicy::Refuse && taken.len() + data.len() > most {
                return Ok(BufferedBody::Prefix(Bytes::new()));
            }
            taken.add(data).map_err(|AddChunkError(_)| {
                budget.metrics().record_rejected_request();
                Refusal::new(RefusalReason::Overloaded, "there is no memory left for its body")
            })?;
        }
        if taken.len() > most {
            return Ok(BufferedBody::Prefix(taken.into_bytes()));
        }
    }
    Ok(BufferedBody::Whole(taken.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencegate_http::buffered::metrics::BufferMetrics;

    async fn buffered_size(
        size: usize,
        memory: usize,
        large: LargeBodyPolicy,
    ) -> Result<Option<usize>, RefusalReason> {
        let budget = MemoryBudget::new(memory, BufferMetrics::unexposed_metrics());
        let most = body_limit(1 << 20, budget.largest_body(), large);
        let mut body = Body::from_bytes(Bytes::from(vec![7; size]));
        match read_body(&mut body, most, large, &budget).await {
            Ok(BufferedBody::Whole(whole)) => Ok(Some(whole.len())),
            Ok(BufferedBody::Prefix(_)) => Ok(None),
            Err(refusal) => Err(refusal.reason),
        }
    }

    /// A body that can never fit into the memory for bodies is refused as too large, and not as a temporary lack of
    /// memory.
    #[tokio::test]
    async fn body_beyond_capacity_is_too_large() {
        let refuse = LargeBodyPolicy::Refuse;
        assert_eq!(buffered_size(768 << 10, 1 << 20, refuse).await, Ok(Some(768 << 10)));
        assert_eq!(buffered_size((768 << 10) + 1, 1 << 20, refuse).await, Ok(None), "three quarters");
        assert_eq!(
            buffered_size(64 << 10, 64 << 10, refuse).await,
            Ok(Some(64 << 10)),
            "small ones may take all of it"
        );
        assert_eq!(buffered_size((64 << 10) + 1, 64 << 10, refuse).await, Ok(None));
        assert_eq!(buffered_size((1 << 20) + 1, 8 << 20, refuse).await, Ok(None));
        let stream = LargeBodyPolicy::Stream { within: LargeBodyPolicy::WITHIN };
        assert_eq!(
            buffered_size((384 << 10) + 1, 1 << 20, stream).await,
            Ok(None),
            "the rest is left where it is"
        );
    }
}
