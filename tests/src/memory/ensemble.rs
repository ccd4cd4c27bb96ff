//! The ensemble: the server with a clock, its clients, and the accidents that hit all of them.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt,
    ops::Range,
    rc::{Rc, Weak},
    time::Duration,
};

use fencegate_zookeeper::session::client::NodeStat;
use tokio::{
    task::spawn_local,
    time::{Instant, sleep_until},
};
use tracing::debug;

use super::{
    request::ServerRequest,
    rng::SeededRng,
    server::{ReconnectReply, ServerReply, SimServer},
    server_watches::{WatchEvent, WatchKind},
    wire::{UndeliveredRequestFate, Wire},
};

#[derive(Debug, Clone)]
pub struct EnsembleSettings {
    /// Sessions expire at its multiples.
    pub tick: Duration,
    /// Session timeouts that are granted.
    pub timeouts: Range<Duration>,
    /// How long a message travels, each way, on a new wire.
    pub latency: Range<Duration>,
    /// Between two removals of empty containers.
    pub containers: Duration,
    pub seed: u64,
}

impl Default for EnsembleSettings {
    /// A server as the gateway's own tests start it, at no distance.
    fn default() -> Self {
        let tick = Duration::from_millis(200);
        Self {
            tick,
            timeouts: tick * 2..tick * 300,
            latency: Duration::ZERO..Duration::ZERO,
            containers: Duration::from_secs(60),
            seed: 0,
        }
    }
}

/// One ensemble, and as many handles on it as wanted.
#[derive(Debug, Clone)]
pub struct SimEnsemble(Rc<EnsembleState>);

#[derive(Debug)]
struct EnsembleState {
    settings: EnsembleSettings,
    began: Instant,
    service: Cell<EnsembleHealth>,
    server: RefCell<SimServer>,
    /// The connection of a session at the moment.
    attached: RefCell<BTreeMap<i64, Weak<dyn SessionHandle>>>,
    wires: RefCell<Vec<Weak<Wire>>>,
    dice: Rc<SeededRng>,
}

/// What speaks for a session, as the ensemble reaches it.
pub(super) trait SessionHandle: fmt::Debug {
    /// A watch has fired at the server.
    fn tell(&self, event: WatchEvent);

    /// The server closes the connection.
    fn hang_up(&self);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EnsembleHealth {
    Up,
    Down,
}

impl SimEnsemble {
    /// Call it inside a `LocalSet`: it has two tasks, for expiry and for containers.
    pub fn start(settings: EnsembleSettings) -> Self {
        let inner = Rc::new(EnsembleState {
            began: Instant::now(),
            service: Cell::new(EnsembleHealth::Up),
            server: RefCell::new(SimServer::new(settings.tick)),
            attached: RefCell::default(),
            wires: RefCell::default(),
            dice: Rc::new(SeededRng::new(settings.seed)),
            settings,
        });
        let tick = inner.settings.tick;
        let containers = inner.settings.containers;
        spawn_local(run_every(tick, Rc::downgrade(&inner), Self::expire_due));
        spawn_local(run_every(containers, Rc::downgrade(&inner), Self::remove_empty_containers));
        Self(inner)
    }

    /// A wire for one client; its sessions run over it one after the other.
    pub fn wire(&self) -> Rc<Wire> {
        let wire = Wire::new(self.0.settings.latency.clone(), self.0.dice.clone());
        self.0.wires.borrow_mut().push(Rc::downgrade(&wire));
        wire
    }

    /// No majority: connections break, nothing is answered, no session expires.
    pub fn fail(&self) {
        self.0.service.set(EnsembleHealth::Down);
        for wire in self.wires() {
            wire.break_off(UndeliveredRequestFate::Lost);
        }
    }

    /// A new leader: every session has its whole timeout again.
    pub fn recover(&self) {
        self.with_server(|server, now| server.elect(now));
        self.0.service.set(EnsembleHealth::Up);
        for wire in self.wires() {
            wire.mend();
        }
    }

    /// Another ensemble answers at this one's address, empty, and counts its transactions from the start.
    pub fn wipe(&self) {
        for wire in self.wires() {
            wire.break_off(UndeliveredRequestFate::Lost);
        }
        self.with_server(|server, _| server.wipe());
    }

