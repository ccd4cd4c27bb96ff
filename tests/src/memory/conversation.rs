//! What the client library does with one session: sends, listens, keeps it alive, comes back after a break.
//!
//! Times and habits are those of `zookeeper-client` 0.11: T being the session timeout, it pings after 3/20 T of its
//! own silence, gives a connection up after 2/5 T of the server's, and the session after 7/5 T.

mod phases;
mod talk;

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    time::Duration,
};

use fencegate_lock::session::link::{ConnectionState, Fault};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep_until},
};
use tracing::trace;

use self::talk::{Asked, Call, Heard, Message, Parting, Phase, Talk, refuse};
use super::{
    cable::{Carried, Underway, Wire},
    ensemble::{Attached, Ensemble},
    request::Request,
    server::Reply,
    watches::{Aspect, Event},
    znode_path,
};

#[derive(Debug)]
pub(super) struct Conversation {
    ensemble: Ensemble,
    wire: Rc<Wire>,
    timeout: Duration,
    talk: RefCell<Talk>,
    /// Something is due earlier than the task below expects.
    woken: Notify,
    changes: Cell<u64>,
    changed: Notify,
    itself: Weak<Self>,
}

impl Conversation {
    pub(super) fn begin(ensemble: Ensemble, wire: Rc<Wire>, session: i64, timeout: Duration) -> Rc<Self> {
        let conversation = Rc::new_cyclic(|itself| Self {
            ensemble,
            wire,
            timeout,
            talk: RefCell::new(Talk::begin(session)),
            woken: Notify::new(),
            changes: Cell::new(0),
            changed: Notify::new(),
            itself: itself.clone(),
        });
        conversation.wire.carry(conversation.itself.clone());
        conversation.attach(session);
        tokio::task::spawn_local(conversation.clone().run());
        conversation
    }

    /// Sends at once, or queues while there is no connection.
    pub(super) fn ask(&self, request: Request) -> oneshot::Receiver<Heard> {
        let (answer, heard) = oneshot::channel();
        let talk = &mut *self.talk.borrow_mut();
        let refusal = match talk.phase {
            Phase::Over => Some(Fault::Over),
            Phase::Connected | Phase::Away { .. } => znode_path::check(&request).err(),
        };
        match refusal {
            Some(fault) => refuse(answer, fault),
            None => talk.waiting.push_back(Call { request, answer }),
        }
        self.send_waiting(talk);
        heard
    }

    /// The owner has left: what was asked is sent, then the session is closed.
    pub(super) fn part(&self) {
        let talk = &mut *self.talk.borrow_mut();
        talk.parting = Parting::Wanted;
        self.send_waiting(talk);
    }

