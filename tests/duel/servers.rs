//! Lock servers with the settings that their documentation recommends: an acknowledged write is on the disk.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use fencegate_testkit::{
    child::ChildProcess,
    postgres::{PostgresServer, TestDatabase},
    scratch,
    wait::PATIENCE,
    zookeeper::{PrivateZooKeeper, ZooKeeperDurability, ZooKeeperServerConfig},
};
use fencegate_tests::ensemble::free_ports;
use tempfile::TempDir;

use crate::schedule::LEASE;

/// The processes of a lock service. Dropping this ends them.
#[derive(Default)]
pub(crate) struct LockServers {
    /// The addresses for clients.
    pub(crate) addresses: Vec<SocketAddr>,
    children: Vec<ChildProcess>,
    homes: Vec<TempDir>,
}

/// A ZooKeeper with short ticks, so that a session can be as short as a lease.
pub(crate) fn zookeeper(folder: &Path) -> PrivateZooKeeper {
    let settings = ZooKeeperServerConfig {
        tick: Duration::from_millis(200),
        durability: ZooKeeperDurability::Machine,
        heap_mib: 128,
    };
    PrivateZooKeeper::start(folder, settings).expect("ZooKeeper starts")
}

/// One or several Redis servers that are independent of each other. Each write waits for the disk, as a lock needs
/// that must outlive a restart of its server:
/// <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#performance-crash-recovery-and-fsync>.
pub(crate) fn redis(count: usize) -> LockServers {
    let mut servers = LockServers::default();
    for port in free_ports(count) {
        servers.start(port, |folder| {
            format!("redis-server --bind 127.0.0.1 --port {port} --dir {folder} --appendonly yes --appendfsync always")
        });
    }
    servers
}

/// etcd with its default settings, which wait for the disk: <https://etcd.io/docs/v3.4/op-guide/configuration/>.
pub(crate) fn etcd() -> LockServers {
    let [port, peer] = free_ports(2)[..] else { unreachable!("two ports") };
    let client = format!("http://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{peer}");
    let mut servers = LockServers::default();
    servers.start(port, |folder| {
        format!(
            "etcd --data-dir {folder} --log-level error --listen-client-urls {client} --advertise-client-urls {client} \
             --listen-peer-urls {peer} --initial-advertise-peer-urls {peer} --initial-cluster default={peer}"
        )
    });
    servers
}

/// PostgreSQL. It ends a session that is idle in its transaction for longer than a lease:
/// <https://www.postgresql.org/docs/current/runtime-config-client.html#GUC-IDLE-IN-TRANSACTION-SESSION-TIMEOUT>.
pub(crate) fn postgres() -> (PostgresServer, TestDatabase) {
    let server =
        PostgresServer::start(&[&format!("idle_in_transaction_session_timeout={}ms", LEASE.as_millis())]);
    let database = server.fresh_database();
    (server, database)
}

impl LockServers {
    /// The addresses, separated by commas.
    pub(crate) fn server_list(&self) -> String {
        self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    fn start(&mut self, port: u16, words: impl Fn(&str) -> String) {
        let home = scratch::temp_dir();
        let folder = home.path().join("data");
        fs::create_dir_all(&folder).expect("our own folder");
        let words = words(&folder.display().to_string());
        let mut words = words.split(' ');
        let child = ChildProcess::spawn(words.next().expect("a program"), words).expect("setpriv");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        wait_listening(address, &child);
        self.addresses.push(address);
        self.children.push(child);
        self.homes.push(home);
    }
}

/// Polls, because there is no event when a server begins to listen.
pub(crate) fn wait_listening(address: SocketAddr, child: &ChildProcess) {
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        let goes_on = Instant::now() < until && child.is_running();
        assert!(goes_on, "nobody listens at {address}; it said:\n{}", child.log());
        thread::sleep(Duration::from_millis(10));
    }
}
