//! The present state of a client's connection. The code that moves its bytes and the code that answers its requests
//! share this state, because the HTTP library between them passes none of it on.

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
    /// Whether it can have several requests at once, as HTTP/2 has.
    multiplexed: bool,
    /// With several requests at once: the exchanges that may still be under way.
    exchanges: RefCell<Vec<Weak<ServerExchange>>>,
    /// The connection is to be closed with a reset.
    reset: Cell<bool>,
    /// Whether the rest of a request's body is not read for now.
    held_back: Cell<bool>,
    /// Woken when the present request is over, to begin the wait for the next one.
    waits: RefCell<Option<Waker>>,
    /// Whether the HTTP library was given a part of a response since it last wrote all that it had.
    unwritten: Cell<bool>,
    /// For HTTP/2: the bytes of bodies that the library holds because the client's window is full.
    pub(crate) unsent: UnsentBytes,
    /// Woken when the library has written all that it had.
    written: RefCell<Vec<Waker>>,
    /// Informational responses, on connections with one request at a time.
    pub(crate) informational: Option<Arc<InformationalQueue>>,
    /// Whether the stream was handed over after a switch of protocols, or is about to be.
    upgrading: Cell<bool>,
    /// When the connection began. `over`: when its last exchange ended.
    began: Instant,
    over: Cell<Option<Instant>>,
    /// Receives the stream of the connection, once the response that switches protocols is sent.
    upgrade_sender: RefCell<Option<UpgradeSender>>,
}

/// One request and its response.
#[derive(Debug)]
pub struct ServerExchange {
    course: Rc<ServerConnectionState>,
    /// The client let the rest of its body wait for too long.
    pub stalled: Cell<bool>,
    body_state: Cell<RequestBodyState>,
    /// Whether the HTTP library was given a chunk of the response and has not polled for the next one.
    given: Cell<bool>,
    /// The number of snapshots in a row that have found it so.
    seen: Cell<u32>,
}

/// Held by the response; dropped when the HTTP library was given all of it.
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

    /// The head of a request is complete.
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

    /// The socket has accepted this many bytes of these slices.
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

    /// There is nothing to read, and the client does not have to send anything.
    pub(crate) fn set_idle_waker(&self, waker: &Waker) {
        let mut waits = self.waits.borrow_mut();
        if !waits.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *waits = Some(waker.clone());
        }
    }

    /// The HTTP library has written all that it had.
    pub(crate) fn mark_all_written(&self) {
        self.unwritten.set(false);
        self.written.take().into_iter().for_each(Waker::wake);
    }

    /// Whether the connection is not read, so that its end would go unseen.
    pub(crate) fn is_read_paused(&self) -> bool {
        self.held_back.get()
    }

    /// Bytes came.
    pub(crate) fn mark_head_started(&self) {
        if let ConnectionReadPhase::Idle(_) = self.reading.get() {
            self.reading.set(ConnectionReadPhase::Head(Instant::now()));
        }
    }

    /// Since when the connection is idle.
    pub(crate) fn get_or_start_idle(&self, known: Option<Instant>) -> Instant {
        known.unwrap_or_else(|| {
            let now = Instant::now();
            self.reading.set(ConnectionReadPhase::Idle(Some(now)));
            now
        })
    }

    /// `left` bytes of complete responses are still to be written.
    pub(crate) fn set_owed(&self, left: usize) {
        self.writing.set(NextWriteKind::Owed(left));
    }

    pub(crate) fn request_connection_reset(&self) {
        self.reset.set(true);
    }

    pub(crate) fn is_reset_requested(&self) -> bool {
        self.reset.get()
    }

    /// Whether the stream goes on after this response, with another protocol.
    pub(crate) fn is_upgrading(&self) -> bool {
        self.upgrade_sender.borrow().is_some()
    }

    pub(crate) fn take_upgrade_sender(&self) -> Option<UpgradeSender> {
        self.upgrade_sender.take()
    }

    /// Since when the connection is quiet: every request is answered in full, and every response is written.
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
            // A client that has begun a head gets a moment to finish it. With a head that comes byte by byte it
            // cannot keep its connection slot.
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

    /// The state of an HTTP/2 connection; called at each periodic check.
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
/// head is much longer; with that, one client with endless heads could keep all other clients out.
const HEAD_COMES: Duration = Duration::from_secs(2);

