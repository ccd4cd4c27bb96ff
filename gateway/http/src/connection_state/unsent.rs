//! Counts the bytes of responses that the HTTP/2 library has taken and not written yet.

use std::{
    cell::{Cell, RefCell},
    io::IoSlice,
    time::Duration,
};

use tokio::time::Instant;

use crate::connection_state::h2_frames::H2DataByteCounter;

/// The unsent bytes of bodies, of all streams of a connection together.
#[derive(Debug)]
pub(crate) struct UnsentBytes {
    bytes: Cell<usize>,
    /// The moment when bytes were last added or written.
    moved: Cell<Instant>,
    patience: Cell<Duration>,
    /// Parses the outgoing frames, to count the written bytes of bodies.
    frames: RefCell<H2DataByteCounter>,
}

impl UnsentBytes {
    pub(super) fn new() -> Self {
        Self {
            bytes: Cell::new(0),
            moved: Cell::new(Instant::now()),
            patience: Cell::new(Duration::ZERO),
            frames: RefCell::default(),
        }
    }

    /// Sets the time after which bytes that the client does not take no longer count.
    pub(crate) fn set_write_timeout(&self, patience: Duration) {
        self.patience.set(patience);
    }

    pub(super) fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        self.moved.set(Instant::now());
    }

    /// Records that the first `count` bytes of these slices were written.
    pub(super) fn record_write(&self, slices: &[IoSlice<'_>], count: usize) {
        self.remove(self.frames.borrow_mut().count_written_data(slices, count));
    }

    pub(super) fn remove(&self, bytes: usize) {
        if bytes > 0 {
            self.bytes.set(self.bytes.get().saturating_sub(bytes));
            self.moved.set(Instant::now());
        }
    }

    #[cfg(test)]
    pub(super) fn make_older(&self, by: Duration) {
        self.moved.set(self.moved.get() - by);
    }

    /// True if the client still has bytes to take. Bytes that are not written for too long no longer count: they may
    /// belong to a stream that was reset, whose rest the library discards without notice.
    pub(super) fn has_unsent_bytes(&self) -> bool {
        if self.moved.get().elapsed() >= self.patience.get() {
            self.bytes.set(0);
        }
        self.bytes.get() > 0
    }
}
