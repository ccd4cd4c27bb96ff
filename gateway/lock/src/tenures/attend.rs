//! Works for one key, as long as anybody here wants it: gets the lock, keeps it for the next ones, gives it up in time.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use fencegate_process::{clock::Boot, failpoint, shown};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{
    caught::{FAILED, caught},
    ended::{Cause, Ended},
    queue::Due,
    slot::{FirstWish, Slot},
};
use crate::tenures::slot::table::Table;
use crate::{
    not_granted::NotGranted,
    recipe::{
        attempt::Attempt,
        candidate::{AGAIN, PAUSE},
        grant::{Caller, Grant, Stop},
        layout::Rank,
    },
};
use crate::{
    reach::Way,
    session::{
        link::{ConnectionState, Fault, Link},
        live::{Current, Live},
    },
};

/// Runs until nobody wants the key any more.
///
/// Keys may be kept by the ten thousand, and the future of a task is as large as the largest thing that it ever waits for. So
/// all that is not waited for while a key is kept has a box of its own, for as long as it lasts.
///
/// Should we panic, what is held is kept until nothing is in flight under it, and only then given back: whoever works
/// under it knows nothing of us. Who waits is refused, and whoever comes next is served as ever.
pub async fn attend<L: Link>(slot: Arc<Slot>, table: Arc<Table>, current: Rc<Current<L>>) {
    let nodes = Nodes::default();
    while caught(work(&slot, &table, &current, &nodes)).await.is_none() {
        while caught(Box::pin(give_up(&slot, &nodes))).await.is_none() {
            sleep(PAUSE).await;
        }
    }
}

/// What the task of a key has in ZooKeeper.
struct Nodes<L: Link> {
    /// Under this one the slot's tenure is held, or was until now.
    held: RefCell<Option<Rc<Attempt<L>>>>,
    /// This one is to be held.
    asked: RefCell<Option<Rc<Attempt<L>>>>,
}

impl<L: Link> Default for Nodes<L> {
    fn default() -> Self {
        Self { held: RefCell::default(), asked: RefCell::default() }
    }
}

impl<L: Link> Nodes<L> {
    fn held(&self) -> Option<Rc<Attempt<L>>> {
        self.held.borrow().clone()
    }

    /// To be told before anything is sent for it.
    fn asks(&self, attempt: Attempt<L>) -> Rc<Attempt<L>> {
        let attempt = Rc::new(attempt);
        self.asked.replace(Some(attempt.clone()));
        attempt
    }

    /// What was asked for is granted, and what was held before is cleared.
    fn holds(&self) {
        self.held.replace(self.asked.take());
    }

    /// Returns when none is left, or their session is over.
    async fn clear(&self) {
        for place in [&self.asked, &self.held] {
            let attempt = place.borrow().clone();
            if let Some(attempt) = attempt {
                attempt.clear().await;
                place.take();
            }
        }
    }
}

/// After a panic: in flight under what is held may be anything.
async fn give_up<L: Link>(slot: &Arc<Slot>, nodes: &Nodes<L>) {
    slot.fail(&NotGranted::Service(FAILED.into()));
    if let Some(held) = nodes.held() {
        keep(slot, &held.candidate.live, &held).await;
    }
    nodes.clear().await;
}

async fn work<L: Link>(slot: &Arc<Slot>, table: &Arc<Table>, current: &Rc<Current<L>>, nodes: &Nodes<L>) {
    // Since the last grant.
    let mut lost = 0_u32;
    loop {
        let Some(wanted) = slot.wanted() else {
            Box::pin(nodes.clear()).await;
            if table.leave(slot) {
                return;
            }
            continue;
        };
        let Some(live) = Box::pin(session(slot, current)).await else { continue };
        slot.queues_anew();
        match Box::pin(acquire(slot, table, &live, &wanted, nodes)).await {
            Ok((attempt, grant)) => {
                // No request is sent on from here while it is held here.
                table.ways.is_here(&slot.key);
                lost = 0;
                slot.granted(grant, wanted);
                keep(slot, &live, &attempt).await;
            }
            Err(NotGranted::Lost) => {
                slot.place_lost();
                debug!(key = shown::key(&slot.key), "place lost; queueing again");
                lost = lost.saturating_add(1);
                others_turn(lost).await;
            }
            Err(why) => slot.refuse(&why),
        }
    }
}

