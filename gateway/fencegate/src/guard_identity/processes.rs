//! Knows which process of a guard answers to one name at one address. Two processes that do so at the same time are
//! two guards, even if each of them knows the tokens that it was shown.
//!
//! The id of a process is never used again. So a process that answers again after another one answered in its place
//! has run all the time. A process has also run beside the former one if it is older than the former one's silence.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use fencegate_guard::identity::Announcement;
use fencegate_process::clock::BootInstant;

use fencegate_http::{network::connect_target::ConnectTarget, upstream::address::Address};

/// A process and its store. All processes that share a store count as one: each of them knows what the others have
/// let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GuardProcess {
    pub store: Arc<str>,
    pub instance: Arc<str>,
    /// The database of the store, where it can be shared. One store in two databases means that one is a copy.
    pub database: Option<Arc<str>>,
}

impl GuardProcess {
    pub(super) fn from_announcement(announced: &Announcement) -> Self {
        let Announcement { store, instance, shared, .. } = announced;
        let instance = match shared {
            None => instance.as_str().into(),
            Some(_) => format!("those of {store}").into(),
        };
        let database = shared.as_deref().map(Arc::from);
        Self { store: store.as_str().into(), instance, database }
    }
}

/// By endpoint and address, whichever upstreams lead there.
#[derive(Debug, Default)]
pub(super) struct GuardProcesses {
    behind: HashMap<AddressKey, AddressState>,
    /// How often one process has replaced another.
    turns: u64,
    /// How many places were left after the last cleaning.
    left: usize,
}

/// A proxy at one address may lead each name to another guard.
type AddressKey = (Arc<str>, ConnectTarget);

fn address_key(address: &Address) -> AddressKey {
    (address.name.clone(), address.socket.clone())
}

#[derive(Debug, Default)]
struct AddressState {
    /// `None` after several processes answered at once: none of them is believed again.
    now: Option<Arc<str>>,
    /// The last process that answered, believed or not.
    last: Option<(GuardProcess, BootInstant)>,
    /// The processes that were replaced, each with the turn that ended it.
    before: VecDeque<(Arc<str>, u64)>,
}

/// Bounds the memory for a guard that restarts all the time.
const MAX_REPLACED: usize = 1000;

/// A place without a name that leads to it is forgotten after so long without an answer.
const RETENTION: Duration = Duration::from_secs(3600);
/// The first cleaning happens at so many places; the next one at twice as many as were left.
const FIRST_SWEEP_AT: usize = 64;

/// The turn at which a process was asked who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckSequence(u64);

/// What an announcement says beside the ids.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnnouncementTiming {
    pub asked: CheckSequence,
    pub at: BootInstant,
    /// How long the process has used its store; `None` if it does not say.
    pub up: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessConflictError {
    /// Two processes answer to one name at one address.
    Several,
    /// The process answered before the present one. Its connection is of no use any more.
    Replaced,
}

impl GuardProcesses {
    pub(super) fn begin_check(&self) -> CheckSequence {
        CheckSequence(self.turns)
    }

    /// # Errors
    /// The process is not the only one there.
    pub(super) fn record_announcement(
        &mut self,
        address: &Address,
        met: &GuardProcess,
        heard: AnnouncementTiming,
    ) -> Result<(), ProcessConflictError> {
        let behind = self.behind.entry(address_key(address)).or_default();
        if let Some((_, ended)) = behind.before.iter().find(|(known, _)| *known == met.instance) {
            if *ended > heard.asked.0 {
                return Err(ProcessConflictError::Replaced);
            }
            behind.last = Some((met.clone(), heard.at));
            self.turns += 1;
            behind.record_replaced(self.turns);
            return Err(ProcessConflictError::Several);
        }
        let overlaps = behind.overlaps(met, heard);
        behind.last = Some((met.clone(), heard.at));
        if behind.now.as_ref() == Some(&met.instance) {
            return Ok(());
        }
        self.turns += 1;
        behind.record_replaced(self.turns);
        if overlaps {
            behind.now = Some(met.instance.clone());
            behind.record_replaced(self.turns);
            return Err(ProcessConflictError::Several);
        }
        behind.now = Some(met.instance.clone());
        Ok(())
    }

