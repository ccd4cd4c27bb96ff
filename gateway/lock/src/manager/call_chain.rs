//! Requests that run one inside the other: a service sends a request for the key under which it works itself, and that
//! callback runs under the same tenure.
//!
//! A chain begins with a request that has the key. The service that works for it may call back with the token of its
//! dispatch. The callback runs inside that dispatch, and may be called back from in turn. Only the innermost request of
//! a chain can be called back from, so the callbacks of one dispatch run one after another. No callback waits, because
//! its caller waits for it. A chain is over when all its requests are over, in any order.

use std::collections::BTreeMap;

/// All requests in flight under one tenure.
#[derive(Debug, Default)]
pub(super) struct CallChains {
    /// The requests, by the G of their first dispatch.
    links: BTreeMap<u32, ChainLink>,
}

/// One request in flight.
#[derive(Debug)]
struct ChainLink {
    /// G of its last dispatch. A callback has to name this one.
    number: u32,
    /// G of the first dispatch of its caller, which may be over by now.
    caller: Option<u32>,
    /// How many requests it runs inside of.
    depth: u32,
    /// Whether a callback of it runs.
    calls: bool,
}

/// Why a callback does not run inside the dispatch that it names. It was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    #[error("no tenure of that ticket is held here")]
    NotHeld,
    #[error("the dispatch that it was called from is not in flight")]
    NotInFlight,
    #[error(
        "what came of a dispatch of that tenure is not known, or its lock is lost: nothing more is sent under it"
    )]
    Closed,
    #[error("the session could not be proven in time")]
    Unproven,
    #[error("something else that the dispatch has called still runs")]
    NotInnermost,
    #[error("it would run inside {DEEPEST} others")]
    TooDeep,
    #[error("it wants to write, and the tenure that it was called under only reads")]
    Upgrade,
}

/// How many requests one can run inside of. A service that calls itself for ever ends here, with all locks that it has.
pub(super) const DEEPEST: u32 = 8;

impl CallChains {
    /// A request was started that is no callback.
    pub(super) fn begin(&mut self, first: u32) {
        self.links.insert(first, ChainLink { number: first, caller: None, depth: 0, calls: false });
    }

    /// The request that a callback with this G may run inside of, by the G of its first dispatch.
    pub(super) fn caller(&self, number: u32) -> Result<u32, CallbackError> {
        // Requests are seldom dispatched twice, so the first one that is looked at is mostly the right one.
        let mut before = self.links.range(..=number).rev();
        let (first, link) =
            before.find(|(_, link)| link.number == number).ok_or(CallbackError::NotInFlight)?;
        match link {
            ChainLink { calls: true, .. } => Err(CallbackError::NotInnermost),
            ChainLink { depth: DEEPEST.., .. } => Err(CallbackError::TooDeep),
            _ => Ok(*first),
        }
    }

    /// A callback of `caller` was started.
    pub(super) fn call(&mut self, caller: u32, first: u32) {
        let depth = self.links.get_mut(&caller).map_or(0, |link| {
            link.calls = true;
            link.depth + 1
        });
        self.links.insert(first, ChainLink { number: first, caller: Some(caller), depth, calls: false });
    }

    /// A request in flight is dispatched once more, with another G.
    pub(super) fn record_dispatch(&mut self, first: u32, number: u32) {
        if let Some(link) = self.links.get_mut(&first) {
            link.number = number;
        }
    }

    /// A request in flight is over; what it has called may go on.
    pub(super) fn end(&mut self, first: u32) {
        let Some(ChainLink { caller: Some(caller), .. }) = self.links.remove(&first) else { return };
        if let Some(caller) = self.links.get_mut(&caller) {
            caller.calls = false;
        }
    }

    /// Whether this request is in flight.
    pub(super) fn contains(&self, first: u32) -> bool {
        self.links.contains_key(&first)
    }

    /// Whether this request is in flight and no other is.
    pub(super) fn is_only(&self, first: u32) -> bool {
        self.links.len() == 1 && self.contains(first)
    }

    /// How many requests are in flight, without this one.
    pub(super) fn count_except(&self, first: u32) -> usize {
        self.links.len() - usize::from(self.contains(first))
    }

    /// Whether no request is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started_chain() -> CallChains {
        let mut chains = CallChains::default();
        chains.begin(1);
        chains
    }

    #[test]
    fn only_what_is_in_flight_now_can_be_called_from() {
        let mut chains = started_chain();
        assert_eq!((chains.caller(1), chains.caller(2)), (Ok(1), Err(CallbackError::NotInFlight)));
        chains.record_dispatch(1, 2);
        assert_eq!((chains.caller(1), chains.caller(2)), (Err(CallbackError::NotInFlight), Ok(1)));
        chains.end(1);
        assert_eq!(chains.caller(2), Err(CallbackError::NotInFlight), "too late");
        assert!(chains.is_empty());
    }

    #[test]
    fn of_what_one_dispatch_calls_one_runs_after_another() {
        let mut chains = started_chain();
        chains.call(1, 2);
        assert_eq!((chains.caller(1), chains.caller(2)), (Err(CallbackError::NotInnermost), Ok(2)));
        chains.call(2, 3);
        assert_eq!(chains.caller(2), Err(CallbackError::NotInnermost));
        chains.end(3);
        assert_eq!(chains.caller(2), Ok(2));
        chains.end(2);
        assert_eq!((chains.caller(1), chains.caller(2)), (Ok(1), Err(CallbackError::NotInFlight)));
    }

    #[test]
    fn what_outlives_its_caller_keeps_the_chain() {
        let mut chains = started_chain();
        chains.call(1, 2);
        chains.end(1);
        assert!(!chains.is_empty());
        assert_eq!(chains.caller(1), Err(CallbackError::NotInFlight), "it was answered");
        chains.call(2, 3);
        chains.end(2);
        assert!(!chains.is_empty());
        chains.end(3);
        assert!(chains.is_empty());
    }

    #[test]
    fn a_service_that_calls_itself_ends_somewhere() {
        let mut chains = started_chain();
        for number in 1..=DEEPEST {
            let caller = chains.caller(number).expect("not that deep");
            chains.call(caller, number + 1);
        }
        assert_eq!(chains.caller(DEEPEST + 1), Err(CallbackError::TooDeep));
    }

    #[test]
    fn readers_call_each_for_itself() {
        let mut chains = started_chain();
        chains.begin(2);
        chains.call(1, 3);
        assert_eq!((chains.caller(1), chains.caller(2)), (Err(CallbackError::NotInnermost), Ok(2)));
        chains.end(1);
        chains.end(3);
        assert_eq!(chains.caller(2), Ok(2));
    }
}
