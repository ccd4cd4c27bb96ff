//! Decides which peers are trusted to name their clients.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Serialize, Serializer};

/// The networks of proxies that are trusted to name their clients. Empty if none is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

/// The text is no network: neither an address, nor an address with the length of a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("neither an IP address nor a network")]
pub(crate) struct ParseIpNetworkError;

/// Serializes the networks as a policy writes them.
impl Serialize for TrustedProxies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(ToString::to_string))
    }
}

impl TrustedProxies {
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    pub(crate) fn trust_all() -> Self {
        let all = ["0.0.0.0/0", "::/0"].into_iter();
        Self(all.map(|network| network.parse().expect("a network")).collect())
    }

    /// Whether the address is in one of the networks. An IPv4 address that a dual-stack socket shows as IPv6 counts
    /// as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Whether the address is a proxy whose connections belong to its clients. If every address is trusted, none
    /// counts as a proxy.
    pub fn is_proxy(&self, address: IpAddr) -> bool {
        self.contains(address) && self.0.iter().all(|network| network.prefix_len() > 0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The client of a connection: from our peer backwards, the first address that is not trusted to name its
    /// client.
    ///
    /// `named`: the entries of `X-Forwarded-For` as written. An entry that is no address ends the walk, because no
    /// trusted proxy vouches for the entries before it.
    pub fn client_address<'a>(
        &self,
        peer: IpAddr,
        named: impl DoubleEndedIterator<Item = &'a str>,
    ) -> IpAddr {
        let mut client = peer.to_canonical();
        for entry in named.rev() {
            match entry_address(entry) {
                Some(before) if self.contains(client) => client = before.to_canonical(),
                _ => break,
            }
        }
        client
    }
}

/// Reads an entry: an address, to which some proxies add a port.
fn entry_address(entry: &str) -> Option<IpAddr> {
    let entry = entry.trim();
    if let Ok(address) = entry.parse() {
        return Some(address);
    }
    entry.parse().map(|socket: std::net::SocketAddr| socket.ip()).ok()
}

/// Reads a network such as `10.0.0.0/8` or `2001:db8::/32`, or a single address.
///
/// # Errors
/// Returns an error for anything else, also for a network with bits beyond its prefix, because `10.1.0.0/8` is more
/// likely a mistake than intended.
pub(crate) fn parse_network(text: &str) -> Result<IpNet, ParseIpNetworkError> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.into());
    }
    let network: IpNet = text.parse().map_err(|_| ParseIpNetworkError)?;
    if network.addr() == network.network() { Ok(network) } else { Err(ParseIpNetworkError) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trust(networks: &[&str]) -> TrustedProxies {
        TrustedProxies::new(networks.iter().map(|text| parse_network(text).expect(text)).collect())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// The client is the last address in the chain that no trusted proxy stands for.
    #[test]
    fn client_is_last_untrusted_address() {
        let trust = trust(&["10.0.0.0/8", "2001:db8::/32"]);
        for (peer, named, client) in [
            ("192.0.2.1", vec!["198.51.100.7"], "192.0.2.1"),
            ("10.0.0.1", vec!["198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", vec!["203.0.113.9", "198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", vec!["198.51.100.7", " 10.9.9.9 "], "198.51.100.7"),
            ("10.0.0.1", vec!["198.51.100.7", "unknown"], "10.0.0.1"),
            ("10.0.0.1", vec!["unknown", "198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", vec![], "10.0.0.1"),
            ("10.0.0.1", vec!["198.51.100.7:4711"], "198.51.100.7"),
            ("2001:db8::1", vec!["[2001:db9::1]:80"], "2001:db9::1"),
            ("::ffff:10.0.0.1", vec!["198.51.100.7"], "198.51.100.7"),
        ] {
            assert_eq!(trust.client_address(ip(peer), named.iter().copied()), ip(client), "{peer} {named:?}");
        }
    }

    /// Only addresses in the configured networks are trusted.
    #[test]
    fn only_named_proxies_are_trusted() {
        assert!(!TrustedProxies::default().contains(ip("127.0.0.1")));
        assert!(
            TrustedProxies::trust_all().contains(ip("2001:db8::1"))
                && TrustedProxies::trust_all().contains(ip("10.0.0.1"))
        );
        assert!(!TrustedProxies::trust_all().is_proxy(ip("10.0.0.1")));
    }

    /// A network with bits beyond its prefix is rejected.
    #[test]
    fn network_with_host_bits_is_rejected() {
        for bad in ["10.1.0.0/8", "10.0.0.0/33", "10.0.0", "localhost", "", "10.0.0.0/"] {
            assert_eq!(parse_network(bad), Err(ParseIpNetworkError), "{bad}");
        }
    }
}
