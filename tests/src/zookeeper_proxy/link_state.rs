//! The state that all connections of one proxy share, and the fault that waits for its operation.

use std::{
    net::SocketAddr,
    sync::{Mutex, MutexGuard, atomic::AtomicBool},
    time::Duration,
};

use tokio::sync::watch;

use super::{LockNodeOperation, trap::FaultTrap};

pub(super) struct LinkState {
    pub(super) server: SocketAddr,
    pub(super) state: watch::Sender<LinkMode>,
    /// The number of times that connections were broken. It is a count, because the state may change back before a
    /// connection reads it.
    pub(super) breaks: watch::Sender<u64>,
    pub(super) delay: watch::Sender<Duration>,
    /// True if connections end with a TCP reset.
    pub(super) abrupt: AtomicBool,
    /// The number of times that the test has ended the sessions.
    pub(super) endings: watch::Sender<u64>,
    pub(super) trap: Mutex<Option<FaultTrap>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkMode {
    Whole,
    /// The client's requests arrive; the server's answers do not.
    Deaf,
    /// The client's requests do not arrive.
    Mute,
    /// Connections stay open, and nothing passes.
    Silent,
    /// New connections are closed at once.
    Cut,
}

impl LinkState {
    pub(super) fn new(server: SocketAddr) -> Self {
        Self {
            server,
            state: watch::Sender::new(LinkMode::Whole),
            breaks: watch::Sender::new(0),
            delay: watch::Sender::new(Duration::ZERO),
            abrupt: AtomicBool::new(false),
            endings: watch::Sender::new(0),
            trap: Mutex::default(),
        }
    }

    pub(super) fn trap(&self) -> MutexGuard<'_, Option<FaultTrap>> {
        self.trap.lock().expect("no thread panics here")
    }

    pub(super) fn break_all(&self) {
        self.state.send_replace(LinkMode::Cut);
        self.breaks.send_modify(|times| *times += 1);
    }

    /// Takes the trap out, if this message is the operation that it waits for.
    pub(super) fn take_matching_trap(&self, message: &[u8]) -> Option<FaultTrap> {
        let does = LockNodeOperation::parse(message);
        self.trap().take_if(|trap| does.contains(&trap.operation))
    }

    pub(super) fn passes(&self, lost_in: LinkMode) -> bool {
        let state = *self.state.borrow();
        state != lost_in && state != LinkMode::Silent
    }
}
