//! One client's connection to the ensemble, and all of its accidents.

use std::{
    cell::{Cell, RefCell},
    fmt,
    ops::Range,
    rc::{Rc, Weak},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::rng::SeededRng;

/// The network between a client and the ensemble. It outlives the sessions that use it, in succession or at the same
/// time, and an accident concerns all of them. Accidents of a session do nothing while there is none.
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
    /// Notified if an accident has ended.
    mended: Notify,
    dice: Rc<SeededRng>,
}

/// A session that uses a wire, as the wire's accidents call it.
pub(super) trait WireSession: fmt::Debug {
    /// The session's id at the server; `None` if it is over.
    fn session(&self) -> Option<i64>;

    /// Makes the server end the session now.
    fn expire(&self);

    /// Breaks the connection of the session.
    fn break_off(&self, underway: UndeliveredRequestFate);

    /// Wakes the session's task, because something is due earlier than it expects.
    fn wake(&self);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireDirection {
    ToServer,
    ToClient,
    Both,
}

/// The fate of requests that are in flight when the connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndeliveredRequestFate {
    /// The requests take effect unless the client reconnects before. Their answers are lost.
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

/// The session of a client after its reconnect.
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

    /// Breaks the connection, and prevents another one until [`Wire::reconnect`]. The client notices at once.
    pub fn disconnect(&self, underway: UndeliveredRequestFate) {
        self.plugged.set(false);
        self.break_off(underway);
    }

    pub fn reconnect(&self) {
        self.plugged.set(true);
        self.mend();
    }

    /// Breaks the connection. The client makes another one at once.
    pub fn break_and_reconnect(&self, underway: UndeliveredRequestFate) {
        self.break_off(underway);
        self.mend();
    }

    /// Holds messages in this direction, and loses none. The connection stays open until the client abandons it as
    /// silent.
    pub fn stall(&self, direction: WireDirection) {
        self.let_flow(direction, WireFlow::Stalled);
    }

    /// Lets held messages go on.
    pub fn resume(&self) {
        self.let_flow(WireDirection::Both, WireFlow::Free);
        self.mend();
    }

    /// Loses the next request other than a ping, and everything sent after it: the connection breaks at that point.
    pub fn lose_next_request(&self) {
        self.next_request.set(MessageFate::Doomed);
    }

    /// Loses the answer to the next request, which takes effect: the connection breaks before its answer.
    pub fn lose_next_reply(&self) {
        self.next_reply.set(MessageFate::Doomed);
    }

    /// Sets the latency of every message in each direction: random within the range, but no message overtakes
    /// another.
    pub fn delay(&self, latency: Range<Duration>) {
        self.latency.replace(latency);
    }

    /// Gives the client a new session at its next reconnect without telling it. The old one lives on at the server
    /// until its timeout.
    pub fn swap_on_reconnect(&self) {
        self.next_session.set(ReconnectMode::Swapped);
    }

    /// Makes the server refuse this number of watches, as an overloaded one does.
    pub fn refuse_watches(&self, watches: u32) {
        self.refused_watches.set(watches);
    }

    /// Makes the server end the sessions now, whatever the state of the client.
    pub fn expire(&self) {
        for one in self.live_sessions() {
            one.expire();
        }
    }

    /// The ids of the sessions at the server, the oldest first.
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

    /// True if a connection can be made.
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
