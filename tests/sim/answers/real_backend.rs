//! A real server, as a backend of the comparison. Each session reaches it through a proxy of its own.

use std::{future::Future, rc::Rc, time::Duration};

use fencegate_policies::plan;
use fencegate_testkit::fault_proxy::FaultProxy;
use fencegate_tests::zookeeper;
use fencegate_zookeeper::session::servers::ZkServers;
use tokio::{
    runtime::{Builder, Runtime},
    task::LocalSet,
};

use super::{runner::TestBackend, script::SESSIONS};
use crate::plan::plan;

pub(super) struct RealBackend {
    runtime: Runtime,
    tasks: LocalSet,
    plugs: Rc<RealCables>,
}

pub(super) struct RealCables([FaultProxy; SESSIONS]);

impl RealBackend {
    pub(super) fn start() -> Self {
        let server = zookeeper::shared();
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let tasks = LocalSet::new();
        let plugs = Rc::new(RealCables(std::array::from_fn(|_| FaultProxy::start(server))));
        Self { runtime, tasks, plugs }
    }

    /// Runs `act` with the real server, in real time.
    pub(super) fn run<T, F: Future<Output = T>>(&self, act: impl FnOnce(Rc<RealCables>) -> F) -> T {
        self.tasks.block_on(&self.runtime, act(self.plugs.clone()))
    }
}

impl TestBackend for RealCables {
    type Client = ZkServers;

    fn client(&self, who: usize, timeout: Duration) -> ZkServers {
        let policy = plan("script", self.0[who].address, Duration::from_secs(2)).zookeeper;
        ZkServers::from_policy(&plan::ZooKeeperSettings { session_timeout: timeout, ..policy })
            .expect("no files")
    }

    fn cut(&self, who: usize) {
        self.0[who].close();
    }

    fn plug(&self, who: usize) {
        self.0[who].open();
    }
}
