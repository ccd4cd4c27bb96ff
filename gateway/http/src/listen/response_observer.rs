//! An observer of answers, which tells the client's connection how the client takes its answer.

use std::task::Waker;

use crate::body::{Body, observer::Observer};
use crate::connection_state::ResponseTracker;

impl ResponseTracker {
    /// Adds the observer to an answer.
    pub fn observe(self, mut body: Body) -> Body {
        if let Some(taker) = body.take_upgrade_sender() {
            self.upgrade(taker);
        }
        self.add_unsent(0);
        let body = if self.is_multiplexed() { body.with_max_chunk(PIECE) } else { body };
        body.with_observer(Box::new(self))
    }
}

/// Answers go to the HTTP/2 library in pieces of one frame. It takes a whole piece as soon as the client has room for
/// one byte, and we do not see how the client takes the rest.
const PIECE: usize = 16 << 10;

impl Observer for ResponseTracker {
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
