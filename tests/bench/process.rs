//! The processor time of a process, a free port for it, and a wait until it listens.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use fencegate_testkit::child::ChildProcess;

use crate::result::BenchResult;

const PATIENCE: Duration = Duration::from_secs(10);

/// Linux reports times to user space in hundredths of a second, whatever the kernel's own tick is.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of processor time that a process and its children have used, in user space and in the kernel.
pub(crate) fn cpu_seconds(pid: u32) -> BenchResult<f64> {
    let mut ticks = ProcStat::of(pid)?.ticks;
    for entry in fs::read_dir("/proc")?.flatten() {
        let child = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // A process that ends meanwhile is not one of the measured programs, so its error is ignored.
        if let Some(stat) = child.and_then(|child| ProcStat::of(child).ok())
            && stat.parent == pid
        {
            ticks += stat.ticks;
        }
    }
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// The fields that are read from `/proc/<pid>/stat`, see proc(5).
struct ProcStat {
    parent: u32,
    ticks: u64,
}

impl ProcStat {
    fn of(pid: u32) -> BenchResult<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in parentheses may itself contain spaces and parentheses, so begin after the last one.
        let (_, rest) = text.rsplit_once(") ").ok_or("a process without a name")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let [_state, parent, _, _, _, _, _, _, _, _, _, user, system, ..] = fields[..] else {
            return Err("a process without times".into());
        };
        Ok(Self { parent: parent.parse()?, ticks: user.parse::<u64>()? + system.parse::<u64>()? })
    }
}

/// An address of loopback with a port that was free when it was looked for.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

pub(crate) fn wait_listening(address: SocketAddr, child: &ChildProcess) -> BenchResult<()> {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        if Instant::now() > deadline || !child.is_running() {
            return Err(format!("nobody listens at {address}; it said:\n{}", child.log()).into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
