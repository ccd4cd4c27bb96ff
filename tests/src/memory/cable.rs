//! One client's cable to the ensemble, and everything that can go wrong with it.

use std::{
    cell::{Cell, RefCell},
    fmt,
    ops::Range,
    rc::{Rc, Weak},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::dice::Dice;

/// Outlives the sessions that run over it, one after the other or several at once; an accident of the connection
/// hits all of them. Accidents that need a session do nothing while there is none.
#[derive(Debug)]
pub struct Wire {
    plugged: Cell<bool>,
    to_server: Cell<Flow>,
    to_client: Cell<Flow>,
    latency: RefCell<Range<Duration>>,
    next_request: Cell<Fate>,
    next_reply: Cell<Fate>,
    next_session: Cell<Comeback>,
    refused_watches: Cell<u32>,
    carried: RefCell<Vec<Weak<dyn Carried>>>,
    /// Something got better.
    mended: Notify,
    dice: Rc<Dice>,
}

/// What runs over a wire: one session, as the wire's accidents reach it.
pub(super) trait Carried: fmt::Debug {
    /// Its id at the server; `None` when it is over.
    fn session(&self) -> Option<i64>;

    /// The server ends it now.
    fn expire(&self);

    /// Its connection breaks.
    fn break_off(&self, underway: Underway);

    /// Something is due earlier than it expects.
    fn wake(&self);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
    Both,
}

/// What becomes of requests that were sent and have not arrived when the connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Underway {
    /// They take effect, unless the client is back before; nobody hears the answers.
    Arrives,
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Free,
    Stalled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Spared,
    Doomed,
}

/// As which session a client comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comeback {
    Same,
    Swapped,
}

impl Wire {
    pub(super) fn new(latency: Range<Duration>, dice: Rc<Dice>) -> Rc<Self> {
        Rc::new(Self {
            plugged: Cell::new(true),
            to_server: Cell::new(Flow::Free),
            to_client: Cell::new(Flow::Free),
            latency: RefCell::new(latency),
            next_request: Cell::new(Fate::Spared),
            next_reply: Cell::new(Fate::Spared),
            next_session: Cell::new(Comeback::Same),
            refused_watches: Cell::new(0),
            carried: RefCell::default(),
            mended: Notify::new(),
            dice,
        })
    }

    /// Breaks the connection, and lets none come up until [`Wire::reconnect`]. The client knows at once.
    pub fn disconnect(&self, underway: Underway) {
        self.plugged.set(false);
        self.break_off(underway);
    }

    pub fn reconnect(&self) {
        self.plugged.set(true);
        self.mend();
    }

    /// Breaks the connection; the client makes another one at once.
    pub fn blink(&self, underway: Underway) {
        self.break_off(underway);
        self.mend();
    }

    /// Holds back, and loses nothing: the connection stays until the client finds the silence too long. Stalled to
    /// the client, the wire holds replies.
    pub fn stall(&self, direction: Direction) {
        self.let_flow(direction, Flow::Stalled);
    }

    /// What was held back goes on.
    pub fn flow(&self) {
        self.let_flow(Direction::Both, Flow::Free);
        self.mend();
    }

    /// The next request, heartbeats of the library aside, does not arrive, nor does anything behind it: the
    /// connection breaks in that place.
    pub fn lose_next_request(&self) {
        self.next_request.set(Fate::Doomed);
    }

    /// The next request takes effect, and the connection breaks before the client hears of it.
    pub fn lose_next_reply(&self) {
        self.next_reply.set(Fate::Doomed);
    }

    /// How long everything travels, each way; within the range by chance, never overtaking.
    pub fn delay(&self, latency: Range<Duration>) {
        self.latency.replace(latency);
    }

    /// The next reconnect gets a new session and is not told. The old one lives on at the server until its timeout.
    pub fn swap_on_reconnect(&self) {
        self.next_session.set(Comeback::Swapped);
    }

    /// The server says no to the next so many watches, as one does that is throttled.
    pub fn refuse_watches(&self, watches: u32) {
        self.refused_watches.set(watches);
    }

    /// The server ends the sessions now, whatever the client believes.
    pub fn expire(&self) {
        for one in self.carried() {
            one.expire();
        }
    }

    /// The sessions by their ids at the server, oldest first.
    pub fn sessions(&self) -> Vec<i64> {
        self.carried().iter().filter_map(|one| one.session()).collect()
    }

    pub(super) fn carry(&self, one: Weak<dyn Carried>) {
        self.carried.borrow_mut().push(one);
    }

    pub(super) fn flows_to_server(&self) -> bool {
        self.to_server.get() == Flow::Free
    }

    pub(super) fn flows_to_client(&self) -> bool {
        self.to_client.get() == Flow::Free
    }

    /// Could a connection be made?
    pub(super) fn is_open(&self) -> bool {
        self.plugged.get() && self.flows_to_server() && self.flows_to_client()
    }

    pub(super) fn arrival(&self) -> Instant {
        Instant::now() + self.dice.within(&self.latency.borrow())
    }

    pub(super) fn loses_this_request(&self) -> bool {
        self.next_request.replace(Fate::Spared) == Fate::Doomed
    }

    pub(super) fn loses_this_reply(&self) -> bool {
        self.next_reply.replace(Fate::Spared) == Fate::Doomed
    }

    pub(super) fn refuses_this_watch(&self) -> bool {
        let left = self.refused_watches.get();
        self.refused_watches.set(left.saturating_sub(1));
        left > 0
    }

    pub(super) fn comeback(&self) -> Comeback {
        self.next_session.replace(Comeback::Same)
    }

    pub(super) async fn mended(&self) {
        self.mended.notified().await;
    }

    /// Says that a connection may be possible again.
    pub(super) fn mend(&self) {
        self.mended.notify_waiters();
        for one in self.carried() {
            one.wake();
        }
    }

    pub(super) fn break_off(&self, underway: Underway) {
        for one in self.carried() {
            one.break_off(underway);
        }
    }

    fn carried(&self) -> Vec<Rc<dyn Carried>> {
        self.carried.borrow_mut().retain(|one| one.strong_count() > 0);
        self.carried.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    fn let_flow(&self, direction: Direction, flow: Flow) {
        if direction != Direction::ToClient {
            self.to_server.set(flow);
        }
        if direction != Direction::ToServer {
            self.to_client.set(flow);
        }
    }
}
