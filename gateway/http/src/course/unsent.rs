//! What the HTTP library still holds of answers that it was given over HTTP/2.

use std::{
    cell::{Cell, RefCell},
    io::IoSlice,
    time::Duration,
};

use tokio::time::Instant;

use crate::course::passing::Frames;

/// Bytes of bodies, of all streams of a connection.
#[derive(Debug)]
pub(crate) struct Unsent {
    bytes: Cell<usize>,
    /// When some were given or written.
    moved: Cell<Instant>,
    patience: Cell<Duration>,
    /// Those that go out.
    frames: RefCell<Frames>,
}

impl Unsent {
    pub(super) fn new() -> Self {
        Self {
            bytes: Cell::new(0),
            moved: Cell::new(Instant::now()),
            patience: Cell::new(Duration::ZERO),
            frames: RefCell::default(),
        }
    }

    /// For so long the client may take nothing.
    pub(crate) fn waits(&self, patience: Duration) {
        self.patience.set(patience);
    }

    pub(super) fn given(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        self.moved.set(Instant::now());
    }

    /// The first `count` bytes of these were written.
    pub(super) fn passed(&self, pieces: &[IoSlice<'_>], count: usize) {
        self.written(self.frames.borrow_mut().pass(pieces, count));
    }

    pub(super) fn written(&self, bytes: usize) {
        if bytes > 0 {
            self.bytes.set(self.bytes.get().saturating_sub(bytes));
            self.moved.set(Instant::now());
        }
    }

    #[cfg(test)]
    pub(super) fn grows_older(&self, by: Duration) {
        self.moved.set(self.moved.get() - by);
    }

    /// The client has still something to take. What does not move for too long counts no more: the library throws away
    /// what it has of a stream that is reset, and tells nobody of that either.
    pub(super) fn is_some(&self) -> bool {
        if self.moved.get().elapsed() >= self.patience.get() {
            self.bytes.set(0);
        }
        self.bytes.get() > 0
    }
}
