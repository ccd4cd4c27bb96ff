//! Why a process does not start, or did not end well.

use std::io;

use fencegate_guard::ticket::BadFile;
use fencegate_http::listen::certificates::BadCertificate;
use fencegate_lock::{session::credentials::BadCredentials, state::NotOpened};
use fencegate_process::client_tls::BadTls;

use super::worker::Deaf;
use crate::{bearer::BadBearer, key_secret::BadKeySecret, siblings::BadPeerTls};

/// Why a process does not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum NotServing {
    #[error("FG0527: listen on {address}, the {listener} listener: {source}{}", remedy(source))]
    Listen { listener: String, address: String, source: io::Error },
    #[error("FG0526: listen on {address}, the {listener} listener: {source}")]
    UnixSocket { listener: String, address: String, source: io::Error },
    #[error("start a thread or runtime")]
    Start(#[from] io::Error),
    #[error("FG0510: speak TLS with clients")]
    ListenerTls(#[from] BadCertificate),
    #[error("FG0510: speak TLS with operators")]
    AdminTls(#[source] BadCertificate),
    #[error("FG0510: speak TLS with other gateways")]
    PeerTls(#[from] BadPeerTls),
    #[error("FG0510: use the files that `zookeeper` names")]
    ZooKeeperTls(#[from] BadCredentials),
    #[error("read the token of the admin listener")]
    AdminToken(#[from] BadBearer),
    #[error("read a token of `leases.principals`")]
    LeaseToken(#[source] BadBearer),
    #[error(transparent)]
    KeySecret(#[from] BadKeySecret),
    #[error("FG0512: read the key that tickets are signed with")]
    Key(#[from] BadFile),
    #[error(transparent)]
    State(#[from] NotOpened),
    #[error("FG0512: prepare TLS with an upstream")]
    UpstreamTls(#[source] BadTls),
    #[error("the session's thread has panicked; locks go by the session timeout")]
    SessionEnded,
    #[error("{0} requests were still at work when the drain was over")]
    NotDrained(usize),
}

/// The most frequent remedy.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            "; end the process that has it, which `ss -ltnp` names, or start beside it with `--beside`"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; this machine has no such address: `ip address` lists those it has"
        }
        io::ErrorKind::PermissionDenied => {
            "; a port below 1024 needs CAP_NET_BIND_SERVICE, or take a higher one"
        }
        _ => "",
    }
}

impl From<Deaf> for NotServing {
    fn from(deaf: Deaf) -> Self {
        let Deaf { listener, address, source } = deaf;
        Self::Listen { listener, address, source }
    }
}
