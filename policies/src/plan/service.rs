//! Groups the upstreams that belong to the same service: those that share an endpoint, directly or through other
//! upstreams.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::bind_address::socket_path;

/// A service of one plan, identified by the index of the first of its upstreams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub usize);

/// The service of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamService {
    pub id: ServiceId,
    /// True if some route fences requests to this service or restricts its clients by `allow`, through this upstream or
    /// another one. Then no request that could be read in two ways may reach the service.
    pub is_protected: bool,
}

/// The address of a listening process, in the same form for all its spellings. The protocol is ignored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CanonicalAddress {
    machine: AddressHost,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum AddressHost {
    /// This machine, by the names that every machine has for itself. A listener on all addresses is reached by each of
    /// them. Other names of this machine are recognised only by looking them up.
    This,
    Address(IpAddr),
    /// A host name in lower case. Its addresses are not known from the file.
    Name(String),
    /// A Unix socket of this machine, with the path of its file.
    Socket(PathBuf),
}

impl CanonicalAddress {
    /// `endpoint`: `unix:/path`, or `host:port` with the host in its canonical spelling.
    pub fn parse(endpoint: &str) -> Self {
        if let Some(path) = socket_path(endpoint) {
            return Self::from_socket_path(path);
        }
        let (host, port) = endpoint.rsplit_once(':').unwrap_or((endpoint, ""));
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let machine = match bare.parse().ok().or_else(|| parse_inet_aton(bare).map(IpAddr::V4)) {
            Some(address) => AddressHost::from_ip(address),
            None if bare == "localhost" || bare.ends_with(".localhost") => AddressHost::This,
            None => AddressHost::Name(bare.to_owned()),
        };
        Self::new(machine, port.parse().unwrap_or_default())
    }

    /// A socket file, by its canonical path.
    pub fn from_socket_path(path: &Path) -> Self {
        Self { machine: AddressHost::Socket(path.to_owned()), port: 0 }
    }

    /// An address to which a name was resolved.
    pub fn from_socket_addr(socket: SocketAddr) -> Self {
        Self::new(AddressHost::from_ip(socket.ip()), socket.port())
    }

    /// The default ports of HTTP and HTTPS count as the same port.
    fn new(machine: AddressHost, port: u16) -> Self {
        Self { machine, port: if port == 443 { 80 } else { port } }
    }
}

impl AddressHost {
    fn from_ip(address: IpAddr) -> Self {
        let address = address.to_canonical();
        if address.is_loopback() || address.is_unspecified() { Self::This } else { Self::Address(address) }
    }
}

/// Reads an IPv4 address in the older forms that resolvers accept, such as `127.1`, `0x7f.0.0.1` and `2130706433`
/// (inet_aton).
fn parse_inet_aton(host: &str) -> Option<Ipv4Addr> {
    let number = |part: &str| match part.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None if part.len() > 1 && part.starts_with('0') => u32::from_str_radix(part, 8).ok(),
        None => part.parse().ok(),
    };
    let numbers = host.split('.').map(number).collect::<Option<Vec<u32>>>()?;
    let (last, first) = numbers.split_last()?;
    if first.len() > 3 || first.iter().any(|part| *part > 255) {
        return None;
    }
    let high = (0_u32..).zip(first).map(|(at, part)| part << (24 - 8 * at)).sum::<u32>();
    // The last number fills all remaining bytes of the address.
    let room = 32 - 8 * u32::try_from(first.len()).ok()?;
    let fits = u64::from(*last) < 1_u64 << room;
    fits.then(|| Ipv4Addr::from(high | last))
}

