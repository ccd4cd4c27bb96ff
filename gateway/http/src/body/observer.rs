//! Observers are notified of the progress and the end of a body, and live until it is dropped.

use std::{pin::Pin, task::Waker};

/// An observer of a body. Each method does nothing by default.
pub trait BodyObserver: 'static {
    /// The source was polled for a chunk. `is_here`: a chunk or the end is here; otherwise the source has to wait.
    fn on_poll(&mut self, _is_here: bool) {}

    /// A chunk of this many bytes is passed on; trailers and the end count as none.
    fn on_data(&mut self, _bytes: usize) {}

    /// All of the body was passed on. This may be called twice, and is never called for a body that breaks.
    fn on_end(&mut self) {}

    /// The source has failed, so the body breaks.
    fn on_error(&mut self) {}

    /// Whether all bytes that were passed on are sent, so that an error may be reported. If not, the waker is woken
    /// when they are.
    fn check_flushed(&self, _waker: &Waker) -> bool {
        true
    }

    /// Called after the last byte. The future, if any, ends when no byte of the *request* can leave any more.
    fn settle(&mut self) -> Option<SettleFuture> {
        None
    }
}

/// Ready when no byte of a request is on its way any more.
pub type SettleFuture = Pin<Box<dyn Future<Output = ()>>>;

/// A value that is dropped when the body is complete, or dropped.
pub(super) struct DropOnComplete<T>(pub(super) Option<T>);

impl<T: 'static> BodyObserver for DropOnComplete<T> {
    fn on_end(&mut self) {
        self.0 = None;
    }
}

/// A value that is dropped with the body.
pub(super) struct DropWithBody<T>(pub(super) T);

impl<T: 'static> BodyObserver for DropWithBody<T> {}
