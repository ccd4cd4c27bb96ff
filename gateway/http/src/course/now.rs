//! What may be the case at one moment: what comes from a client, and what goes to it.

use tokio::time::Instant;

/// What comes next from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// A request, or nothing. The time is known once somebody waits for it.
    Idle(Option<Instant>),
    /// The rest of a head that began then.
    Head(Instant),
    /// A body, or nothing as long as its answer is not complete; on HTTP/2 anything.
    Busy,
}

/// What the HTTP library writes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    /// Answers of ours; on HTTP/2 frames.
    Answers,
    /// It was given the last piece of an answer, and has not written since: all it writes now belongs to it.
    LastPiece,
    /// So many bytes of complete answers. What it writes beyond is of its own making.
    Owed(usize),
}

/// How the body of a request comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coming {
    /// Nobody has asked for any of it.
    Untouched,
    /// Some of it was taken, and will be given again; the rest is left where it is.
    HeldBack,
    /// The client is waited for.
    Awaited,
    /// A piece of it was handed on then.
    Here(Instant),
    /// All of it was.
    Over,
    /// It will never be all here.
    Broken,
    /// It did not go up in time.
    Overdue,
}

/// What is under way on an HTTP/2 connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnderWay {
    pub(crate) exchanges: usize,
    /// Something of answers that were given is not written.
    pub(crate) unsent: bool,
    /// How often in a row some client was seen taking nothing of its answer.
    pub(crate) not_taken: u32,
}
