//! The target of a connection.

use std::{fmt, net::SocketAddr, path::Path, sync::Arc};

use fencegate_policies::plan::{UNIX, socket_path};

/// An address, or the path of a socket on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConnectTarget {
    Tcp(SocketAddr),
    Unix(Arc<Path>),
}

impl ConnectTarget {
    /// The target of an endpoint that needs no lookup: `unix:/path`, or an address with a port.
    pub fn parse_literal(endpoint: &str) -> Option<Self> {
        match socket_path(endpoint) {
            Some(path) => Some(Self::Unix(path.into())),
            None => endpoint.parse().ok().map(Self::Tcp),
        }
    }
}

impl From<SocketAddr> for ConnectTarget {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for ConnectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}
