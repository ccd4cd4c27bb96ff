//! What becomes of those who wait while somebody else holds their key.

use fencegate_process::clock::Boot;

use super::{Caller, Slot};
use crate::tenures::wish::Waits;
use crate::{
    not_granted::NotGranted,
    reach::Way,
    recipe::grant::Stop,
    tenures::{ended::Cause, queue::Patience},
};

impl Slot {
    /// Another holder is before us: those leave who do not wait, or wait for nobody but us. Who may be sent on stays
    /// until the way is known. An error when nobody is left.
    pub(in crate::tenures) fn is_behind(&self) -> Result<(), Stop> {
        let mut entry = self.entry();
        let sent_here = entry.queue.dismiss(|caller| caller.waits == Waits::AtHolder);
        let impatient = entry
            .queue
            .dismiss(|caller| caller.patience == Patience::None && caller.waits != Waits::Anywhere);
        let asks = entry.queue.in_line().any(|(.., caller)| caller.waits == Waits::Anywhere);
        entry.standing.behind(asks);
        let left = entry.queue.waiting();
        drop(entry);
        tell(sent_here, &NotGranted::NotHolder);
        tell(impatient, &NotGranted::Locked);
        if left == 0 { Err(Stop::CallerGone) } else { Ok(()) }
    }

    /// Nobody else holds, and a delay is sat out until then: those leave who do not wait. It goes on without anybody.
    pub(in crate::tenures) fn rests(&self, until: Boot) {
        self.entry().standing.rests(until);
        let rest = until.since(self.clock.now());
        self.dismiss(|caller| caller.patience == Patience::None, &NotGranted::Delayed(rest)).ok();
    }

    /// We are about to queue: who is before us then is not known yet.
    pub(in crate::tenures) fn queues_anew(&self) {
        self.entry().standing.anew();
    }

    /// Our place is gone, with its session or by itself, and somebody else may be next: who was sent here hears so now,
    /// and not when we have queued again.
    pub(in crate::tenures) fn place_lost(&self) {
        self.entry().standing.lost();
        // Whoever else waits does so for our next turn.
        self.dismiss(|caller| caller.waits == Waits::AtHolder, &NotGranted::NotHolder).ok();
    }

    /// Has somebody come who may be sent on? Said once.
    pub(in crate::tenures) fn asks_the_way(&self) -> bool {
        self.entry().standing.takes_question()
    }

    /// Another gateway keeps the key: those who may go there leave. An error when nobody is left.
    pub(in crate::tenures) fn send_on(&self, way: &Way) -> Result<(), Stop> {
        self.dismiss(|caller| caller.waits == Waits::Anywhere, &NotGranted::Elsewhere(way.clone()))
    }

    /// There is nobody to be sent on to: those who do not wait leave. An error when nobody is left.
    pub(in crate::tenures) fn no_way(&self) -> Result<(), Stop> {
        self.entry().standing.asked_in_vain(self.clock.now());
        self.dismiss(|caller| caller.patience == Patience::None, &NotGranted::Locked)
    }

    /// No lock can be had: everybody who waits is told why.
    pub(in crate::tenures) fn refuse(&self, why: &NotGranted) {
        self.dismiss(|_| true, why).ok();
    }

    /// A fault of ours: nothing is started under the tenure any more, and everybody who waits is told why. In one step: who
    /// sees that the tenure ends, and comes then, is none of those.
    pub(in crate::tenures) fn fail(&self, why: &NotGranted) {
        let leaving = {
            let mut entry = self.entry();
            entry.queue.close(Cause::Failed);
            // What was on its way to a request when we panicked may be anything.
            entry.queue.unknown();
            entry.queue.dismiss(|_| true)
        };
        tell(leaving, why);
    }

    fn dismiss(&self, leaves: impl Fn(&Caller) -> bool, why: &NotGranted) -> Result<(), Stop> {
        let (leaving, left) = {
            let mut entry = self.entry();
            (entry.queue.dismiss(leaves), entry.queue.waiting())
        };
        tell(leaving, why);
        if left == 0 { Err(Stop::CallerGone) } else { Ok(()) }
    }
}

/// Not under the slot's lock: a caller that has just gone gives up its place in here.
fn tell(leaving: Vec<Caller>, why: &NotGranted) {
    for caller in leaving {
        caller.answer.send(Err(why.clone())).ok();
    }
}
