//! Decides which dispatches may run: the marks of every key, what is in flight, and what is in doubt.
//!
//! It has no clock, no storage and no waiting. The caller holds the lock over the register, passes the time, and
//! commits the returned changes before a dispatch is sent.

mod active_keys;
mod claim;
mod decide;
mod endpoint_watch;
mod eviction;
mod key_state;
mod liveness;
mod quarantine;
#[cfg(test)]
mod tests;
mod view;

pub use self::{
    claim::{Claim, DispatchId, InDoubtExecution, OpenDispatch},
    decide::{AdmissionTable, AdmitDecision, ChangeNotified, DispatchEnd},
    eviction::{EvictionPass, EvictionStep},
    key_state::{InDoubtDispatch, RunningDispatch, Watermark},
    liveness::{EndpointWatch, LivenessAnswer},
    quarantine::{QuarantineReason, QuarantineScope, QuarantineStatus},
    view::KeyView,
};
pub(crate) use self::{
    key_state::recover_watermarks,
    liveness::{LivenessAnswers, UnseenTime},
};
