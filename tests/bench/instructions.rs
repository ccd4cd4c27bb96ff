//! The number of instructions in user space per request, compared with bare hyper. Callgrind counts them, so other
//! programs on the machine do not change the result.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use fencegate_testkit::zookeeper::PrivateZooKeeper;

use crate::{
    gateway::{BenchGateway, UpstreamKind, policy},
    locks::ZOOKEEPER,
    nginx::Nginx,
    peers,
    report::{BenchRound, BenchRow, RatioGoal},
    result::BenchResult,
    run::BenchRun,
    wrk::WrkLoad,
};

/// The load on a counted program, which is fifty times slower: few clients, and few enough keys to take all of them
/// in the warm-up.
pub(crate) const LOAD: WrkLoad =
    WrkLoad { method: "GET", prefix: "/unfenced/", keys: 32, threads: 1, clients: 16 };
const WARM_UP: Duration = Duration::from_secs(8);
const SESSION: &str = "40s";

pub(crate) fn measure(run: &BenchRun) -> BenchResult<Vec<BenchRow>> {
    let zookeeper = PrivateZooKeeper::start(&run.folder().join("zookeeper-counted"), ZOOKEEPER)?;
    let service = Nginx::service(run)?;
    let counter = InstructionCounter::new(run, "bare");
    let bare = peers::start_with_arguments(&counter.command_prefix(&run.bare()), service.address)?;
    let theirs = counter.count(run, bare.pid(), bare.address(), LOAD)?;
    drop(bare);
    let ours = |name: &str, prefix| {
        let counter = InstructionCounter::new(run, name);
        let mut policy = policy(name, zookeeper.address(), service.address, UpstreamKind::Service);
        policy["zookeeper"]["session_timeout"] = SESSION.into();
        let gateway = BenchGateway::start_command(run, &counter.command_prefix(&run.gateway()), &policy)?;
        let ours = counter.count(run, gateway.pid(), gateway.public, WrkLoad { prefix, ..LOAD })?;
        gateway.stop()?;
        BenchResult::Ok(BenchRound { ours, theirs })
    };
    let bench = |name, round| BenchRow {
        name,
        peer: "bare hyper",
        unit: "instructions/request",
        goal: RatioGoal::None,
        rounds: vec![round],
    };
    Ok(vec![
        bench("unfenced-instructions", ours("unfenced", "/unfenced/")?),
        bench("fenced-warm-instructions", ours("warm", "/warm/")?),
    ])
}

/// The file into which callgrind writes the counts of one process.
pub(crate) struct InstructionCounter {
    file: PathBuf,
}

impl InstructionCounter {
    pub(crate) fn new(run: &BenchRun, name: &str) -> Self {
        Self { file: run.folder().join(format!("{name}.callgrind")) }
    }

    /// The words of a command line that start a program under callgrind. It counts only after a request.
    pub(crate) fn command_prefix(&self, program: &Path) -> Vec<String> {
        let file = format!("--callgrind-out-file={}", self.file.display());
        let mut words: Vec<String> =
            ["/usr/bin/valgrind", "--tool=callgrind", "--instr-atstart=no"].map(str::to_owned).into();
        words.extend([file, program.display().to_string()]);
        words
    }

    /// Counts the instructions of a process during a load, and returns their number per request.
    pub(crate) fn count(
        &self,
        run: &BenchRun,
        pid: u32,
        server: SocketAddr,
        load: WrkLoad,
    ) -> BenchResult<f64> {
        load.run(run, server, WARM_UP)?;
        control(pid, &["--instr=on"])?;
        let answered = load.run(run, server, run.window)?;
        control(pid, &["--instr=off"])?;
        control(pid, &["--dump"])?;
        let dumped = self.file.with_extension("callgrind.1");
        let text = fs::read_to_string(&dumped)?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        let total: f64 = total.ok_or("callgrind has written no total")?.trim().parse()?;
        let per_request = total / answered.requests;
        run.print(&format!("{}: {per_request:.0} instructions/request", self.file.display()));
        Ok(per_request)
    }
}

fn control(pid: u32, words: &[&str]) -> BenchResult<()> {
    let said = Command::new("callgrind_control").args(words).arg(pid.to_string()).output()?;
    if said.status.success() {
        return Ok(());
    }
    Err(format!("callgrind_control {words:?}: {}", String::from_utf8_lossy(&said.stderr)).into())
}