    /// Containers that had a child once and have none now; the server does it by itself now and then.
    pub fn remove_empty_containers(&self) {
        if self.is_serving() {
            self.with_server(|server, _| server.remove_empty_containers());
        }
    }

    /// Another client deletes a node, if it is there and has no children.
    pub fn steal(&self, path: &str) {
        self.with_server(|server, _| server.steal(path));
    }

    /// From the next transaction on that makes a node below `path`, another client comes there and leaves in this rhythm:
    /// in the first half of each period it has just gone, and has removed the parent.
    pub fn flap_parent(&self, path: &str, period: Duration) {
        self.with_server(|server, _| server.flap_parent(path, period));
    }

    /// Pretends that so many children were made under `path`: sequence numbers go on from there.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn set_child_count(&self, path: &str, births: i32) {
        self.with_server(|server, _| server.tree_mut().set_child_count(path, births));
    }

    /// Every path, sorted; no client request has this answer.
    pub fn paths(&self) -> Vec<String> {
        self.0.server.borrow().tree().paths().map(str::to_owned).collect()
    }

    pub fn stat(&self, path: &str) -> Option<NodeStat> {
        self.0.server.borrow().tree().stat(path)
    }

    /// Sessions that live at the server.
    pub fn sessions(&self) -> Vec<i64> {
        self.0.server.borrow().sessions().collect()
    }

    pub(super) fn negotiate(&self, asked: Duration) -> Duration {
        asked.clamp(self.0.settings.timeouts.start, self.0.settings.timeouts.end)
    }

    pub(super) fn is_serving(&self) -> bool {
        self.0.service.get() == EnsembleHealth::Up
    }

    pub(super) fn open(&self, timeout: Duration) -> i64 {
        self.with_server(|server, now| server.open(timeout, now))
    }

    pub(super) fn reconnect(&self, session: i64, seen: i64) -> ReconnectReply {
        self.with_server(|server, now| server.reconnect(session, seen, now))
    }

    pub(super) fn attach(&self, session: i64, client: Weak<dyn SessionHandle>) {
        self.0.attached.borrow_mut().insert(session, client);
    }

    pub(super) fn detach(&self, session: i64) {
        self.0.attached.borrow_mut().remove(&session);
        self.with_server(|server, _| server.detach(session));
    }

    pub(super) fn handle(&self, session: i64, request: &ServerRequest) -> Option<ServerReply> {
        self.with_server(|server, now| server.handle(session, request, now))
    }

    pub(super) fn rewatch(
        &self,
        session: i64,
        path: &str,
        aspect: WatchKind,
        seen: i64,
    ) -> Option<WatchEvent> {
        self.with_server(|server, _| server.rewatch(session, path, aspect, seen))
    }

    pub(super) fn expire(&self, session: i64) {
        if self.with_server(|server, _| server.end(session)) {
            debug!(session, "expired");
            let attached = self.0.attached.borrow().get(&session).and_then(Weak::upgrade);
            if let Some(client) = attached {
                client.hang_up();
            }
        }
    }

    fn expire_due(&self) {
        if self.is_serving() {
            for session in self.with_server(|server, now| server.expired(now)) {
                self.expire(session);
            }
        }
    }

    /// Does something at the server, and fires the watches before any client gets the answer.
    fn with_server<T>(&self, act: impl FnOnce(&mut SimServer, Duration) -> T) -> T {
        let (result, told) = {
            let mut server = self.0.server.borrow_mut();
            (act(&mut server, self.0.began.elapsed()), server.take_events())
        };
        for (session, event) in told {
            let attached = self.0.attached.borrow().get(&session).and_then(Weak::upgrade);
            if let Some(client) = attached {
                client.tell(event);
            }
        }
        result
    }

    fn wires(&self) -> Vec<Rc<Wire>> {
        self.0.wires.borrow().iter().filter_map(Weak::upgrade).collect()
    }
}

/// At every multiple of `period` since the start, for as long as there is an ensemble.
async fn run_every(period: Duration, ensemble: Weak<EnsembleState>, act: fn(&SimEnsemble)) {
    let mut next = Instant::now();
    loop {
        next += period;
        sleep_until(next).await;
        let Some(inner) = ensemble.upgrade() else { return };
        act(&SimEnsemble(inner));
    }
}
