//! The address at which a process listens, and the names of endpoints that are Unix sockets.

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
    /// A Unix socket, to which only processes on this machine can connect.
    Unix(UnixSocketFile),
}

/// A unix socket in the file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixSocketFile {
    pub path: PathBuf,
    /// The permissions of the file. A process that may write the file may connect.
    pub mode: u32,
}

/// The prefix of a Unix socket's path, in an address and in the name of an endpoint.
pub const UNIX: &str = "unix:";

/// The path of an endpoint that is a Unix socket; `None` for any other endpoint.
pub fn socket_path(endpoint: &str) -> Option<&Path> {
    endpoint.strip_prefix(UNIX).map(Path::new)
}

/// The value of `Host` for an endpoint. For a socket it is `localhost`, because HTTP servers would refuse a
/// path.
pub fn host_header(endpoint: &str) -> &str {
    if endpoint.starts_with(UNIX) { "localhost" } else { endpoint }
}

impl BindAddress {
    /// The IP address and port; `None` for a Unix socket.
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

/// Serializes `address`, and `socket_mode` for a Unix socket.
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
