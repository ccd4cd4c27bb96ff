//! A private ZooKeeper: one real server with one directory, which ends with this process.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::{ChildProcess, Signal};

/// A standalone server on loopback.
#[derive(Debug)]
pub struct PrivateZooKeeper {
    /// `None` between [`PrivateZooKeeper::stop`] and [`PrivateZooKeeper::restart`].
    server: Option<ChildProcess>,
    address: SocketAddr,
    configuration: PathBuf,
    settings: ZooKeeperServerConfig,
}

#[derive(Debug, Clone, Copy)]
pub struct ZooKeeperServerConfig {
    /// ZooKeeper's `tickTime`. Sessions last 2 to 300 ticks, and expire on a multiple of a tick.
    pub tick: Duration,
    pub durability: ZooKeeperDurability,
    /// The heap of the virtual machine. 128 MiB are enough for some ten thousand nodes.
    pub heap_mib: u32,
}

/// The accidents that an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZooKeeperDurability {
    /// A power failure: every write waits for the disk, as in production.
    Machine,
    /// The end of the server process, and no power failure. That is enough for tests, and several times faster.
    Process,
}

/// The reason why no ZooKeeper could be started.
#[derive(Debug, thiserror::Error)]
pub enum StartZooKeeperError {
    #[error(
        "ZooKeeper cannot be started here, {0} is missing: run \
         `apt-get install --no-install-recommends libzookeeper-java libslf4j-java default-jre-headless`"
    )]
    Missing(String),
    #[error("ZooKeeper did not start: {0}")]
    Failed(String),
    #[error("prepare or start ZooKeeper")]
    Io(#[from] io::Error),
}

impl Default for ZooKeeperServerConfig {
    fn default() -> Self {
        Self { tick: Duration::from_millis(200), durability: ZooKeeperDurability::Process, heap_mib: 128 }
    }
}

