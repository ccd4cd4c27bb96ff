//! One client's cable to the ensemble, and everything that can go wrong with it.

use std::{
    cell::{Cell, RefCell},
    fmt,
    ops::Range,
    rc::{Rc, Weak},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::rng::SeededRng;

/// Outlives the sessions that run over it, one after the other or several at once; an accident of the connection
/// hits all of them. Accidents that need a session do nothing while there is none.
#[derive(Debug)]
pub struct Wire {
    plugged: Cell<bool>,
    to_server: Cell<WireFlow>,
    to_client: Cell<WireFlow>,
    latency: RefCell<Range<Duration>>,
    next_request: Cell<MessageFate>,
    next_reply: Cell<MessageFate>,
    next_session: Cell<ReconnectMode>,
    refused_watches: Cell<u32>,
    carried: RefCell<Vec<Weak<dyn WireSession>>>,
    /// Something got better.
    mended: Notify,
    dice: Rc<SeededRng>,
}

/// What runs over a wire: one session, as the wire's accidents reach it.
pub(super) trait WireSession: fmt::Debug {
    /// Its id at the server; `None` when it is over.
    fn session(&self) -> Option<i64>;

    /// The server ends it now.
    fn expire(&self);

    /// Its connection breaks.
    fn break_off(&self, underway: UndeliveredRequestFate);

    /// Something is due earlier than it expects.
    fn wake(&self);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireDirection {
    ToServer,
    ToClient,
    Both,
}

/// What becomes of requests that were sent and have not arrived when the connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndeliveredRequestFate {
    /// They take effect, unless the client is back before; the answers are lost.
    Arrives,
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WireFlow {
    Free,
    Stalled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageFate {
    Spared,
    Doomed,
}

/// As which session a client comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReconnectMode {
    Same,
    Swapped,
}

impl Wire {
    pub(super) fn new(latency: Range<Duration>, dice: Rc<SeededRng>) -> Rc<Self> {
        Rc::new(Self {
            plugged: Cell::new(true),
            to_server: Cell::new(WireFlow::Free),
            to_client: Cell::new(WireFlow::Free),
            latency: RefCell::new(latency),
            next_request: Cell::new(MessageFate::Spared),
            next_reply: Cell::new(MessageFate::Spared),
            next_session: Cell::new(ReconnectMode::Same),
            refused_watches: Cell::new(0),
            carried: RefCell::default(),
            mended: Notify::new(),
            dice,
        })
    }

    /// Breaks the connection, and lets none come up until [`Wire::reconnect`]. The client notices at once.
    pub fn disconnect(&self, underway: UndeliveredRequestFate) {
        self.plugged.set(false);
        self.break_off(underway);
    }

    pub fn reconnect(&self) {
        self.plugged.set(true);
        self.mend();
    }

    /// Breaks the connection; the client makes another one at once.
    pub fn blink(&self, underway: UndeliveredRequestFate) {
        self.break_off(underway);
        self.mend();
    }

    /// Holds back, and loses nothing: the connection stays until the client finds the silence too long. Stalled to
    /// the client, the wire holds replies.
    pub fn stall(&self, direction: WireDirection) {
        self.let_flow(direction, WireFlow::Stalled);
    }

    /// What was held back goes on.
    pub fn resume(&self) {
        self.let_flow(WireDirection::Both, WireFlow::Free);
        self.mend();
    }

    /// The next request, heartbeats of the library aside, does not arrive, nor does anything behind it: the
    /// connection breaks in that place.
    pub fn lose_next_request(&self) {
        self.next_request.set(MessageFate::Doomed);
    }

    /// The next request takes effect, and the connection breaks before the client gets the answer.
    pub fn lose_next_reply(&self) {
        self.next_reply.set(MessageFate::Doomed);
    }

    /// How long every message travels, each way; random within the range, and never overtaking.
    pub fn delay(&self, latency: Range<Duration>) {
        self.latency.replace(latency);
    }

    /// The next reconnect gets a new session without a notice. The old one lives on at the server until its timeout.
    pub fn swap_on_reconnect(&self) {
        self.next_session.set(ReconnectMode::Swapped);
    }

    /// The server refuses the next so many watches, as a throttled one does.
    pub fn refuse_watches(&self, watches: u32) {
        self.refused_watches.set(watches);
    }

    /// The server ends the sessions now, whatever the state of the client.
    pub fn expire(&self) {
        for one in self.live_sessions() {
            one.expire();
        }
    }

    /// The sessions by their ids at the server, oldest first.
    pub fn sessions(&self) -> Vec<i64> {
        self.live_sessions().iter().filter_map(|one| one.session()).collect()
    }

    pub(super) fn attach(&self, one: Weak<dyn WireSession>) {
        self.carried.borrow_mut().push(one);
    }

    pub(super) fn flows_to_server(&self) -> bool {
        self.to_server.get() == WireFlow::Free
    }

    pub(super) fn flows_to_client(&self) -> bool {
        self.to_client.get() == WireFlow::Free
    }

    /// Could a connection be made?
    pub(super) fn is_open(&self) -> bool {
        self.plugged.get() && self.flows_to_server() && self.flows_to_client()
    }

    pub(super) fn arrival(&self) -> Instant {
        Instant::now() + self.dice.within(&self.latency.borrow())
    }

    pub(super) fn take_request_loss(&self) -> bool {
        self.next_request.replace(MessageFate::Spared) == MessageFate::Doomed
    }

    pub(super) fn take_reply_loss(&self) -> bool {
        self.next_reply.replace(MessageFate::Spared) == MessageFate::Doomed
    }

    pub(super) fn take_watch_refusal(&self) -> bool {
        let left = self.refused_watches.get();
        self.refused_watches.set(left.saturating_sub(1));
        left > 0
    }

    pub(super) fn reconnect_mode(&self) -> ReconnectMode {
        self.next_session.replace(ReconnectMode::Same)
    }

    pub(super) async fn wait_mended(&self) {
        self.mended.notified().await;
    }

    /// Signals that a connection may be possible again.
    pub(super) fn mend(&self) {
        self.mended.notify_waiters();
        for one in self.live_sessions() {
            one.wake();
        }
    }

    pub(super) fn break_off(&self, underway: UndeliveredRequestFate) {
        for one in self.live_sessions() {
            one.break_off(underway);
        }
    }

    fn live_sessions(&self) -> Vec<Rc<dyn WireSession>> {
        self.carried.borrow_mut().retain(|one| one.strong_count() > 0);
        self.carried.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    fn let_flow(&self, direction: WireDirection, flow: WireFlow) {
        if direction != WireDirection::ToClient {
            self.to_server.set(flow);
        }
        if direction != WireDirection::ToServer {
            self.to_client.set(flow);
        }
    }
}
