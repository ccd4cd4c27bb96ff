//! The state of one client: what it has requested, what is on its way, and the state of its connection.

use std::collections::VecDeque;

use fencegate_zookeeper::session::client::{MultiError, ZkError};
use tokio::{sync::oneshot, time::Instant};

use crate::memory::{
    client_watches::{ClientWatches, SimWatch},
    delay_queue::DelayQueue,
    request::{ServerAnswer, ServerRequest},
    server::ServerReply,
    server_watches::{WatchEvent, WatchKind},
};

#[derive(Debug)]
pub(super) struct ClientState {
    /// As the server has it; after a swap not the id that the client got at first.
    pub(super) session: i64,
    pub(super) phase: ConnectionPhase,
    pub(super) parting: CloseState,
    /// The newest transaction that a reply has shown.
    pub(super) seen: i64,
    pub(super) heard: Instant,
    pub(super) spoke: Instant,
    pub(super) pinged: bool,
    /// Requested while there was no connection.
    pub(super) waiting: VecDeque<PendingCall>,
    /// Sent, in order; replies come in the same order.
    pub(super) asked: VecDeque<SentRequest>,
    pub(super) to_server: DelayQueue<ServerRequest>,
    pub(super) to_client: DelayQueue<ServerMessage>,
    pub(super) watchers: ClientWatches,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    Connected,
    Away { retry: Instant },
    Over,
}

/// Whether the session's owner has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseState {
    Not,
    Wanted,
    Sent,
}

pub(in crate::memory) type CallResult = Result<(ServerAnswer, Option<SimWatch>), MultiError>;

#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) request: ServerRequest,
    pub(super) answer: oneshot::Sender<CallResult>,
}

#[derive(Debug)]
pub(super) enum SentRequest {
    Ping,
    Close,
    Call { watch: Option<(String, WatchKind)>, answer: oneshot::Sender<CallResult> },
}

#[derive(Debug)]
pub(super) enum ServerMessage {
    Reply(ServerReply),
    Event(WatchEvent),
    /// The server closes the connection.
    Closed,
}

impl ClientState {
    /// Of a session that has just been made, over a connection that is there.
    pub(super) fn begin(session: i64) -> Self {
        let now = Instant::now();
        Self {
            session,
            phase: ConnectionPhase::Connected,
            parting: CloseState::Not,
            seen: 0,
            heard: now,
            spoke: now,
            pinged: false,
            waiting: VecDeque::new(),
            asked: VecDeque::new(),
            to_server: DelayQueue::default(),
            to_client: DelayQueue::default(),
            watchers: ClientWatches::default(),
        }
    }
}

/// The receiver may be dropped already.
pub(super) fn refuse(answer: oneshot::Sender<CallResult>, fault: ZkError) {
    answer.send(Err(MultiError { step: None, fault })).ok();
}
