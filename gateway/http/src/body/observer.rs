//! Who is told how a body goes and ends, and is kept until it is dropped.

use std::{pin::Pin, task::Waker};

/// One of them. Who has nothing to do at some point does nothing there.
pub trait Observer: 'static {
    /// The source was asked for a piece: there was one, or the end of all, or it is waited for.
    fn asked(&mut self, _is_here: bool) {}

    /// A piece of so many bytes is given on; trailers and the end have none.
    fn gives(&mut self, _bytes: usize) {}

    /// All of it was given on. It may be said again, and is never said of a body that breaks.
    fn complete(&mut self) {}

    /// It broke, and the source is to blame.
    fn failed(&mut self) {}

    /// Nobody is told that it broke before what was given of it has left; else the waker is told when it has.
    fn has_left(&self, _waker: &Waker) -> bool {
        true
    }

    /// Behind the last byte, for who waits until no byte of the *request* can leave any more either.
    fn settles(&mut self) -> Option<Settling> {
        None
    }
}

/// Done when nothing of a request is on its way any more.
pub type Settling = Pin<Box<dyn Future<Output = ()>>>;

/// Let go when the body is complete, or dropped.
pub(super) struct Held<T>(pub(super) Option<T>);

impl<T: 'static> Observer for Held<T> {
    fn complete(&mut self) {
        self.0 = None;
    }
}

/// Let go when the body is dropped.
pub(super) struct Kept<T>(pub(super) T);

impl<T: 'static> Observer for Kept<T> {}
