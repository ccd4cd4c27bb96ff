//! Nested requests: a service that works for a request may send a request for the same key itself. That callback runs
//! under the same tenure.
//!
//! A chain begins with a request that holds the key. The service that works for it may call back with the token of its
//! dispatch. The callback runs inside that dispatch, and its own service may call back in turn. Only the innermost
//! request of a chain can be called back from, so the callbacks of one dispatch run one after another. No callback
//! waits for the key, because its caller waits for the callback. A chain is over when all its requests are over, in any
//! order.

use std::collections::BTreeMap;

/// All requests in flight under one tenure.
#[derive(Debug, Default)]
pub(super) struct NestedRequestChains {
    /// The requests, each by the number of its first dispatch.
    links: BTreeMap<u32, NestedRequestLink>,
}

/// One request in flight.
#[derive(Debug)]
struct NestedRequestLink {
    /// The number of the request's last dispatch, which a callback has to name.
    number: u32,
    /// The first dispatch number of the request that this one was called back from. That request may be over by now.
    caller: Option<u32>,
    /// The number of requests in which this request is nested.
    depth: u32,
    /// Whether a callback from this request runs.
    calls: bool,
}

/// The reason for which a callback cannot run inside the dispatch that it names. The callback was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NestedCallbackError {
    #[error("this gateway does not hold the tenure that the callback's ticket names")]
    NotHeld,
    #[error("the dispatch that the callback was called from is not in flight")]
    NotInFlight,
    #[error(
        "the tenure takes no more dispatches: the outcome of one of its dispatches is unknown, or its lock is \
         lost"
    )]
    Closed,
    #[error("the session could not be proven in time")]
    Unproven,
    #[error("another callback of the same dispatch still runs")]
    NotInnermost,
    #[error("the callback would run inside {DEEPEST} other requests")]
    TooDeep,
    #[error("the callback writes, but the tenure that it was called under only reads")]
    Upgrade,
}

/// The deepest nesting of requests. A service that calls itself endlessly is refused here, and its requests then end
/// and release their locks.
pub(super) const DEEPEST: u32 = 8;

impl NestedRequestChains {
    /// Starts a request that is no callback.
    pub(super) fn begin_root_request(&mut self, first: u32) {
        self.links.insert(first, NestedRequestLink { number: first, caller: None, depth: 0, calls: false });
    }

    /// Finds the request inside of which a callback with this dispatch number may run. Returns the first dispatch
    /// number of that request.
    pub(super) fn find_caller(&self, number: u32) -> Result<u32, NestedCallbackError> {
        // Requests are seldom dispatched twice, so the first candidate below `number` is mostly the right one.
        let mut before = self.links.range(..=number).rev();
        let (first, link) =
            before.find(|(_, link)| link.number == number).ok_or(NestedCallbackError::NotInFlight)?;
        match link {
            NestedRequestLink { calls: true, .. } => Err(NestedCallbackError::NotInnermost),
            NestedRequestLink { depth: DEEPEST.., .. } => Err(NestedCallbackError::TooDeep),
            _ => Ok(*first),
        }
    }

    /// Starts a callback of `caller`.
    pub(super) fn begin_callback(&mut self, caller: u32, first: u32) {
        let depth = self.links.get_mut(&caller).map_or(0, |link| {
            link.calls = true;
            link.depth + 1
        });
        self.links
            .insert(first, NestedRequestLink { number: first, caller: Some(caller), depth, calls: false });
    }

    /// Records that a request in flight is dispatched once more, with another dispatch number.
    pub(super) fn record_dispatch(&mut self, first: u32, number: u32) {
        if let Some(link) = self.links.get_mut(&first) {
            link.number = number;
        }
    }

    /// Records that a request in flight is over; its callbacks may go on.
    pub(super) fn end_request(&mut self, first: u32) {
        let Some(NestedRequestLink { caller: Some(caller), .. }) = self.links.remove(&first) else { return };
        if let Some(caller) = self.links.get_mut(&caller) {
            caller.calls = false;
        }
    }

