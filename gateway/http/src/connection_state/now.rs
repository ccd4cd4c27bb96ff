//! The states of a connection: what comes from the client, and what goes to it.

use tokio::time::Instant;

/// What comes next from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadState {
    /// A new request, or nothing. The time is set once the wait has begun.
    Idle(Option<Instant>),
    /// The rest of a head that began at this time.
    Head(Instant),
    /// A body, or nothing while its answer is not complete; on HTTP/2 anything.
    Busy,
}

/// What the HTTP library writes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteState {
    /// Answers of ours; on HTTP/2 frames.
    Answers,
    /// The library was given the last piece of an answer and has not written since, so its next write belongs to that
    /// answer.
    LastChunk,
    /// This many bytes of complete answers. Further bytes are the library's own.
    Owed(usize),
}

/// How the body of a request comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestBodyState {
    /// No part of it was read.
    Untouched,
    /// A part was read and put back; the rest is not read for now.
    HeldBack,
    /// The client is waited for.
    Awaited,
    /// A piece was handed on at this time.
    Receiving(Instant),
    /// All of it was handed on.
    Complete,
    /// It broke off.
    Broken,
    /// It did not arrive in its time.
    Overdue,
}

/// The state of an HTTP/2 connection at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct H2Snapshot {
    pub(crate) exchanges: usize,
    /// Whether a part of the given answers is not written yet.
    pub(crate) unsent: bool,
    /// The most looks in a row that have found the client taking nothing of one answer.
    pub(crate) not_taken: u32,
}
