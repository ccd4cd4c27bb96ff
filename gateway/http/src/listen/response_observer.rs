//! An observer of responses, which records on the client's connection how the client takes its response.

use std::task::Waker;

use crate::body::{Body, observer::BodyObserver};
use crate::connection_state::ResponseTracker;

impl ResponseTracker {
    /// Adds the observer to a response.
    pub fn observe(self, mut body: Body) -> Body {
        if let Some(upgrade_sender) = body.take_upgrade_sender() {
            self.upgrade(upgrade_sender);
        }
        self.add_unsent(0);
        let body = if self.is_multiplexed() { body.with_max_chunk(PIECE) } else { body };
        body.with_observer(Box::new(self))
    }
}

/// Responses go to the HTTP/2 library in chunks of one frame. It takes a whole chunk as soon as the client's window
/// has one byte, and how the client takes the rest cannot be observed.
const PIECE: usize = 16 << 10;

impl BodyObserver for ResponseTracker {
    fn on_poll(&mut self, is_here: bool) {
        Self::record_poll(self, is_here);
    }

    fn on_data(&mut self, bytes: usize) {
        self.add_unsent(bytes);
    }

    fn check_flushed(&self, waker: &Waker) -> bool {
        Self::check_flushed(self, waker)
    }
}
