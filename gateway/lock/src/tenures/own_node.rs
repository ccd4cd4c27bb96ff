//! The worker's side of lock nodes that are not cached: those of one request with its callbacks, or of a lease with the
//! requests under it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencegate_policies::{plan::Mode, token::Token};
use fencegate_process::clock::SharedClock;
use tokio::sync::{Notify, oneshot};

use super::{
    chain::{Chains, NotInside},
    occupancy::Whose,
    roll::{Enrolled, FIRST},
    tenure::{Shared, Tenure},
};
use crate::recipe::grant::Grant;

/// The lock of one request or lease, held until all its parts are over.
#[derive(Debug)]
pub(super) struct OwnNode {
    grant: Grant,
    mode: Mode,
    enrolled: Enrolled,
    clock: SharedClock,
    of: Whose,
    state: Mutex<State>,
    /// Notified whenever a part of it is over. At most one task waits for this: the next request under a lease.
    pub(super) stirred: Notify,
}

#[derive(Debug)]
struct State {
    chains: Chains,
    /// The client's lease is over, so nothing more is started under it.
    closed: bool,
    /// An outcome is unknown, so nothing more is started under it.
    retired: bool,
    /// Tells the task of the node that nothing is in flight any more, and whether all outcomes are known.
    over: Option<oneshot::Sender<bool>>,
}

/// Hands the lock to the request that has asked for it.
pub(super) fn begin(
    grant: Grant,
    (mode, of): (Mode, Whose),
    over: oneshot::Sender<bool>,
    enrolled: Enrolled,
    clock: SharedClock,
) -> (Arc<OwnNode>, Tenure) {
    let mut chains = Chains::default();
    chains.begin(FIRST);
    let state = Mutex::new(State { chains, closed: false, retired: false, over: Some(over) });
    let stirred = Notify::new();
    let lock = Arc::new(OwnNode { grant: grant.clone(), mode, enrolled, clock, of, state, stirred });
    let found: Arc<dyn Shared> = lock.clone();
    lock.enrolled.holds(Arc::downgrade(&found));
    (lock, Tenure::of_node(grant, FIRST, found))
}

impl OwnNode {
    fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned lock does no harm: no panic can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a request under a lease. Exclusive ones run one after another: [`NotInside::NotInnermost`] says that one
    /// runs now.
    pub(super) fn join(self: &Arc<Self>, mode: Mode) -> Result<(Tenure, Mode), NotInside> {
        let mut state = self.state();
        if state.retired || state.closed {
            return Err(NotInside::Over);
        }
        if (self.mode, mode) == (Mode::Shared, Mode::Exclusive) {
            return Err(NotInside::Upgrade);
        }
        if !self.grant.evidence.holds(self.clock.now()) {
            return Err(NotInside::Unproven);
        }
        if self.mode == Mode::Exclusive && !state.chains.is_alone(FIRST) {
            return Err(NotInside::NotInnermost);
        }
        let first = self.enrolled.next_number().ok_or(NotInside::Over)?;
        state.chains.begin(first);
        drop(state);
        Ok((Tenure::of_node(self.grant.clone(), first, self.clone()), self.mode))
    }

    /// From now on nothing is started under it, or sent for the first time.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.stirred.notify_one();
    }

    /// Requests at work under it, without the lease's own part.
    pub(super) fn at_work(&self) -> usize {
        self.state().chains.beside(FIRST)
    }

    /// Whether an unknown outcome keeps it from starting anything more.
    pub(super) fn is_retired(&self) -> bool {
        self.state().retired
    }
}

impl Shared for OwnNode {
    fn may_begin(&self) -> bool {
        let state = self.state();
        !state.retired && !state.closed
    }

    fn next_number(&self, first: u32) -> Option<u32> {
        let mut state = self.state();
        let number = self.enrolled.next_number().filter(|_| !state.retired)?;
        state.chains.sent_again(first, number);
        Some(number)
    }

    fn call(self: Arc<Self>, from: Token, mode: Mode) -> Result<(Tenure, Mode), NotInside> {
        let mut state = self.state();
        if state.retired {
            return Err(NotInside::Over);
        }
        if !self.grant.evidence.holds(self.clock.now()) {
            return Err(NotInside::Unproven);
        }
        let caller = state.chains.caller(from.dispatch())?;
        if (caller, self.of) == (FIRST, Whose::Client) {
            // The token of a lease itself belongs to no dispatch, so nothing can be called back with it.
            return Err(NotInside::NotInFlight);
        }
        if (self.mode, mode) == (Mode::Shared, Mode::Exclusive) {
            return Err(NotInside::Upgrade);
        }
        let first = self.enrolled.next_number().ok_or(NotInside::Over)?;
        state.chains.call(caller, first);
        drop(state);
        let (grant, held) = (self.grant.clone(), self.mode);
        Ok((Tenure::of_node(grant, first, self), held))
    }