    /// Whether this request is in flight.
    pub(super) fn is_request_in_flight(&self, first: u32) -> bool {
        self.links.contains_key(&first)
    }

    /// Whether this request is in flight and no other is.
    pub(super) fn is_only_request(&self, first: u32) -> bool {
        self.links.len() == 1 && self.is_request_in_flight(first)
    }

    /// The number of requests in flight, without this one.
    pub(super) fn count_other_requests(&self, first: u32) -> usize {
        self.links.len() - usize::from(self.is_request_in_flight(first))
    }

    /// Whether no request is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started_chain() -> NestedRequestChains {
        let mut chains = NestedRequestChains::default();
        chains.begin_root_request(1);
        chains
    }

    /// A callback is accepted only from the dispatch that is in flight, not from an earlier or an ended one.
    #[test]
    fn callback_requires_dispatch_in_flight() {
        let mut chains = started_chain();
        assert_eq!(
            (chains.find_caller(1), chains.find_caller(2)),
            (Ok(1), Err(NestedCallbackError::NotInFlight))
        );
        chains.record_dispatch(1, 2);
        assert_eq!(
            (chains.find_caller(1), chains.find_caller(2)),
            (Err(NestedCallbackError::NotInFlight), Ok(1))
        );
        chains.end_request(1);
        assert_eq!(chains.find_caller(2), Err(NestedCallbackError::NotInFlight), "too late");
        assert!(chains.is_empty());
    }

    /// Of the callbacks of one dispatch only one runs at a time: only the innermost call may call further.
    #[test]
    fn callbacks_of_dispatch_run_serially() {
        let mut chains = started_chain();
        chains.begin_callback(1, 2);
        assert_eq!(
            (chains.find_caller(1), chains.find_caller(2)),
            (Err(NestedCallbackError::NotInnermost), Ok(2))
        );
        chains.begin_callback(2, 3);
        assert_eq!(chains.find_caller(2), Err(NestedCallbackError::NotInnermost));
        chains.end_request(3);
        assert_eq!(chains.find_caller(2), Ok(2));
        chains.end_request(2);
        assert_eq!(
            (chains.find_caller(1), chains.find_caller(2)),
            (Ok(1), Err(NestedCallbackError::NotInFlight))
        );
    }

    /// A callback that runs longer than its caller keeps the chain, and the key, until it has ended.
    #[test]
    fn callback_outliving_caller_keeps_chain() {
        let mut chains = started_chain();
        chains.begin_callback(1, 2);
        chains.end_request(1);
        assert!(!chains.is_empty());
        assert_eq!(chains.find_caller(1), Err(NestedCallbackError::NotInFlight), "it was answered");
        chains.begin_callback(2, 3);
        chains.end_request(2);
        assert!(!chains.is_empty());
        chains.end_request(3);
        assert!(chains.is_empty());
    }

    /// A service that calls itself is refused beyond `DEEPEST` nested calls.
    #[test]
    fn callback_depth_is_bounded() {
        let mut chains = started_chain();
        for number in 1..=DEEPEST {
            let caller = chains.find_caller(number).expect("not that deep");
            chains.begin_callback(caller, number + 1);
        }
        assert_eq!(chains.find_caller(DEEPEST + 1), Err(NestedCallbackError::TooDeep));
    }

    /// Each reader that holds a shared lock has a call chain of its own.
    #[test]
    fn readers_have_separate_chains() {
        let mut chains = started_chain();
        chains.begin_root_request(2);
        chains.begin_callback(1, 3);
        assert_eq!(
            (chains.find_caller(1), chains.find_caller(2)),
            (Err(NestedCallbackError::NotInnermost), Ok(2))
        );
        chains.end_request(1);
        chains.end_request(3);
        assert_eq!(chains.find_caller(2), Ok(2));
    }
}
