//! Who takes part: a private ZooKeeper, the ledger, a relay that is the slow network, and two gateways.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::child::{Child, Signal};
use super::relay::Relay;
use super::zookeeper::{Durability, PrivateZooKeeper, Settings};
use super::{Level, Trouble, policy};

/// Everything that runs. Dropping it ends it, in the order of the fields.
pub(super) struct Fleet {
    pub(super) gateways: [Gateway; 2],
    /// Between the first gateway and the ledger; the second reaches the ledger directly.
    pub(super) relay: Relay,
    pub(super) ledger: Ledger,
    pub(super) zookeeper: PrivateZooKeeper,
    pub(super) version: String,
    _folder: TempDir,
}

pub(super) struct Gateway {
    pub(super) name: &'static str,
    pub(super) process: Child,
    /// Where clients come in.
    pub(super) public: SocketAddr,
    /// Where `/ready` and `/metrics` are.
    pub(super) admin: SocketAddr,
}

pub(super) struct Ledger {
    pub(super) process: Child,
    pub(super) address: SocketAddr,
}

/// A fresh process has bound its ports within milliseconds; a machine under load may take its time.
const UP_WITHIN: Duration = Duration::from_secs(30);

impl Fleet {
    /// Starts all of it and returns when all of it listens. Blocks.
    ///
    /// # Errors
    /// [`Trouble`] says who did not come up, and what it said.
    pub(super) fn start(level: Level) -> Result<Self, Trouble> {
        let own = std::env::current_exe()?;
        let folder = tempfile::Builder::new().prefix("fencegate-demo-").tempdir()?;
        // A power failure ends the demo anyway.
        let settings = Settings { tick: policy::TICK, durability: Durability::Process };
        let zookeeper = PrivateZooKeeper::start(&folder.path().join("zookeeper"), settings)?;
        let version = zookeeper.version()?;

        let ledger = Ledger::start(&own, folder.path(), level)?;
        let relay = Relay::start(ledger.address)?;
        let write = |name, ledger| -> Result<PathBuf, Trouble> {
            let file = folder.path().join(format!("{name}.yaml"));
            fs::write(&file, policy::written(name, level, zookeeper.address(), ledger))?;
            Ok(file)
        };
        let first = write("gateway-1", relay.address())?;
        let second = write("gateway-2", ledger.address)?;
        make_era(&own, &first)?;
        let gateways =
            [Gateway::start("gateway-1", &own, &first)?, Gateway::start("gateway-2", &own, &second)?];
        Ok(Self { gateways, relay, ledger, zookeeper, version, _folder: folder })
    }

    /// Lets the gateways drain, so that they leave no session behind, then ends the rest.
    pub(super) async fn stop(self) {
        let end = move || {
            for gateway in &self.gateways {
                // One that is gone already has nothing to drain.
                let _gone = gateway.process.signal(Signal::TERM);
            }
            for gateway in &self.gateways {
                gateway.process.wait(Duration::from_secs(5));
            }
        };
        tokio::task::spawn_blocking(end).await.expect("ending neither panics nor is cancelled");
    }

    /// The addresses at which clients come in.
    pub(super) fn doors(&self) -> [SocketAddr; 2] {
        [self.gateways[0].public, self.gateways[1].public]
    }
}

impl Ledger {
    fn start(own: &Path, folder: &Path, level: Level) -> Result<Self, Trouble> {
        let program = own.with_file_name("fencegate-ledger");
        if !program.is_file() {
            return Err(Trouble::NoLedger(program.display().to_string()));
        }
        let compare = match level {
            Level::None => "off",
            Level::Upstream => "token",
        };
        let database = folder.join("ledger.sqlite");
        let arguments = ["--compare", compare, "--database"].map(Path::new);
        let process = Child::spawn(&program, arguments.into_iter().chain([database.as_path()]))?;
        let address = said(&process, "the ledger", |line| line["listening"].as_str()?.parse().ok())?;
        Ok(Self { process, address })
    }
}

impl Gateway {
    fn start(name: &'static str, own: &Path, policy: &Path) -> Result<Self, Trouble> {
        let arguments = ["run", "--log-format", "json", "-c"].map(Path::new);
        let process = Child::spawn(own, arguments.into_iter().chain([policy]))?;
        let public = said(&process, name, |line| address_of("public", line))?;
        let admin = said(&process, name, |line| address_of("admin", line))?;
        Ok(Self { name, process, public, admin })
    }
}

/// Makes the installation in the empty ZooKeeper, as an operator does it once.
fn make_era(own: &Path, policy: &Path) -> Result<(), Trouble> {
    let arguments = ["era", "init", "-c"].map(Path::new);
    let process = Child::spawn(own, arguments.into_iter().chain([policy]))?;
    match process.wait(UP_WITHIN) {
        Some(status) if status.success() => Ok(()),
        _ => Err(Trouble::NotUp { who: "`fencegate era init`".to_owned(), said: process.log() }),
    }
}

/// Waits until the child says, in a line of JSON, what `read` looks for.
fn said<T>(process: &Child, who: &str, read: impl Fn(&Value) -> Option<T>) -> Result<T, Trouble> {
    let read = |line: &str| serde_json::from_str(line).ok().as_ref().and_then(&read);
    match process.wait_line(|line| read(line).is_some(), UP_WITHIN) {
        Ok(line) => Ok(read(&line).expect("the line was chosen for it")),
        Err(timeout) => Err(Trouble::NotUp { who: who.to_owned(), said: timeout.to_string() }),
    }
}

fn address_of(listener: &str, line: &Value) -> Option<SocketAddr> {
    let fields = &line["fields"];
    let listens = fields["message"] == "listening" && fields["listener"] == listener;
    listens.then(|| fields["address"].as_str()?.parse().ok()).flatten()
}
