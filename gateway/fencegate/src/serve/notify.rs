//! Tells the service manager how far a start, a reload or an end has come, and that the process has not hung, where one listens:
//! the datagrams of sd_notify(3).

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

use rustix::time::{ClockId, clock_gettime};
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use super::threads::Threads;

/// The service manager that has started this process, if it wants to be told. Mostly there is none.
#[derive(Debug)]
pub(super) struct Manager {
    address: Option<SocketAddr>,
    /// It kills a process that has said for so long nothing of its threads.
    watchdog: Option<Duration>,
    /// It was told that the start is over.
    started: AtomicBool,
}

/// How often it is looked whether the start is over. Nobody waits for this but a person at a terminal.
const LOOK: Duration = Duration::from_millis(50);

impl Manager {
    /// As `NOTIFY_SOCKET` says: a path, or behind `@` a name that is no file.
    pub(super) fn found() -> Self {
        let named = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let address = named.and_then(|name| match address(&name) {
            Ok(address) => Some(address),
            Err(error) => {
                warn!(socket = %name.to_string_lossy(), %error, "NOTIFY_SOCKET is no address; the service manager is told nothing");
                None
            }
        });
        let [within, whom] = ["WATCHDOG_USEC", "WATCHDOG_PID"].map(|name| env::var(name).ok());
        let watchdog = address.as_ref().and_then(|_| watchdog(within.as_deref(), whom.as_deref()));
        Self { address, watchdog, started: AtomicBool::new(false) }
    }

    /// Waits until `is_ready`, and says so. Then it has nothing more to do, and never ends.
    pub(super) async fn told_when(&self, is_ready: impl Fn() -> bool) {
        if self.address.is_some() {
            while !is_ready() {
                tokio::time::sleep(LOOK).await;
            }
            self.started.store(true, Ordering::Relaxed);
            self.tell("READY=1");
        }
        std::future::pending().await
    }

    /// Tells that `reload` is under way, and that it is over. In the time of the start nothing is told: `READY=1` would end it.
    pub(super) async fn told_of<R>(&self, reload: impl Future<Output = R>) -> R {
        let told = self.started.load(Ordering::Relaxed);
        if told {
            self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic().as_micros()));
        }
        let reloaded = reload.await;
        if told {
            self.tell("READY=1");
        }
        reloaded
    }

    /// Tells, twice in the time after which a process counts as hung, that each of `threads` has turned. Never ends.
    pub(super) async fn told_of_turns(&self, threads: &Threads) {
        if let Some(within) = self.watchdog {
            let mut due = interval(within / 2);
            due.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                due.tick().await;
                threads.turned().await;
                self.tell("WATCHDOG=1");
            }
        }
        std::future::pending().await
    }

    /// Tells that the process drains: what runs is finished, and nothing new is begun.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, state: &str) {
        let Some(address) = &self.address else { return };
        let sent = UnixDatagram::unbound().and_then(|socket| socket.send_to_addr(state.as_bytes(), address));
        if let Err(error) = sent {
            warn!(%error, state, "the service manager could not be told");
        }
    }
}

fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

/// `whom`: the process that is meant, where it is named.
fn watchdog(within: Option<&str>, whom: Option<&str>) -> Option<Duration> {
    if whom.is_some_and(|whom| whom != process::id().to_string()) {
        return None;
    }
    // Its half is what a timer waits for.
    within?.parse().ok().filter(|within| *within >= 2).map(Duration::from_micros)
}

/// The clock by which systemd tells a reload from the one before.
fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_of_another_process_is_not_ours() {
        let ours = process::id().to_string();
        let half_a_minute = Some(Duration::from_secs(30));
        assert_eq!(watchdog(Some("30000000"), None), half_a_minute);
        assert_eq!(watchdog(Some("30000000"), Some(&ours)), half_a_minute);
        assert_eq!(watchdog(Some("30000000"), Some("1")), None);
        for none in [None, Some(""), Some("soon"), Some("0"), Some("1")] {
            assert_eq!(watchdog(none, Some(&ours)), None, "{none:?}");
        }
    }
}