/// A library whose session is over answers at once, whatever is asked, and we may know of the end before the one who
/// keeps the session has had a turn to hear of it. Nothing on the way round waits for anything then, so it is done here.
/// Once may be the node that was taken away: that place is to be had again without delay.
async fn others_turn(lost: u32) {
    match lost {
        0 | 1 => tokio::task::yield_now().await,
        _ => sleep(AGAIN).await,
    }
}

/// The session of the moment; `None` when nobody wants the key any more.
async fn session<L: Link>(slot: &Slot, current: &Current<L>) -> Option<Rc<Live<L>>> {
    loop {
        let is_over =
            |live: &Rc<Live<L>>| live.over.is_cancelled() || live.link.state() == ConnectionState::Over;
        if let Some(live) = current.live().filter(|live| !is_over(live)) {
            return Some(live);
        }
        slot.place_lost();
        tokio::select! {
            () = current.changed() => {}
            () = slot.changed() => { slot.wanted()?; }
        }
    }
}

/// Gets the lock. Where a node of ours is held and due to be given up, the new one takes its place in the same
/// transaction, so that yielding and queueing again cost one write. Without a grant no node is left.
async fn acquire<L: Link>(
    slot: &Arc<Slot>,
    table: &Arc<Table>,
    live: &Rc<Live<L>>,
    wanted: &FirstWish,
    nodes: &Nodes<L>,
) -> Result<(Rc<Attempt<L>>, Grant), NotGranted> {
    let old = match nodes.held() {
        Some(old) if !Rc::ptr_eq(&old.candidate.live, live) => {
            // Of a session that is over.
            nodes.clear().await;
            None
        }
        old => old,
    };
    let begun = match &old {
        Some(old) => old.succeed(wanted.mode),
        None => Attempt::begin(live, &slot.key, &slot.site, wanted.mode).await?,
    };
    let attempt = nodes.asks(begun.signed().delayed(wanted.delay));
    let mut waiting = Waiting { slot: slot.clone(), table: table.clone() };
    let asked = live.clock.now();
    let granted = match &old {
        Some(old) => attempt.acquire_instead_of(old, &mut waiting).await,
        None => attempt.acquire(&mut waiting).await,
    };
    if let Some(old) = old {
        old.clear().await;
    }
    match granted {
        Ok(grant) => {
            live.metrics.lock_granted(live.clock.now().since(asked));
            live.registry.cached(attempt.candidate.guid, slot);
            nodes.holds();
            Ok((attempt, grant))
        }
        Err(stop) => {
            nodes.clear().await;
            Err(match stop {
                Stop::CallerGone => NotGranted::Lost,
                Stop::NotGranted(why) => why,
            })
        }
    }
}

/// The local requests of a key are, together, one caller of its attempt.
struct Waiting {
    slot: Arc<Slot>,
    table: Arc<Table>,
}

impl Caller for Waiting {
    fn is_gone(&self) -> bool {
        self.slot.wanted().is_none()
    }

    async fn gone(&mut self) {
        while self.slot.wanted().is_some() {
            self.slot.changed().await;
        }
    }

    fn behind(&mut self) -> Result<(), Stop> {
        self.slot.is_behind()
    }

    fn rests(&mut self, until: Boot) {
        self.slot.rests(until);
    }

    fn asks_the_way(&mut self) -> bool {
        self.slot.asks_the_way()
    }

    fn way(&mut self, way: Option<Way>) -> Result<(), Stop> {
        match way.filter(|way| !self.table.is_shut(way)) {
            Some(way) => {
                // First: who comes in this moment need not come by.
                self.table.learn(&self.slot.key, &way);
                self.slot.send_on(&way)
            }
            None => self.slot.no_way(),
        }
    }

