//! An observer of a response's body. It returns the connection to its pool at the end of the body, and closes the
//! connection if the body is dropped before its end.

use std::time::Duration;

use fencegate_http::body::{Body, BodyObserver, RequestWritesSettled, TrailerPolicy};
use hyper::{Version, body::Incoming};

use super::checkout::CheckedOutConnection;

/// The longest time for the rest of a request after its response is complete, for an unfenced request.
const UNFENCED_REST: Duration = Duration::from_secs(30);
/// The longest time for the rest of a fenced request after its response is complete, while other requests wait for
/// the key.
const FENCED_REST: Duration = Duration::from_millis(100);

struct ReturnConnectionOnEnd {
    lend: Option<CheckedOutConnection>,
    /// True if the connection is returned at the end without a call of the body's reader.
    settles_itself: bool,
}

/// The body of an upstream's response. `idle` is the longest pause between two chunks. If `fenced`, the reader has to
/// call [`Body::wait_request_writes_settled`] at the end.
pub fn upstream_body(
    incoming: (Incoming, Version),
    trailers: TrailerPolicy,
    idle: Duration,
    checkout: CheckedOutConnection,
    fenced: bool,
) -> Body {
    let (incoming, version) = incoming;
    let lent = ReturnConnectionOnEnd { lend: Some(checkout), settles_itself: !fenced };
    Body::from_upstream(incoming, version, trailers, idle).with_observer(Box::new(lent))
}

impl BodyObserver for ReturnConnectionOnEnd {
    fn on_end(&mut self) {
        if self.settles_itself
            && let Some(checkout) = self.lend.take()
            && let Err(checkout) = checkout.try_return()
        {
            tokio::task::spawn_local(checkout.return_when_settled(UNFENCED_REST));
        }
    }

    fn on_error(&mut self) {
        if let Some(checkout) = &self.lend {
            checkout.record_failure();
        }
    }

    fn settle_request_writes(&mut self) -> Option<RequestWritesSettled> {
        let checkout = self.lend.take()?.try_return().err()?;
        Some(Box::pin(checkout.return_when_settled(FENCED_REST)))
    }
}
