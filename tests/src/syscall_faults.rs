//! System calls of a running process that take longer than they should, or fail: injected by `strace`.
//!
//! A slow or broken disk is a delayed `fdatasync`, or one that answers EIO.

use std::{process::Command, time::Duration};

use fencegate_testkit::{
    child::{ChildProcess, Signal},
    wait::PATIENCE,
};
use tokio::task::spawn_blocking;

/// Faults that are injected into a process until the value is dropped.
pub struct SyscallFaults(ChildProcess);

/// The fault of the system calls that sync data to disk.
#[derive(Debug, Clone, Copy)]
pub enum FsyncFault {
    /// Each call begins this much later.
    Late(Duration),
    /// No call is carried out, and each fails with an error of the device (EIO).
    Failing,
}

/// The calls. `fdatasync` is called for files, and `fsync` for folders.
const CALLS: &str = "fdatasync,fsync";

impl SyscallFaults {
    /// Injects the faults into all threads of the process.
    ///
    /// # Errors
    /// Returns the reason if the faults cannot be injected: `strace` is missing, or the kernel does not allow
    /// tracing.
    pub async fn attach(pid: u32, sync: FsyncFault) -> Result<Self, String> {
        spawn_blocking(move || Self::begin(pid, sync)).await.expect("no panic")
    }

    fn begin(pid: u32, sync: FsyncFault) -> Result<Self, String> {
        if let Err(error) = Command::new("strace").arg("--version").output() {
            return Err(format!("strace: {error}"));
        }
        let fault = match sync {
            FsyncFault::Late(time) => format!("delay_enter={}", time.as_micros()),
            FsyncFault::Failing => "error=EIO".to_owned(),
        };
        let arguments = [
            format!("--attach={pid}"),
            "--follow-forks".to_owned(),
            format!("--trace={CALLS}"),
            format!("--inject={CALLS}:{fault}"),
        ];
        let strace = ChildProcess::spawn("strace", arguments).map_err(|error| error.to_string())?;
        let attached = strace.wait_line(|line| line.contains(" attached"), PATIENCE / 4);
        attached.map_err(|error| format!("strace may not attach to a process of ours: {}", error.log))?;
        Ok(Self(strace))
    }

    /// The number of calls that had the fault so far.
    pub fn call_count(&self) -> usize {
        let log = self.0.log();
        log.lines().filter(|line| line.contains("(DELAYED)") || line.contains("(INJECTED)")).count()
    }

    /// Ends the faults, and returns the number of calls that had one.
    pub async fn detach(self) -> usize {
        let over = move || {
            // On SIGTERM, `strace` first detaches from the traced process, which goes on, and then exits.
            drop(self.0.signal(Signal::TERM));
            self.0.wait(PATIENCE);
            self.0.wait_output_end(PATIENCE / 10);
            self.call_count()
        };
        spawn_blocking(over).await.expect("no panic")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Python program that syncs a file again and again. It prints the milliseconds of each sync, or the number of
    /// the error.
    const KEEPS: &str = "
import os, tempfile, time
with tempfile.TemporaryFile() as file:
    while True:
        begun = time.monotonic()
        try:
            os.fdatasync(file.fileno())
            print('kept', int((time.monotonic() - begun) * 1000), flush=True)
        except OSError as error:
            print('failed', error.errno, flush=True)
        time.sleep(0.01)
";

    fn took(line: &str) -> Option<u64> {
        line.strip_prefix("kept ")?.parse().ok()
    }

    /// While the faults are attached, calls are late or fail. Afterwards calls work as before.
    #[tokio::test]
    async fn calls_recover_after_delay_or_failure() {
        let keeps = ChildProcess::spawn("python3", ["-c", KEEPS]).expect("setpriv");
        let says = |wanted: fn(&str) -> bool| {
            let line = keeps.wait_line_after(keeps.cursor(), wanted, PATIENCE);
            line.unwrap_or_else(|log| panic!("{log}"))
        };
        let late = |line: &str| took(line).is_some_and(|time| time >= 300);
        let soon = |line: &str| took(line).is_some_and(|time| time < 300);
        says(soon);
        let tampered =
            match SyscallFaults::attach(keeps.pid(), FsyncFault::Late(Duration::from_millis(300))).await {
                Ok(tampered) => tampered,
                Err(error) => return println!("no tampering here: {error}"),
            };
        says(late);
        // On a busy machine, a call may be late without a fault, so wait until a fault was counted.
        while tampered.call_count() == 0 {
            says(late);
        }
        assert!(tampered.detach().await > 0);
        says(soon);
        let tampered = SyscallFaults::attach(keeps.pid(), FsyncFault::Failing).await.expect("as before");
        // 5 is the number of EIO.
        says(|line| line == "failed 5");
        drop(tampered);
        says(soon);
    }
}
