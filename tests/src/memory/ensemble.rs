//! The ensemble: the server with a clock, its clients, and the accidents that concern all of them.

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
    /// The server's tick: sessions expire at multiples of it.
    pub tick: Duration,
    /// The session timeouts that the server grants.
    pub timeouts: Range<Duration>,
    /// The latency of a message in one direction, on a new wire.
    pub latency: Range<Duration>,
    /// The interval in which empty containers are removed.
    pub containers: Duration,
    pub seed: u64,
}

impl Default for EnsembleSettings {
    /// The settings of the real server that the tests use, with no latency.
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

/// A handle of one ensemble, which can be cloned.
#[derive(Debug, Clone)]
pub struct SimEnsemble(Rc<EnsembleState>);

#[derive(Debug)]
struct EnsembleState {
    settings: EnsembleSettings,
    began: Instant,
    service: Cell<EnsembleHealth>,
    server: RefCell<SimServer>,
    /// The client that is connected for each session.
    attached: RefCell<BTreeMap<i64, Weak<dyn SessionHandle>>>,
    wires: RefCell<Vec<Weak<Wire>>>,
    dice: Rc<SeededRng>,
}

/// The client of a session, as the ensemble calls it.
pub(super) trait SessionHandle: fmt::Debug {
    /// Called when a watch has fired at the server.
    fn tell(&self, event: WatchEvent);

    /// Called when the server closes the connection.
    fn hang_up(&self);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EnsembleHealth {
    Up,
    Down,
}

impl SimEnsemble {
    /// Starts an ensemble. It spawns two tasks, for expiry and for containers, so it must be called inside a
    /// `LocalSet`.
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

    /// Makes a wire for one client, whose sessions use it one after the other.
    pub fn wire(&self) -> Rc<Wire> {
        let wire = Wire::new(self.0.settings.latency.clone(), self.0.dice.clone());
        self.0.wires.borrow_mut().push(Rc::downgrade(&wire));
        wire
    }

    /// Takes the majority of servers away: connections break, no request is answered, and no session expires.
    pub fn lose_majority(&self) {
        self.0.service.set(EnsembleHealth::Down);
        for wire in self.wires() {
            wire.break_off(UndeliveredRequestFate::Lost);
        }
    }

    /// Elects a new leader, which gives every session its whole timeout again.
    pub fn recover(&self) {
        self.with_server(|server, now| server.elect(now));
        self.0.service.set(EnsembleHealth::Up);
        for wire in self.wires() {
            wire.mend();
        }
    }

    /// Replaces the ensemble by an empty one at the same address, which numbers its transactions from the beginning.
    pub fn wipe(&self) {
        for wire in self.wires() {
            wire.break_off(UndeliveredRequestFate::Lost);
        }
        self.with_server(|server, _| server.wipe());
    }

    /// Removes containers that had children and have none now, as the server does in its interval.
    pub fn remove_empty_containers(&self) {
        if self.is_serving() {
            self.with_server(|server, _| server.remove_empty_containers());
        }
    }

    /// Deletes a node as another client, if it exists and has no children.
    pub fn delete_as_other_client(&self, path: &str) {
        self.with_server(|server, _| server.steal(path));
    }

    /// Makes another client remove the parent at `path` periodically, from the next transaction on that creates a
    /// node below it: the parent is missing in the first half of each period.
    pub fn flap_parent(&self, path: &str, period: Duration) {
        self.with_server(|server, _| server.flap_parent(path, period));
    }

    /// Pretends that this number of children was created under `path`, from which sequence numbers go on.
    ///
    /// # Panics
    /// If the node does not exist.
    pub fn set_child_count(&self, path: &str, births: i32) {
        self.with_server(|server, _| server.tree_mut().set_child_count(path, births));
    }

    /// Every path, sorted. No request of a client gives this.
    pub fn paths(&self) -> Vec<String> {
        self.0.server.borrow().tree().paths().map(str::to_owned).collect()
    }

    pub fn stat(&self, path: &str) -> Option<NodeStat> {
        self.0.server.borrow().tree().stat(path)
    }

    /// The sessions that are alive at the server.
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

    /// Calls `act` with the server, and delivers the watch events before any client gets the answer.
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

/// Calls `act` at every multiple of `period` since the start, until the ensemble is dropped.
async fn run_every(period: Duration, ensemble: Weak<EnsembleState>, act: fn(&SimEnsemble)) {
    let mut next = Instant::now();
    loop {
        next += period;
        sleep_until(next).await;
        let Some(inner) = ensemble.upgrade() else { return };
        act(&SimEnsemble(inner));
    }
}
