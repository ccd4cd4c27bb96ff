//! What a worker asks of a session.

use std::sync::Arc;

use super::{slot::Slot, strict::StrictRequest};
use crate::once::Admission;
use crate::tenures::question::Question;

/// What a worker asks of a session.
pub enum Work {
    /// The lock of one key or of several, for one request only.
    Strict(StrictRequest),
    /// A key that somebody waits for and nobody works for yet.
    Attend(Arc<Slot>),
    /// An operation that is to be written down before it is sent.
    Once(Box<Admission>),
    /// Something that an operator wants to know, or to have done.
    Ask(Question),
}
