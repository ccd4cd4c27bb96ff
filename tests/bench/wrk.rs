//! Sends HTTP requests with wrk, each as soon as the one before is answered.

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use fencegate_testkit::child::ChildProcess;

use crate::{result::BenchResult, run::BenchRun};

/// The requests of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WrkLoad {
    pub(crate) method: &'static str,
    /// The beginning of the path, before the number of the key.
    pub(crate) prefix: &'static str,
    pub(crate) keys: u32,
    /// At most as many threads as clients. With as many threads as keys, each thread has a key to itself.
    pub(crate) threads: u32,
    pub(crate) clients: u32,
}

/// The result of a load in which all responses were good.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WrkResult {
    pub(crate) requests: f64,
    pub(crate) per_second: f64,
    pub(crate) p99: Duration,
}

/// A load that is running.
pub(crate) struct RunningWrk {
    wrk: ChildProcess,
    patience: Duration,
}

impl WrkLoad {
    pub(crate) fn run(self, run: &BenchRun, server: SocketAddr, window: Duration) -> BenchResult<WrkResult> {
        self.start(run, server, window)?.finish()
    }

    pub(crate) fn start(
        self,
        run: &BenchRun,
        server: SocketAddr,
        window: Duration,
    ) -> BenchResult<RunningWrk> {
        let Self { method, prefix, keys, threads, clients } = self;
        let script = script(run)?;
        let command = format!(
            "--threads {threads} --connections {clients} --duration {}s --timeout 30s --script {} http://{server} -- \
             {method} {prefix} {keys} {threads}",
            window.as_secs(),
            script.display(),
        );
        let wrk = ChildProcess::spawn("wrk", command.split(' '))?;
        Ok(RunningWrk { wrk, patience: window + Duration::from_mins(1) })
    }
}

impl RunningWrk {
    /// Waits for the result. A single bad response is an error.
    pub(crate) fn finish(self) -> BenchResult<WrkResult> {
        let said = self.wrk.wait_line(|line| line.starts_with("RESULT "), self.patience)?;
        let numbers = said.split(' ').skip(1).map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        let [requests, microseconds, refused, broken, p99] = numbers[..] else {
            return Err(format!("wrk said `{said}`").into());
        };
        if refused > 0.0 || broken > 0.0 || requests == 0.0 {
            let counts = format!("{refused} refusals and {broken} broken exchanges in {requests} requests");
            return Err(format!("{counts}; wrk said:\n{}", self.wrk.log()).into());
        }
        Ok(WrkResult {
            requests,
            per_second: requests / (microseconds / 1e6),
            p99: Duration::from_secs_f64(p99 / 1e6),
        })
    }
}

fn script(run: &BenchRun) -> BenchResult<PathBuf> {
    let file = run.folder().join("load.lua");
    if !file.exists() {
        fs::write(&file, include_str!("load.lua"))?;
    }
    Ok(file)
}
