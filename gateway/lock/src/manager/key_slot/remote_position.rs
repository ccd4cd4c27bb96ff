//! The position of this process in ZooKeeper's queue for one key, and whether a waiting request needs the route to
//! another gateway.

use std::time::Duration;

use fencegate_process::clock::BootInstant;

/// The position of this process in the queue. The slot's mutex guards all fields together.
#[derive(Debug, Default)]
pub(super) struct ZkQueuePosition {
    /// Whether a remote holder was ahead at the last check.
    behind: bool,
    /// The end of a handover delay; only set while no contender is ahead.
    rests: Option<BootInstant>,
    /// Whether the position was lost, so that another contender may hold first. Only a grant resets this.
    lost: bool,
    /// Whether a request waits that may be forwarded and has no route yet.
    asks: bool,
    /// The time at which the last lookup found no route.
    in_vain: Option<BootInstant>,
}

/// After a lookup that found no route, no new one is made for this time.
pub(super) const ROUTE_RETRY_AFTER: Duration = Duration::from_millis(100);

impl ZkQueuePosition {
    /// Whether no remote contender was ahead, as far as is known.
    pub(super) fn has_no_remote_ahead(&self) -> bool {
        !self.lost && !self.behind
    }

    pub(super) fn is_behind_remote(&self) -> bool {
        self.behind
    }

    /// Resets the position before the gateway queues anew: the contenders ahead are not known any more.
    pub(super) fn forget_contenders_ahead(&mut self) {
        self.behind = false;
        self.rests = None;
    }

    /// Records that another holder is ahead. `asks`: whether a request waits that may be forwarded.
    pub(super) fn mark_behind_remote(&mut self, asks: bool) {
        self.behind = true;
        self.asks = asks;
    }

    pub(super) fn set_grant_delay(&mut self, until: BootInstant) {
        self.rests = Some(until);
    }

    /// The rest of a handover delay; `None` if there is none.
    pub(super) fn remaining_grant_delay(&self, now: BootInstant) -> Option<Duration> {
        self.rests.map(|until| until.since(now))
    }

    pub(super) fn mark_lost(&mut self) {
        self.lost = true;
        self.rests = None;
    }

    pub(super) fn mark_granted(&mut self) {
        self.behind = false;
        self.lost = false;
        self.rests = None;
    }

    /// Records that a request waits that may be forwarded, while nothing is held here. Returns whether the route
    /// has to be looked up now.
    pub(super) fn request_holder_lookup(&mut self, now: BootInstant) -> bool {
        let recently = self.in_vain.is_some_and(|looked| now.since(looked) < ROUTE_RETRY_AFTER);
        self.asks |= !recently;
        !recently
    }

    /// Whether a request has come that may be forwarded. Returns true once for each such request.
    pub(super) fn take_holder_lookup_request(&mut self) -> bool {
        std::mem::take(&mut self.asks)
    }

    /// Records that the lookup found no gateway.
    pub(super) fn record_no_route(&mut self, now: BootInstant) {
        self.in_vain = Some(now);
    }
}
