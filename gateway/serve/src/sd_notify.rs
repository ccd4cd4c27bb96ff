//! Reports to the service manager start, reload and end, and that the threads still make progress, with the
//! datagrams of sd_notify(3).

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    process,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use fencegate_process::liveness::ThreadMonitor;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

/// Sends reports to the service manager that has started this process, if it wants them. Often there is none.
#[derive(Debug)]
pub(super) struct SystemdNotifier {
    address: Option<SocketAddr>,
    /// The service manager kills the process if the threads were not reported for this time.
    watchdog: Option<Duration>,
    /// True once the end of the start was reported.
    started: AtomicBool,
}

/// The interval in which it is checked whether the start is over.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl SystemdNotifier {
    /// Reads the address in `NOTIFY_SOCKET`: a path, or `@` and an abstract name.
    pub(super) fn from_env() -> Self {
        let named = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let address = named.and_then(|name| match notify_socket_address(&name) {
            Ok(address) => Some(address),
            Err(error) => {
                warn!(socket = %name.to_string_lossy(), %error, "NOTIFY_SOCKET is no address, so the service manager is not notified");
                None
            }
        });
        let [within, whom] = ["WATCHDOG_USEC", "WATCHDOG_PID"].map(|name| env::var(name).ok());
        let watchdog = address.as_ref().and_then(|_| parse_watchdog(within.as_deref(), whom.as_deref()));
        Self { address, watchdog, started: AtomicBool::new(false) }
    }

    /// Waits until `is_ready`, and reports the end of the start. Never returns.
    pub(super) async fn notify_ready_when(&self, is_ready: impl Fn() -> bool) {
        if self.address.is_some() {
            while !is_ready() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            self.started.store(true, Ordering::Relaxed);
            self.send("READY=1");
        }
        std::future::pending().await
    }

    /// Runs `reload`, and reports its begin and its end. During the start nothing is reported, because `READY=1`
    /// would end the start.
    pub(super) async fn notify_reload<R>(&self, reload: impl Future<Output = R>) -> R {
        let told = self.started.load(Ordering::Relaxed);
        if told {
            self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic().as_micros()));
        }
        let reloaded = reload.await;
        if told {
            self.send("READY=1");
        }
        reloaded
    }

    /// Reports twice within the watchdog's time that all of `threads` make progress. Never returns.
    pub(super) async fn run_watchdog(&self, threads: &ThreadMonitor) {
        if let Some(within) = self.watchdog {
            let mut due = interval(within / 2);
            due.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                due.tick().await;
                threads.wait_all_alive().await;
                self.send("WATCHDOG=1");
            }
        }
        std::future::pending().await
    }

    /// Reports that the process drains: requests in progress are finished, and nothing new is started.
    pub(super) fn notify_stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, state: &str) {
        let Some(address) = &self.address else { return };
        let sent = UnixDatagram::unbound().and_then(|socket| socket.send_to_addr(state.as_bytes(), address));
        if let Err(error) = sent {
            warn!(%error, state, "the service manager could not be notified");
        }
    }
}

fn notify_socket_address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

/// Parses the watchdog's time. `whom` is the id of the process for which the watchdog is meant, if it is set.
fn parse_watchdog(within: Option<&str>, whom: Option<&str>) -> Option<Duration> {
    if whom.is_some_and(|whom| whom != process::id().to_string()) {
        return None;
    }
    // The interval of the reports is half of this time and must not be zero.
    within?.parse().ok().filter(|within| *within >= 2).map(Duration::from_micros)
}

/// The clock with which systemd tells two reloads apart.
fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watchdog interval that systemd set for another process is ignored.
    #[test]
    fn watchdog_of_other_process_is_ignored() {
        let ours = process::id().to_string();
        let half_a_minute = Some(Duration::from_secs(30));
        assert_eq!(parse_watchdog(Some("30000000"), None), half_a_minute);
        assert_eq!(parse_watchdog(Some("30000000"), Some(&ours)), half_a_minute);
        assert_eq!(parse_watchdog(Some("30000000"), Some("1")), None);
        for none in [None, Some(""), Some("soon"), Some("0"), Some("1")] {
            assert_eq!(parse_watchdog(none, Some(&ours)), None, "{none:?}");
        }
    }
}