/// The service of each upstream. `endpoints`: for each upstream its endpoints.
pub fn group_services<'e>(endpoints: impl IntoIterator<Item = &'e [Arc<str>]>) -> Vec<ServiceId> {
    let mut services: Vec<ServiceId> = Vec::new();
    let mut known: HashMap<CanonicalAddress, usize> = HashMap::new();
    for (index, endpoints) in endpoints.into_iter().enumerate() {
        services.push(ServiceId(index));
        for endpoint in endpoints {
            let other = *known.entry(CanonicalAddress::parse(endpoint)).or_insert(index);
            let ours = services[index];
            let theirs = services[other];
            if ours == theirs {
                continue;
            }
            let first = ours.min(theirs);
            let last = ours.max(theirs);
            // The endpoint joins two services that were separate so far.
            services.iter_mut().filter(|service| **service == last).for_each(|service| *service = first);
        }
    }
    services
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn group_indexes(upstreams: &[&[&str]]) -> Vec<usize> {
        let endpoints: Vec<Vec<Arc<str>>> = upstreams
            .iter()
            .map(|endpoints| endpoints.iter().map(|endpoint| Arc::from(*endpoint)).collect())
            .collect();
        group_services(endpoints.iter().map(Vec::as_slice)).into_iter().map(|service| service.0).collect()
    }

    /// Upstreams with different spellings of the same endpoint are one service.
    #[test]
    fn endpoint_spellings_are_one_service() {
        for (one, other) in [
            ("a:80", "a:80"),
            ("a:443", "a:80"),
            ("127.0.0.1:8000", "localhost:8000"),
            ("127.0.0.1:8000", "[::1]:8000"),
            ("127.0.0.1:8000", "127.0.0.2:8000"),
            ("127.0.0.1:8000", "127.1:8000"),
            ("127.0.0.1:8000", "0x7f.0.0.1:8000"),
            ("127.0.0.1:8000", "2130706433:8000"),
            ("127.0.0.1:8000", "017700000001:8000"),
            ("127.0.0.1:8000", "0.0.0.0:8000"),
            ("127.0.0.1:8000", "[::]:8000"),
            ("127.0.0.1:8000", "[::ffff:127.0.0.1]:8000"),
            ("127.0.0.1:8000", "pay.localhost:8000"),
            ("10.0.0.1:8000", "[::ffff:10.0.0.1]:8000"),
            ("10.0.0.1:8000", "10.1:8000"),
            ("unix:/run/ledger.sock", "unix:/run/ledger.sock"),
        ] {
            assert_eq!(group_indexes(&[&[one], &[other]]), [0, 0], "{one} {other}");
        }
    }

    #[test]
    fn other_host_or_port_is_other_service() {
        for (one, other) in [
            ("a:80", "b:80"),
            ("a:80", "a:8080"),
            ("unix:/run/a:80", "unix:/run/a:81"),
            ("unix:/run/a:80", "a:80"),
            ("127.0.0.1:8000", "127.0.0.1:8001"),
            ("127.0.0.1:8000", "10.0.0.1:8000"),
            ("localhost:8000", "localhost.example:8000"),
            ("1.2.3.4.5:80", "1.2.3.4:80"),
            ("256.1:80", "1.0:80"),
            ("10.0.0.1:80", "10.0.0.2:80"),
        ] {
            assert_eq!(group_indexes(&[&[one], &[other]]), [0, 1], "{one} {other}");
        }
    }

    /// Two upstreams are one service if a third one shares an endpoint with each of them.
    #[test]
    fn shared_endpoints_join_upstreams() {
        assert_eq!(group_indexes(&[&["a:1"], &["b:1"], &["c:1"], &["b:1", "a:1"]]), [0, 0, 2, 0]);
        assert_eq!(
            group_indexes(&[&["a:1"], &["b:1", "c:1"], &["d:1"], &["d:1", "c:1"], &[]]),
            [0, 1, 1, 1, 4]
        );
    }

    proptest! {
        /// Upstreams are one service if and only if shared endpoints connect them.
        #[test]
        fn only_shared_endpoints_join_services(
            upstreams in proptest::collection::vec(proptest::collection::vec(0..9_u8, 0..3), 0..8)
        ) {
            let named: Vec<Vec<String>> = upstreams
                .iter()
                .map(|endpoints| endpoints.iter().map(|endpoint| format!("h{endpoint}:1")).collect())
                .collect();
            let named: Vec<Vec<&str>> = named.iter().map(|one| one.iter().map(String::as_str).collect()).collect();
            let found = group_indexes(&named.iter().map(Vec::as_slice).collect::<Vec<_>>());
            // Find the upstreams that can be reached over shared endpoints.
            for (index, service) in found.iter().enumerate() {
                let mut reached = vec![index];
                let mut at = 0;
                while at < reached.len() {
                    let here = &upstreams[reached[at]];
                    for (other, endpoints) in upstreams.iter().enumerate() {
                        if !reached.contains(&other) && endpoints.iter().any(|one| here.contains(one)) {
                            reached.push(other);
                        }
                    }
                    at += 1;
                }
                prop_assert_eq!(Some(service), reached.iter().min());
            }
        }
    }
}
