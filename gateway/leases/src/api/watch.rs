//! Waits for a change of a lease: once, or as long as the client listens.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    http::{HeaderMap, Method, StatusCode, Uri, header::ACCEPT},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use fencegate_protocol::{
    headers::FENCING_LEASE,
    lease_documents::{LeaseDocument, OVER},
    lease_id::LeaseId,
};
use fencegate_refusal::{Refusal, RefusalReason};
use futures_util::stream;
use serde::Deserialize;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::context::{LeaseApiState, PREFIX};
use crate::{
    lease::Lease,
    lease_json::{LeaseDocumentAudience, lease_document},
    peer_client::PeerRequest,
};

/// The options of a client that watches a lease.
pub(super) struct LeaseWatchOptions {
    /// The longest time for which the request waits for a change.
    pub(super) longest: Duration,
    /// The last revision that the client has received.
    seen: Option<u64>,
    /// Whether the client subscribes to every change from now on.
    pub(super) streams: bool,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub struct LeaseWatchQuery {
    /// Answer when the lease changes, or after so many seconds; at most 60.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", param(maximum = 4_294_967_295_i64))]
    watch: u32,
    /// The last known revision.
    #[cfg_attr(feature = "openapi", param(value_type = i64, required = false, minimum = 0))]
    seen: Option<u64>,
}

/// The longest wait of one request, in seconds.
const MAX_WATCH_SECS: u64 = 60;
/// The least time between two requests to a peer.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The time for which one request to a peer waits for a change, in seconds.
const POLL_SECS: u64 = 20;

impl LeaseWatchOptions {
    pub(super) fn parse(uri: &Uri, headers: &HeaderMap) -> Result<Self, Refusal> {
        let asked = axum::extract::Query::<LeaseWatchQuery>::try_from_uri(uri);
        let axum::extract::Query(LeaseWatchQuery { watch, seen }) =
            asked.map_err(|bad| Refusal::new(RefusalReason::Malformed, bad.to_string()))?;
        Ok(Self {
            longest: Duration::from_secs(u64::from(watch).min(MAX_WATCH_SECS)),
            seen,
            streams: wants_stream(headers),
        })
    }

    /// Returns when the lease has changed since the revision that the client knows, or since now if it knows
    /// none.
    pub(super) async fn wait(&self, lease: &Lease, drain: &CancellationToken) {
        if self.longest.is_zero() {
            return;
        }
        let seen = self.seen.unwrap_or_else(|| lease.snapshot().revision);
        tokio::select! {
            // After the time limit the lease is reported as after a change.
            late = timeout(self.longest, lease.wait_changed(seen)) => drop(late),
            () = drain.cancelled() => {}
        }
    }
}

/// True if the client requests server-sent events.
pub(super) fn wants_stream(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
    })
}

impl LeaseApiState {
    /// Reports the changes of a lease of this gateway, until it is over.
    pub(super) fn stream_local(self, lease: Arc<Lease>) -> Response {
        let begin = (self, lease, Some(0));
        let events = stream::unfold(begin, async |(interface, lease, seen)| {
            tokio::select! {
                () = lease.wait_changed(seen?) => {}
                () = interface.leases.drain().cancelled() => return None,
            }
            let document = lease_document(&lease, &interface.leases, LeaseDocumentAudience::Public);
            let next = (document.state != OVER).then_some(document.revision);
            Some((to_event(&document), (interface, lease, next)))
        });
        sse(events)
    }

    /// Reports the changes of a lease of a peer, which is polled, until the lease is over.
    pub(super) fn stream_remote(self, id: LeaseId, headers: HeaderMap) -> Response {
        let begin = (self, id, headers, Some(0));
        let events = stream::unfold(begin, async |(interface, id, headers, seen)| {
            let mut seen = seen?;
            loop {
                let started = Instant::now();
                let polled = tokio::select! {
                    polled = interface.poll_remote(&id, &headers, seen) => polled,
                    () = interface.leases.drain().cancelled() => return None,
                };
                match polled {
                    // A gateway that responds early without a change is about to stop, so it is not polled again
                    // at once.
                    Ok(document) if document.revision == seen => {
                        sleep_until(started + MIN_POLL_INTERVAL).await
                    }
                    Ok(mut document) => {
                        // An event may be delivered late, so the times that count from the request are removed.
                        // The secrets are removed, too.
                        (document.held_for_ms, document.lease, document.ticket) = (None, None, None);
                        let next = (document.state != OVER).then_some(document.revision);
                        seen = document.revision;
                        return Some((to_event(&document), (interface, id, headers, next.map(|_| seen))));
                    }
                    Err(refusal) => {
                        let event = Event::default().event("error").data(refusal.reason.word());
                        return Some((Ok(event), (interface, id, headers, None)));
                    }
                }
            }
        });
        sse(events)
    }

    async fn poll_remote(
        &self,
        id: &LeaseId,
        headers: &HeaderMap,
        seen: u64,
    ) -> Result<LeaseDocument, Refusal> {
        let question = PeerRequest {
            method: Method::GET,
            path: format!("{PREFIX}leases/{}?watch={POLL_SECS}&seen={seen}", id.reference()),
            lease: headers.get(FENCING_LEASE).cloned(),
            body: Bytes::new(),
            patience: Duration::from_secs(POLL_SECS),
            client: None,
        };
        let response = self.ask_peer(id.lease_member_node().to_owned(), question).await?;
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
        serde_json::from_slice(&body).map_err(|_| {
            let over = status == StatusCode::PRECONDITION_FAILED;
            let reason = if over { RefusalReason::StaleToken } else { RefusalReason::LeaseAway };
            Refusal::new(reason, format!("the gateway that holds the lease: {status}"))
        })
    }
}

fn to_event(document: &LeaseDocument) -> Result<Event, Infallible> {
    let text = serde_json::to_string(document).expect("plain fields serialise");
    Ok(Event::default().event("lease").id(document.revision.to_string()).data(text))
}

/// A stream of events. Comments at intervals detect whether the client still listens.
pub(super) fn sse(
    events: impl futures_util::Stream<Item = Result<Event, Infallible>> + Send + 'static,
) -> Response {
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(10))).into_response()
}
