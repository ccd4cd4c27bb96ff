//! What every part of a gateway is built on: its clock, its counters, its memory for bodies, the keeper of its keys.

use std::sync::Arc;

use fencegate_http::buffered::Budget;
use fencegate_lock::tenures::{
    desk::Desk,
    keeper::{self, Keeper},
};
use fencegate_policies::plan::Gateway;
use fencegate_process::clock::{MachineClock, SharedClock};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// Nothing of it asks the system for anything, so making it does not fail.
pub(super) struct Base {
    pub(super) clock: SharedClock,
    pub(super) metrics: Arc<Metrics>,
    /// For bodies that are here in full.
    pub(super) budget: Budget,
    pub(super) keeper: Keeper,
    /// Nothing new is begun any more.
    pub(super) drain: CancellationToken,
}

impl Base {
    /// With the desks of the keeper, one for each session that is to work for it.
    pub(super) fn of(gateway: &Gateway) -> (Self, Vec<Desk>) {
        let clock: SharedClock = Arc::new(MachineClock);
        let metrics = Metrics::of_gateway(gateway);
        let budget = Budget::of_this_process(metrics.buffered().clone());
        let (keeper, desks) = keeper::keeper(clock.clone(), gateway.zookeeper.sessions);
        let counted = keeper.clone();
        metrics.count_keys(move || counted.keys());
        (Self { clock, metrics, budget, keeper, drain: CancellationToken::new() }, desks)
    }
}
