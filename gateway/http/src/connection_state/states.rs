//! The states of a connection: the incoming and the outgoing side.

use tokio::time::Instant;

/// What comes next from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionReadState {
    /// A new request, or nothing. The time is set once the wait has begun.
    Idle(Option<Instant>),
    /// The rest of a head that began at this time.
    Head(Instant),
    /// A body, or nothing while its response is not complete; on HTTP/2 anything.
    Busy,
}

/// What the HTTP library writes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionWriteState {
    /// Responses of this proxy; on HTTP/2 frames.
    Answers,
    /// The library was given the last chunk of a response and has not written since, so its next write belongs to
    /// that response.
    LastChunk,
    /// This many bytes of complete responses. Further bytes are the library's own.
    Owed(usize),
}

/// The progress of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestBodyState {
    /// No part of it was read.
    Untouched,
    /// A part was read and put back; the rest is not read for now.
    HeldBack,
    /// The client is waited for.
    Awaited,
    /// A chunk was passed on at this time.
    Receiving(Instant),
    /// All of it was passed on.
    Complete,
    /// It broke off.
    Broken,
    /// It did not arrive in its time.
    Overdue,
}

/// The state of an HTTP/2 connection at one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct H2Snapshot {
    pub(crate) exchanges: usize,
    /// Whether a part of the given responses is not written yet.
    pub(crate) unsent: bool,
    /// The most snapshots in a row that have found the client taking nothing of one response.
    pub(crate) not_taken: u32,
}
