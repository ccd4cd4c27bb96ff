//! The places for connections of one worker: where all are taken, one that asks nothing makes room for who comes.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    rc::{Rc, Weak},
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::seldom::Seldom;
use crate::course::Course;
use crate::share::Client;

/// Of one worker.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: RefCell<Taken>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    /// By number of arrival.
    all: BTreeMap<u64, Holder>,
    /// How many each client has.
    of: HashMap<Client, usize>,
    /// Connections that have made room and are still being ended.
    leaving: usize,
    next: u64,
}

#[derive(Debug)]
struct Holder {
    client: Client,
    since: Instant,
    /// What it is about, once it is known what is spoken. Before that it has asked nothing.
    course: Option<Weak<Course>>,
    leave: CancellationToken,
}

/// One connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Rc<Places>,
    number: u64,
    leave: CancellationToken,
    /// HTTP is spoken: its end has to be told.
    speaks: Cell<bool>,
}

/// Why somebody is turned away at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowded {
    NoPlace,
    ClientLimit,
}

impl Crowded {
    pub fn word(self) -> &'static str {
        match self {
            Self::NoPlace => "no-place",
            Self::ClientLimit => "client-limit",
        }
    }
}

impl Places {
    pub(super) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self { most, taken: RefCell::default(), freed: Notify::new() })
    }

    /// A free one.
    pub(super) fn free(self: &Rc<Self>, client: Client) -> Option<Place> {
        let mut taken = self.taken.borrow_mut();
        (taken.all.len() < self.most).then(|| {
            let (number, leave) = (taken.next, CancellationToken::new());
            taken.next += 1;
            let holder = Holder { client, since: Instant::now(), course: None, leave: leave.clone() };
            taken.all.insert(number, holder);
            *taken.of.entry(client).or_default() += 1;
            Place { places: self.clone(), number, leave, speaks: Cell::new(false) }
        })
    }

    /// The same, or that of a connection that asks nothing. `None`: all of them are at work, or those that are not are of
    /// clients that have fewer.
    pub(super) fn take(self: &Rc<Self>, client: Client) -> Option<Place> {
        self.free_or_made(client, Counted::AsItsOwn)
    }

    /// The same for a proxy: its connections are those of its clients, so nothing that asks nothing is kept from it.
    pub(super) fn take_for_others(self: &Rc<Self>, proxy: Client) -> Option<Place> {
        self.free_or_made(proxy, Counted::AsOthers)
    }

    fn free_or_made(self: &Rc<Self>, client: Client, counted: Counted) -> Option<Place> {
        self.free(client).or_else(|| {
            // Those that leave take room beside the places, so they are bounded as well.
            if self.taken.borrow().leaving < self.most / 8 + FEW {
                self.taken.borrow_mut().make_room(client, counted);
            }
            self.free(client)
        })
    }

    /// May who has come and finds no place wait for one? Whoever has a place already would keep those waiting who come
    /// after him and have none.
    pub(super) fn may_wait(&self, client: Client) -> bool {
        !self.taken.borrow().of.contains_key(&client)
    }

    /// Returns when a connection has ended since this was asked for the last time.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }
}

/// Whose the connections are that who comes has already.
#[derive(Debug, Clone, Copy)]
enum Counted {
    AsItsOwn,
    AsOthers,
}

/// Connections that may leave at once, however few places there are.
const FEW: usize = 8;

impl Taken {
    /// Who has the most makes room first, and of those who lies idle for longest. Nobody does for a client that has more
    /// than himself: whoever fills the places cannot drive out those of others. For a proxy everybody does: the door would
    /// wait for it, and take in nobody behind it, while places lie idle.
    fn make_room(&mut self, comes: Client, counted: Counted) {
        let of = |client: &Client| self.of.get(client).copied().unwrap_or_default();
        let has = match counted {
            Counted::AsItsOwn => of(&comes),
            Counted::AsOthers => 0,
        };
        let quiet = self.all.iter().filter(|(_, holder)| of(&holder.client) >= has);
        let quiet = quiet.filter_map(|(number, holder)| Some((holder, *number, holder.is_quiet()?)));
        let goes = quiet.min_by_key(|(holder, _, since)| (usize::MAX - of(&holder.client), *since));
        if let Some(number) = goes.map(|(_, number, _)| number)
            && let Some(holder) = self.remove(number)
        {
            holder.leave.cancel();
            self.leaving += 1;
        }
    }

    fn remove(&mut self, number: u64) -> Option<Holder> {
        let holder = self.all.remove(&number)?;
        if let Some(count) = self.of.get_mut(&holder.client) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&holder.client);
            }
        }
        Some(holder)
    }
}

impl Holder {
    /// Since when it asks nothing.
    fn is_quiet(&self) -> Option<Instant> {
        match &self.course {
            None => Some(self.since),
            // Gone: it is just ending.
            Some(course) => course.upgrade()?.is_quiet(),
        }
    }
}

impl Place {
    /// What the connection is about, from now on.
    pub(super) fn follows(&self, course: &Rc<Course>) {
        self.speaks.set(true);
        if let Some(holder) = self.places.taken.borrow_mut().all.get_mut(&self.number) {
            holder.course = Some(Rc::downgrade(course));
        }
    }

    /// Until another connection has the place. Whoever waits for this does nothing else before it looks.
    pub(super) async fn lost(&self) {
        Seldom::of(self.leave.cancelled()).await;
    }

