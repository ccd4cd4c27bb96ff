//! Clients as processes. Each takes the lock of a library and calls the service, or calls a server that takes locks
//! itself.

use std::{fs, net::SocketAddr, sync::Arc};

use fencegate_testkit::{
    child::{ChildProcess, Signal},
    scratch,
    wait::PATIENCE,
};
use fencegate_tests::curator::class_path;
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::{account::AccountService, fetched, run::LockProcesses};

/// The number of clients that work on one account.
pub(crate) const CLIENTS: usize = 4;

const PYPI: [&str; 4] = ["kazoo==2.11.0", "redis==8.1.0", "pottery==3.0.1", "psycopg2-binary==2.9.13"];

/// A program whose last arguments are the address of a lock server, the URL of a service, and the client's name.
pub(crate) struct ClientProgram {
    words: Vec<String>,
    /// The folder with the source, kept for as long as the program may be started.
    _home: Option<TempDir>,
}

/// All clients of one lock system. Dropping them ends them.
pub(crate) struct ClientProcesses {
    program: ClientProgram,
    server: String,
    service: Vec<String>,
    running: Vec<Arc<ChildProcess>>,
}

impl ClientProgram {
    /// A Python client. `kind`: the lock that it takes, by its name in `turns.py`.
    pub(crate) fn python(kind: &str) -> Self {
        let home = scratch::temp_dir();
        let script = home.path().join("turns.py");
        fs::write(&script, include_str!("turns.py")).expect("our own folder");
        let words = vec![fetched::python(&PYPI), script.display().to_string(), kind.to_owned()];
        Self { words, _home: Some(home) }
    }

    /// A Java client that uses Curator, with settings of the JVM that make it start fast.
    pub(crate) fn java() -> Self {
        let classes = fetched::classes("Turns.java", include_str!("Turns.java"));
        let with_ours = format!("{}:{}", classes.display(), class_path());
        let quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off";
        let words = [
            "java",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xmx64m",
            quiet,
            "-cp",
            &with_ours,
            "Turns",
        ];
        Self { words: words.map(str::to_owned).into(), _home: None }
    }
}

impl ClientProcesses {
    /// Starts the clients, and spreads them over the services in turn. `path`: the path of their requests.
    pub(crate) async fn start(
        program: ClientProgram,
        server: String,
        services: &[SocketAddr],
        path: &str,
    ) -> Self {
        let service = services.iter().map(|address| format!("http://{address}{path}")).collect();
        let mut clients = Self { program, server, service, running: Vec::new() };
        clients.running = (0..CLIENTS).map(|number| clients.spawn(number)).collect();
        for client in &clients.running {
            wait_started(client).await;
        }
        clients
    }

    /// The name of a client towards the service.
    pub(crate) fn name(number: usize) -> String {
        format!("client-{number}")
    }

    fn spawn(&self, number: usize) -> Arc<ChildProcess> {
        let service = self.service[number % self.service.len()].clone();
        let arguments = [self.server.clone(), service, Self::name(number)];
        let (first, rest) = self.program.words.split_first().expect("a program");
        Arc::new(ChildProcess::spawn(first, rest.iter().chain(&arguments)).expect("setpriv"))
    }
}

/// Waits until the client reports that it has started.
pub(crate) async fn wait_started(child: &Arc<ChildProcess>) {
    let child = child.clone();
    let up = spawn_blocking(move || {
        child.wait_line(|line| line == "UP", PATIENCE).map_err(|error| error.to_string())
    });
    up.await.expect("no panic").expect("it comes up");
}

/// Makes a client wait between its last check of its lock and its request, and returns when it reports that it
/// waits.
pub(crate) async fn freeze_and_wait(child: &Arc<ChildProcess>, name: &str, account: &AccountService) {
    let from = child.cursor();
    let waiting = child.clone();
    account.pause_holder(name);
    let held = spawn_blocking(move || {
        waiting.wait_line_after(from, |line| line == "HELD", PATIENCE).map_err(|error| error.to_string())
    });
    held.await.expect("no panic").expect("it has the lock some time");
}

/// The faults happen to the clients, which take the locks themselves.
impl LockProcesses for ClientProcesses {
    fn victims(&self) -> usize {
        self.running.len()
    }

    fn names(&self, victim: usize) -> Vec<String> {
        vec![Self::name(victim)]
    }

    async fn wait_before_request(&mut self, victim: usize, account: &AccountService) {
        freeze_and_wait(&self.running[victim], &Self::name(victim), account).await;
    }

    fn signal(&self, victim: usize, signal: Signal) {
        self.running[victim].signal(signal).expect("our own child");
    }

    async fn restart(&mut self, victim: usize) {
        self.running[victim] = self.spawn(victim);
        wait_started(&self.running[victim]).await;
    }

    fn output(&self) -> String {
        self.running.iter().map(|client| client.log()).collect()
    }
}
