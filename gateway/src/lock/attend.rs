//! Works for one key, as long as anybody here wants it: gets the lock, keeps it for the next ones, gives it up in time.

use std::{rc::Rc, sync::Arc};

use tokio::time::sleep;
use tracing::{debug, warn};

use super::{
    attempt::Attempt,
    ended::{Cause, Ended},
    grant::{Caller, Grant, NotGranted, Stop},
    layout::{self, Place},
    queue::Due,
    site::AGAIN,
    slot::{Slot, Table, Wanted},
};
use crate::{
    peers::Way,
    session::{
        link::{Fault, Link},
        live::{Current, Live},
    },
};

/// Runs until nobody wants the key any more.
pub async fn attend<L: Link>(slot: Arc<Slot>, table: Arc<Table>, current: Rc<Current<L>>) {
    let mut held: Option<Attempt<L>> = None;
    loop {
        let Some(wanted) = slot.wanted() else {
            if let Some(old) = held.take() {
                old.clear().await;
            }
            if table.leave(&slot) {
                return;
            }
            continue;
        };
        let Some(live) = session(&slot, &current).await else { continue };
        match acquire(&slot, &table, &live, &wanted, held.take()).await {
            Ok((attempt, grant)) => {
                // No request is sent on from here while it is held here.
                table.ways.is_here(&slot.key);
                slot.granted(grant, wanted);
                keep(&slot, &live, &attempt).await;
                held = Some(attempt);
            }
            Err(NotGranted::Lost) => {
                slot.place_lost();
                debug!(key = %slot.key, "place lost; queueing again");
            }
            Err(why) => slot.refuse(&why),
        }
    }
}

/// The session of the moment; `None` when nobody wants the key any more.
async fn session<L: Link>(slot: &Slot, current: &Current<L>) -> Option<Rc<Live<L>>> {
    loop {
        if let Some(live) = current.live() {
            return Some(live);
        }
        slot.place_lost();
        tokio::select! {
            () = current.changed() => {}
            () = slot.changed() => { slot.wanted()?; }
        }
    }
}

/// Gets the lock. `old` is the node that we hold and that is due to be given up: the new one takes its place in the
/// same transaction, so that yielding and queueing again cost one write. Without a grant no node is left.
async fn acquire<L: Link>(
    slot: &Arc<Slot>,
    table: &Arc<Table>,
    live: &Rc<Live<L>>,
    wanted: &Wanted,
    old: Option<Attempt<L>>,
) -> Result<(Attempt<L>, Grant), NotGranted> {
    let attempt = match Attempt::begin(live, &slot.key, wanted.mode).await {
        Ok(attempt) => attempt.signed(),
        Err(why) => {
            if let Some(old) = old {
                old.clear().await;
            }
            return Err(why);
        }
    };
    let mut waiting = Waiting { slot: slot.clone(), table: table.clone() };
    let asked = live.clock.now();
    let granted = match &old {
        Some(old) if Rc::ptr_eq(&old.site.live, live) => attempt.acquire_instead_of(old, &mut waiting).await,
        Some(old) => {
            old.clear().await;
            attempt.acquire(&mut waiting).await
        }
        None => attempt.acquire(&mut waiting).await,
    };
    if let Some(old) = old {
        old.clear().await;
    }
    match granted {
        Ok(grant) => {
            live.metrics.lock_granted(live.clock.now().since(asked));
            live.registry.cached(attempt.site.guid, slot);
            Ok((attempt, grant))
        }
        Err(stop) => {
            attempt.clear().await;
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
    let site = &attempt.site;
    loop {
        let (children, changed) = match site.live.link.watch_children(&site.parent).await {
            Ok(watched) => watched,
            Err(Fault::Ambiguous(_)) => {
                sleep(AGAIN).await;
                continue;
            }
            Err(Fault::NoNode) => return taken_away(slot),
            Err(fault) => return debug!(%fault, key = %slot.key, "contention is not watched"),
        };
        let Some(own) = attempt.node().map(str::to_owned).or_else(|| adopted(attempt, &children)) else {
            return taken_away(slot);
        };
        if layout::place(&children, &own) == Place::Gone {
            return taken_away(slot);
        }
        if layout::is_contended(&children, &own) {
            slot.contended(layout::may_only_look(&children, &own));
            slot.start_waiting();
        } else {
            slot.uncontended();
        }
        changed.await;
    }
}

/// The name of a node that was found again after its create's answer was lost.
fn adopted<L: Link>(attempt: &Attempt<L>, children: &[String]) -> Option<String> {
    layout::made_by(children, attempt.site.guid).first().map(|name| (*name).to_owned())
}

fn taken_away(slot: &Arc<Slot>) {
    warn!(key = %slot.key, "lock node removed by somebody else");
    slot.taken_away();
}
