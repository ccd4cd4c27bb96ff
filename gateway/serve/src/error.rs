//! The errors of a process that does not start, or did not end well.

use std::io;

use fencegate_config::{
    access_tokens::LoadJwtIssuerError, bearer::BearerTokenFileError, key_secret::LoadKeyHashSecretError,
};
use fencegate_http::listen::certificates::ListenerTlsError;
use fencegate_peers::PeerTlsError;
use fencegate_process::client_tls::TlsClientConfigError;
use fencegate_ticket::KeyFileError;
use fencegate_zookeeper::{session::credentials::ZkTlsCredentialsError, state::OpenStateDirError};

/// The error of a listener that cannot listen at its address.
#[derive(Debug)]
pub struct BindError {
    pub listener: String,
    pub address: String,
    pub source: io::Error,
}

/// The reason for which a process does not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("FG0527: cannot listen on {address}, the {listener} listener: {source}{}", remedy(source))]
    Listen { listener: String, address: String, source: io::Error },
    #[error("FG0526: cannot listen on {address}, the {listener} listener: {source}")]
    UnixSocket { listener: String, address: String, source: io::Error },
    #[error("cannot start a thread or the async runtime")]
    Start(#[from] io::Error),
    #[error("FG0510: cannot use TLS with clients")]
    ListenerTls(#[from] ListenerTlsError),
    #[error("FG0510: cannot use TLS with operators")]
    AdminTls(#[source] ListenerTlsError),
    #[error("FG0510: cannot use TLS with other gateways")]
    PeerTls(#[from] PeerTlsError),
    #[error("FG0510: cannot use the files that `zookeeper` names")]
    ZooKeeperTls(#[from] ZkTlsCredentialsError),
    #[error("cannot read the token of the admin listener")]
    AdminToken(#[from] BearerTokenFileError),
    #[error("cannot read a token of `leases.principals`")]
    LeaseToken(#[source] BearerTokenFileError),
    #[error(transparent)]
    KeySecret(#[from] LoadKeyHashSecretError),
    #[error("FG0512: cannot read the key that tickets are signed with")]
    TicketKey(#[from] KeyFileError),
    #[error(transparent)]
    Issuer(#[from] LoadJwtIssuerError),
    #[error(transparent)]
    State(#[from] OpenStateDirError),
    #[error("FG0512: cannot prepare TLS with an upstream")]
    UpstreamTls(#[source] TlsClientConfigError),
    #[error("the session's thread has panicked; its locks are released when the session times out")]
    SessionEnded,
    #[error("{0} requests were still running when the drain ended")]
    DrainTimeout(usize),
}

/// The remedy for the most frequent cause of a bind error.
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

impl From<BindError> for ProcessError {
    fn from(deaf: BindError) -> Self {
        let BindError { listener, address, source } = deaf;
        Self::Listen { listener, address, source }
    }
}
