//! The ZooKeeper in memory, as a backend of the comparison.

use std::{future::Future, rc::Rc, time::Duration};

use fencegate_tests::memory::{EnsembleSettings, SimConnector, SimEnsemble, UndeliveredRequestFate, Wire};

use super::{runner::TestBackend, script::SESSIONS};
use crate::simulated_time;

pub(super) struct SimZooKeeperBackend {
    ensemble: SimEnsemble,
    wires: [Rc<Wire>; SESSIONS],
}

impl SimZooKeeperBackend {
    /// Makes a ZooKeeper in memory, and runs `act` with it in simulated time.
    pub(super) fn run<T, F: Future<Output = T>>(act: impl FnOnce(Rc<Self>) -> F) -> T {
        simulated_time::run(async {
            let ensemble = SimEnsemble::start(EnsembleSettings::default());
            let wires = std::array::from_fn(|_| ensemble.wire());
            act(Rc::new(Self { ensemble, wires })).await
        })
    }
}

impl TestBackend for SimZooKeeperBackend {
    type Client = SimConnector;

    fn client(&self, who: usize, timeout: Duration) -> SimConnector {
        self.ensemble.client(&self.wires[who], timeout)
    }

    fn cut(&self, who: usize) {
        self.wires[who].disconnect(UndeliveredRequestFate::Lost);
    }

    fn plug(&self, who: usize) {
        self.wires[who].reconnect();
    }
}
