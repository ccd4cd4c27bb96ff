//! Records which process of a guard answers to one name at one address. Two processes that do so at the same time are
//! two guards, even if each of them remembers the tokens that it has received.
//!
//! The id of a process is never used again. So a process that answers again after another one answered in its
//! place has run all the time. A process has also overlapped with the former one if it began before the last
//! answer of the former one.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use fencegate_guard::identity::GuardIdentityResponse;
use fencegate_process::clock::BootInstant;

use fencegate_http::network::ConnectTarget;
use fencegate_http_client::upstream::address::ResolvedEndpoint;

/// A process and its store. All processes that share a store count as one: each of them has the admissions of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GuardProcessIdentity {
    pub store: Arc<str>,
    pub instance: Arc<str>,
    /// The database of the store, where it can be shared. One store in two databases means that one is a copy.
    pub database: Option<Arc<str>>,
}

impl GuardProcessIdentity {
    pub(super) fn from_announcement(announced: &GuardIdentityResponse) -> Self {
        let GuardIdentityResponse { store, instance, shared, .. } = announced;
        let instance = match shared {
            None => instance.as_str().into(),
            Some(_) => format!("those of {store}").into(),
        };
        let database = shared.as_deref().map(Arc::from);
        Self { store: store.as_str().into(), instance, database }
    }
}

/// The processes that have answered, by endpoint and address, regardless of the upstream.
#[derive(Debug, Default)]
pub(super) struct DuplicateGuardDetector {
    behind: HashMap<EndpointAddressKey, GuardProcessHistory>,
    /// How often one process has replaced another.
    turns: u64,
    /// How many addresses were left after the last sweep.
    left: usize,
}

/// The name of an endpoint, and the socket. Both are needed, because a proxy at one address may route each name
/// to another guard.
type EndpointAddressKey = (Arc<str>, ConnectTarget);

fn address_key(address: &ResolvedEndpoint) -> EndpointAddressKey {
    (address.name.clone(), address.socket.clone())
}

#[derive(Debug, Default)]
struct GuardProcessHistory {
    /// `None` after several processes answered at once: none of them is trusted again.
    now: Option<Arc<str>>,
    /// The last process that answered, trusted or not.
    last: Option<(GuardProcessIdentity, BootInstant)>,
    /// The processes that were replaced, each with the turn that ended it.
    before: VecDeque<(Arc<str>, u64)>,
}

/// The most replaced processes that are kept for an address. Bounds the memory for a guard that restarts all the
/// time.
const MAX_REPLACED: usize = 1000;

/// An address to which no name resolves any more is forgotten after so long without an answer.
const RETENTION: Duration = Duration::from_secs(3600);
/// The first sweep happens at so many addresses; the next one at twice as many as were left.
const FIRST_SWEEP_AT: usize = 64;

/// The turn at which the identity of a process was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdentityCheckSequence(u64);

/// The timing of an announcement.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdentityResponseTiming {
    pub asked: IdentityCheckSequence,
    pub at: BootInstant,
    /// How long the process has used its store; `None` if it does not report that.
    pub up: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuardProcessConflictError {
    /// Two processes answer to one name at one address.
    Several,
    /// The process answered before the present one. Its connection is of no use any more.
    Replaced,
}

impl DuplicateGuardDetector {
    pub(super) fn begin_check(&self) -> IdentityCheckSequence {
        IdentityCheckSequence(self.turns)
    }

    /// Records the announcement of a process at an address.
    ///
    /// # Errors
    /// Returns an error if another process answers at the address, too, or has replaced this one.
    pub(super) fn record_announcement(
        &mut self,
        address: &ResolvedEndpoint,
        process: &GuardProcessIdentity,
        timing: IdentityResponseTiming,
    ) -> Result<(), GuardProcessConflictError> {
        let state = self.behind.entry(address_key(address)).or_default();
        if let Some((_, ended)) = state.before.iter().find(|(known, _)| *known == process.instance) {
            if *ended > timing.asked.0 {
                return Err(GuardProcessConflictError::Replaced);
            }
            state.last = Some((process.clone(), timing.at));
            self.turns += 1;
            state.record_replaced(self.turns);
            return Err(GuardProcessConflictError::Several);
        }
        let overlaps = state.is_running_beside_other(process, timing);
        state.last = Some((process.clone(), timing.at));
        if state.now.as_ref() == Some(&process.instance) {
            return Ok(());
        }
        self.turns += 1;
        state.record_replaced(self.turns);
        if overlaps {
            state.now = Some(process.instance.clone());
            state.record_replaced(self.turns);
            return Err(GuardProcessConflictError::Several);
        }
        state.now = Some(process.instance.clone());
        Ok(())
    }

