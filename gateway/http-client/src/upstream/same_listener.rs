//! Determines whether two addresses reach the same listener, as far as this machine can tell.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

use fencegate_http::network::ConnectTarget;
use fencegate_policies::plan::CanonicalAddress;

/// Returns the identity of the listener at an address. All addresses of this machine have the identity of its
/// loopback, because a service that listens on all of them is reached by each. All paths of one socket file have one
/// identity, too.
pub fn canonical_address(remote: &ConnectTarget) -> CanonicalAddress {
    let socket = match remote {
        ConnectTarget::Unix(path) => {
            return CanonicalAddress::from_socket_path(
                &fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()),
            );
        }
        ConnectTarget::Tcp(socket) => SocketAddr::new(socket.ip().to_canonical(), socket.port()),
    };
    if is_local(socket) {
        CanonicalAddress::from_socket_addr((Ipv4Addr::LOCALHOST, socket.port()).into())
    } else {
        CanonicalAddress::from_socket_addr(socket)
    }
}

/// True if the address belongs to this machine: the kernel would then also use it as the source of packets to it. No
/// packet is sent to find this out.
fn is_local(socket: SocketAddr) -> bool {
    let any: IpAddr =
        if socket.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let asked = UdpSocket::bind((any, 0)).and_then(|asking| {
        asking.connect(socket)?;
        asking.local_addr()
    });
    asked.is_ok_and(|local| local.ip() == socket.ip())
}

/// The address of this machine in its network, if it has one.
#[cfg(test)]
pub(crate) fn own_address() -> Option<IpAddr> {
    let asking = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // This address is reserved for documentation. No packet is sent to it.
    asking.connect("203.0.113.1:9").ok()?;
    asking.local_addr().ok().map(|local| local.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address_at(host: &str) -> CanonicalAddress {
        canonical_address(&SocketAddr::new(host.parse().expect("an address"), 8000).into())
    }

    #[test]
    fn linked_socket_paths_are_same_address() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let real = folder.path().join("real");
        let link = folder.path().join("link");
        fs::create_dir(&real).expect("made");
        fs::write(real.join("s"), "").expect("made");
        std::os::unix::fs::symlink(&real, &link).expect("linked");
        let at = |path: std::path::PathBuf| canonical_address(&ConnectTarget::Unix(path.into()));
        assert_eq!(at(real.join("s")), at(link.join("s")));
        assert_ne!(at(real.join("s")), at(real.join("none")));
    }

    #[test]
    fn own_addresses_are_same_address() {
        let mut ours =
            vec!["127.0.0.1".to_owned(), "127.0.0.2".into(), "::1".into(), "::ffff:127.0.0.1".into()];
        ours.extend(own_address().map(|own| own.to_string()));
        for own in &ours {
            assert_eq!(address_at(own), address_at("127.0.0.1"), "{own}");
        }
        for other in ["203.0.113.1", "2001:db8::1"] {
            assert_ne!(address_at(other), address_at("127.0.0.1"), "{other}");
        }
    }
}
