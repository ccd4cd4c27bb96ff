//! A real server, as a site: each session reaches it through a cable of its own.

use std::{
    future::Future,
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use fencegate::{
    demo::zookeeper::{PrivateZooKeeper, Settings},
    session::zookeeper::Servers,
};
use fencegate_policies::plan;
use tempfile::TempDir;
use tokio::{runtime::Runtime, task::LocalSet};

use super::{cable::Cable, play::Site, script::SESSIONS};

/// The server that tests share while they run; each script has a root of its own in it.
struct Server {
    zookeeper: PrivateZooKeeper,
    _data: TempDir,
}

/// One client of it.
pub(super) struct Real {
    runtime: Runtime,
    tasks: LocalSet,
    plugs: Rc<Plugs>,
    _server: Arc<Server>,
}

pub(super) struct Plugs([Cable; SESSIONS]);

impl Server {
    fn shared() -> Arc<Self> {
        static RUNNING: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut running = RUNNING.lock().expect("the server has started before");
        running.upgrade().unwrap_or_else(|| {
            let data = TempDir::new().expect("a folder");
            let zookeeper = PrivateZooKeeper::start(data.path(), Settings::default()).expect("it starts");
            let server = Arc::new(Self { zookeeper, _data: data });
            *running = Arc::downgrade(&server);
            server
        })
    }
}

impl Real {
    pub(super) fn start() -> Self {
        let server = Server::shared();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let tasks = LocalSet::new();
        let address = server.zookeeper.address();
        let plugs =
            tasks.block_on(&runtime, async { Rc::new(Plugs(std::array::from_fn(|_| Cable::to(address)))) });
        Self { runtime, tasks, plugs, _server: server }
    }

    /// Runs what is to be done with it, in real time.
    pub(super) fn run<T, F: Future<Output = T>>(&self, act: impl FnOnce(Rc<Plugs>) -> F) -> T {
        self.tasks.block_on(&self.runtime, act(self.plugs.clone()))
    }
}

impl Site for Plugs {
    type Client = Servers;

    fn client(&self, who: usize, timeout: Duration) -> Servers {
        servers(self.0[who].address(), timeout)
    }

    fn cut(&self, who: usize) {
        self.0[who].cut();
    }

    fn plug(&self, who: usize) {
        self.0[who].plug();
    }
}

fn servers(address: SocketAddr, session_timeout: Duration) -> Servers {
    Servers::of(&plan::ZooKeeper {
        servers: vec![address.to_string()],
        root: "/not-used".to_owned(),
        session_timeout,
        tick: Duration::from_millis(200),
        safety_margin: None,
    })
}
