//! The client library's part of one session: sends requests, receives answers, keeps the session alive, and
//! reconnects.
//!
//! Its times are those of `zookeeper-client` 0.11. With the session timeout T, it pings after 3/20 T without a
//! request of its own, abandons a connection after 2/5 T without a message from the server, and the session after
//! 7/5 T.

mod client_state;
mod phases;

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    time::Duration,
};

use fencegate_zookeeper::session::client::{ZkConnectionState, ZkError};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep_until},
};
use tracing::trace;

use self::client_state::{
    CallResult, ClientState, CloseState, ConnectionPhase, PendingCall, SentRequest, ServerMessage, refuse,
};
use super::{
    ensemble::{SessionHandle, SimEnsemble},
    request::ServerRequest,
    server::ServerReply,
    server_watches::{WatchEvent, WatchKind},
    wire::{UndeliveredRequestFate, Wire, WireSession},
    znode_path,
};

#[derive(Debug)]
pub(super) struct SessionClientSim {
    ensemble: SimEnsemble,
    wire: Rc<Wire>,
    timeout: Duration,
    talk: RefCell<ClientState>,
    /// Notified if something is due earlier than the task of [`Self::run`] expects.
    woken: Notify,
    changes: Cell<u64>,
    changed: Notify,
    itself: Weak<Self>,
}

impl SessionClientSim {
    pub(super) fn start(ensemble: SimEnsemble, wire: Rc<Wire>, session: i64, timeout: Duration) -> Rc<Self> {
        let conversation = Rc::new_cyclic(|itself| Self {
            ensemble,
            wire,
            timeout,
            talk: RefCell::new(ClientState::begin(session)),
            woken: Notify::new(),
            changes: Cell::new(0),
            changed: Notify::new(),
            itself: itself.clone(),
        });
        conversation.wire.attach(conversation.itself.clone());
        conversation.attach(session);
        tokio::task::spawn_local(conversation.clone().run());
        conversation
    }

    /// Sends a request at once, or queues it while there is no connection.
    pub(super) fn call(&self, request: ServerRequest) -> oneshot::Receiver<CallResult> {
        let (answer, heard) = oneshot::channel();
        let talk = &mut *self.talk.borrow_mut();
        let refusal = match talk.phase {
            ConnectionPhase::Over => Some(ZkError::SessionEnded),
            ConnectionPhase::Connected | ConnectionPhase::Away { .. } => znode_path::check(&request).err(),
        };
        match refusal {
            Some(fault) => refuse(answer, fault),
            None => talk.waiting.push_back(PendingCall { request, answer }),
        }
        self.send_waiting(talk);
        heard
    }

    /// Closes the session when all pending requests are sent, after its owner was dropped.
    pub(super) fn close(&self) {
        let talk = &mut *self.talk.borrow_mut();
        talk.parting = CloseState::Wanted;
        self.send_waiting(talk);
    }

