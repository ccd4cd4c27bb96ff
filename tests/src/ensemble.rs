//! Three real ZooKeeper servers that form an ensemble, for one test. Each can be killed, frozen and restarted.

pub mod over_tls;

use std::{
    collections::HashSet,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    sync::{LazyLock, Mutex, PoisonError},
    time::Duration,
};

use fencegate_testkit::{
    child::{ChildProcess, Signal},
    scratch,
    wait::{PATIENCE, wait_until},
};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::zookeeper::send_four_letter_word;

pub struct Ensemble {
    servers: Vec<EnsembleServer>,
    _data: TempDir,
}

struct EnsembleServer {
    address: SocketAddr,
    configuration: PathBuf,
    class_path: &'static str,
    /// `None` while the server is down.
    process: Option<ChildProcess>,
}

pub const SERVERS: usize = 3;

const PLAIN: &str = "/usr/share/java/slf4j-simple.jar:/usr/share/java/zookeeper.jar";

impl Ensemble {
    /// Starts three servers. Returns when all of them serve.
    pub async fn start() -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST).await
    }

    /// Starts three servers that take clients at this address of the machine.
    pub async fn start_at(host: Ipv4Addr) -> Self {
        Self::of(host, SERVERS, PLAIN, |_| String::new()).await
    }

    /// Starts one or three servers, with the lines `more` in their configuration. Returns when all of them serve.
    async fn of(
        host: Ipv4Addr,
        count: usize,
        class_path: &'static str,
        more: impl Fn(usize) -> String,
    ) -> Self {
        let data = scratch::temp_dir();
        let ports = free_ports(3 * count);
        let peer = |n| format!("server.{n}=127.0.0.1:{}:{}\n", ports[3 * n + 1], ports[3 * n + 2]);
        // A single server must have no list of peers.
        let peers: String = (0..count).filter(|_| count > 1).map(peer).collect();
        let server = |n: usize| {
            let folder = data.path().join(n.to_string());
            fs::create_dir_all(&folder).expect("the folder can be written");
            fs::write(folder.join("myid"), n.to_string()).expect("the folder can be written");
            let configuration = folder.join("zoo.cfg");
            let text = format!(
                "dataDir={}\nclientPort={}\nclientPortAddress={host}\ntickTime=200\ninitLimit=25\nsyncLimit=10\n\
                 minSessionTimeout=400\nmaxSessionTimeout=60000\nadmin.enableServer=false\n\
                 4lw.commands.whitelist=*\nmaxClientCnxns=0\n{peers}{}",
                folder.display(),
                ports[3 * n],
                more(n),
            );
            fs::write(&configuration, text).expect("the folder can be written");
            EnsembleServer { address: (host, ports[3 * n]).into(), configuration, class_path, process: None }
        };
        let mut ensemble = Self { servers: (0..count).map(server).collect(), _data: data };
        for server in &mut ensemble.servers {
            server.launch();
        }
        ensemble.wait_serving().await;
        ensemble
    }

    pub fn address(&self, server: usize) -> SocketAddr {
        self.servers[server].address
    }

    /// The addresses of all servers, as policies list them.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.address.to_string()).collect()
    }

    /// Waits until a server leads, and returns its index.
    pub async fn leader(&self) -> usize {
        let led = async {
            loop {
                for (n, server) in self.servers.iter().enumerate() {
                    if matches!(server.mode().await.as_deref(), Some("leader" | "standalone")) {
                        return n;
                    }
                }
                sleep(LOOK_AGAIN).await;
            }
        };
        wait_until("a leader", led, || self.logs()).await
    }

    /// The index of a server that follows.
    pub async fn follower(&self) -> usize {
        let leader = self.leader().await;
        (leader + 1) % SERVERS
    }

    /// Kills a server with SIGKILL, so that it closes no connection in order. Its data stays.
    pub fn kill(&mut self, server: usize) {
        self.servers[server].process = None;
    }

    /// Freezes a server: its connections stay open, and it answers nothing.
    pub fn freeze(&self, server: usize) {
        self.signal(server, Signal::STOP);
    }

    pub fn thaw(&self, server: usize) {
        self.signal(server, Signal::CONT);
    }

    /// Starts a killed server on its data. It takes part again some time later.
    pub fn launch(&mut self, server: usize) {
        self.servers[server].launch();
    }

    /// Wipes all servers and starts them again without any data.
    ///
    /// # Panics
    /// If the data of a server cannot be removed.
    pub async fn wipe(&mut self) {
        for server in &mut self.servers {
            server.process = None;
        }
        for server in &mut self.servers {
            let folder = server.configuration.with_file_name("version-2");
            fs::remove_dir_all(folder).expect("our own");
            server.launch();
        }
        self.wait_serving().await;
    }

    /// Waits until every server that runs takes part, and one of them leads.
    pub async fn wait_serving(&self) {
        let all = async {
            for server in self.servers.iter().filter(|server| server.process.is_some()) {
                while server.mode().await.is_none() {
                    sleep(LOOK_AGAIN).await;
                }
            }
        };
        wait_until("the ensemble to serve", all, || self.logs()).await;
        self.leader().await;
    }

    /// The answer of one server to a four-letter command.
    pub async fn ask(&self, server: usize, word: &str) -> String {
        send_four_letter_word(self.address(server), word).await.expect("the server is up")
    }

    fn signal(&self, server: usize, signal: Signal) {
        let process = self.servers[server].process.as_ref().expect("the server is up");
        process.signal(signal).expect("our own child");
    }

    fn logs(&self) -> Vec<String> {
        self.servers.iter().filter_map(|server| Some(server.process.as_ref()?.log())).collect()
    }
}

