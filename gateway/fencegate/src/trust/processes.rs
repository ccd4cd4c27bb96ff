//! Which process of a guard answers to one name at one address: two that do so at the same time are two guards, even
//! where each of them has let in what it was shown.
//!
//! The name of a process never comes back. So one that answers again after another one had answered in its place was
//! there all the time, and so was one that runs for longer than the other one has been silent.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use fencegate_guard::announce::Announcement;
use fencegate_process::clock::Boot;

use fencegate_http::{network::remote::Remote, upstream::address::Address};

/// A process, and the store that it has. All processes that share a store are taken for one: whichever of them is asked
/// knows what the others have let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Met {
    pub store: Arc<str>,
    pub instance: Arc<str>,
    /// Where the store can be shared: which database it is. One store in two databases is a copy of itself.
    pub database: Option<Arc<str>>,
}

impl Met {
    pub(super) fn of(announced: &Announcement) -> Self {
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
pub(super) struct Processes {
    behind: HashMap<Place, Behind>,
    /// How often one has taken the place of another.
    turns: u64,
    /// How many were left when it was looked for those that may be forgotten.
    left: usize,
}

/// What stands at one address may lead each name to a guard of its own.
type Place = (Arc<str>, Remote);

fn place(address: &Address) -> Place {
    (address.name.clone(), address.socket.clone())
}

#[derive(Debug, Default)]
struct Behind {
    /// `None` where there were several at once: none of them is believed again.
    now: Option<Arc<str>>,
    /// Who was heard last, whether believed or not.
    last: Option<(Met, Boot)>,
    /// Those that are not there any more, and the turn that ended each.
    before: VecDeque<(Arc<str>, u64)>,
}

/// A guard that restarts all the time is not remembered for ever.
const MOST: usize = 1000;

/// What nobody leads to any more is forgotten when nothing was heard from there for so long.
const FORGOTTEN: Duration = Duration::from_secs(3600);
/// And it is looked for when there are so many, and then when there are twice as many as were left.
const LOOK_AT: usize = 64;

/// When a process was asked who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked(u64);

/// What an announcement says beside the names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heard {
    pub asked: Asked,
    pub at: Boot,
    /// How long the process has had its store; `None` where it does not say.
    pub up: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotAlone {
    /// Two processes answer to one name at one address.
    Several,
    /// It answered before the one that is there now: its connection leads to nobody.
    Replaced,
}

impl Processes {
    pub(super) fn ask(&self) -> Asked {
        Asked(self.turns)
    }

    /// # Errors
    /// It is not the only one there.
    pub(super) fn announced(&mut self, address: &Address, met: &Met, heard: Heard) -> Result<(), NotAlone> {
        let behind = self.behind.entry(place(address)).or_default();
        if let Some((_, ended)) = behind.before.iter().find(|(known, _)| *known == met.instance) {
            if *ended > heard.asked.0 {
                return Err(NotAlone::Replaced);
            }
            behind.last = Some((met.clone(), heard.at));
            self.turns += 1;
            behind.end(self.turns);
            return Err(NotAlone::Several);
        }
        let overlaps = behind.overlaps(met, heard);
        behind.last = Some((met.clone(), heard.at));
        if behind.now.as_ref() == Some(&met.instance) {
            return Ok(());
        }
        self.turns += 1;
        behind.end(self.turns);
        if overlaps {
            behind.now = Some(met.instance.clone());
            behind.end(self.turns);
            return Err(NotAlone::Several);
        }
        behind.now = Some(met.instance.clone());
        Ok(())
    }

    /// Names come to lead elsewhere for as long as the process runs. `leads`: somebody is still sent to this socket under
    /// this name.
    pub(super) fn forget(&mut self, at: Boot, leads: impl Fn(&str, &Remote) -> bool) {
        if self.behind.len() < LOOK_AT.max(2 * self.left) {
            return;
        }
        self.behind.retain(|(name, socket), behind| {
            let heard = behind.last.as_ref().map(|(_, heard)| at.since(*heard));
            leads(name, socket) || heard.is_some_and(|silent| silent < FORGOTTEN)
        });
        self.left = self.behind.len();
    }

    /// It has answered a request.
    pub(super) fn answered(&mut self, address: &Address, instance: &Arc<str>, at: Boot) {
        let last = self.behind.get_mut(&place(address)).and_then(|behind| behind.last.as_mut());
        if let Some((met, heard)) = last
            && met.instance == *instance
        {
            *heard = (*heard).max(at);
        }
    }

    /// Nobody has taken its place.
    pub(super) fn is_there(&self, address: &Address, instance: &Arc<str>) -> bool {
        self.behind.get(&place(address)).is_some_and(|behind| behind.now.as_ref() == Some(instance))
    }
}

impl Behind {
    fn end(&mut self, turn: u64) {
        if let Some(ended) = self.now.take() {
            self.before.push_back((ended, turn));
        }
        if self.before.len() > MOST {
            self.before.pop_front();
        }
    }

    /// It had its store when another one still answered with another store. A store is of one process at a time, so with
    /// the same store it cannot have had it.
    fn overlaps(&self, met: &Met, heard: Heard) -> bool {
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

    struct Place {
        processes: Processes,
        address: Arc<Address>,
        now: u64,
    }

    impl Place {
        fn new() -> Self {
            let address = Address::new(SocketAddr::from(([127, 0, 0, 1], 8080)), "guard:8080".into());
            Self { processes: Processes::default(), address, now: 1_000 }
        }

        fn met(store: &str, instance: &str) -> Met {
            Met { store: store.into(), instance: instance.into(), database: None }
        }

        /// A second later. `up`: seconds.
        fn says(&mut self, store: &str, instance: &str, up: Option<u64>) -> Result<(), NotAlone> {
            let asked = self.processes.ask();
            self.said(store, instance, up, asked)
        }

        fn said(
            &mut self,
            store: &str,
            instance: &str,
            up: Option<u64>,
            asked: Asked,
        ) -> Result<(), NotAlone> {
            self.now += 1;
            let heard = Heard {
                asked,
                at: Boot::from_nanos(self.now * 1_000_000_000),
                up: up.map(Duration::from_secs),
            };
            self.processes.announced(&self.address, &Self::met(store, instance), heard)
        }

        fn is_there(&self, instance: &str) -> bool {
            self.processes.is_there(&self.address, &instance.into())
        }
    }

    #[test]
    fn a_guard_that_restarts_is_believed_each_time() {
        let mut place = Place::new();
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
        let mut place = Place::new();
        assert_eq!(place.says("a", "one", None), Ok(()));
        assert_eq!(place.says("b", "two", None), Ok(()));
        for instance in ["one", "two", "one", "one"] {
            assert_eq!(place.says("a", instance, None), Err(NotAlone::Several), "{instance}");
            assert!(!place.is_there("one") && !place.is_there("two"));
        }
        // A process that nobody has met before is a new beginning.
        assert_eq!(place.says("b", "three", None), Ok(()));
        assert!(place.is_there("three"));
        assert_eq!(place.says("a", "two", None), Err(NotAlone::Several));
        assert!(!place.is_there("three"));
    }

    #[test]
    fn another_store_that_ran_while_the_one_before_still_answered_is_found_out_at_once() {
        let mut place = Place::new();
        assert_eq!(place.says("a", "one", Some(100)), Ok(()));
        assert_eq!(place.says("b", "two", Some(50)), Err(NotAlone::Several));
        assert_eq!(place.says("a", "one", Some(102)), Err(NotAlone::Several));
        // One that was made anew after the one before had been silent for long enough.
        place.now += 60;
        assert_eq!(place.says("c", "three", Some(50)), Ok(()));
    }

    #[test]
    fn an_answer_to_a_request_shows_that_it_is_still_there() {
        let mut place = Place::new();
        assert_eq!(place.says("a", "one", Some(100)), Ok(()));
        place.now += 60;
        let at = Boot::from_nanos(place.now * 1_000_000_000);
        place.processes.answered(&place.address, &"one".into(), at);
        assert_eq!(place.says("b", "two", Some(50)), Err(NotAlone::Several));
    }

    #[test]
    fn what_nobody_leads_to_any_more_is_forgotten_after_a_while_and_nothing_else_is() {
        let mut processes = Processes::default();
        let met = Place::met("s", "one");
        let address = |n: u32| {
            let [_, high, middle, low] = n.to_be_bytes();
            Address::new(SocketAddr::from(([10, high, middle, low], 8080)), "guard:8080".into())
        };
        let at = |seconds: u32| Boot::from_nanos(u64::from(seconds) * 1_000_000_000);
        // One that stays, and others that come one after another, each for a second.
        let stays = address(1 << 20);
        for second in 0..10_000 {
            let came = address(second);
            let begins = (second == 0).then_some(&stays);
            for address in begins.into_iter().chain([&came]) {
                let heard = Heard { asked: processes.ask(), at: at(second), up: None };
                assert_eq!(processes.announced(address, &met, heard), Ok(()));
            }
            let leads = |_: &str, socket: &Remote| *socket == stays.socket || *socket == came.socket;
            processes.forget(at(second), leads);
            assert!(processes.is_there(&came, &met.instance));
            assert!(
                second < 10 || processes.is_there(&address(second - 10), &met.instance),
                "it may come back"
            );
        }
        assert!(processes.behind.len() < 8000, "{}", processes.behind.len());
        assert!(processes.is_there(&stays, &met.instance), "silent, and still led to");
    }

    #[test]
    fn an_answer_that_was_long_on_its_way_accuses_nobody() {
        let mut place = Place::new();
        let before = place.processes.ask();
        assert_eq!(place.says("s", "one", None), Ok(()));
        let early = place.processes.ask();
        assert_eq!(place.says("s", "two", Some(0)), Ok(()));
        for asked in [before, early] {
            assert_eq!(place.said("s", "one", None, asked), Err(NotAlone::Replaced));
            assert!(place.is_there("two"));
        }
        assert_eq!(place.says("s", "one", None), Err(NotAlone::Several));
    }
}