    fn retire(&self) {
        self.state().retired = true;
        self.stirred.notify_one();
    }

    fn ended(self: Arc<Self>, first: u32, known: bool) {
        let mut state = self.state();
        state.retired |= !known;
        state.chains.end(first);
        // The parts end in any order; the node goes with the last one.
        if state.chains.are_over()
            && let Some(over) = state.over.take()
        {
            // This fails only after the session's thread has ended.
            over.send(!state.retired).ok();
        }
        drop(state);
        self.stirred.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fencegate_policies::{key::KeyTemplate, plan::Hold};
    use fencegate_process::clock::{Boot, ManualClock};

    use super::*;
    use crate::{
        session::{evidence::Evidence, proof::Proof},
        tenures::{
            roll::{Asking, Roll},
            wish::{Waits, Wish},
        },
    };

    struct Bench {
        roll: Arc<Roll>,
        keys: Vec<fencegate_policies::key::ResourceKey>,
        over: oneshot::Receiver<bool>,
        outer: Tenure,
    }

    fn bench(mode: Mode) -> Bench {
        let roll = Arc::<Roll>::default();
        let key = |text| KeyTemplate::parse(text).expect("a literal").expand(&()).expect("short");
        let keys = vec![key("a"), key("b")];
        let route = "transfer".into();
        let wish = Wish {
            keys: &keys,
            sites: &[],
            mode,
            hold: Hold::Strict,
            wait: Duration::ZERO,
            queue: 1,
            waits: Waits::Here,
            delay: None,
            route: &route,
        };
        let enrolled = roll.enrol(wish, Asking { asked: Boot::from_nanos(0), ahead: Arc::default() });
        let evidence = Arc::new(Evidence::of(Arc::new(Proof::until(1, Boot::from_nanos(1 << 50)))));
        let grant =
            Grant { epoch: 7, sequence: 0, permit: None, evidence, nodes: [].into(), contended: false };
        enrolled.granted(&grant, Boot::from_nanos(0));
        let (sender, over) = oneshot::channel();
        let (_, outer) =
            begin(grant, (mode, Whose::Request), sender, enrolled, Arc::<ManualClock>::default());
        Bench { roll, keys, over, outer }
    }

    impl Bench {
        fn call(&self, from: Token, mode: Mode) -> Result<(Tenure, Mode), NotInside> {
            self.roll.holder(&self.keys, from).ok_or(NotInside::NotHere)?.call(from, mode)
        }
    }

    #[test]
    fn a_set_is_given_back_when_all_that_its_service_has_called_is_over() {
        let mut bench = bench(Mode::Exclusive);
        let from = bench.outer.dispatch().expect("a dispatch").token;
        let (inner, held) = bench.call(from, Mode::Shared).expect("inside");
        assert_eq!(held, Mode::Exclusive);
        let called = inner.dispatch().expect("a dispatch").token;
        assert_eq!((called.number(), called.dispatch()), (from.number(), 2));
        assert_eq!(bench.call(from, Mode::Shared).map(drop), Err(NotInside::NotInnermost));
        inner.known();
        bench.outer.known();
        let Bench { outer, .. } = &mut bench;
        drop(std::mem::replace(outer, inner));
        assert!(bench.over.try_recv().is_err(), "what was called still runs");
        assert_eq!(bench.call(from, Mode::Shared).map(drop), Err(NotInside::NotInFlight));
        let Bench { outer: inner, mut over, roll, keys } = bench;
        drop(inner);
        assert_eq!(over.try_recv(), Ok(true));
        assert!(roll.holder(&keys, from).is_none(), "nothing is held any more");
    }

    #[test]
    fn an_unknown_end_of_what_was_called_retires_the_tenure() {
        let Bench { roll, keys, mut over, outer } = bench(Mode::Exclusive);
        let from = outer.dispatch().expect("a dispatch").token;
        let lock = || roll.holder(&keys, from).expect("held");
        let (inner, _) = lock().call(from, Mode::Exclusive).expect("inside");
        inner.dispatch().expect("a dispatch");
        drop(inner);
        assert_eq!(lock().call(from, Mode::Exclusive).map(drop), Err(NotInside::Over));
        assert!(outer.dispatch().is_none(), "nothing more is sent under it");
        outer.known();
        drop(outer);
        assert_eq!(over.try_recv(), Ok(false));
    }

    #[test]
    fn a_reader_does_not_wait_until_it_may_write() {
        let bench = bench(Mode::Shared);
        let from = bench.outer.dispatch().expect("a dispatch").token;
        assert_eq!(bench.call(from, Mode::Exclusive).map(drop), Err(NotInside::Upgrade));
        assert!(bench.call(from, Mode::Shared).is_ok());
    }
}
