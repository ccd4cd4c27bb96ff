//! The state of one client: its requests, its messages in flight, and the state of its connection.

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
    /// The session's id at the server. After a swap it is not the id that the client knows.
    pub(super) session: i64,
    pub(super) phase: ConnectionPhase,
    pub(super) parting: CloseState,
    /// The newest transaction that an answer has shown.
    pub(super) seen: i64,
    pub(super) heard: Instant,
    pub(super) spoke: Instant,
    pub(super) pinged: bool,
    /// The requests that were made while there was no connection.
    pub(super) waiting: VecDeque<PendingCall>,
    /// The requests that were sent, in their order, in which the answers come, too.
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

/// The progress of closing the session after its owner was dropped.
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
    /// The server has closed the connection.
    Closed,
}

impl ClientState {
    /// The state of a new session, which is connected.
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

/// Answers a request with an error. The receiver may have been dropped.
pub(super) fn refuse(answer: oneshot::Sender<CallResult>, fault: ZkError) {
    answer.send(Err(MultiError { step: None, fault })).ok();
}
