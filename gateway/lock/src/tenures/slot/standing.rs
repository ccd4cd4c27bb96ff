//! Where this process stands in ZooKeeper's line for one key, and who of those who wait here asks for the way elsewhere.

use std::time::Duration;

use fencegate_process::clock::Boot;

/// Where we stand. All of it is under the slot's mutex, so what one look says fits together.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// A holder elsewhere was before us when we last looked.
    behind: bool,
    /// Nobody else is before us, and a delay is sat out until then.
    rests: Option<Boot>,
    /// Our place is gone: somebody else may hold before we do again. Queueing anew does not change that, a grant does.
    lost: bool,
    /// Somebody came who may be sent on, and has not been told the way.
    asks: bool,
    /// When there was no way, the last time that somebody asked.
    in_vain: Option<Boot>,
}

/// Whoever comes while a look for the way was in vain just now does not have it looked for again.
pub(super) const IN_VAIN: Duration = Duration::from_millis(100);

impl Standing {
    /// Nobody elsewhere was before us, for all that is known.
    pub(super) fn is_first(&self) -> bool {
        !self.lost && !self.behind
    }

    pub(super) fn is_behind(&self) -> bool {
        self.behind
    }

    /// We are about to queue: who is before us then is not known yet.
    pub(super) fn anew(&mut self) {
        self.behind = false;
        self.rests = None;
    }

    /// `asks`: somebody waits who may be sent on.
    pub(super) fn behind(&mut self, asks: bool) {
        self.behind = true;
        self.asks = asks;
    }

    pub(super) fn rests(&mut self, until: Boot) {
        self.rests = Some(until);
    }

    /// For so long a delay is sat out yet; `None` where none is.
    pub(super) fn rest(&self, now: Boot) -> Option<Duration> {
        self.rests.map(|until| until.since(now))
    }

    pub(super) fn lost(&mut self) {
        self.lost = true;
        self.rests = None;
    }

    pub(super) fn granted(&mut self) {
        self.behind = false;
        self.lost = false;
        self.rests = None;
    }

    /// Somebody waits who may be sent on, and nothing is held here. Whether the way is to be looked for now.
    pub(super) fn asks_now(&mut self, now: Boot) -> bool {
        let recently = self.in_vain.is_some_and(|looked| now.since(looked) < IN_VAIN);
        self.asks |= !recently;
        !recently
    }

    /// Has somebody come who may be sent on? Said once.
    pub(super) fn takes_question(&mut self) -> bool {
        std::mem::take(&mut self.asks)
    }

    /// There is nobody to be sent on to.
    pub(super) fn asked_in_vain(&mut self, now: Boot) {
        self.in_vain = Some(now);
    }
}
