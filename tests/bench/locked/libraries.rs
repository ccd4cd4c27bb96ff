//! Redis and etcd, and the Python programs that take their locks and call the service while they hold them.

use std::{fs, net::SocketAddr, path::PathBuf};

use fencegate_testkit::child::ChildProcess;

use super::fetched;
use crate::{lock_clients::LockClients, process, result::BenchResult, run::BenchRun};

/// The number of client processes, each with 16 clients: one Python process uses at most one core.
const PROCESSES: u32 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockLibrary {
    /// `Lock` of redis-py.
    Redis,
    /// The lock service that is a part of etcd.
    Etcd,
}

/// A lock server on this machine. Dropping it ends it.
pub(super) struct LockServer {
    library: LockLibrary,
    address: SocketAddr,
    _child: ChildProcess,
}

/// The Python interpreter, and the script that takes both kinds of locks.
pub(super) struct PythonClient {
    program: String,
    script: PathBuf,
}

impl LockServer {
    pub(super) fn start(run: &BenchRun, library: LockLibrary, round: u32) -> BenchResult<Self> {
        let address = process::free_address()?;
        let folder = run.folder().join(format!("{library:?}-{round}"));
        fs::create_dir_all(&folder)?;
        let words = match library {
            LockLibrary::Redis => redis(address, &folder.display().to_string()),
            LockLibrary::Etcd => etcd(address, process::free_address()?, &folder.display().to_string()),
        };
        let mut words = words.split(' ');
        let child = ChildProcess::spawn(words.next().ok_or("a program")?, words)?;
        process::wait_listening(address, &child)?;
        Ok(Self { library, address, _child: child })
    }
}

/// The settings of Redis: an acknowledged write is on the disk, which a lock requires that must outlive a restart of
/// its server:
/// <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#performance-crash-recovery-and-fsync>.
fn redis(address: SocketAddr, folder: &str) -> String {
    let ip = address.ip();
    let port = address.port();
    format!("redis-server --bind {ip} --port {port} --dir {folder} --appendonly yes --appendfsync always")
}

/// etcd with its default settings, which wait for the disk: <https://etcd.io/docs/v3.4/op-guide/configuration/>.
fn etcd(address: SocketAddr, peer: SocketAddr, folder: &str) -> String {
    format!(
        "etcd --data-dir {folder} --log-level error --listen-client-urls http://{address} --advertise-client-urls http://{address} \
         --listen-peer-urls http://{peer} --initial-advertise-peer-urls http://{peer} --initial-cluster default=http://{peer}"
    )
}

impl PythonClient {
    pub(super) fn fetch(run: &BenchRun) -> BenchResult<Self> {
        let program = fetched::from_pypi(run, "redis==8.1.0")?;
        let script = run.folder().join("take.py");
        fs::write(&script, include_str!("take.py"))?;
        Ok(Self { program, script })
    }

    /// The number of calls per second that clients make while they hold a lock.
    pub(super) fn measure_rate(
        &self,
        run: &BenchRun,
        server: &LockServer,
        service: SocketAddr,
        keys: u32,
        clients: u32,
    ) -> BenchResult<f64> {
        let kind = match server.library {
            LockLibrary::Redis => "redis",
            LockLibrary::Etcd => "etcd",
        };
        let start = run.folder().join("take.start");
        let words = [
            self.program.clone(),
            self.script.display().to_string(),
            kind.to_owned(),
            server.address.to_string(),
            service.to_string(),
            keys.to_string(),
            (clients / PROCESSES).to_string(),
            start.display().to_string(),
            run.window.as_secs().to_string(),
        ];
        LockClients::start(start, (0..PROCESSES).map(|_| words.clone().into()))?.measure_rate(run.window)
    }
}
