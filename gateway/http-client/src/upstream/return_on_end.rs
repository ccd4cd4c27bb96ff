//! An observer of a response's body, which returns the connection to its pool at the end, or closes it if the body is
//! dropped before.

use std::time::Duration;

use fencegate_http::body::{Body, BodyObserver, RequestWritesSettled, TrailerPolicy};
use hyper::{Version, body::Incoming};

use super::checkout::CheckedOutConnection;

/// How long an upload may go on after its response is complete.
const UNFENCED_REST: Duration = Duration::from_secs(30);
/// The same for a fenced request, while other requests wait for the key.
const FENCED_REST: Duration = Duration::from_millis(100);

struct ReturnConnectionOnEnd {
    lend: Option<CheckedOutConnection>,
    /// Whether the connection is returned automatically at the end.
    settles_itself: bool,
}

/// The body of an upstream's response. `idle`: the longest pause between two chunks.
///
/// `fenced`: the reader calls `wait_settled` of the body at the end.
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
