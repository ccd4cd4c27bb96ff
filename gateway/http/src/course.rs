//! What a connection is about at the moment. Whoever moves its bytes and whoever answers its requests tell each other
//! here: the HTTP library between them tells neither.

pub mod interim;
mod now;
mod passing;
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

pub use self::now::Coming;
pub(crate) use self::now::{Reading, UnderWay, Writing};
use self::unsent::Unsent;
use crate::course::interim::Interims;
use crate::parting::Taker;

/// The course of one connection.
#[derive(Debug)]
pub struct Course {
    reading: Cell<Reading>,
    writing: Cell<Writing>,
    /// Several requests at once, as HTTP/2 has it.
    several: bool,
    /// Where there are several at once: the exchanges that may still be under way.
    exchanges: RefCell<Vec<Weak<Exchange>>>,
    /// The connection is to be closed with a reset.
    reset: Cell<bool>,
    /// The rest of a body is not taken for now.
    held_back: Cell<bool>,
    /// Woken when this request is over, to look for the next one.
    waits: RefCell<Option<Waker>>,
    /// Something of an answer was given to the HTTP library since all that it had was written.
    unwritten: Cell<bool>,
    /// On HTTP/2, what the library still has then: it writes no more of a body than the client has room for.
    pub(crate) unsent: Unsent,
    /// Woken when it is written.
    written: RefCell<Vec<Waker>>,
    /// What is said to its client before an answer, where it takes one at a time.
    pub(crate) interims: Option<Arc<Interims>>,
    /// The stream has gone to somebody else, or is about to.
    parted: Cell<bool>,
    /// When it began, and when the last of several exchanges was over.
    began: Instant,
    over: Cell<Option<Instant>>,
    /// Given the stream of the connection, once the answer that says so has left.
    taker: RefCell<Option<Taker>>,
}

/// One request and its answer.
#[derive(Debug)]
pub struct Exchange {
    course: Rc<Course>,
    /// The client let the rest of its body wait for too long.
    pub stalled: Cell<bool>,
    coming: Cell<Coming>,
    /// A piece of the answer was given to the HTTP library, which has not asked for the next one.
    given: Cell<bool>,
    /// How often in a row it was seen like that.
    seen: Cell<u32>,
}

/// Held by the answer: dropped when all of it was given to the HTTP library.
#[derive(Debug)]
pub struct Answering(Rc<Exchange>);

impl Course {
    /// Of an HTTP/1.1 connection, whose first head began with it.
    pub fn of_http1(since: Instant) -> Rc<Self> {
        Self::new(false, Reading::Head(since), Writing::Owed(0))
    }

    /// Of an HTTP/2 connection: what is read and written concerns many requests at once.
    pub fn of_http2() -> Rc<Self> {
        Self::new(true, Reading::Busy, Writing::Answers)
    }

    fn new(several: bool, reading: Reading, writing: Writing) -> Rc<Self> {
        Rc::new(Self {
            several,
            reading: Cell::new(reading),
            writing: Cell::new(writing),
            exchanges: RefCell::default(),
            reset: Cell::new(false),
            held_back: Cell::new(false),
            waits: RefCell::default(),
            interims: (!several).then(Arc::default),
            parted: Cell::new(false),
            began: Instant::now(),
            over: Cell::new(None),
            unwritten: Cell::new(false),
            unsent: Unsent::new(),
            written: RefCell::default(),
            taker: RefCell::default(),
        })
    }

    /// The head of a request is complete.
    pub fn begin(self: &Rc<Self>) -> (Rc<Exchange>, Answering) {
        self.reading.set(Reading::Busy);
        self.writing.set(Writing::Answers);
        let exchange = Rc::new(Exchange {
            course: self.clone(),
            stalled: Cell::new(false),
            coming: Cell::new(Coming::Untouched),
            given: Cell::new(false),
            seen: Cell::new(0),
        });
        if self.several {
            let mut exchanges = self.exchanges.borrow_mut();
            if exchanges.len() >= FORGET_AT {
                exchanges.retain(|exchange| exchange.strong_count() > 0);
            }
            exchanges.push(Rc::downgrade(&exchange));
        }
        (exchange.clone(), Answering(exchange))
    }

    /// So many bytes of these were taken.
    pub(crate) fn passed(&self, polled: &Poll<io::Result<usize>>, pieces: &[IoSlice<'_>]) {
        if let (true, Poll::Ready(Ok(count))) = (self.several, polled) {
            self.unsent.passed(pieces, *count);
        }
    }

    pub(crate) fn reading(&self) -> Reading {
        self.reading.get()
    }

    pub(crate) fn writing(&self) -> Writing {
        self.writing.get()
    }

    /// Nothing is there to read, and nothing has to be.
    pub(crate) fn waits(&self, waker: &Waker) {
        let mut waits = self.waits.borrow_mut();
        if !waits.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *waits = Some(waker.clone());
        }
    }

    /// The HTTP library has written all that it had.
    pub(crate) fn is_written(&self) {
        self.unwritten.set(false);
        self.written.take().into_iter().for_each(Waker::wake);
    }

    /// Nobody reads what comes, so that the client's end would not be seen.
    pub(crate) fn holds_back(&self) -> bool {
        self.held_back.get()
    }

    /// Bytes came.
    pub(crate) fn heard(&self) {
        if let Reading::Idle(_) = self.reading.get() {
            self.reading.set(Reading::Head(Instant::now()));
        }
    }

    /// Since when nothing has come, if nothing has to.
    pub(crate) fn idle_since(&self, known: Option<Instant>) -> Instant {
        known.unwrap_or_else(|| {
            let now = Instant::now();
            self.reading.set(Reading::Idle(Some(now)));
            now
        })
    }

