//! The way from one gateway to ZooKeeper, message by message: slow, cut, silent in either direction, or wrong at
//! exactly one operation.

mod operation;
mod pass;
#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
};

use self::pass::pass;
use crate::{origin::Latch, patience::patiently};

/// Stands between one gateway and its ZooKeeper. Works on the runtime of the test that makes it.
pub struct FaultyLink {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    state: watch::Sender<State>,
    /// How many times connections were broken. An event: the state may be whole again before anybody looks.
    breaks: watch::Sender<u64>,
    delay: watch::Sender<Duration>,
    /// Connections end with a reset.
    abrupt: AtomicBool,
    /// How many times sessions were ended on demand.
    endings: watch::Sender<u64>,
    trap: Mutex<Option<Trap>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    /// What the client says arrives; what the server answers does not.
    Deaf,
    /// What the client says does not arrive.
    Mute,
    /// Connections stay open, and nothing passes.
    Silent,
    /// New connections are closed at once.
    Cut,
}

/// What is done to a lock node. Other operations of the gateway, its heartbeats above all, spring no trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Alone, or with the parent that it is the first node of.
    Create,
    /// Alone, or with the parent that it was the last node of.
    Delete,
    /// A transaction that makes one: the first node of a key, a set's nodes, or a yield.
    Multi,
    /// A transaction that asks whether it is there.
    Admission,
    /// What writes to `meta`.
    Era,
}

/// What becomes of an operation.
#[derive(Debug, Clone)]
pub enum Fate {
    /// It never arrives, nor does anything behind it on its connection.
    Vanishes,
    /// It is done, and the connection breaks before the answer.
    AnswerLost,
    /// It is done, and the answer, with all behind it, comes when let go.
    AnswerHeld(Latch),
}

struct Trap {
    operation: Operation,
    fate: Fate,
    sprung: oneshot::Sender<()>,
}

/// Tells when the operation has met its fate.
pub struct Sprung {
    what: String,
    event: oneshot::Receiver<()>,
}

impl FaultyLink {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            server,
            state: watch::Sender::new(State::Whole),
            breaks: watch::Sender::new(0),
            delay: watch::Sender::new(Duration::ZERO),
            abrupt: AtomicBool::new(false),
            endings: watch::Sender::new(0),
            trap: Mutex::default(),
        });
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(serving.clone(), client));
            }
        });
        Self { address, shared }
    }

    /// Where to connect instead of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every answer takes this much longer from now on.
    pub fn delay(&self, by: Duration) {
        self.shared.delay.send_replace(by);
    }

    /// From now on the server is obeyed and not heard.
    pub fn lose_replies(&self) {
        self.shared.state.send_replace(State::Deaf);
    }

    /// From now on the server hears nothing.
    pub fn lose_requests(&self) {
        self.shared.state.send_replace(State::Mute);
    }

    /// From now on nothing passes, and nobody is told.
    pub fn lose_all(&self) {
        self.shared.state.send_replace(State::Silent);
    }

    /// All connections are closed, and new ones at once.
    pub fn cut(&self) {
        self.shared.abrupt.store(false, Ordering::Relaxed);
        self.shared.break_all();
    }

    /// The same, with a reset.
    pub fn reset(&self) {
        self.shared.abrupt.store(true, Ordering::Relaxed);
        self.shared.break_all();
    }

    /// # Panics
    /// If something was lost and the connections are still open: a stream cannot go on with a hole in it.
    pub fn mend(&self) {
        let before = self.shared.state.send_replace(State::Whole);
        assert!(matches!(before, State::Whole | State::Cut), "cut first");
    }

    /// The next operation of this kind meets its fate.
    ///
    /// # Panics
    /// If another one still waits for its operation.
    pub fn trap(&self, operation: Operation, fate: Fate) -> Sprung {
        let what = format!("{operation:?} to meet its fate: {fate:?}");
        let (sprung, event) = oneshot::channel();
        let before = self.shared.trap().replace(Trap { operation, fate, sprung });
        assert!(before.is_none(), "a trap at a time");
        Sprung { what, event }
    }

    /// The server ends the sessions of all open connections now, as it would after their timeout.
    pub fn end_sessions(&self) {
        self.shared.endings.send_modify(|times| *times += 1);
    }
}

impl Sprung {
    /// # Panics
    /// If it did not happen in time.
    pub async fn happened(self) {
        let Self { what, event } = self;
        patiently(&what, event, || "nothing").await.expect("the link lives on");
    }
}

impl Shared {
    fn trap(&self) -> MutexGuard<'_, Option<Trap>> {
        self.trap.lock().expect("no thread panics here")
    }

    fn break_all(&self) {
        self.state.send_replace(State::Cut);
        self.breaks.send_modify(|times| *times += 1);
    }

    /// The trap that this message springs.
    fn sprung_by(&self, message: &[u8]) -> Option<Trap> {
        let does = Operation::of(message);
        self.trap().take_if(|trap| does.contains(&trap.operation))
    }

    fn passes(&self, lost_in: State) -> bool {
        let state = *self.state.borrow();
        state != lost_in && state != State::Silent
    }
}