    pub(super) fn take_watch_refusal(&self) -> bool {
        self.wire.take_watch_refusal()
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn state(&self) -> ZkConnectionState {
        match self.talk.borrow().phase {
            ConnectionPhase::Connected => ZkConnectionState::Connected,
            ConnectionPhase::Away { .. } => ZkConnectionState::Disconnected,
            ConnectionPhase::Over => ZkConnectionState::Ended,
        }
    }

    pub(super) fn change_count(&self) -> u64 {
        self.changes.get()
    }

    pub(super) async fn wait_changed(&self) {
        self.changed.notified().await;
    }

    /// Delivers messages and handles timeouts until the session is over.
    async fn run(self: Rc<Self>) {
        loop {
            let now = Instant::now();
            // One event at a time, because each may change what is due next.
            while self.deliver_to_server(now) || self.deliver_to_client(now) || self.handle_timeouts(now) {}
            let Some(next) = self.next_due(now) else { return };
            tokio::select! {
                biased;
                () = self.woken.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    fn deliver_to_server(&self, now: Instant) -> bool {
        if !self.reaches_server() {
            return false;
        }
        let taken = self.talk.borrow_mut().to_server.take(now);
        let Some(request) = taken else { return false };
        let counts = request != ServerRequest::Ping;
        if counts && self.wire.take_request_loss() {
            self.break_off(UndeliveredRequestFate::Lost);
            return true;
        }
        let session = self.talk.borrow().session;
        let reply = self.ensemble.handle(session, &request);
        trace!(session, ?request, ?reply, "served");
        match reply {
            None => self.hang_up(),
            Some(_) if counts && self.wire.take_reply_loss() => {
                self.break_off(UndeliveredRequestFate::Arrives)
            }
            Some(reply) => self.send_to_client(ServerMessage::Reply(reply)),
        }
        true
    }

    fn deliver_to_client(&self, now: Instant) -> bool {
        let talk = &mut *self.talk.borrow_mut();
        if !self.wire.flows_to_client() || talk.phase != ConnectionPhase::Connected {
            return false;
        }
        let Some(message) = talk.to_client.take(now) else { return false };
        talk.heard = now;
        match message {
            ServerMessage::Event(event) => talk.watchers.fire(&event),
            ServerMessage::Reply(reply) => self.handle_reply(talk, reply),
            ServerMessage::Closed => self.lose_connection(talk, UndeliveredRequestFate::Lost),
        }
        true
    }

    fn handle_reply(&self, talk: &mut ClientState, reply: ServerReply) {
        talk.seen = talk.seen.max(reply.zxid);
        match talk.asked.pop_front().expect("a reply has its request") {
            SentRequest::Ping => talk.pinged = false,
            SentRequest::Close => self.finish(talk),
            SentRequest::Call { watch, answer } => {
                let heard = reply.outcome.map(|told| {
                    let watch = watch.map(|(path, aspect)| talk.watchers.add(path, aspect));
                    (told, watch)
                });
                // The receiver may have been dropped, so the result is ignored.
                answer.send(heard).ok();
            }
        }
    }

    fn handle_timeouts(&self, now: Instant) -> bool {
        let talk = &mut *self.talk.borrow_mut();
        match talk.phase {
            ConnectionPhase::Connected if now >= talk.heard + self.silence_limit() => {
                self.lose_connection(talk, UndeliveredRequestFate::Arrives)
            }
            ConnectionPhase::Connected if !talk.pinged && now >= talk.spoke + self.ping_interval() => {
                talk.pinged = true;
                self.send(talk, ServerRequest::Ping, SentRequest::Ping);
            }
            ConnectionPhase::Away { .. } if now >= talk.heard + self.timeout * 7 / 5 => self.finish(talk),
            ConnectionPhase::Away { retry } if now >= retry && self.may_connect() => {
                self.reconnect(talk, now)
            }
            ConnectionPhase::Connected | ConnectionPhase::Away { .. } | ConnectionPhase::Over => {
                return false;
            }
        }
        true
    }

    /// The time at which something is due next; `None` if the session is over.
    fn next_due(&self, now: Instant) -> Option<Instant> {
        let talk = self.talk.borrow();
        let to_server = if self.reaches_server() { talk.to_server.next_due() } else { None };
        let to_client = if self.wire.flows_to_client() { talk.to_client.next_due() } else { None };
        let of_its_own = match talk.phase {
            ConnectionPhase::Over => return None,
            ConnectionPhase::Connected if talk.pinged => talk.heard + self.silence_limit(),
            ConnectionPhase::Connected => {
                (talk.heard + self.silence_limit()).min(talk.spoke + self.ping_interval())
            }
            // A reconnect that was due and impossible waits until the wire is mended, and not for a time.
            ConnectionPhase::Away { retry } if retry > now => retry.min(talk.heard + self.timeout * 7 / 5),
            ConnectionPhase::Away { .. } => talk.heard + self.timeout * 7 / 5,
        };
        [to_server, to_client].into_iter().flatten().chain([of_its_own]).min()
    }

    fn send_waiting(&self, talk: &mut ClientState) {
        if talk.phase != ConnectionPhase::Connected {
            return;
        }
        while let Some(PendingCall { request, answer }) = talk.waiting.pop_front() {
            let watch = match &request {
                ServerRequest::Data { path, watch: true } => Some((path.clone(), WatchKind::Data)),
                ServerRequest::Children { path, watch: true } => Some((path.clone(), WatchKind::Children)),
                _ => None,
            };
            self.send(talk, request, SentRequest::Call { watch, answer });
        }
        if talk.parting == CloseState::Wanted {
            talk.parting = CloseState::Sent;
            self.send(talk, ServerRequest::Close, SentRequest::Close);
        }
    }

    fn send(&self, talk: &mut ClientState, request: ServerRequest, asked: SentRequest) {
        talk.to_server.put(self.wire.arrival(), request);
        talk.asked.push_back(asked);
        talk.spoke = Instant::now();
        self.wake();
    }

    fn send_to_client(&self, message: ServerMessage) {
        let talk = &mut *self.talk.borrow_mut();
        // A message for a client that is not connected is lost; `rewatch` fires the missed watches after the
        // reconnect.
        if talk.phase == ConnectionPhase::Connected {
            talk.to_client.put(self.wire.arrival(), message);
            self.wake();
        }
    }

    fn attach(&self, session: i64) {
        self.ensemble.attach(session, self.itself.clone());
    }

    /// True if requests arrive at the server, including those that the client has given up.
    fn reaches_server(&self) -> bool {
        self.wire.flows_to_server() && self.ensemble.is_serving()
    }

    fn may_connect(&self) -> bool {
        self.wire.is_open() && self.ensemble.is_serving()
    }

    fn silence_limit(&self) -> Duration {
        self.timeout * 2 / 5
    }

    fn ping_interval(&self) -> Duration {
        (self.timeout * 3 / 20).min(Duration::from_secs(10))
    }
}

impl SessionHandle for SessionClientSim {
    fn tell(&self, event: WatchEvent) {
        self.send_to_client(ServerMessage::Event(event));
    }

    fn hang_up(&self) {
        self.send_to_client(ServerMessage::Closed);
    }
}

impl WireSession for SessionClientSim {
    fn session(&self) -> Option<i64> {
        let talk = self.talk.borrow();
        (talk.phase != ConnectionPhase::Over).then_some(talk.session)
    }

    fn expire(&self) {
        let session = self.talk.borrow().session;
        self.ensemble.expire(session);
    }

    fn break_off(&self, underway: UndeliveredRequestFate) {
        self.lose_connection(&mut self.talk.borrow_mut(), underway);
    }

    fn wake(&self) {
        self.woken.notify_one();
    }
}
