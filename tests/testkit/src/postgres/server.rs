//! A PostgreSQL server, and its accidents: it is killed, stopped, frozen and started again.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::child::{ChildProcess, Signal};

use super::{
    TestDatabase, USER,
    programs::{self, copy_folder, program, run, server_folder, unprivileged},
};
use crate::wait::PATIENCE;

/// A server with a folder of its own; both are removed when it is dropped. It trusts every connection, as [`USER`].
pub struct PostgresServer {
    state: PathBuf,
    pub(super) settings: Vec<String>,
    pub(super) port: u16,
    /// `None` while the server is stopped.
    pub(super) process: Option<ChildProcess>,
    /// The database [`FIRST`].
    first: TestDatabase,
}

/// The database that every server has from the beginning.
const FIRST: &str = "postgres";

impl PostgresServer {
    /// Starts a server, and blocks for a second or two until it serves. `settings` are lines of `postgresql.conf`.
    /// The server keeps what it has acknowledged, as in production.
    ///
    /// # Panics
    /// If the server does not start, for example because Debian's package `postgresql` is missing.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_in(init_folder(), settings)
    }

    /// Starts a server on a folder that already has its data.
    pub(super) fn start_in(state: PathBuf, settings: &[&str]) -> Self {
        let settings = settings.iter().map(ToString::to_string).collect();
        let port = free_port();
        let first = TestDatabase::new(local_address(port), FIRST, &state);
        let mut server = Self { state, settings, port, process: None, first };
        server.restart();
        server
    }

    /// Starts the server on its port and its data, after the remains of its earlier process have gone.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn restart(&mut self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let process = self.spawn();
            let ready = |line: &str| line.contains("ready to accept");
            match process.wait_line(ready, PATIENCE) {
                Ok(_) => return self.process = Some(process),
                // The backends of a killed server end a moment after it. Until then they use its memory and no new
                // one starts.
                Err(error) => assert!(Instant::now() < until, "PostgreSQL does not start: {error}"),
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn spawn(&self) -> ChildProcess {
        let mut words = unprivileged(&self.state);
        let front = words.remove(0);
        words.push(program("postgres").display().to_string());
        words.extend(["-D".to_owned(), self.state.join("data").display().to_string()]);
        let own = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", self.port),
            format!("unix_socket_directories={}", self.state.display()),
            "shared_buffers=32MB".to_owned(),
            // The sizes for segments of the usual size: `initdb` below would choose smaller ones for its small
            // segments.
            "max_wal_size=1GB".to_owned(),
            "min_wal_size=80MB".to_owned(),
            // In the folder of the server, which is removed with it. POSIX shared memory would stay in `/dev/shm`
            // after a kill.
            "dynamic_shared_memory_type=mmap".to_owned(),
            "max_connections=200".to_owned(),
            // Instead of a second: in a test a statement that waits for this long is in a deadlock.
            "deadlock_timeout=200ms".to_owned(),
        ];
        for setting in own.iter().chain(&self.settings) {
            words.extend(["-c".to_owned(), setting.clone()]);
        }
        ChildProcess::spawn(front, words).expect("setpriv")
    }

    pub fn address(&self) -> SocketAddr {
        local_address(self.port)
    }

    /// Creates a database that no other test uses.
    ///
    /// # Panics
    /// If the server does not serve.
    pub fn fresh_database(&self) -> TestDatabase {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.first.run(&format!("CREATE DATABASE {name}"));
        self.database(&name)
    }

    /// Returns an existing database of the server.
    pub fn database(&self, name: &str) -> TestDatabase {
        match name {
            FIRST => self.first.clone(),
            _ => TestDatabase::new(self.address(), name, &self.state),
        }
    }

    /// Kills the server with SIGKILL: it writes nothing any more, and what it has acknowledged is on the disk.
    ///
    /// # Panics
    /// If the server is stopped already.
    pub fn kill(&mut self) {
        let process = self.process.take().expect("it runs");
        let backends = self.backends(&process);
        process.signal(Signal::KILL).expect("our own child");
        process.wait(PATIENCE).expect("SIGKILL ends it");
        // The backends would notice the end a moment later. Kill them, so that the test need not wait for that.
        backends.into_iter().for_each(|pid| programs::signal(pid, Signal::KILL));
    }

    /// Stops the server in order, without waiting for the end of its sessions.
    ///
    /// # Panics
    /// If the server is stopped already, or does not end.
    pub fn stop(&mut self) {
        let process = self.process.take().expect("it runs");
        process.signal(Signal::INT).expect("our own child");
        process.wait(PATIENCE).expect("a fast shutdown ends it");
    }

    /// Stops all processes of the server with SIGSTOP: its connections stay open and get no answer.
    pub fn freeze(&self) {
        self.signal_all(Signal::STOP);
    }

    /// Lets the server go on after [`PostgresServer::freeze`].
    pub fn thaw(&self) {
        self.signal_all(Signal::CONT);
    }

    fn signal_all(&self, signal: Signal) {
        let process = self.process.as_ref().expect("it runs");
        process.signal(signal).expect("our own child");
        self.backends(process).into_iter().for_each(|pid| programs::signal(pid, signal));
    }

    fn backends(&self, process: &ChildProcess) -> Vec<u32> {
        let found = fs::read_dir("/proc").expect("proc(5)").flatten().filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // The state and the parent stand after the program's name, which may contain blanks and brackets.
            let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()?;
            (parent == process.pid()).then_some(pid)
        });
        found.collect()
    }

    /// The log of the running server; empty while it is stopped.
    pub fn log(&self) -> String {
        self.process.as_ref().map(ChildProcess::log).unwrap_or_default()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.state
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.process.take());
        // A failure is ignored: a later process removes the folders of processes that have ended.
        drop(fs::remove_dir_all(&self.state));
    }
}

/// Makes a folder with a new cluster: a copy of one that this process makes once, because `initdb` takes far longer.
/// So all servers of a process have the same system identifier, as a primary and its standby have.
pub(super) fn init_folder() -> PathBuf {
    static MADE: LazyLock<PathBuf> = LazyLock::new(run_initdb);
    let state = server_folder();
    copy_folder(&MADE.join("data"), &state.join("data"));
    state
}

fn run_initdb() -> PathBuf {
    let state = server_folder();
    // ICU's English collation does not order text by bytes: a statement that needs the order of bytes has to ask for
    // it.
    let made = run(
        &state,
        "initdb",
        &[
            "--auth=trust",
            &format!("--username={USER}"),
            "--no-sync",
            "--encoding=UTF8",
            "--locale-provider=icu",
            "--icu-locale=en",
            "--locale=C",
            // In megabytes. Small, because tests write little, and every server, standby and snapshot has a few
            // segments.
            "--wal-segsize=1",
            "--pgdata=data",
        ],
    );
    made.expect("initdb makes a database");
    state
}

fn local_address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A port that is free at this moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}
