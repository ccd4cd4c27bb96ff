//! A request that a service sends while it works under a lock. A request for the same key runs inside its caller's
//! dispatch, one for another key beside it. Neither waits: a request that waits for its own caller, directly or
//! through others, would wait for ever.

use std::{borrow::Cow, rc::Rc, time::Duration};

use fencegate_http::network::Network;
use fencegate_lock::tenures::{chain::NotInside, question::Holder, tenure::Tenure};
use fencegate_policies::{
    key::ResourceKey,
    plan::{Fence, Level, Mode, Nested},
    token::Token,
};

use super::{
    courier::{Carried, Errand},
    elsewhere::Waited,
    fencing::Fencing,
    held_tenure::HeldTenure,
};
use crate::{
    calling_dispatch::{CallingDispatch, ShownTicket},
    leases::id::LeaseId,
    metrics::Acquired,
    refusal::{Reason, Refusal},
    steps::{
        key::{Fenced, Keyed},
        presence::WaitingClient,
    },
};

/// The relation of a request to the dispatch in which it was called.
pub(super) enum Called {
    /// The request shows no caller.
    ByNobody,
    /// All keys of the request are held by its caller.
    Inside(Rc<CallingDispatch>),
    /// None of its keys is held by its caller.
    Beside,
    /// The request belongs to a client that holds a lease.
    Under(Rc<LeaseId>),
}

/// The longest time to connect to the gateway that has the lock, and for the first exchange with it.
const REACH: Duration = Duration::from_secs(1);

impl Called {
    /// A called request never waits for a lock. So where a lock is busy, the refusal names the deadlock and not a
    /// wait.
    pub(super) fn never_waited(&self, refusal: Refusal) -> Refusal {
        match (self, refusal.reason) {
            (Self::Inside(_) | Self::Beside, Reason::Locked | Reason::QueueFull) => deadlock(refusal.detail),
            _ => refusal,
        }
    }
}

impl<N: Network> Fencing<N> {
    /// # Errors
    /// A request that is called in this way can never run.
    pub(super) fn called(&self, request: &Keyed) -> Result<Called, Refusal> {
        let Some(fenced) = &request.fenced else { return Ok(Called::ByNobody) };
        let fence = fenced.fence(&request.plan);
        let Some(shown) = request.notes.shown.get().filter(|_| fence.nested == Nested::Allow) else {
            return self.leased(request, fence);
        };
        let from = match shown {
            ShownTicket::Good(from) => from,
            ShownTicket::Spent(why) => return Err(stale(why)),
        };
        request.notes.called_from.set(Some(from.token));
        let held = fenced.keys.iter().filter(|key| from.keys.contains(key)).count();
        match held {
            0 => Ok(Called::Beside),
            all if all == fenced.keys.len() => Ok(Called::Inside(from.clone())),
            _ => Err(deadlock("some of its keys are those of its caller, and others are not")),
        }
    }

    /// Runs the request inside the dispatch in which it was called, here or at the gateway that holds the lock.
    ///
    /// # Errors
    /// The request cannot run there. It has not waited.
    pub(super) async fn inside(
        &self,
        request: &Keyed,
        (fenced, fence): (&Fenced, &Fence),
        from: &CallingDispatch,
        client: &mut WaitingClient,
    ) -> Result<Waited, Refusal> {
        match self.keeper.call(&from.keys, from.token, fenced.mode) {
            Ok((tenure, mode)) => {
                let part = (from.keys.clone(), Some(from.token));
                Ok(Waited::Held(self.holds(request, (fenced, fence), part, (tenure, mode))))
            }
            Err(NotInside::NotHere) => self.at_its_holder(request, fenced, from, client).await,
            Err(why) => Err(Refusal::of_call(why)),
        }
    }

    /// `keys` are all keys of the tenure, as its ticket has them. `from` is the dispatch in which the request was
    /// called.
    pub(super) fn holds(
        &self,
        request: &Keyed,
        (fenced, fence): (&Fenced, &Fence),
        (keys, from): (Rc<[ResourceKey]>, Option<Token>),
        (tenure, mode): (Tenure, Mode),
    ) -> HeldTenure {
        let metrics = self.metrics.route(fenced.route);
        request.notes.waited.set(Some(Duration::ZERO));
        metrics.acquired(Acquired::Inside, mode, Duration::ZERO);
        let guarded = request.plan.upstream(request.upstream).fencing == Level::Guard;
        HeldTenure {
            tenure,
            // The keys of the whole tenure, as its ticket names them.
            keys,
            mode,
            counted: metrics.holding(mode),
            tickets: self.tickets_for(guarded, fence),
            operation: fenced.operation.clone().filter(|_| guarded),
            nested: if guarded { fence.nested } else { Nested::Ignore },
            called_from: from.filter(|_| guarded),
            running: fenced.running.clone(),
            _traced: None,
            _stay: None,
            share: None,
        }
    }

    /// Another gateway has the tenure. Only that gateway knows which dispatches are in flight.
    async fn at_its_holder(
        &self,
        request: &Keyed,
        fenced: &Fenced,
        from: &CallingDispatch,
        client: &mut WaitingClient,
    ) -> Result<Waited, Refusal> {
        let ours = |origin| self.tickets.as_ref().is_some_and(|tickets| tickets.is_of_this_process(origin));
        let forwarded = request.notes.forwarded.get().is_some();
        // A forwarded request is not forwarded again: the sender has asked ZooKeeper for the holder.
        let Some(origin) = from.origin.as_ref().filter(|origin| !forwarded && !ours(origin)) else {
            return Err(Refusal::of_call(NotInside::NotHere));
        };
        let Some(courier) = &self.courier else {
            return Err(deadlock(
                "its caller has come through another gateway, and the policy has no `peer`",
            ));
        };
        let way = match self.keeper.holder(origin.member.clone()).await {
            Ok(Holder::Elsewhere(way)) => way,
            Ok(Holder::Gone | Holder::Here) => return Err(stale("the session of its caller's lock is over")),
            Ok(Holder::Unreached) => return Err(deadlock("the gateway of its caller has no `peer`")),
            Err(untold) => return Err(Refusal::new(Reason::LockService, untold.to_string())),
        };
        let (key, ended_sessions) = (&fenced.keys[0], self.keeper.ended_sessions());
        let errand = Errand { way: &way, key, request, left: REACH, ended_sessions };
        match self.carry(courier, errand, client).await {
            Carried::Answered(reply) => Ok(Waited::Answered(Box::new(reply))),
            Carried::Refused(refusal) => Err(refusal),
            Carried::Back(why) | Carried::Unreached(why) => {
                Err(deadlock(format!("the gateway of its caller: {why}")))
            }
        }
    }
}

fn stale(why: &'static str) -> Refusal {
    Refusal::new(Reason::StaleToken, why)
}

fn deadlock(why: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(Reason::DeadlockAvoided, why)
}