    /// Forgets places that are no longer used: over time names lead to new addresses. `leads` is true if requests are
    /// still sent to this socket under this name.
    pub(super) fn forget(&mut self, at: BootInstant, leads: impl Fn(&str, &ConnectTarget) -> bool) {
        if self.behind.len() < FIRST_SWEEP_AT.max(2 * self.left) {
            return;
        }
        self.behind.retain(|(name, socket), behind| {
            let heard = behind.last.as_ref().map(|(_, heard)| at.since(*heard));
            leads(name, socket) || heard.is_some_and(|silent| silent < RETENTION)
        });
        self.left = self.behind.len();
    }

    /// The process has answered a request.
    pub(super) fn record_answer(&mut self, address: &Address, instance: &Arc<str>, at: BootInstant) {
        let last = self.behind.get_mut(&address_key(address)).and_then(|behind| behind.last.as_mut());
        if let Some((met, heard)) = last
            && met.instance == *instance
        {
            *heard = (*heard).max(at);
        }
    }

    /// No other process has replaced this one.
    pub(super) fn is_current(&self, address: &Address, instance: &Arc<str>) -> bool {
        self.behind.get(&address_key(address)).is_some_and(|behind| behind.now.as_ref() == Some(instance))
    }
}

impl AddressState {
    fn record_replaced(&mut self, turn: u64) {
        if let Some(ended) = self.now.take() {
            self.before.push_back((ended, turn));
        }
        if self.before.len() > MAX_REPLACED {
            self.before.pop_front();
        }
    }

