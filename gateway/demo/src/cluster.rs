//! The processes of the story: a private ZooKeeper, the ledger, its guard, a relay as the slow network, and two
//! gateways.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fencegate_testkit::{
    child::{ChildProcess, Signal},
    fault_proxy::FaultProxy,
    zookeeper::{PrivateZooKeeper, ZooKeeperServerConfig},
};
use serde_json::Value;
use tempfile::TempDir;

use super::{error::DemoError, options::DemoFenceLevel, policy};

/// All processes. Dropping it ends them, in the order of the fields.
pub(super) struct DemoCluster {
    pub(super) gateways: [GatewayInstance; 2],
    /// Forwards between the first gateway and the guard or ledger. The second gateway is connected directly.
    pub(super) relay: FaultProxy,
    /// The guard; `None` unless the level is `guard`.
    pub(super) guard: Option<GuardInstance>,
    pub(super) ledger: LedgerInstance,
    pub(super) zookeeper: PrivateZooKeeper,
    pub(super) version: String,
    folder: TempDir,
}

pub(super) struct GatewayInstance {
    pub(super) name: &'static str,
    pub(super) process: ChildProcess,
    /// The address for clients.
    pub(super) public: SocketAddr,
    /// The address of `/ready` and `/metrics`.
    pub(super) admin: SocketAddr,
}

pub(super) struct GuardInstance {
    pub(super) process: ChildProcess,
    /// The address for gateways.
    pub(super) public: SocketAddr,
    pub(super) admin: SocketAddr,
}

pub(super) struct LedgerInstance {
    pub(super) process: ChildProcess,
    pub(super) address: SocketAddr,
}

/// The time limit for a new process to listen. It takes milliseconds, but longer on a machine under load.
const UP_WITHIN: Duration = Duration::from_secs(30);

impl DemoCluster {
    /// Starts all processes and returns when all of them listen. Blocks.
    ///
    /// # Errors
    /// Returns a [`DemoError`] that names the process that did not start, and its output.
    pub(super) fn start(level: DemoFenceLevel) -> Result<Self, DemoError> {
        let own = std::env::current_exe()?;
        let folder = tempfile::Builder::new().prefix("fencegate-demo-").tempdir()?;
        // A power failure would end the demo in any case, so nothing waits for the disk.
        let settings = ZooKeeperServerConfig { tick: policy::TICK, ..ZooKeeperServerConfig::default() };
        let zookeeper = PrivateZooKeeper::start(&folder.path().join("zookeeper"), settings)?;
        let version = zookeeper.version()?;

        let ledger = LedgerInstance::start(&own, folder.path(), level)?;
        let key = (level == DemoFenceLevel::Guard)
            .then(|| create_ticket_signing_key(&own, folder.path()))
            .transpose()?;
        let write = |name, upstream| -> Result<PathBuf, DemoError> {
            let file = folder.path().join(format!("{name}.yaml"));
            fs::write(
                &file,
                policy::gateway_policy(name, level, zookeeper.address(), upstream, key.as_deref()),
            )?;
            Ok(file)
        };
        // The guard needs the installation and its first epoch, so ZooKeeper is queried before there is a guard.
        let placeholder = write("installation", ledger.address)?;
        run_binary(&own, &["era", "init", "-c"], &[&placeholder])?;
        let guard = match &key {
            Some(key) => Some(GuardInstance::start(&own, folder.path(), &placeholder, key, ledger.address)?),
            None => None,
        };
        let upstream = guard.as_ref().map_or(ledger.address, |guard| guard.public);
        let relay = FaultProxy::try_start(upstream)?;
        let first = write("gateway-1", relay.address)?;
        let second = write("gateway-2", upstream)?;
        let gateways = [
            GatewayInstance::start("gateway-1", &own, &first)?,
            GatewayInstance::start("gateway-2", &own, &second)?,
        ];
        Ok(Self { gateways, relay, guard, ledger, zookeeper, version, folder })
    }

    /// Lets the gateways drain, so that they leave no session behind, then ends the rest.
    pub(super) async fn stop(self) {
        let end = move || {
            for gateway in &self.gateways {
                // A gateway that has ended needs no drain.
                let _gone = gateway.process.signal(Signal::TERM);
            }
            for gateway in &self.gateways {
                gateway.process.wait(Duration::from_secs(5));
            }
            if let Some(guard) = &self.guard {
                let _gone = guard.process.signal(Signal::TERM);
                guard.process.wait(Duration::from_secs(5));
            }
        };
        tokio::task::spawn_blocking(end).await.expect("ending neither panics nor is cancelled");
    }

    /// The folder with the policies and the data of all processes.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The addresses for clients.
    pub(super) fn gateway_public_addresses(&self) -> [SocketAddr; 2] {
        [self.gateways[0].public, self.gateways[1].public]
    }
}

