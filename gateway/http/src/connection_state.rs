//! The present state of a client's connection. The code that reads and writes its bytes and the code that answers its
//! requests share this state, because the HTTP library between them does not pass it on.

mod h2_frames;
pub mod informational;
#[cfg(test)]
mod tests;
mod unsent;

use std::{
    cell::{Cell, RefCell},
    io::{self, IoSlice},
    rc::{Rc, Weak},
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use tokio::time::Instant;

use self::unsent::UnsentBytes;
use crate::{connection_state::informational::InformationalQueue, upgrade::UpgradeSender};

/// The state of one connection.
#[derive(Debug)]
pub struct ServerConnectionState {
    reading: Cell<ConnectionReadPhase>,
    writing: Cell<NextWriteKind>,
    /// True if the connection can have several requests at once, as HTTP/2 has.
    multiplexed: bool,
    /// On a multiplexed connection: the exchanges that may not be over yet.
    exchanges: RefCell<Vec<Weak<ServerExchange>>>,
    /// True if the connection has to be closed with a reset.
    reset: Cell<bool>,
    /// True while the rest of a request's body is not read.
    held_back: Cell<bool>,
    /// Woken when the present request is over, to start the time limit for the next one.
    waits: RefCell<Option<Waker>>,
    /// True if the HTTP library was given a part of a response that it may not have written yet.
    unwritten: Cell<bool>,
    /// For HTTP/2: the bytes of bodies that the library holds because the client's window is full.
    pub(crate) unsent: UnsentBytes,
    /// Woken when the library has written all that it had.
    written: RefCell<Vec<Waker>>,
    /// The informational responses; `None` on a multiplexed connection.
    pub(crate) informational: Option<Arc<InformationalQueue>>,
    /// True if the stream was handed over after a switch of protocols, or is about to be.
    upgrading: Cell<bool>,
    /// The moment when the connection began. `over` is the moment when its last exchange ended.
    began: Instant,
    over: Cell<Option<Instant>>,
    /// Receives the stream of the connection, once the response that switches protocols is sent.
    upgrade_sender: RefCell<Option<UpgradeSender>>,
}

/// One request and its response.
#[derive(Debug)]
pub struct ServerExchange {
    course: Rc<ServerConnectionState>,
    /// True if the client let the rest of its body wait for too long.
    pub stalled: Cell<bool>,
    body_state: Cell<RequestBodyState>,
    /// True if the HTTP library was given a chunk of the response and has not polled for the next one.
    given: Cell<bool>,
    /// The number of snapshots in a row that have found `given` to be true.
    seen: Cell<u32>,
}

/// Tracks how the HTTP library takes a response. It is held by the body of the response, and dropped when the library
/// was given all of it.
#[derive(Debug)]
pub struct ResponseTracker(Rc<ServerExchange>);

impl ServerConnectionState {
    /// The state of an HTTP/1.1 connection; its first head began at `since`.
    pub(crate) fn new_http1(since: Instant) -> Rc<Self> {
        Self::new(false, ConnectionReadPhase::Head(since), NextWriteKind::Owed(0))
    }

    /// The state of an HTTP/2 connection, whose reads and writes concern many requests at once.
    pub fn new_http2() -> Rc<Self> {
        Self::new(true, ConnectionReadPhase::Busy, NextWriteKind::Answers)
    }

    fn new(several: bool, reading: ConnectionReadPhase, writing: NextWriteKind) -> Rc<Self> {
        Rc::new(Self {
            multiplexed: several,
            reading: Cell::new(reading),
            writing: Cell::new(writing),
            exchanges: RefCell::default(),
            reset: Cell::new(false),
            held_back: Cell::new(false),
            waits: RefCell::default(),
            informational: (!several).then(Arc::default),
            upgrading: Cell::new(false),
            began: Instant::now(),
            over: Cell::new(None),
            unwritten: Cell::new(false),
            unsent: UnsentBytes::new(),
            written: RefCell::default(),
            upgrade_sender: RefCell::default(),
        })
    }

    /// Begins the exchange of a request whose head is complete.
    pub fn begin_exchange(self: &Rc<Self>) -> (Rc<ServerExchange>, ResponseTracker) {
        self.reading.set(ConnectionReadPhase::Busy);
        self.writing.set(NextWriteKind::Answers);
        let exchange = Rc::new(ServerExchange {
            course: self.clone(),
            stalled: Cell::new(false),
            body_state: Cell::new(RequestBodyState::Untouched),
            given: Cell::new(false),
            seen: Cell::new(0),
        });
        if self.multiplexed {
            let mut exchanges = self.exchanges.borrow_mut();
            if exchanges.len() >= FORGET_AT {
                exchanges.retain(|exchange| exchange.strong_count() > 0);
            }
            exchanges.push(Rc::downgrade(&exchange));
        }
        (exchange.clone(), ResponseTracker(exchange))
    }

    /// Records a write: the socket has accepted this many bytes of these slices.
    pub(crate) fn record_write(&self, polled: &Poll<io::Result<usize>>, slices: &[IoSlice<'_>]) {
        if let (true, Poll::Ready(Ok(count))) = (self.multiplexed, polled) {
            self.unsent.record_write(slices, *count);
        }
    }

    pub(crate) fn reading(&self) -> ConnectionReadPhase {
        self.reading.get()
    }

    pub(crate) fn writing(&self) -> NextWriteKind {
        self.writing.get()
    }

    /// Sets the task to wake when the present request is over. Called when there is nothing to read and no time limit
    /// is running.
    pub(crate) fn set_idle_waker(&self, waker: &Waker) {
        let mut waits = self.waits.borrow_mut();
        if !waits.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *waits = Some(waker.clone());
        }
    }

    /// Records that the HTTP library has written all that it was given.
    pub(crate) fn mark_all_written(&self) {
        self.unwritten.set(false);
        self.written.take().into_iter().for_each(Waker::wake);
    }

    /// True while the connection is not read, so that its end is not noticed by a read.
    pub(crate) fn is_read_paused(&self) -> bool {
        self.held_back.get()
    }

    /// Records that bytes were received: on an idle connection a head begins.
    pub(crate) fn mark_head_started(&self) {
        if let ConnectionReadPhase::Idle(_) = self.reading.get() {
            self.reading.set(ConnectionReadPhase::Head(Instant::now()));
        }
    }

    /// The moment since which the connection is idle: `known`, or now.
    pub(crate) fn get_or_start_idle(&self, known: Option<Instant>) -> Instant {
        known.unwrap_or_else(|| {
            let now = Instant::now();
            self.reading.set(ConnectionReadPhase::Idle(Some(now)));
            now
        })
    }

    /// Records that `left` bytes of complete responses are still to be written.
    pub(crate) fn set_unwritten_response_bytes(&self, left: usize) {
        self.writing.set(NextWriteKind::Owed(left));
    }

    pub(crate) fn request_connection_reset(&self) {
        self.reset.set(true);
    }

    pub(crate) fn is_reset_requested(&self) -> bool {
        self.reset.get()
    }

    /// True if the stream goes on with another protocol after this response.
    pub(crate) fn is_upgrading(&self) -> bool {
        self.upgrade_sender.borrow().is_some()
    }

    pub(crate) fn take_upgrade_sender(&self) -> Option<UpgradeSender> {
        self.upgrade_sender.take()
    }

    /// The moment since which the connection is quiet: every request was answered in full, and every response was
    /// written. `None` while it is not quiet.
    pub(crate) fn quiet_since(&self) -> Option<Instant> {
        if self.unwritten.get() || self.unsent.has_unsent_bytes() {
            return None;
        }
        if self.multiplexed {
            let asks = self.exchanges.borrow().iter().any(|exchange| exchange.strong_count() > 0);
            return match self.over.get() {
                _ if asks => None,
                None => Some(self.began),
                // The end of a response may still be in the HTTP library, until the client takes the bytes before it.
                over => over.filter(|over| over.elapsed() >= ANSWER_LEAVES),
            };
        }
        match (self.reading.get(), self.writing.get()) {
            _ if self.upgrading.get() => None,
            // A client that has begun a head gets a moment to finish it. After that moment the connection counts as
            // quiet, so a client that sends its head byte by byte cannot keep its slot.
            (ConnectionReadPhase::Head(since), NextWriteKind::Owed(0)) => {
                (since.elapsed() >= HEAD_COMES).then_some(since)
            }
            (ConnectionReadPhase::Idle(known), NextWriteKind::Owed(0)) => {
                Some(known.unwrap_or_else(Instant::now))
            }
            _ => None,
        }
    }

    #[cfg(test)]
    pub(crate) fn make_older(&self, by: Duration) {
        self.over.set(self.over.get().map(|over| over - by));
        self.unsent.make_older(by);
        if let ConnectionReadPhase::Head(since) = self.reading.get() {
            self.reading.set(ConnectionReadPhase::Head(since - by));
        }
    }

    /// Returns the state of an HTTP/2 connection. The periodic check calls this, and it counts the calls.
    pub(crate) fn snapshot(&self) -> H2Snapshot {
        let mut exchanges = self.exchanges.borrow_mut();
        exchanges.retain(|exchange| exchange.strong_count() > 0);
        let mut under_way =
            H2Snapshot { exchanges: exchanges.len(), unsent: self.unsent.has_unsent_bytes(), not_taken: 0 };
        for exchange in exchanges.iter().filter_map(Weak::upgrade).filter(|exchange| exchange.given.get()) {
            exchange.seen.set(exchange.seen.get().saturating_add(1));
            under_way.not_taken = under_way.not_taken.max(exchange.seen.get());
        }
        under_way
    }
}

/// For this long after its last exchange an HTTP/2 connection does not count as quiet.
const ANSWER_LEAVES: Duration = Duration::from_secs(2);
/// For this long after the beginning of a head an HTTP/1.1 connection does not count as quiet. The time limit of a
/// head is much longer: if that were used here, one client with endless heads could keep all other clients out.
const HEAD_COMES: Duration = Duration::from_secs(2);

/// At this length ended exchanges are removed from the list.
const FORGET_AT: usize = 256;

impl ServerExchange {
    pub fn body_state(&self) -> RequestBodyState {
        self.body_state.get()
    }

    pub fn set_body_state(&self, coming: RequestBodyState) {
        self.body_state.set(coming);
        self.course.held_back.set(!self.course.multiplexed && coming == RequestBodyState::HeldBack);
    }

    /// The informational responses of the connection; `None` on a multiplexed one.
    pub fn informational(&self) -> Option<&Arc<InformationalQueue>> {
        self.course.informational.as_ref()
    }

    /// True if the connection can have several exchanges at once, as HTTP/2 has.
    pub(crate) fn is_multiplexed(&self) -> bool {
        self.course.multiplexed
    }
}

impl ResponseTracker {
    /// Records that the HTTP library has polled for a chunk. `given` is true if it got one; otherwise it has to wait.
    pub(crate) fn record_poll(&self, given: bool) {
        self.0.given.set(given);
        self.0.seen.set(0);
    }

    /// Records that a part of the response was given to the HTTP library, with this many bytes of its body. The first
    /// part is the head.
    pub(crate) fn add_unsent(&self, bytes: usize) {
        self.0.course.unwritten.set(true);
        if self.is_multiplexed() {
            self.0.course.unsent.add(bytes);
        }
    }

    pub(crate) fn is_multiplexed(&self) -> bool {
        self.0.is_multiplexed()
    }

    /// True if every given part of the response is written. Otherwise the waker is woken when it is.
    pub(crate) fn check_flushed(&self, waker: &Waker) -> bool {
        let state = &self.0.course;
        if state.unwritten.get() {
            state.written.borrow_mut().push(waker.clone());
        }
        !state.unwritten.get()
    }

    /// Records that this response switches protocols: after it the stream is sent to `upgrade_sender`.
    pub fn upgrade(&self, upgrade_sender: UpgradeSender) {
        self.0.course.upgrading.set(true);
        self.0.course.upgrade_sender.replace(Some(upgrade_sender));
    }
}

impl Drop for ResponseTracker {
    fn drop(&mut self) {
        self.0.given.set(false);
        let state = &self.0.course;
        if !state.multiplexed {
            state.writing.set(NextWriteKind::LastChunk);
        }
    }
}

impl Drop for ServerExchange {
    /// Runs when both the response and the request's body are over.
    fn drop(&mut self) {
        if self.course.multiplexed {
            self.course.over.set(Some(Instant::now()));
        } else {
            self.course.held_back.set(false);
            self.course.reading.set(ConnectionReadPhase::Idle(None));
            // The last chunk is written already, so no further write would start the time limit for the next request.
            // The wake does.
            if let (NextWriteKind::Owed(_), Some(waker)) =
                (self.course.writing.get(), self.course.waits.take())
            {
                waker.wake();
            }
        }
    }
}

/// The bytes that are expected next from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionReadPhase {
    /// A new request, or the end. The moment is set once the time limit has started.
    Idle(Option<Instant>),
    /// The rest of a head that began at this moment.
    Head(Instant),
    /// A body, or nothing while its response is not complete; on HTTP/2 any frames.
    Busy,
}

/// The bytes that the HTTP library writes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextWriteKind {
    /// Responses of this proxy; on HTTP/2 frames.
    Answers,
    /// The library was given the last chunk of a response and has not written since, so its next write belongs to
    /// that response.
    LastChunk,
    /// This many bytes of complete responses. Further bytes are messages of the library itself.
    Owed(usize),
}

/// The progress of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestBodyState {
    /// No part of the body was read.
    Untouched,
    /// A part of the body was read and put back; the rest is not read for now.
    HeldBack,
    /// The body waits for bytes of the client.
    Awaited,
    /// A chunk was passed on at this moment.
    Receiving(Instant),
    /// All of the body was passed on.
    Complete,
    /// The body broke off.
    Broken,
    /// The body did not arrive before its deadline.
    Overdue,
}

/// The state of an HTTP/2 connection at one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct H2Snapshot {
    pub(crate) exchanges: usize,
    /// True if a part of the given responses is not written yet.
    pub(crate) unsent: bool,
    /// The most snapshots in a row in which the client has taken nothing of the same response.
    pub(crate) not_taken: u32,
}