    /// Forgets addresses that are no longer used: over time names resolve to new addresses. `leads` is true if
    /// requests are still sent to this socket under this name.
    pub(super) fn forget_unused_addresses(
        &mut self,
        at: BootInstant,
        leads: impl Fn(&str, &ConnectTarget) -> bool,
    ) {
        if self.behind.len() < FIRST_SWEEP_AT.max(2 * self.left) {
            return;
        }
        self.behind.retain(|(name, socket), state| {
            let silence = state.last.as_ref().map(|(_, last)| at.since(*last));
            leads(name, socket) || silence.is_some_and(|silent| silent < RETENTION)
        });
        self.left = self.behind.len();
    }

    /// Records that the process has answered a request.
    pub(super) fn record_answer(&mut self, address: &ResolvedEndpoint, instance: &Arc<str>, at: BootInstant) {
        let last = self.behind.get_mut(&address_key(address)).and_then(|state| state.last.as_mut());
        if let Some((process, last_answer)) = last
            && process.instance == *instance
        {
            *last_answer = (*last_answer).max(at);
        }
    }

    /// Whether no other process has replaced this one.
    pub(super) fn is_current(&self, address: &ResolvedEndpoint, instance: &Arc<str>) -> bool {
        self.behind.get(&address_key(address)).is_some_and(|behind| behind.now.as_ref() == Some(instance))
    }
}

impl GuardProcessHistory {
    fn record_replaced(&mut self, turn: u64) {
        if let Some(ended) = self.now.take() {
            self.before.push_back((ended, turn));
        }
        if self.before.len() > MAX_REPLACED {
            self.before.pop_front();
        }
    }