/// Ended exchanges are removed from the list when it has this many.
const FORGET_AT: usize = 256;

impl ServerExchange {
    pub fn body_state(&self) -> RequestBodyState {
        self.body_state.get()
    }

    pub fn set_body_state(&self, coming: RequestBodyState) {
        self.body_state.set(coming);
        self.course.held_back.set(!self.course.multiplexed && coming == RequestBodyState::HeldBack);
    }

    /// The informational responses of the connection; `None` if it has several requests at once.
    pub fn informational(&self) -> Option<&Arc<InformationalQueue>> {
        self.course.informational.as_ref()
    }

    /// Whether the connection can have several exchanges at once, as HTTP/2 has.
    pub(crate) fn is_multiplexed(&self) -> bool {
        self.course.multiplexed
    }
}

impl ResponseTracker {
    /// The HTTP library has polled for a chunk. `given`: it got one; otherwise it has to wait.
    pub(crate) fn record_poll(&self, given: bool) {
        self.0.given.set(given);
        self.0.seen.set(0);
    }

    /// A part of the response, first its head, goes to the HTTP library, with this many bytes of its body.
    pub(crate) fn add_unsent(&self, bytes: usize) {
        self.0.course.unwritten.set(true);
        if self.is_multiplexed() {
            self.0.course.unsent.add(bytes);
        }
    }

    pub(crate) fn is_multiplexed(&self) -> bool {
        self.0.is_multiplexed()
    }

    /// Whether the given part of the response is written. If not, the waker is woken when it is.
    pub(crate) fn check_flushed(&self, waker: &Waker) -> bool {
        let state = &self.0.course;
        if state.unwritten.get() {
            state.written.borrow_mut().push(waker.clone());
        }
        !state.unwritten.get()
    }

    /// This response switches protocols: after it the stream goes to `upgrade_sender`.
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
    /// Called when both the response and the request's body are over.
    fn drop(&mut self) {
        if self.course.multiplexed {
            self.course.over.set(Some(Instant::now()));
        } else {
            self.course.held_back.set(false);
            self.course.reading.set(ConnectionReadPhase::Idle(None));
            // The last chunk is written already, so no further write would begin the wait for the next request.
            if let (NextWriteKind::Owed(_), Some(waker)) =
                (self.course.writing.get(), self.course.waits.take())
            {
                waker.wake();
            }
        }
    }
}

/// What comes next from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionReadPhase {
    /// A new request, or nothing. The time is set once the wait has begun.
    Idle(Option<Instant>),
    /// The rest of a head that began at this time.
    Head(Instant),
    /// A body, or nothing while its response is not complete; on HTTP/2 anything.
    Busy,
}

/// What the HTTP library writes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextWriteKind {
    /// Responses of this proxy; on HTTP/2 frames.
    Answers,
    /// The library was given the last chunk of a response and has not written since, so its next write belongs to
    /// that response.
    LastChunk,
    /// This many bytes of complete responses. Further bytes are the library's own.
    Owed(usize),
}

/// The progress of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestBodyState {
    /// No part of it was read.
    Untouched,
    /// A part was read and put back; the rest is not read for now.
    HeldBack,
    /// The client is waited for.
    Awaited,
    /// A chunk was passed on at this time.
    Receiving(Instant),
    /// All of it was passed on.
    Complete,
    /// It broke off.
    Broken,
    /// It did not arrive in its time.
    Overdue,
}

/// The state of an HTTP/2 connection at one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct H2Snapshot {
    pub(crate) exchanges: usize,
    /// Whether a part of the given responses is not written yet.
    pub(crate) unsent: bool,
    /// The most snapshots in a row that have found the client taking nothing of one response.
    pub(crate) not_taken: u32,
}
