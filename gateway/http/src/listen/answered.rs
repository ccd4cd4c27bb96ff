//! An answer on its way to a client tells the connection that it goes to how its client takes it.

use std::task::Waker;

use crate::body::{Body, observer::Observer};
use crate::course::Answering;

impl Answering {
    /// That of this answer, which goes to the client of the connection.
    pub fn with(self, mut body: Body) -> Body {
        if let Some(taker) = body.take_taker() {
            self.parts(taker);
        }
        self.is_to_leave(0);
        let body = if self.is_one_of_several() { body.in_pieces(PIECE) } else { body };
        body.telling(Box::new(self))
    }
}

/// The HTTP/2 library takes a piece as a whole as soon as its client has room for one byte, and then nobody knows how the
/// client takes the rest. This much goes into one frame.
const PIECE: usize = 16 << 10;

impl Observer for Answering {
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