    /// `left` bytes of complete answers are still to be written.
    pub(crate) fn owes(&self, left: usize) {
        self.writing.set(Writing::Owed(left));
    }

    pub(crate) fn reset(&self) {
        self.reset.set(true);
    }

    pub(crate) fn is_reset(&self) -> bool {
        self.reset.get()
    }

    /// The stream is not to be closed after this answer.
    pub(crate) fn parts(&self) -> bool {
        self.taker.borrow().is_some()
    }

    pub(crate) fn take_taker(&self) -> Option<Taker> {
        self.taker.take()
    }

    /// Since when the client has nothing to wait for: no request of it was taken that is not answered in full, and no
    /// answer is given that is not written.
    pub(crate) fn is_quiet(&self) -> Option<Instant> {
        if self.unwritten.get() || self.unsent.is_some() {
            return None;
        }
        if self.several {
            let asks = self.exchanges.borrow().iter().any(|exchange| exchange.strong_count() > 0);
            return match self.over.get() {
                _ if asks => None,
                None => Some(self.began),
                // The end of an answer may still wait in the HTTP library for the client to take what is before it.
                over => over.filter(|over| over.elapsed() >= ANSWER_LEAVES),
            };
        }
        match (self.reading.get(), self.writing.get()) {
            _ if self.parted.get() => None,
            // Whoever has begun to ask has a moment to do so; whoever sends a head byte by byte keeps no place with it.
            (Reading::Head(since), Writing::Owed(0)) => (since.elapsed() >= HEAD_COMES).then_some(since),
            (Reading::Idle(known), Writing::Owed(0)) => Some(known.unwrap_or_else(Instant::now)),
            _ => None,
        }
    }

    #[cfg(test)]
    pub(crate) fn grows_older(&self, by: Duration) {
        self.over.set(self.over.get().map(|over| over - by));
        self.unsent.grows_older(by);
        if let Reading::Head(since) = self.reading.get() {
            self.reading.set(Reading::Head(since - by));
        }
    }

    /// Looked at now and then, on HTTP/2.
    pub(crate) fn look(&self) -> UnderWay {
        let mut exchanges = self.exchanges.borrow_mut();
        exchanges.retain(|exchange| exchange.strong_count() > 0);
        let mut under_way =
            UnderWay { exchanges: exchanges.len(), unsent: self.unsent.is_some(), not_taken: 0 };
        for exchange in exchanges.iter().filter_map(Weak::upgrade).filter(|exchange| exchange.given.get()) {
            exchange.seen.set(exchange.seen.get().saturating_add(1));
            under_way.not_taken = under_way.not_taken.max(exchange.seen.get());
        }
        under_way
    }
}

/// How long an HTTP/2 connection is not taken for quiet after its last exchange.
const ANSWER_LEAVES: Duration = Duration::from_secs(2);
/// How long it is not while a head comes on HTTP/1.1. The time limit for it is much longer: with that, one client with
/// heads that it never ends would keep everybody out.
const HEAD_COMES: Duration = Duration::from_secs(2);

/// Exchanges that are over are forgotten when so many have been noted.
const FORGET_AT: usize = 256;

impl Exchange {
    pub fn coming(&self) -> Coming {
        self.coming.get()
    }

    pub fn comes(&self, coming: Coming) {
        self.coming.set(coming);
        self.course.held_back.set(!self.course.several && coming == Coming::HeldBack);
    }

    /// Where interim answers go, if they can be told apart from those to other requests.
    pub fn interims(&self) -> Option<&Arc<Interims>> {
        self.course.interims.as_ref()
    }

    /// The connection has several exchanges at once, as HTTP/2 has it.
    pub fn is_one_of_several(&self) -> bool {
        self.course.several
    }
}

impl Answering {
    /// The HTTP library asked for a piece, and was given one or has to wait for it.
    pub fn asked(&self, given: bool) {
        self.0.given.set(given);
        self.0.seen.set(0);
    }

    /// A part of it, its head to begin with, goes to the HTTP library, with so many bytes of its body.
    pub fn is_to_leave(&self, bytes: usize) {
        self.0.course.unwritten.set(true);
        if self.is_one_of_several() {
            self.0.course.unsent.given(bytes);
        }
    }

    pub fn is_one_of_several(&self) -> bool {
        self.0.is_one_of_several()
    }

    /// All that was given of it was written; else the waker is told when it is.
    pub fn has_left(&self, waker: &Waker) -> bool {
        let course = &self.0.course;
        if course.unwritten.get() {
            course.written.borrow_mut().push(waker.clone());
        }
        !course.unwritten.get()
    }

    /// This answer is the last word of HTTP: then the stream goes to who waits for it.
    pub fn parts(&self, taker: Taker) {
        self.0.course.parted.set(true);
        self.0.course.taker.replace(Some(taker));
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.given.set(false);
        let course = &self.0.course;
        if !course.several {
            course.writing.set(Writing::LastPiece);
        }
    }
}

impl Drop for Exchange {
    /// Answer and body are both over.
    fn drop(&mut self) {
        if self.course.several {
            self.course.over.set(Some(Instant::now()));
        } else {
            self.course.held_back.set(false);
            self.course.reading.set(Reading::Idle(None));
            // The last piece has left before: nothing else happens that would begin the wait for the next request.
            if let (Writing::Owed(_), Some(waker)) = (self.course.writing.get(), self.course.waits.take()) {
                waker.wake();
            }
        }
    }
}
