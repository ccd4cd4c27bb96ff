//! An observer of answers, which tells the client's connection how the client takes its answer.

use std::task::Waker;

use crate::body::{Body, observer::Observer};
use crate::course::ResponseTracker;

impl ResponseTracker {
    /// Adds the observer to an answer.
    pub fn with(self, mut body: Body) -> Body {
        if let Some(taker) = body.take_taker() {
            self.parts(taker);
        }
        self.is_to_leave(0);
        let body = if self.is_one_of_several() { body.in_pieces(PIECE) } else { body };
        body.telling(Box::new(self))
    }
}

/// Answers go to the HTTP/2 library in pieces of one frame. It takes a whole piece as soon as the client has room for
/// one byte, and we do not see how the client takes the rest.
const PIECE: usize = 16 << 10;

impl Observer for ResponseTracker {
    fn asked(&mut self, is_here: bool) {
        Self::asked(self, is_here);
    }

    fn gives(&mut self, bytes: usize) {
        self.is_to_leave(bytes);
    }

    fn has_left(&self, waker: &Waker) -> bool {
        Self::has_left(self, waker)
    }
}
