//! A program that takes the lock of another library, and calls the origin while it holds the lock.

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{Arc, LazyLock},
};

use fencegate_testkit::{
    child::{ChildProcess, Signal},
    wait::PATIENCE,
};
use fencegate_tests::{curator::class_path, site::TestSite};
use tokio::task::spawn_blocking;

use super::super::clients::{persistent_folder, python_with_package};

/// The lock that the program takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForeignLock {
    CuratorMutex,
    CuratorWrite,
    CuratorRead,
    KazooLock,
    KazooWrite,
    KazooRead,
}

/// The program takes turns until this value is dropped.
pub(super) struct ForeignProgram(Arc<ChildProcess>);

const SOURCES: [(&str, &str); 2] =
    [("Foreign.java", include_str!("Foreign.java")), ("Service.java", include_str!("Service.java"))];

/// The folder of the classes, which are compiled once for each content of their sources.
static CLASSES: LazyLock<PathBuf> = LazyLock::new(|| {
    let mut content = DefaultHasher::new();
    SOURCES.hash(&mut content);
    let classes = persistent_folder("beside").join(format!("{:016x}", content.finish()));
    // Created last, so that a half-compiled folder is compiled again.
    let made = classes.join("made");
    if !made.exists() {
        fs::create_dir_all(&classes).expect("our own folder");
        let mut javac = std::process::Command::new("javac");
        javac.args(["-Xlint:all", "-d"]).arg(&classes).args(["-cp", &class_path()]);
        for (name, text) in SOURCES {
            let source = classes.join(name);
            fs::write(&source, text).expect("our own folder");
            javac.arg(source);
        }
        let output = javac.output().expect("a compiler, from the package default-jdk-headless");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::write(made, "").expect("our own folder");
    }
    classes
});

/// An account whose lock a program shares with gateways.
#[derive(Debug, Clone)]
pub(super) struct SharedAccount {
    /// The path of the lock.
    pub(super) lock: String,
    /// The key of the account at gateways.
    pub(super) key: String,
    /// The path of requests for the account.
    pub(super) target: String,
}

impl SharedAccount {
    /// Account 7, at the first route of every gateway.
    pub(super) fn seven(site: &TestSite) -> Self {
        Self { lock: lock_path(site), key: "account/7".to_owned(), target: "/pay/7".to_owned() }
    }
}

/// The path of the lock of account 7.
pub(super) fn lock_path(site: &TestSite) -> String {
    format!("/beside{}/locks/7", site.root)
}

impl ForeignProgram {
    /// Starts a program that takes the lock of account 7. `name`: the program's listener at the origin. `pause`:
    /// milliseconds between two turns.
    pub(super) async fn start(site: &TestSite, kind: ForeignLock, name: &str, pause: u32) -> Self {
        Self::start_on(site, kind, name, &SharedAccount::seven(site), pause).await
    }

    /// Starts a program that takes the lock of account 7 at `path`, with `name` and `pause` as for [`Self::start`].
    pub(super) async fn start_at(
        site: &TestSite,
        kind: ForeignLock,
        name: &str,
        path: &str,
        pause: u32,
    ) -> Self {
        let account = SharedAccount { lock: path.to_owned(), ..SharedAccount::seven(site) };
        Self::start_on(site, kind, name, &account, pause).await
    }

    /// Starts a program that takes the lock of `account`, with `name` and `pause` as for [`Self::start`].
    pub(super) async fn start_on(
        site: &TestSite,
        kind: ForeignLock,
        name: &str,
        account: &SharedAccount,
        pause: u32,
    ) -> Self {
        let (word, program) = match kind {
            ForeignLock::CuratorMutex => ("mutex", java("Foreign").await),
            ForeignLock::CuratorWrite => ("write", java("Foreign").await),
            ForeignLock::CuratorRead => ("read", java("Foreign").await),
            ForeignLock::KazooLock => ("lock", Self::python().await),
            ForeignLock::KazooWrite => ("write", Self::python().await),
            ForeignLock::KazooRead => ("read", Self::python().await),
        };
        let SharedAccount { lock, key, target } = account;
        let server = site.zookeeper.to_string();
        let url = format!("http://{}{target}", site.origin.open_listener(name));
        let arguments = [word, &server, lock, &url, key, &pause.to_string()].map(str::to_owned);
        let (first, rest) = program.split_first().expect("a program");
        let child = ChildProcess::spawn(first, rest.iter().chain(&arguments)).expect("setpriv");
        let child = Arc::new(child);
        let waiting = child.clone();
        let up = spawn_blocking(move || waiting.wait_line(|line| line == "UP", PATIENCE));
        up.await.expect("no panic").expect("it connects");
        Self(child)
    }

    async fn python() -> Vec<String> {
        let python = python_with_package("kazoo", "kazoo==2.11.0").await;
        vec![python, "-c".to_owned(), include_str!("foreign.py").to_owned()]
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.0.signal(signal).expect("it can be sent");
    }

    /// # Panics
    /// Panics with the output of the program if it contains `TROUBLE`.
    pub(super) fn assert_no_trouble(&self) {
        let output = self.0.log();
        assert!(!output.contains("TROUBLE"), "{output}");
    }
}

/// The command of a Java VM that starts fast.
async fn java(class: &str) -> Vec<String> {
    let classes = spawn_blocking(|| CLASSES.display().to_string()).await.expect("compiled");
    let with_ours = format!("{classes}:{}", class_path());
    let quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off";
    let words =
        ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx64m", quiet, "-cp", &with_ours, class];
    words.map(str::to_owned).into()
}

/// A service that takes Curator's lock for requests without the lock of a gateway. Dropping it ends it.
pub(super) struct JavaService {
    pub(super) address: SocketAddr,
    _child: Arc<ChildProcess>,
}

impl JavaService {
    /// `locks`: the path above the locks of accounts; `door`: the name of the service at the origin.
    pub(super) async fn start(site: &TestSite, locks: &str, door: &str) -> Self {
        let program = java("Service").await;
        let (server, url) =
            (site.zookeeper.to_string(), format!("http://{}", site.origin.open_listener(door)));
        let arguments = [server, locks.to_owned(), url];
        let (first, rest) = program.split_first().expect("a program");
        let child = Arc::new(ChildProcess::spawn(first, rest.iter().chain(&arguments)).expect("setpriv"));
        let waiting = child.clone();
        let up = spawn_blocking(move || waiting.wait_line(|line| line.starts_with("UP "), PATIENCE));
        let line = up.await.expect("no panic").expect("it connects");
        let port = line["UP ".len()..].parse().expect("a port");
        Self { address: (Ipv4Addr::LOCALHOST, port).into(), _child: child }
    }
}
