//! An answer on its way to a client tells the connection that it goes to how its client takes it.

use std::task::Waker;

use super::course::Answering;
use crate::body::{Body, ending::Ending};

impl Answering {
    /// That of this answer, which goes to the client of the connection.
    pub fn with(self, mut body: Body) -> Body {
        if let Some(taker) = body.take_taker() {
            self.parts(taker);
        }
        self.is_to_leave();
        body.telling(Box::new(self))
    }
}

impl Ending for Answering {
    fn asked(&mut self, is_here: bool) {
        Self::asked(self, is_here);
    }

    fn gives(&mut self, _: usize) {
        self.is_to_leave();
    }

    fn has_left(&self, waker: &Waker) -> bool {
        Self::has_left(self, waker)
    }
}