/// The pause between two polls, because no event reports that a server begins to serve.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl EnsembleServer {
    fn launch(&mut self) {
        let arguments = [
            "-Xms32m",
            "-Xmx160m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-Dzookeeper.preAllocSize=64",
            "-Dzookeeper.forceSync=no",
            "-cp",
            self.class_path,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            self.configuration.to_str().expect("our own path"),
        ];
        self.process = Some(ChildProcess::spawn("java", arguments).expect("java and setpriv"));
    }

    /// The mode of the server, `leader` or `follower`; `None` while it does not serve.
    async fn mode(&self) -> Option<String> {
        // Do not ask a server that was killed: another process may have taken its port.
        self.process.as_ref()?;
        let answer = tokio::time::timeout(PATIENCE / 20, send_four_letter_word(self.address, "srvr"))
            .await
            .ok()?
            .ok()?;
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }
}

/// An address at which no process listens, for a program that will listen there later, or never.
///
/// # Panics
/// If no port is free.
pub fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_ports(1)[0]))
}

/// Free ports below the kernel's range for outgoing connections. A client that keeps connecting to the port of a
/// killed server could otherwise get that port for its own end. No port is returned twice in a process, because a
/// server may not have bound it yet.
pub fn free_ports(count: usize) -> Vec<u16> {
    static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ports = Vec::new();
    while ports.len() < count {
        let mut random = [0; 2];
        getrandom::fill(&mut random).expect("the kernel has randomness");
        let port = 20_000 + u16::from_ne_bytes(random) % 12_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && given.insert(port) {
            ports.push(port);
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use zookeeper_client::Client;

    use super::*;

    /// After the leader is killed another server leads, and the old leader rejoins as a follower with the same nodes.
    #[tokio::test]
    async fn elects_new_leader_and_readmits_old() {
        let mut ensemble = Ensemble::start().await;
        let leader = ensemble.leader().await;
        let client = Client::connect(&ensemble.addresses().join(",")).await.expect("serves");
        ensemble.kill(leader);
        let next = ensemble.leader().await;
        assert_ne!(next, leader);
        ensemble.launch(leader);
        ensemble.wait_serving().await;
        assert_eq!(ensemble.leader().await, next);
        let alone = Client::connect(&ensemble.address(leader).to_string()).await.expect("serves again");
        assert_eq!(alone.list_children("/").await, client.list_children("/").await);
    }
}
