//! What one side of a conversation remembers: what it has asked, what is on its way, and where it stands.

use std::collections::VecDeque;

use fencegate_lock::session::link::{Failed, Fault};
use tokio::{sync::oneshot, time::Instant};

use crate::memory::{
    pipe::Pipe,
    request::{Answer, Request},
    server::Reply,
    watchers::{Watch, Watchers},
    watches::{Aspect, Event},
};

#[derive(Debug)]
pub(super) struct Talk {
    /// As the server knows it; after a swap not what the client was told at first.
    pub(super) session: i64,
    pub(super) phase: Phase,
    pub(super) parting: Parting,
    /// The newest transaction of which a reply told.
    pub(super) seen: i64,
    pub(super) heard: Instant,
    pub(super) spoke: Instant,
    pub(super) pinged: bool,
    /// Asked for while there was no connection.
    pub(super) waiting: VecDeque<Call>,
    /// Sent, in order; replies come in the same order.
    pub(super) asked: VecDeque<Asked>,
    pub(super) to_server: Pipe<Request>,
    pub(super) to_client: Pipe<Message>,
    pub(super) watchers: Watchers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Connected,
    Away { retry: Instant },
    Over,
}

/// Whether the session's owner has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parting {
    Not,
    Wanted,
    Sent,
}

pub(in crate::memory) type Heard = Result<(Answer, Option<Watch>), Failed>;

#[derive(Debug)]
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) answer: oneshot::Sender<Heard>,
}

#[derive(Debug)]
pub(super) enum Asked {
    Ping,
    Close,
    Call { watch: Option<(String, Aspect)>, answer: oneshot::Sender<Heard> },
}

#[derive(Debug)]
pub(super) enum Message {
    Reply(Reply),
    Event(Event),
    /// The server closes the connection.
    Closed,
}

impl Talk {
    /// Of a session that has just been made, over a connection that is there.
    pub(super) fn begin(session: i64) -> Self {
        let now = Instant::now();
        Self {
            session,
            phase: Phase::Connected,
            parting: Parting::Not,
            seen: 0,
            heard: now,
            spoke: now,
            pinged: false,
            waiting: VecDeque::new(),
            asked: VecDeque::new(),
            to_server: Pipe::default(),
            to_client: Pipe::default(),
            watchers: Watchers::default(),
        }
    }
}

/// Nobody may be waiting for it any more.
pub(super) fn refuse(answer: oneshot::Sender<Heard>, fault: Fault) {
    answer.send(Err(Failed { step: None, fault })).ok();
}
