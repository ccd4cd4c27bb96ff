//! A real server, as a site: each session reaches it through a cable of its own.

use std::{future::Future, rc::Rc, time::Duration};

use fencegate_lock::session::servers::Servers;
use fencegate_policies::plan;
use fencegate_tests::zookeeper;
use tokio::{
    runtime::{Builder, Runtime},
    task::LocalSet,
};

use super::{cable::Cable, play::Site, script::SESSIONS};
use crate::plan::plan;

pub(super) struct Real {
    runtime: Runtime,
    tasks: LocalSet,
    plugs: Rc<Plugs>,
}

pub(super) struct Plugs([Cable; SESSIONS]);

impl Real {
    pub(super) fn start() -> Self {
        let server = zookeeper::shared();
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let tasks = LocalSet::new();
        let plugs = async { Rc::new(Plugs(std::array::from_fn(|_| Cable::to(server)))) };
        let plugs = tasks.block_on(&runtime, plugs);
        Self { runtime, tasks, plugs }
    }

    /// Runs `act` with the real server, in real time.
    pub(super) fn run<T, F: Future<Output = T>>(&self, act: impl FnOnce(Rc<Plugs>) -> F) -> T {
        self.tasks.block_on(&self.runtime, act(self.plugs.clone()))
    }
}

impl Site for Plugs {
    type Client = Servers;

    fn client(&self, who: usize, timeout: Duration) -> Servers {
        let policy = plan("script", self.0[who].address(), Duration::from_secs(2)).zookeeper;
        Servers::of(&plan::ZooKeeper { session_timeout: timeout, ..policy }).expect("no files")
    }

    fn cut(&self, who: usize) {
        self.0[who].cut();
    }

    fn plug(&self, who: usize) {
        self.0[who].plug();
    }
}
