//! What an arbiter is asked for a dispatch, and what it says.

use fencegate_policies::operation::OperationId;
use fencegate_process::clock::Boot;

use crate::{
    operation::Entry,
    postgres::{Changed, DispatchName, HeldRight, InFlight},
    register::DispatchId,
};

/// Which look at the keys of a dispatch it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Its token is compared with the marks, and announced.
    First,
    /// It was announced, and has waited since.
    Again,
}

/// The operation that the dispatch is: written down in the step that lets it in.
pub(crate) struct Admitting<'r> {
    pub(crate) right: &'r Right,
    pub(crate) entry: Box<Entry>,
}

/// The right to decide over an operation. The arbiter that gave it takes it back.
pub(crate) enum Right {
    Alone(OperationId),
    Shared(HeldRight),
}

/// What one look at the keys came to. It is durable.
pub(crate) struct Looked {
    pub(crate) way: Way,
    /// The token is the first of its tenure on one of the keys.
    pub(crate) raised: bool,
}

/// Whether a dispatch can go its way.
pub(crate) enum Way {
    /// It counts as in flight. What lets it send began then.
    Free { since: Boot },
    /// Somebody else is at work. Look again when told, or when a doubt may be over.
    Taken { told: Changed, doubt: Option<Boot> },
}

/// What the arbiter calls a dispatch that it has let in.
#[derive(Debug)]
pub(crate) enum Admitted {
    Not,
    Alone(DispatchId),
    /// Under this name it may be, for all that is known.
    Asked(DispatchName),
    Shared(InFlight),
}

/// What came of asking for the right to decide over an operation.
pub(crate) enum Reserving {
    /// Nobody else has it now. With what is known of it.
    Ours(Right, Option<Box<Entry>>),
    /// Somebody has it. Ask again when told.
    Taken(Changed),
}

/// What is kept, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reach {
    /// A token up to here is refused where nothing is known of its key.
    pub(crate) floor: u64,
    /// The largest epoch that was ever announced.
    pub(crate) highest: u64,
    /// Where others may keep it as well: which database it is in.
    pub(crate) database: Option<String>,
}