    async fn stirred(&mut self) {
        self.slot.changed().await;
    }
}

/// Keeps the tenure until it is due to end and nothing is in flight under it. The slot has let go of it then.
async fn keep<L: Link>(slot: &Arc<Slot>, live: &Rc<Live<L>>, attempt: &Attempt<L>) {
    // Set after the grant, and beside everything else: nobody waits for it.
    let mut contention = std::pin::pin!(watch_for_contention(slot, attempt));
    let mut watching = true;
    let mut over = false;
    loop {
        let told = |ended: Ended| {
            live.metrics.tenure_used(ended.dispatches);
            live.metrics.tenure_ended(ended.cause);
            if ended.known {
                attempt.all_known();
            }
        };
        if slot.take_if_due(told) {
            return;
        }
        let rest = match slot.due() {
            Due::Keep(rest) => rest,
            Due::End => continue,
        };
        tokio::select! {
            () = &mut contention, if watching => watching = false,
            () = slot.changed() => {}
            () = live.over.cancelled(), if !over => {
                over = true;
                slot.close(Cause::Session);
                slot.place_lost();
            }
            () = sleep(rest) => slot.start_waiting(),
        }
    }
}

/// Tells the slot when somebody waits elsewhere, or our node is gone; then there is nothing more to tell.
async fn watch_for_contention<L: Link>(slot: &Arc<Slot>, attempt: &Attempt<L>) {
    let candidate = &attempt.candidate;
    loop {
        let (children, changed) = match Box::pin(candidate.live.link.watch_children(&candidate.parent)).await
        {
            Ok(watched) => watched,
            Err(Fault::Ambiguous(_)) => match candidate.again().await {
                Ok(()) => continue,
                Err(_over) => return,
            },
            Err(Fault::NoNode) => return taken_away(slot),
            Err(Fault::Over) => return,
            // It says no now. For as long, nobody here sees who waits elsewhere, nor that the node is gone.
            Err(fault) => {
                debug!(%fault, key = shown::key(&slot.key), "contention is not watched");
                sleep(PAUSE).await;
                continue;
            }
        };
        candidate.saw(&children);
        failpoint::pass("while_watching");
        let Some(own) = attempt.node().or_else(|| adopted(attempt, &children)) else {
            return taken_away(slot);
        };
        if candidate.line.rank(&children, &own) == Rank::Gone {
            return taken_away(slot);
        }
        if candidate.line.is_contended(&children, &own) {
            slot.contended(candidate.line.may_only_look(&children, &own));
            slot.start_waiting();
        } else {
            slot.uncontended();
        }
        changed.await;
    }
}

/// The name of a node that was found again after its create's answer was lost.
fn adopted<L: Link>(attempt: &Attempt<L>, children: &[String]) -> Option<String> {
    attempt.candidate.line.made_by(children, attempt.candidate.guid).first().map(|name| (*name).to_owned())
}

fn taken_away(slot: &Arc<Slot>) {
    // First: whoever reads of it and asks then gets a new tenure.
    slot.taken_away();
    warn!(key = shown::key(&slot.key), "lock node removed by somebody else");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{metered::Metered, zookeeper::Session};

    type OfThree<A, B, C, F> = fn(A, B, C) -> F;

    fn future<A, B, C, F>(_: OfThree<A, B, C, F>) -> usize {
        size_of::<F>()
    }

    /// Bytes of a key that nobody uses, but for its name and what the client library has of its watch. Failpoints take some.
    #[test]
    fn a_key_that_is_kept_is_small() {
        type Real = Metered<Session>;
        let task = future(attend::<Real> as OfThree<_, _, _, _>);
        let (slot, attempt) = (size_of::<Slot>(), size_of::<Attempt<Real>>());
        assert!(task <= 1024 && slot <= 400 && attempt <= 256, "{task}, {slot}, {attempt}");
    }
}
