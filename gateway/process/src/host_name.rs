//! The name of this machine.

/// The host name, which names a gateway whose policy has no name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
