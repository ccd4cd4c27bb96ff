//! Decides which dispatches may run: the watermarks of every key, the dispatches in flight and those in doubt.
//!
//! This module has no clock, no storage and no waiting. The caller holds the lock of the admission table, passes the
//! time, and commits the returned changes before a dispatch is sent.

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
    claim::{DispatchId, InDoubtExecution, OpenDispatch, PresentedDispatch},
    decide::{AdmissionTable, AdmitDecision, ChangeNotified, DispatchEnd},
    eviction::{IdleKeyEvictionPass, IdleKeyEvictionStep},
    key_state::{InDoubtDispatch, RunningDispatch, TokenWatermark},
    liveness::{LivenessProbeAnswer, LivenessProbeConfig},
    quarantine::{QuarantineReason, QuarantineScope, QuarantineStatus},
    view::GuardKeyView,
};
pub use self::{
    key_state::recover_watermarks,
    liveness::{EndpointLivenessTracker, RequiredTargetUptime},
};
