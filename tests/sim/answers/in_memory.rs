//! The ZooKeeper in memory, as a site.

use std::{future::Future, rc::Rc, time::Duration};

use fencegate_tests::memory::{Client, Ensemble, Settings, Underway, Wire};

use super::{play::Site, script::SESSIONS};
use crate::simulated;

pub(super) struct InMemory {
    ensemble: Ensemble,
    wires: [Rc<Wire>; SESSIONS],
}

impl InMemory {
    /// Makes a ZooKeeper in memory, and runs `act` with it in simulated time.
    pub(super) fn run<T, F: Future<Output = T>>(act: impl FnOnce(Rc<Self>) -> F) -> T {
        simulated::run(async {
            let ensemble = Ensemble::start(Settings::default());
            let wires = std::array::from_fn(|_| ensemble.wire());
            act(Rc::new(Self { ensemble, wires })).await
        })
    }
}

impl Site for InMemory {
    type Client = Client;

    fn client(&self, who: usize, timeout: Duration) -> Client {
        self.ensemble.client(&self.wires[who], timeout)
    }

    fn cut(&self, who: usize) {
        self.wires[who].disconnect(Underway::Lost);
    }

    fn plug(&self, who: usize) {
        self.wires[who].reconnect();
    }
}
