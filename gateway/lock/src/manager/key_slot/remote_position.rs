//! The place of this process in ZooKeeper's line for one key, and whether a waiting request asks for the way to another
//! gateway.

use std::time::Duration;

use fencegate_process::clock::BootInstant;

/// Our place in line. The slot's mutex guards all fields together.
#[derive(Debug, Default)]
pub(super) struct RemotePosition {
    /// Whether a holder elsewhere was before us at the last look.
    behind: bool,
    /// The end of a delay; only set while nobody else is before us.
    rests: Option<BootInstant>,
    /// Whether our place was lost, so that somebody else may hold before we do. Only a grant resets this.
    lost: bool,
    /// Whether a request waits that may be sent on and does not know the way yet.
    asks: bool,
    /// When the last look for the way found none.
    in_vain: Option<BootInstant>,
}

/// How long after a look without a result no new look is made.
pub(super) const ROUTE_RETRY_AFTER: Duration = Duration::from_millis(100);

impl RemotePosition {
    /// Whether nobody elsewhere was before us, as far as is known.
    pub(super) fn is_first(&self) -> bool {
        !self.lost && !self.behind
    }

    pub(super) fn is_behind(&self) -> bool {
        self.behind
    }

    /// We are about to queue, so it is not known any more who is before us.
    pub(super) fn reset(&mut self) {
        self.behind = false;
        self.rests = None;
    }

    /// Another holder is before us. `asks`: a request waits that may be sent on.
    pub(super) fn set_behind(&mut self, asks: bool) {
        self.behind = true;
        self.asks = asks;
    }

    pub(super) fn set_delay(&mut self, until: BootInstant) {
        self.rests = Some(until);
    }

    /// What is left of a delay; `None` if there is none.
    pub(super) fn remaining_delay(&self, now: BootInstant) -> Option<Duration> {
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

    /// A request waits that may be sent on, and nothing is held here. True if the way has to be looked for now.
    pub(super) fn request_route(&mut self, now: BootInstant) -> bool {
        let recently = self.in_vain.is_some_and(|looked| now.since(looked) < ROUTE_RETRY_AFTER);
        self.asks |= !recently;
        !recently
    }

    /// Whether a request has come that may be sent on. True once for each.
    pub(super) fn take_route_request(&mut self) -> bool {
        std::mem::take(&mut self.asks)
    }

    /// The look for the way found no gateway.
    pub(super) fn record_no_route(&mut self, now: BootInstant) {
        self.in_vain = Some(now);
    }
}
