//! What a worker asks of a session.

use std::sync::Arc;

use super::{slot::Slot, strict::StrictRequest};
use crate::once::Admission;
use crate::tenures::question::Question;

/// What a worker asks of a session.
pub enum Work {
    /// The lock of one key or of several, for one request only.
    Strict(StrictRequest),
    /// A key that requests wait for, and that has no task yet.
    Attend(Arc<Slot>),
    /// An operation that has to be recorded before it is sent.
    Once(Box<Admission>),
    /// A question or a command of an operator.
    Ask(Question),
}