    /// It is known what it is about: whoever serves it sees that it is lost, and ends it.
    pub(super) fn is_spoken_over(&self) -> bool {
        self.speaks.get()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.borrow_mut();
        if taken.remove(self.number).is_none() {
            taken.leaving -= 1;
        }
        self.places.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn client(last: u8) -> Client {
        Client::at(IpAddr::from([192, 0, 2, last]))
    }

    fn is_gone(place: &Place) -> bool {
        place.leave.is_cancelled()
    }

    #[tokio::test]
    async fn who_asks_nothing_makes_room_and_who_has_most_first() {
        let places = Places::new(4);
        let greedy: Vec<Place> = (0..3).map(|_| places.take(client(1)).expect("free")).collect();
        let modest = places.take(client(2)).expect("free");
        let third = places.take(client(3)).expect("made room");
        assert!(is_gone(&greedy[0]) && !is_gone(&greedy[1]) && !is_gone(&modest));
        let fourth = places.take(client(4)).expect("made room");
        assert!(is_gone(&greedy[1]) && !is_gone(&greedy[2]), "the one that lay idle for longest");
        drop(greedy);
        assert!(places.free(client(1)).is_some(), "places that were lost are not given back twice");
        drop((modest, third, fourth));
        assert_eq!(places.taken.borrow().of.len(), 0);
        assert!(places.taken.borrow().all.is_empty());
    }

    #[tokio::test]
    async fn who_is_at_work_stays_and_nobody_makes_room_for_who_has_more() {
        let places = Places::new(3);
        let mut work = Vec::new();
        for _ in 0..2 {
            let place = places.take(client(1)).expect("free");
            let course = Course::of_http1(Instant::now());
            place.follows(&course);
            let exchange = course.begin();
            work.push((place, course, exchange));
        }
        let modest = places.take(client(2)).expect("free");
        assert!(places.take(client(1)).is_none(), "it has two, and the other one has one");
        assert!(!is_gone(&modest));
        let other = places.take(client(3)).expect("made room");
        assert!(is_gone(&modest), "the only one that asks nothing");
        let (place, course, exchange) = work.remove(0);
        drop(exchange);
        course.owes(0);
        assert!(places.take(client(4)).is_some(), "its answer has left");
        assert!(is_gone(&place) && !is_gone(&other));
    }

    #[tokio::test]
    async fn whoever_asks_nothing_makes_room_for_a_proxy_however_many_it_has() {
        let places = Places::new(4);
        let mut work = Vec::new();
        for _ in 0..3 {
            let place = places.take_for_others(client(1)).expect("free");
            let course = Course::of_http1(Instant::now());
            place.follows(&course);
            let exchange = course.begin();
            work.push((place, course, exchange));
        }
        let idle = places.take_for_others(client(2)).expect("free");
        assert!(places.take(client(1)).is_none(), "its own would not drive out those of others");
        let fourth = places.take_for_others(client(1)).expect("a door that waits here takes nobody else in");
        assert!(is_gone(&idle));
        assert!(work.iter().all(|(place, ..)| !is_gone(place)));
        drop(fourth);
    }

    #[tokio::test]
    async fn one_that_has_parted_from_http_is_at_work() {
        let places = Places::new(1);
        let place = places.take(client(1)).expect("free");
        let course = Course::of_http1(Instant::now());
        place.follows(&course);
        let (taker, _taken) = tokio::sync::oneshot::channel();
        let (_, answering) = course.begin();
        answering.parts(taker);
        drop(answering);
        course.owes(0);
        assert!(course.take_taker().is_some());
        assert!(places.take(client(2)).is_none());
        assert!(!is_gone(&place));
    }

    #[tokio::test]
    async fn who_has_a_place_does_not_wait_for_another_one() {
        let places = Places::new(1);
        let place = places.take(client(1)).expect("free");
        let course = Course::of_http1(Instant::now());
        place.follows(&course);
        let _at_work = course.begin();
        assert!(places.take(client(1)).is_none() && places.take(client(2)).is_none());
        assert!(!places.may_wait(client(1)), "everybody behind it would wait as well");
        assert!(places.may_wait(client(2)));
        drop(place);
        assert!(places.may_wait(client(1)));
    }

    #[tokio::test]
    async fn not_everybody_leaves_at_once() {
        let places = Places::new(64);
        let all: Vec<Place> = (0..64).map(|_| places.take(client(1)).expect("free")).collect();
        let come: Vec<Place> = (2..).map_while(|last| places.take(client(last))).collect();
        assert_eq!(come.len(), 64 / 8 + FEW);
        drop(all);
        assert_eq!(places.taken.borrow().leaving, 0);
        assert!(places.take(client(1)).is_some());
    }

    #[tokio::test]
    async fn a_connection_of_http2_is_quiet_without_a_stream() {
        let places = Places::new(1);
        let place = places.take(client(1)).expect("free");
        let course = Course::of_http2();
        place.follows(&course);
        let exchange = course.begin();
        assert!(places.take(client(2)).is_none());
        drop(exchange);
        assert!(places.take(client(2)).is_none(), "the end of its answer may be on its way");
        course.grows_older(std::time::Duration::from_secs(3));
        assert!(places.take(client(2)).is_some());
        assert!(is_gone(&place));
    }
}
