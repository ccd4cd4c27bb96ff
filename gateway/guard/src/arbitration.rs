//! The questions to an arbiter about a dispatch, and its answers.

use fencegate_policies::operation::OperationId;
use fencegate_process::clock::Boot;

use crate::{
    operation::Entry,
    place::Place,
    postgres::{Changed, DispatchName, HeldRight, InFlight},
    register::DispatchId,
};

/// Which look at the keys of a dispatch it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Its token is compared with the marks, and announced.
    First,
    /// Its token was announced before, and it has waited since.
    Again,
}

/// The operation of the dispatch, which is recorded in the step that lets the dispatch in.
pub(crate) struct Admitting<'r> {
    pub(crate) right: &'r Right,
    pub(crate) entry: Box<Entry>,
}

/// The right to decide over an operation. The arbiter that gave it takes it back.
pub(crate) enum Right {
    Alone(OperationId),
    Shared(HeldRight),
}

/// How a dispatch went out that is in doubt.
#[derive(Debug)]
pub(crate) struct Sent {
    /// Where it was sent, if that is known.
    pub(crate) place: Option<Place>,
    /// The last byte, or a later moment.
    pub(crate) last: Boot,
}

/// The result of one look at the keys, which is durable.
pub(crate) struct Looked {
    pub(crate) way: Way,
    /// Whether the token is the first of its tenure on one of the keys.
    pub(crate) raised: bool,
}

/// Whether a dispatch can go its way.
pub(crate) enum Way {
    /// The dispatch counts as in flight. Its permission to send began at `since`.
    Free { since: Boot },
    /// Another dispatch is in the way. Look again when told, or when a doubt may be over.
    Taken { told: Changed, doubt: Option<Boot> },
}

/// The arbiter's name for a dispatch that it has let in.
#[derive(Debug)]
pub(crate) enum Admitted {
    Not,
    Alone(DispatchId),
    /// It may be in flight under this name; the answer is not here yet.
    Asked(DispatchName),
    Shared(InFlight),
}

/// The answer to a request for the right to decide over an operation.
pub(crate) enum Reserving {
    /// The right is ours. With the entry of the operation.
    Ours(Right, Option<Box<Entry>>),
    /// Another request has it. Ask again when told.
    Taken(Changed),
}

/// How far the store has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reach {
    /// A key without a mark admits no token up to here.
    pub(crate) floor: u64,
    /// The largest epoch that was ever announced.
    pub(crate) highest: u64,
    /// The database of the store, if several guards may share it.
    pub(crate) database: Option<String>,
}
