//! Decides which dispatches may run: the marks of every key, what is in flight, and what is in doubt.
//!
//! It has no clock, no storage and no waiting. The caller holds the lock over the register, passes the time, and
//! commits the returned changes before a dispatch is sent.

mod claim;
mod decide;
mod forget;
mod key_state;
mod quarantine;
mod rest;
mod seen_running;
#[cfg(test)]
mod tests;
mod view;
mod watch;

pub use self::{
    claim::{Claim, DispatchId, InDoubtExecution, OpenDispatch},
    decide::{AdmissionTable, AdmitDecision, ChangeNotified, DispatchEnd},
    forget::{EvictionPass, EvictionStep},
    key_state::{InDoubtDispatch, RunningDispatch, Watermark},
    quarantine::{QuarantineReason, QuarantineScope, QuarantineStatus},
    seen_running::{EndpointWatch, LivenessAnswer},
    view::KeyView,
};
pub(crate) use self::{
    key_state::recover_watermarks,
    seen_running::{LivenessAnswers, UnseenTime},
};
