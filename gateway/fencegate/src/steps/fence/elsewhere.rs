//! Requests that are not served where they came in: another gateway keeps their key.
//!
//! A request is sent on by the gateway that its client asked, and by no other. So two gateways that take each other for
//! the holder send nothing in a circle: the one that is asked says that it is not, and the request is back where it
//! came from. There it may be sent on again only to whom ZooKeeper names next, and only a few times.

use std::{pin::pin, time::Duration};

use fencegate_http::{body::Reply, network::Network};
use fencegate_lock::tenures::wish::Waits;
use fencegate_policies::plan::{self, Enforce, Fence, Forward, Mode};
use tokio::time::Instant;

use super::{
    acquire::Got,
    courier::{Carried, Courier, Errand},
    fencing::Fencing,
    held_tenure::HeldTenure,
};
use crate::{
    refusal::{Outcome, Reason, Refusal},
    steps::{
        key::{Fenced, Keyed},
        presence::{WaitingClient, presence},
        upgrade::Invitation,
    },
};

/// What came of waiting for a key.
pub(super) enum Waited {
    Held(HeldTenure),
    /// Another gateway has served it.
    Answered(Box<Reply>),
}

/// How often a request is sent on: a holder may be gone when it arrives, and the next one as well. Then it queues here.
/// Queueing at once would not do: it would make every holder yield to this gateway, and those who wait there come back
/// in their turn.
const SENDINGS: u32 = 3;

/// Whoever could wait for less may have found the other gateway busy, and not away.
const FAIR: Duration = Duration::from_millis(500);

impl<N: Network> Fencing<N> {
    /// Where a request may wait for its key.
    ///
    /// # Errors
    /// Another gateway has sent it here, and by our plan it is not about that one key alone.
    pub(super) fn waits(&self, request: &Keyed) -> Result<Waits, Refusal> {
        let alone = |fenced: &&Fenced| is_kept(fenced, fenced.fence(&request.plan));
        let kept = request.fenced.as_ref().filter(alone);
        match (request.notes.forwarded.get(), kept) {
            (Some(forwarded), Some(fenced)) if fenced.keys[0].as_str() == forwarded.key => {
                Ok(Waits::AtHolder)
            }
            (Some(_), _) => {
                Err(Refusal::new(Reason::NotHolder, "by our plan it does not wait for that key alone"))
            }
            (None, Some(fenced)) if self.courier.is_some() => Ok(leaves(request, fenced)),
            (None, _) => Ok(Waits::Here),
        }
    }

    /// Waits for the key here, or has the gateway serve the request that keeps it.
    pub(super) async fn wait(
        &self,
        request: &Keyed,
        fenced: &Fenced,
        fence: &Fence,
        (deadline, mut waits): (Instant, Waits),
        client: &mut WaitingClient,
    ) -> Result<Waited, Refusal> {
        let (key, mut sendings) = (&fenced.keys[0], 0);
        loop {
            let left = || deadline.saturating_duration_since(Instant::now());
            let way = match self.acquire(request, fenced, fence, (left(), waits), client).await? {
                Got::Hold(hold) => return Ok(Waited::Held(hold)),
                Got::Way(way) => way,
            };
            let Some(courier) = &self.courier else { continue };
            let given = left();
            match self.carry(courier, Errand { way: &way, key, request, left: given }, client).await {
                Carried::Answered(reply) => {
                    self.keeper.confirm(key, &way);
                    return Ok(Waited::Answered(Box::new(reply)));
                }
                Carried::Refused(refusal) => {
                    let cut_off = client.is_gone() || self.drain.is_cancelled();
                    if refusal.outcome() == Outcome::Unknown && !cut_off {
                        self.keeper.shut(&way);
                    }
                    return Err(refusal);
                }
                Carried::Unreached(_) => {
                    self.keeper.forget(key, &way);
                    if given >= FAIR {
                        self.keeper.shut(&way);
                    }
                    waits = Waits::Here;
                }
                Carried::Back(why) => {
                    self.keeper.forget(key, &way);
                    sendings += 1;
                    let moved = why == Reason::NotHolder.word();
                    // Nobody else is better off where a gateway is in trouble; and each sending takes its time, also when
                    // none is left.
                    if !moved || sendings == SENDINGS || left().is_zero() {
                        waits = Waits::Here;
                    }
                }
            }
        }
    }

    /// Sends it on, for as long as its client waits, and not beyond half of our drain: what has no answer then can wait
    /// longer than we live.
    pub(super) async fn carry(
        &self,
        courier: &Courier<N>,
        errand: Errand<'_>,
        client: &mut WaitingClient,
    ) -> Carried {
        let (asking, mut asked) = presence();
        let mut carrying = pin!(courier.carry(errand, &mut asked));
        let drained = tokio::select! {
            carried = &mut carrying => return carried,
            () = client.gone() => false,
            () = self.drained(errand.request.plan.listener.timeouts.drain / 2) => true,
        };
        // To whoever carries it, that is a client that goes away; only there it is known whether anything was written.
        drop(asking);
        match carrying.await {
            Carried::Refused(refusal) if drained => Carried::Refused(stopped(refusal.outcome())),
            carried => carried,
        }
    }
}

fn stopped(outcome: Outcome) -> Refusal {
    let reason = if outcome == Outcome::NotDispatched { Reason::Draining } else { Reason::OutcomeUnknown };
    Refusal::new(reason, "another gateway had not answered when this one stops")
}

/// It waits for one key, alone, that is kept for others, and goes nowhere without it.
fn is_kept(fenced: &Fenced, fence: &Fence) -> bool {
    let cached = matches!(fence.hold, plan::Hold::Cached(_)) && fenced.keys.len() == 1;
    cached && fenced.mode == Mode::Exclusive && fence.enforce == Enforce::Refuse
}

/// What is sent on has to be here in full, to be still here when it comes back; and what follows a switch of protocols
/// is not a request any more.
fn leaves(request: &Keyed, fenced: &Fenced) -> Waits {
    let sends = fenced.fence(&request.plan).forward == Forward::Holder;
    let whole = request.http.body().again().is_some();
    let switches = request.http.extensions().get::<Invitation>().is_some();
    if sends && whole && !switches { Waits::Anywhere } else { Waits::Here }
}

/// Where another gateway has sent it: not longer than it would wait there.
pub(super) fn deadline(request: &Keyed, ours: Instant) -> Instant {
    request.notes.forwarded.get().map_or(ours, |forwarded| ours.min(forwarded.until))
}
