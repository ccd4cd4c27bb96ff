//! Tells the service manager how far a start or an end has come, where one listens: the datagrams of sd_notify(3).

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
    time::Duration,
};

use tracing::warn;

/// The service manager that has started this process, if it wants to be told. Mostly there is none.
#[derive(Debug)]
pub(super) struct Manager(Option<SocketAddr>);

/// How often it is looked whether the start is over. Nobody waits for this but a person at a terminal.
const LOOK: Duration = Duration::from_millis(50);

impl Manager {
    /// As `NOTIFY_SOCKET` says: a path, or behind `@` a name that is no file.
    pub(super) fn found() -> Self {
        let named = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        Self(named.and_then(|name| match address(&name) {
            Ok(address) => Some(address),
            Err(error) => {
                warn!(socket = %name.to_string_lossy(), %error, "NOTIFY_SOCKET is no address; the service manager is told nothing");
                None
            }
        }))
    }

    /// Waits until `is_ready`, and says so. Then it has nothing more to do, and never ends.
    pub(super) async fn told_when(&self, is_ready: impl Fn() -> bool) {
        if self.0.is_some() {
            while !is_ready() {
                tokio::time::sleep(LOOK).await;
            }
            self.tell("READY=1");
        }
        std::future::pending().await
    }

    /// Tells that the process drains: what runs is finished, and nothing new is begun.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, state: &str) {
        let Some(address) = &self.0 else { return };
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