    pub(super) fn refuses_this_watch(&self) -> bool {
        self.wire.refuses_this_watch()
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn state(&self) -> ConnectionState {
        match self.talk.borrow().phase {
            Phase::Connected => ConnectionState::Connected,
            Phase::Away { .. } => ConnectionState::Disconnected,
            Phase::Over => ConnectionState::Over,
        }
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.get()
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Lives until the session is over.
    async fn run(self: Rc<Self>) {
        loop {
            let now = Instant::now();
            // One at a time: each may change what the others find.
            while self.server_hears(now) || self.client_hears(now) || self.time_passes(now) {}
            let Some(next) = self.next(now) else { return };
            tokio::select! {
                biased;
                () = self.woken.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    fn server_hears(&self, now: Instant) -> bool {
        if !self.reaches_server() {
            return false;
        }
        let taken = self.talk.borrow_mut().to_server.take(now);
        let Some(request) = taken else { return false };
        let counts = request != Request::Ping;
        if counts && self.wire.loses_this_request() {
            self.break_off(Underway::Lost);
            return true;
        }
        let session = self.talk.borrow().session;
        let reply = self.ensemble.handle(session, &request);
        trace!(session, ?request, ?reply, "served");
        match reply {
            None => self.hang_up(),
            Some(_) if counts && self.wire.loses_this_reply() => self.break_off(Underway::Arrives),
            Some(reply) => self.send_to_client(Message::Reply(reply)),
        }
        true
    }

    fn client_hears(&self, now: Instant) -> bool {
        let talk = &mut *self.talk.borrow_mut();
        if !self.wire.flows_to_client() || talk.phase != Phase::Connected {
            return false;
        }
        let Some(message) = talk.to_client.take(now) else { return false };
        talk.heard = now;
        match message {
            Message::Event(event) => talk.watchers.fire(&event),
            Message::Reply(reply) => self.hear(talk, reply),
            Message::Closed => self.lose(talk, Underway::Lost),
        }
        true
    }

    fn hear(&self, talk: &mut Talk, reply: Reply) {
        talk.seen = talk.seen.max(reply.zxid);
        match talk.asked.pop_front().expect("a reply has its request") {
            Asked::Ping => talk.pinged = false,
            Asked::Close => self.finish(talk),
            Asked::Call { watch, answer } => {
                let heard = reply.outcome.map(|told| {
                    let watch = watch.map(|(path, aspect)| talk.watchers.add(path, aspect));
                    (told, watch)
                });
                // Nobody may be waiting for it any more.
                answer.send(heard).ok();
            }
        }
    }

    fn time_passes(&self, now: Instant) -> bool {
        let talk = &mut *self.talk.borrow_mut();
        match talk.phase {
            Phase::Connected if now >= talk.heard + self.silence() => self.lose(talk, Underway::Arrives),
            Phase::Connected if !talk.pinged && now >= talk.spoke + self.pause() => {
                talk.pinged = true;
                self.send(talk, Request::Ping, Asked::Ping);
            }
            Phase::Away { .. } if now >= talk.heard + self.timeout * 7 / 5 => self.finish(talk),
            Phase::Away { retry } if now >= retry && self.may_connect() => self.come_back(talk, now),
            Phase::Connected | Phase::Away { .. } | Phase::Over => return false,
        }
        true
    }

    /// When there is something to do again; `None`: never.
    fn next(&self, now: Instant) -> Option<Instant> {
        let talk = self.talk.borrow();
        let to_server = if self.reaches_server() { talk.to_server.due() } else { None };
        let to_client = if self.wire.flows_to_client() { talk.to_client.due() } else { None };
        let of_its_own = match talk.phase {
            Phase::Over => return None,
            Phase::Connected if talk.pinged => talk.heard + self.silence(),
            Phase::Connected => (talk.heard + self.silence()).min(talk.spoke + self.pause()),
            // One that is due and was not made waits until the wire is mended.
            Phase::Away { retry } if retry > now => retry.min(talk.heard + self.timeout * 7 / 5),
            Phase::Away { .. } => talk.heard + self.timeout * 7 / 5,
        };
        [to_server, to_client].into_iter().flatten().chain([of_its_own]).min()
    }

    fn send_waiting(&self, talk: &mut Talk) {
        if talk.phase != Phase::Connected {
            return;
        }
        while let Some(Call { request, answer }) = talk.waiting.pop_front() {
            let watch = match &request {
                Request::Data { path, watch: true } => Some((path.clone(), Aspect::Data)),
                Request::Children { path, watch: true } => Some((path.clone(), Aspect::Children)),
                _ => None,
            };
            self.send(talk, request, Asked::Call { watch, answer });
        }
        if talk.parting == Parting::Wanted {
            talk.parting = Parting::Sent;
            self.send(talk, Request::Close, Asked::Close);
        }
    }

    fn send(&self, talk: &mut Talk, request: Request, asked: Asked) {
        talk.to_server.put(self.wire.arrival(), request);
        talk.asked.push_back(asked);
        talk.spoke = Instant::now();
        self.wake();
    }

    fn send_to_client(&self, message: Message) {
        let talk = &mut *self.talk.borrow_mut();
        // A connection that is gone takes with it what was to come; see `watch_again` for the events.
        if talk.phase == Phase::Connected {
            talk.to_client.put(self.wire.arrival(), message);
            self.wake();
        }
    }

    fn attach(&self, session: i64) {
        self.ensemble.attach(session, self.itself.clone());
    }

    /// Requests arrive as long as they are not held back, also those that the client has given up.
    fn reaches_server(&self) -> bool {
        self.wire.flows_to_server() && self.ensemble.is_serving()
    }

    fn may_connect(&self) -> bool {
        self.wire.is_open() && self.ensemble.is_serving()
    }

    fn silence(&self) -> Duration {
        self.timeout * 2 / 5
    }

    fn pause(&self) -> Duration {
        (self.timeout * 3 / 20).min(Duration::from_secs(10))
    }
}

impl Attached for Conversation {
    fn tell(&self, event: Event) {
        self.send_to_client(Message::Event(event));
    }

    fn hang_up(&self) {
        self.send_to_client(Message::Closed);
    }
}

impl Carried for Conversation {
    fn session(&self) -> Option<i64> {
        let talk = self.talk.borrow();
        (talk.phase != Phase::Over).then_some(talk.session)
    }

    fn expire(&self) {
        let session = self.talk.borrow().session;
        self.ensemble.expire(session);
    }

    fn break_off(&self, underway: Underway) {
        self.lose(&mut self.talk.borrow_mut(), underway);
    }

    fn wake(&self) {
        self.woken.notify_one();
    }
}