    /// True if the process used its store while another process still answered with another store. With one store
    /// this cannot happen: only one process at a time can use it.
    fn is_running_beside_other(
        &self,
        process: &GuardProcessIdentity,
        timing: IdentityResponseTiming,
    ) -> bool {
        let (Some((last, at)), Some(up)) = (&self.last, timing.up) else { return false };
        let silent = timing.at.since(*at);
        // Two clocks do not run at exactly the same rate, so a thousandth is tolerated.
        last.store != process.store && up > silent + silent / 1000
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    struct GuardProcessTableFixture {
        processes: DuplicateGuardDetector,
        address: Arc<ResolvedEndpoint>,
        now: u64,
    }

    impl GuardProcessTableFixture {
        fn new() -> Self {
            let address =
                ResolvedEndpoint::new(SocketAddr::from(([127, 0, 0, 1], 8080)), "guard:8080".into());
            Self { processes: DuplicateGuardDetector::default(), address, now: 1_000 }
        }

        fn guard_process(store: &str, instance: &str) -> GuardProcessIdentity {
            GuardProcessIdentity { store: store.into(), instance: instance.into(), database: None }
        }

        /// An announcement one second later. `up` is in seconds.
        fn announce(
            &mut self,
            store: &str,
            instance: &str,
            up: Option<u64>,
        ) -> Result<(), GuardProcessConflictError> {
            let asked = self.processes.begin_check();
            self.announce_for_check(store, instance, up, asked)
        }

        fn announce_for_check(
            &mut self,
            store: &str,
            instance: &str,
            up: Option<u64>,
            asked: IdentityCheckSequence,
        ) -> Result<(), GuardProcessConflictError> {
            self.now += 1;
            let heard = IdentityResponseTiming {
                asked,
                at: BootInstant::from_nanos(self.now * 1_000_000_000),
                up: up.map(Duration::from_secs),
            };
            self.processes.record_announcement(&self.address, &Self::guard_process(store, instance), heard)
        }

        fn is_current(&self, instance: &str) -> bool {
            self.processes.is_current(&self.address, &instance.into())
        }
    }

    #[test]
    fn restarted_guard_is_accepted() {
        let mut place = GuardProcessTableFixture::new();
        for (instance, up) in
            [("one", None), ("one", Some(9)), ("two", Some(0)), ("three", Some(90)), ("three", None)]
        {
            assert_eq!(place.announce("s", instance, up), Ok(()), "{instance}");
            assert!(place.is_current(instance));
        }
        assert!(!place.is_current("one") && !place.is_current("two"));
    }

    /// A replaced process that answers again has run all the time: neither it nor its successor is accepted any more.
    #[test]
    fn returning_process_invalidates_both() {
        let mut place = GuardProcessTableFixture::new();
        assert_eq!(place.announce("a", "one", None), Ok(()));
        assert_eq!(place.announce("b", "two", None), Ok(()));
        for instance in ["one", "two", "one", "one"] {
            assert_eq!(
                place.announce("a", instance, None),
                Err(GuardProcessConflictError::Several),
                "{instance}"
            );
            assert!(!place.is_current("one") && !place.is_current("two"));
        }
        // A process with a new id is accepted.
        assert_eq!(place.announce("b", "three", None), Ok(()));
        assert!(place.is_current("three"));
        assert_eq!(place.announce("a", "two", None), Err(GuardProcessConflictError::Several));
        assert!(!place.is_current("three"));
    }

    /// A process with another store that is older than the silence of the former process has overlapped with it.
    #[test]
    fn overlapping_store_is_detected_at_once() {
        let mut place = GuardProcessTableFixture::new();
        assert_eq!(place.announce("a", "one", Some(100)), Ok(()));
        assert_eq!(place.announce("b", "two", Some(50)), Err(GuardProcessConflictError::Several));
        assert_eq!(place.announce("a", "one", Some(102)), Err(GuardProcessConflictError::Several));
        // A store that was created anew, after the old guard had been silent for long enough.
        place.now += 60;
        assert_eq!(place.announce("c", "three", Some(50)), Ok(()));
    }

    /// An answer to a request ends the silence of a process, so a store that was in use then has overlapped.
    #[test]
    fn answer_counts_as_process_activity() {
        let mut place = GuardProcessTableFixture::new();
        assert_eq!(place.announce("a", "one", Some(100)), Ok(()));
        place.now += 60;
        let at = BootInstant::from_nanos(place.now * 1_000_000_000);
        place.processes.record_answer(&place.address, &"one".into(), at);
        assert_eq!(place.announce("b", "two", Some(50)), Err(GuardProcessConflictError::Several));
    }

    /// An address without requests is forgotten after `RETENTION`; an address to which requests are still sent
    /// stays, however long it is silent.
    #[test]
    fn unused_addresses_are_forgotten_after_retention() {
        let mut processes = DuplicateGuardDetector::default();
        let met = GuardProcessTableFixture::guard_process("s", "one");
        let address = |n: u32| {
            let [_, high, middle, low] = n.to_be_bytes();
            ResolvedEndpoint::new(SocketAddr::from(([10, high, middle, low], 8080)), "guard:8080".into())
        };
        let at = |seconds: u32| BootInstant::from_nanos(u64::from(seconds) * 1_000_000_000);
        // One address stays in use. The others are new, each for a second.
        let stays = address(1 << 20);
        for second in 0..10_000 {
            let came = address(second);
            let begins = (second == 0).then_some(&stays);
            for address in begins.into_iter().chain([&came]) {
                let heard =
                    IdentityResponseTiming { asked: processes.begin_check(), at: at(second), up: None };
                assert_eq!(processes.record_announcement(address, &met, heard), Ok(()));
            }
            let leads = |_: &str, socket: &ConnectTarget| *socket == stays.socket || *socket == came.socket;
            processes.forget_unused_addresses(at(second), leads);
            assert!(processes.is_current(&came, &met.instance));
            assert!(
                second < 10 || processes.is_current(&address(second - 10), &met.instance),
                "it may come back"
            );
        }
        assert!(processes.behind.len() < 8000, "{}", processes.behind.len());
        assert!(processes.is_current(&stays, &met.instance), "silent, and still led to");
    }

    /// An announcement requested before its process was replaced is out of date, and shows no second process.
    #[test]
    fn delayed_announcement_is_replaced_not_conflict() {
        let mut place = GuardProcessTableFixture::new();
        let before = place.processes.begin_check();
        assert_eq!(place.announce("s", "one", None), Ok(()));
        let early = place.processes.begin_check();
        assert_eq!(place.announce("s", "two", Some(0)), Ok(()));
        for asked in [before, early] {
            assert_eq!(
                place.announce_for_check("s", "one", None, asked),
                Err(GuardProcessConflictError::Replaced)
            );
            assert!(place.is_current("two"));
        }
        assert_eq!(place.announce("s", "one", None), Err(GuardProcessConflictError::Several));
    }
}
