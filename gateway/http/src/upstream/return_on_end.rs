//! An observer of an answer's body, which gives the connection back to its pool at the end, or closes it if the body is
//! dropped before.

use std::time::Duration;

use hyper::{Version, body::Incoming};

use super::checkout::Checkout;
use crate::body::{
    Body, Trailers,
    observer::{Observer, SettleFuture},
};

/// How long an upload may go on after its answer is complete.
const UNFENCED_REST: Duration = Duration::from_secs(30);
/// The same for a fenced request, while others wait for the key.
const FENCED_REST: Duration = Duration::from_millis(100);

struct ReturnOnEnd {
    lend: Option<Checkout>,
    /// Whether the connection goes back by itself at the end.
    settles_itself: bool,
}

/// The body of an upstream's answer. `idle`: the longest pause between two pieces.
///
/// `fenced`: the reader calls `wait_settled` of the body at the end.
pub fn upstream_body(
    incoming: (Incoming, Version),
    trailers: Trailers,
    idle: Duration,
    lend: Checkout,
    fenced: bool,
) -> Body {
    let lent = ReturnOnEnd { lend: Some(lend), settles_itself: !fenced };
    Body::from_upstream(incoming, trailers, idle).with_observer(Box::new(lent))
}

impl Observer for ReturnOnEnd {
    fn on_end(&mut self) {
        if self.settles_itself
            && let Some(lend) = self.lend.take()
            && let Err(lend) = lend.try_return()
        {
            tokio::task::spawn_local(lend.return_when_settled(UNFENCED_REST));
        }
    }

    fn on_error(&mut self) {
        if let Some(lend) = &self.lend {
            lend.record_failure();
        }
    }

    fn settle(&mut self) -> Option<SettleFuture> {
        let lend = self.lend.take()?.try_return().err()?;
        Some(Box::pin(lend.return_when_settled(FENCED_REST)))
    }
}