    /// The process used its store when another process still answered with another store. With one store this cannot
    /// happen: only one process at a time can use it.
    fn overlaps(&self, met: &GuardProcess, heard: AnnouncementTiming) -> bool {
        let (Some((last, at)), Some(up)) = (&self.last, heard.up) else { return false };
        let silent = heard.at.since(*at);
        // Two clocks do not run at quite the same pace.
        last.store != met.store && up > silent + silent / 1000
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    struct Fixture {
        processes: GuardProcesses,
        address: Arc<Address>,
        now: u64,
    }

    impl Fixture {
        fn new() -> Self {
            let address = Address::new(SocketAddr::from(([127, 0, 0, 1], 8080)), "guard:8080".into());
            Self { processes: GuardProcesses::default(), address, now: 1_000 }
        }

        fn met(store: &str, instance: &str) -> GuardProcess {
            GuardProcess { store: store.into(), instance: instance.into(), database: None }
        }

        /// An announcement one second later. `up` is in seconds.
        fn says(&mut self, store: &str, instance: &str, up: Option<u64>) -> Result<(), ProcessConflictError> {
            let asked = self.processes.begin_check();
            self.said(store, instance, up, asked)
        }

        fn said(
            &mut self,
            store: &str,
            instance: &str,
            up: Option<u64>,
            asked: CheckSequence,
        ) -> Result<(), ProcessConflictError> {
            self.now += 1;
            let heard = AnnouncementTiming {
                asked,
                at: BootInstant::from_nanos(self.now * 1_000_000_000),
                up: up.map(Duration::from_secs),
            };
            self.processes.record_announcement(&self.address, &Self::met(store, instance), heard)
        }

        fn is_there(&self, instance: &str) -> bool {
            self.processes.is_current(&self.address, &instance.into())
        }
    }

    #[test]
    fn a_guard_that_restarts_is_believed_each_time() {
        let mut place = Fixture::new();
        for (instance, up) in
            [("one", None), ("one", Some(9)), ("two", Some(0)), ("three", Some(90)), ("three", None)]
        {
            assert_eq!(place.says("s", instance, up), Ok(()), "{instance}");
            assert!(place.is_there(instance));
        }
        assert!(!place.is_there("one") && !place.is_there("two"));
    }

    #[test]
    fn one_that_answers_again_was_there_all_the_time_and_neither_is_believed_any_more() {
        let mut place = Fixture::new();
        assert_eq!(place.says("a", "one", None), Ok(()));
        assert_eq!(place.says("b", "two", None), Ok(()));
        for instance in ["one", "two", "one", "one"] {
            assert_eq!(place.says("a", instance, None), Err(ProcessConflictError::Several), "{instance}");
            assert!(!place.is_there("one") && !place.is_there("two"));
        }
        // A process that nobody has met before begins anew.
        assert_eq!(place.says("b", "three", None), Ok(()));
        assert!(place.is_there("three"));
        assert_eq!(place.says("a", "two", None), Err(ProcessConflictError::Several));
        assert!(!place.is_there("three"));
    }

    #[test]
    fn another_store_that_ran_while_the_one_before_still_answered_is_found_out_at_once() {
        let mut place = Fixture::new();
        assert_eq!(place.says("a", "one", Some(100)), Ok(()));
        assert_eq!(place.says("b", "two", Some(50)), Err(ProcessConflictError::Several));
        assert_eq!(place.says("a", "one", Some(102)), Err(ProcessConflictError::Several));
        // A store that was made anew, after the old guard had been silent for long enough.
        place.now += 60;
        assert_eq!(place.says("c", "three", Some(50)), Ok(()));
    }

    #[test]
    fn an_answer_to_a_request_shows_that_it_is_still_there() {
        let mut place = Fixture::new();
        assert_eq!(place.says("a", "one", Some(100)), Ok(()));
        place.now += 60;
        let at = BootInstant::from_nanos(place.now * 1_000_000_000);
        place.processes.record_answer(&place.address, &"one".into(), at);
        assert_eq!(place.says("b", "two", Some(50)), Err(ProcessConflictError::Several));
    }

    #[test]
    fn what_nobody_leads_to_any_more_is_forgotten_after_a_while_and_nothing_else_is() {
        let mut processes = GuardProcesses::default();
        let met = Fixture::met("s", "one");
        let address = |n: u32| {
            let [_, high, middle, low] = n.to_be_bytes();
            Address::new(SocketAddr::from(([10, high, middle, low], 8080)), "guard:8080".into())
        };
        let at = |seconds: u32| BootInstant::from_nanos(u64::from(seconds) * 1_000_000_000);
        // One place stays in use. Others are new, each for a second.
        let stays = address(1 << 20);
        for second in 0..10_000 {
            let came = address(second);
            let begins = (second == 0).then_some(&stays);
            for address in begins.into_iter().chain([&came]) {
                let heard = AnnouncementTiming { asked: processes.begin_check(), at: at(second), up: None };
                assert_eq!(processes.record_announcement(address, &met, heard), Ok(()));
            }
            let leads = |_: &str, socket: &ConnectTarget| *socket == stays.socket || *socket == came.socket;
            processes.forget(at(second), leads);
            assert!(processes.is_current(&came, &met.instance));
            assert!(
                second < 10 || processes.is_current(&address(second - 10), &met.instance),
                "it may come back"
            );
        }
        assert!(processes.behind.len() < 8000, "{}", processes.behind.len());
        assert!(processes.is_current(&stays, &met.instance), "silent, and still led to");
    }

    #[test]
    fn an_answer_that_was_long_on_its_way_accuses_nobody() {
        let mut place = Fixture::new();
        let before = place.processes.begin_check();
        assert_eq!(place.says("s", "one", None), Ok(()));
        let early = place.processes.begin_check();
        assert_eq!(place.says("s", "two", Some(0)), Ok(()));
        for asked in [before, early] {
            assert_eq!(place.said("s", "one", None, asked), Err(ProcessConflictError::Replaced));
            assert!(place.is_there("two"));
        }
        assert_eq!(place.says("s", "one", None), Err(ProcessConflictError::Several));
    }
}
