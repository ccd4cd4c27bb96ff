//! Where a process listens, and the name of an endpoint that is a unix socket.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// The address of the public listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindAddress {
    Tcp(SocketAddr),
    /// Only processes on this machine can connect.
    Unix(UnixSocketFile),
}

/// A unix socket in the file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixSocketFile {
    pub path: PathBuf,
    /// The owners of a write permission for the file may connect.
    pub mode: u32,
}

/// The prefix of the path of a unix socket, in an address and in the name of an endpoint.
pub const UNIX: &str = "unix:";

/// The path of an endpoint that is a unix socket.
pub fn socket_path(endpoint: &str) -> Option<&Path> {
    endpoint.strip_prefix(UNIX).map(Path::new)
}

/// The value of `Host` for an endpoint. The path of a socket is no host, and HTTP servers would refuse it.
pub fn host_header(endpoint: &str) -> &str {
    if endpoint.starts_with(UNIX) { "localhost" } else { endpoint }
}

impl BindAddress {
    /// `None` for a unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(file) => write!(f, "{UNIX}{}", file.path.display()),
        }
    }
}

/// `address`, and `socket_mode` for a unix socket.
impl Serialize for BindAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("BindAddress", 2)?;
        fields.serialize_field("address", &self.to_string())?;
        match self {
            Self::Tcp(_) => fields.skip_field("socket_mode")?,
            Self::Unix(file) => fields.serialize_field("socket_mode", &format!("{:04o}", file.mode))?,
        }
        fields.end()
    }
}