impl PrivateZooKeeper {
    /// Starts a server that keeps its data in `dir`, and returns when it serves.
    ///
    /// # Errors
    /// Returns an error if the server does not start. [`StartZooKeeperError::Missing`] names the package to install.
    pub fn start(dir: &Path, settings: ZooKeeperServerConfig) -> Result<Self, StartZooKeeperError> {
        check_installed()?;
        let mut tries = 0;
        loop {
            tries += 1;
            let address = free_address()?;
            let configuration = dir.join("zoo.cfg");
            fs::create_dir_all(dir)?;
            fs::write(&configuration, render_config(dir, address, settings))?;
            let mut zookeeper = Self { server: None, address, configuration, settings };
            match zookeeper.restart() {
                Ok(()) => return Ok(zookeeper),
                // The server found its port taken: another process took it after the check that it was free. Try
                // another port.
                Err(StartZooKeeperError::Failed(log))
                    if tries < 5 && log.contains("Address already in use") => {}
                Err(other) => return Err(other),
            }
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The version that the server reports, such as `3.8.0`.
    ///
    /// # Errors
    /// Returns an error if the server does not respond.
    pub fn version(&self) -> io::Result<String> {
        let answer = send_four_letter_word(self.address, "srvr")?;
        let version = answer.lines().find_map(|line| line.strip_prefix("Zookeeper version: "));
        let number = version.and_then(|version| version.split(['-', ',']).next());
        number.map(str::to_owned).ok_or_else(|| io::Error::other(format!("no version in {answer:?}")))
    }

    /// The process id of the server; `None` while it is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(ChildProcess::pid)
    }

    /// Ends the server and keeps its data. Sessions survive if it restarts in time.
    pub fn stop(&mut self) {
        if let Some(server) = self.server.take()
            && server.signal(Signal::TERM).is_ok()
        {
            // A server that does not end in time is killed when it is dropped.
            server.wait(Duration::from_secs(5));
        }
    }

    /// Starts a stopped server on the same data and the same port, and returns when it serves.
    ///
    /// # Errors
    /// Returns the errors of [`PrivateZooKeeper::start`].
    pub fn restart(&mut self) -> Result<(), StartZooKeeperError> {
        const READY_WITHIN: Duration = Duration::from_secs(30);
        self.stop();
        let server = ChildProcess::spawn("java", arguments(&self.configuration, self.settings))?;
        let deadline = Instant::now() + READY_WITHIN;
        // `ruok` would not do: the server answers it before it serves requests.
        while !send_four_letter_word(self.address, "srvr").is_ok_and(|answer| answer.contains("Mode:")) {
            if !server.is_running() || Instant::now() > deadline {
                return Err(StartZooKeeperError::Failed(server.log()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.server = Some(server);
        Ok(())
    }

    /// Freezes the server: connections stay open, nothing is answered.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the signal.
    pub fn pause(&self) -> io::Result<()> {
        self.server.as_ref().map_or(Ok(()), |server| server.signal(Signal::STOP))
    }

    /// Thaws a paused server.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the signal.
    pub fn resume(&self) -> io::Result<()> {
        self.server.as_ref().map_or(Ok(()), |server| server.signal(Signal::CONT))
    }
}

/// The jars of Debian and Ubuntu. The manifest of `zookeeper.jar` names the other jars that it needs.
const JARS: [&str; 2] = ["/usr/share/java/slf4j-simple.jar", "/usr/share/java/zookeeper.jar"];

fn check_installed() -> Result<(), StartZooKeeperError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| folder.join("java").is_file()) {
        return Err(StartZooKeeperError::Missing("Java".to_owned()));
    }
    match JARS.iter().find(|jar| !Path::new(jar).is_file()) {
        Some(jar) => Err(StartZooKeeperError::Missing((*jar).to_owned())),
        None => Ok(()),
    }
}

/// A free port below the kernel's range for outgoing connections. A client that keeps trying the port of a stopped
/// server could otherwise get that port for its own end, and connect to itself.
fn free_address() -> io::Result<SocketAddr> {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..100 {
        let mut random = [0; 2];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let port = FIRST + u16::from_ne_bytes(random) % COUNT;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_free) => return Ok((Ipv4Addr::LOCALHOST, port).into()),
            Err(taken) => last = taken,
        }
    }
    Err(last)
}

fn render_config(dir: &Path, address: SocketAddr, settings: ZooKeeperServerConfig) -> String {
    let tick = settings.tick.as_millis();
    format!(
        "dataDir={}\nclientPort={}\nclientPortAddress={}\ntickTime={tick}\nminSessionTimeout={}\n\
         maxSessionTimeout={}\nadmin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n",
        dir.display(),
        address.port(),
        address.ip(),
        2 * tick,
        300 * tick,
    )
}

fn arguments(configuration: &Path, settings: ZooKeeperServerConfig) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
            .map(str::to_owned)
            .into();
    arguments.push(format!("-Xmx{}m", settings.heap_mib));
    // The transaction log grows by 64 KiB at a time, and not by 64 MiB.
    arguments.push("-Dzookeeper.preAllocSize=64".to_owned());
    if settings.durability == ZooKeeperDurability::Process {
        arguments.push("-Dzookeeper.forceSync=no".to_owned());
    }
    arguments.extend(["-cp".to_owned(), JARS.join(":")]);
    arguments.push("org.apache.zookeeper.server.ZooKeeperServerMain".to_owned());
    arguments.push(configuration.display().to_string());
    arguments
}

/// Sends one of ZooKeeper's four-letter words and reads until the connection ends.
fn send_four_letter_word(address: SocketAddr, word: &str) -> io::Result<String> {
    const PATIENCE: Duration = Duration::from_millis(500);
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server can be paused and resumed, stopped and restarted at the same address, and ends when it is dropped.
    #[test]
    fn server_pauses_stops_and_restarts() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut zookeeper =
            PrivateZooKeeper::start(dir.path(), ZooKeeperServerConfig::default()).expect("starts");
        let address = zookeeper.address();
        let pid = zookeeper.pid();
        assert!(zookeeper.version().expect("answers").starts_with("3."));

        zookeeper.pause().expect("paused");
        // The threads of the server stop one by one after the signal was sent, so the first attempts may still be
        // answered.
        assert!((0..40).any(|_| send_four_letter_word(address, "srvr").is_err()), "a frozen server answered");
        zookeeper.resume().expect("resumed");
        // On a busy machine the first attempts may get no answer in time.
        assert!(
            (0..40).any(|_| send_four_letter_word(address, "srvr").is_ok()),
            "it does not answer any more"
        );

        zookeeper.stop();
        assert!(TcpStream::connect(address).is_err(), "a stopped server accepted");
        zookeeper.restart().expect("starts again");
        assert_eq!(zookeeper.address(), address);
        assert_ne!(zookeeper.pid(), pid);
        drop(zookeeper);
        assert!(TcpStream::connect(address).is_err());
    }

    /// The error for a missing program is one line, and has the command that installs the program.
    #[test]
    fn missing_program_error_names_remedy() {
        let message = StartZooKeeperError::Missing("Java".to_owned()).to_string();
        assert!(!message.contains('\n') && message.contains("apt-get install"), "{message}");
    }
}