impl LedgerInstance {
    /// The sample service beside our own binary, as cargo builds both, or where a package installs it.
    fn find_ledger_program(own: &Path) -> Result<PathBuf, DemoError> {
        let beside = own.with_file_name("fencegate-ledger");
        if beside.is_file() {
            return Ok(beside);
        }
        let prefix = own.parent().and_then(Path::parent).unwrap_or(own);
        let installed = prefix.join("lib/fencegate/fencegate-ledger");
        if installed.is_file() {
            Ok(installed)
        } else {
            Err(DemoError::NoLedger(beside.display().to_string()))
        }
    }

    fn start(own: &Path, folder: &Path, level: DemoFenceLevel) -> Result<Self, DemoError> {
        let program = Self::find_ledger_program(own)?;
        let compare = match level {
            DemoFenceLevel::Unfenced | DemoFenceLevel::None | DemoFenceLevel::Guard => "off",
            DemoFenceLevel::Upstream => "token",
        };
        let database = folder.join("ledger.sqlite");
        let arguments = ["--compare", compare, "--database"].map(Path::new);
        let process = ChildProcess::spawn(&program, arguments.into_iter().chain([database.as_path()]))?;
        let address =
            wait_for_field(&process, "the ledger", |line| line["listening"].as_str()?.parse().ok())?;
        Ok(Self { process, address })
    }
}

impl GatewayInstance {
    fn start(name: &'static str, own: &Path, policy: &Path) -> Result<Self, DemoError> {
        let arguments = ["run", "--log-format", "json", "-c"].map(Path::new);
        let process = ChildProcess::spawn(own, arguments.into_iter().chain([policy]))?;
        let public = wait_for_field(&process, name, |line| parse_listening_address("public", line))?;
        let admin = wait_for_field(&process, name, |line| parse_listening_address("admin", line))?;
        Ok(Self { name, process, public, admin })
    }
}

impl GuardInstance {
    fn start(
        own: &Path,
        folder: &Path,
        policy: &Path,
        key: &Path,
        ledger: SocketAddr,
    ) -> Result<Self, DemoError> {
        let public_keys = folder.join("ticket-keys.json");
        fs::write(&public_keys, run_binary(own, &["keys", "public"], &[key])?)?;
        let file = folder.join("guard.yaml");
        fs::write(&file, policy::guard_policy(ledger, &folder.join("guard.redb"), &public_keys))?;
        let era = run_binary(own, &["era", "show", "--format", "json", "-c"], &[policy])?;
        let era: Value = serde_json::from_slice(&era).expect("the same binary wrote it");
        let floor = era["floor"].to_string();
        let ensemble = era["ensemble"].as_str().unwrap_or_default().to_owned();
        let mut arguments =
            vec!["guard", "--log-format", "json", "--init", "--floor", &floor, "--ensemble", &ensemble, "-c"];
        let file = file.display().to_string();
        arguments.push(&file);
        let process = ChildProcess::spawn(own, arguments)?;
        let admin = wait_for_field(&process, "the guard", |line| parse_listening_address("admin", line))?;
        let public = wait_for_field(&process, "the guard", |line| parse_listening_address("guard", line))?;
        Ok(Self { process, public, admin })
    }
}

/// Makes the key that both gateways sign tickets with.
fn create_ticket_signing_key(own: &Path, folder: &Path) -> Result<PathBuf, DemoError> {
    let key = folder.join("ticket-key.json");
    run_binary(own, &["keys", "new"], &[&key]).map(|_| key)
}

/// Runs the binary to its end, as an operator would, and returns its output.
fn run_binary(own: &Path, words: &[&str], files: &[&Path]) -> Result<Vec<u8>, DemoError> {
    let output = std::process::Command::new(own).args(words).args(files).output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(DemoError::NotStarted { who: format!("`fencegate {}`", words.join(" ")), said })
}

/// Waits for a line of JSON in which `read` finds the field.
fn wait_for_field<T>(
    process: &ChildProcess,
    who: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<T, DemoError> {
    let read = |line: &str| serde_json::from_str(line).ok().as_ref().and_then(&read);
    match process.wait_line(|line| read(line).is_some(), UP_WITHIN) {
        Ok(line) => Ok(read(&line).expect("the line was chosen for it")),
        Err(timeout) => Err(DemoError::NotStarted { who: who.to_owned(), said: timeout.to_string() }),
    }
}

fn parse_listening_address(listener: &str, line: &Value) -> Option<SocketAddr> {
    let fields = &line["fields"];
    let listens = fields["message"] == "listening" && fields["listener"] == listener;
    listens.then(|| fields["address"].as_str()?.parse().ok()).flatten()
}
