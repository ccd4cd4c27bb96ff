//! The canonical spelling of a request's host, or the reason for which it has none.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

/// A `Host` field or authority in canonical spelling: lower case, no trailing dot, an IPv6 address in brackets
/// and in its shortest form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CanonicalHost {
    text: Arc<str>,
    /// The length of the name in `text`. A colon and the port follow the name, if the host has a port.
    name: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseHostError {
    #[error("the host is empty")]
    Empty,
    #[error("the host carries user information")]
    UserInfo,
    #[error("the host name has a character or label that no host name has")]
    Name,
    #[error("the bracketed address is not an IPv6 address")]
    Ipv6,
    #[error("the port is not a number from 0 to 65535")]
    Port,
}

impl CanonicalHost {
    /// Reads `name`, `name:port`, `[v6]` or `[v6]:port`. Percent-escapes are refused: RFC 3986 allows them, no
    /// host name needs them, and servers disagree about them.
    pub fn parse(raw: &str) -> Result<Self, ParseHostError> {
        if raw.contains('@') {
            return Err(ParseHostError::UserInfo);
        }
        let (mut text, port) = match raw.strip_prefix('[') {
            Some(bracketed) => ipv6(bracketed)?,
            None => {
                let (name, port) = split_port(raw);
                (reg_name(name)?, port)
            }
        };
        let name = text.len();
        // A colon without a port means the default port (RFC 3986, section 3.2.3).
        if let Some(port) = port.filter(|port| !port.is_empty()) {
            check_port(port)?;
            text.push(':');
            text.push_str(port);
        }
        Ok(Self { text: text.into(), name })
    }

    /// The host without the port: the value of `{host}` in a key.
    pub fn name(&self) -> &str {
        &self.text[..self.name]
    }

    /// True for an IP address, which needs no DNS lookup.
    pub fn is_address(&self) -> bool {
        self.ip().is_some()
    }

    pub fn ip(&self) -> Option<IpAddr> {
        let name = self.name();
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        bare.parse().ok()
    }

    pub fn port(&self) -> Option<u16> {
        self.text[self.name..].strip_prefix(':').map(|port| port.parse().expect("checked when it was read"))
    }

    /// The host with its port, if it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn split_port(raw: &str) -> (&str, Option<&str>) {
    match raw.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (raw, None),
    }
}

fn ipv6(bracketed: &str) -> Result<(String, Option<&str>), ParseHostError> {
    let (address, after) = bracketed.split_once(']').ok_or(ParseHostError::Ipv6)?;
    let address: Ipv6Addr = address.parse().map_err(|_| ParseHostError::Ipv6)?;
    let port = match after.strip_prefix(':') {
        Some(port) => Some(port),
        None if after.is_empty() => None,
        None => return Err(ParseHostError::Ipv6),
    };
    Ok((format!("[{address}]"), port))
}

/// Reads a host name: letters, digits, `-` and `_` in labels of 1 to 63 characters, at most 253 in all. The
/// name is returned in lower case.
fn reg_name(raw: &str) -> Result<String, ParseHostError> {
    if raw.is_empty() {
        return Err(ParseHostError::Empty);
    }
    let name = raw.strip_suffix('.').unwrap_or(raw);
    let good = |label: &[u8]| {
        (1..=63).contains(&label.len())
            && label.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if name.len() > 253 || !name.as_bytes().split(|byte| *byte == b'.').all(good) {
        return Err(ParseHostError::Name);
    }
    Ok(name.to_ascii_lowercase())
}

fn check_port(port: &str) -> Result<(), ParseHostError> {
    // The digits are checked because `u16::from_str` would accept a plus sign.
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    if digits && port.parse::<u16>().is_ok() { Ok(()) } else { Err(ParseHostError::Port) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All spellings of a host have the same name.
    #[test]
    fn host_spellings_have_one_name() {
        for (raw, name, text) in [
            ("pay.example", "pay.example", "pay.example"),
            ("PAY.Example.", "pay.example", "pay.example"),
            ("pay.example:8080", "pay.example", "pay.example:8080"),
            ("pay.example.:080", "pay.example", "pay.example:080"),
            ("127.0.0.1:1", "127.0.0.1", "127.0.0.1:1"),
            ("[0:0::1]", "[::1]", "[::1]"),
            ("pay.example:", "pay.example", "pay.example"),
            ("[::1]:", "[::1]", "[::1]"),
            ("[2001:DB8::1]:443", "[2001:db8::1]", "[2001:db8::1]:443"),
            ("my_service", "my_service", "my_service"),
        ] {
            let host = CanonicalHost::parse(raw).expect(raw);
            assert_eq!((host.name(), host.as_str()), (name, text), "{raw:?}");
        }
    }

    /// A host that servers read in different ways is rejected.
    #[test]
    fn ambiguous_host_is_rejected() {
        for (raw, error) in [
            ("", ParseHostError::Empty),
            (":80", ParseHostError::Empty),
            ("user@pay.example", ParseHostError::UserInfo),
            ("pay..example", ParseHostError::Name),
            (".", ParseHostError::Name),
            ("pay example", ParseHostError::Name),
            ("pay%2eexample", ParseHostError::Name),
            ("pay.example/x", ParseHostError::Name),
            ("münchen.example", ParseHostError::Name),
            ("a,b", ParseHostError::Name),
            ("::1", ParseHostError::Empty),
            ("[::1", ParseHostError::Ipv6),
            ("[::1]x", ParseHostError::Ipv6),
            ("[fe80::1%25eth0]", ParseHostError::Ipv6),
            ("[pay.example]", ParseHostError::Ipv6),
            (":", ParseHostError::Empty),
            ("pay.example::", ParseHostError::Port),
            ("pay.example:+80", ParseHostError::Port),
            ("pay.example:65536", ParseHostError::Port),
            ("pay.example:80:80", ParseHostError::Port),
        ] {
            assert_eq!(CanonicalHost::parse(raw), Err(error), "{raw:?}");
        }
    }

    proptest! {
        #[test]
        fn canonical_host_is_own_canonical_form(raw in "\\PC{0,40}|[A-Z.a-z0-9:\\[\\]-]{0,20}") {
            if let Ok(host) = CanonicalHost::parse(&raw) {
                prop_assert_eq!(CanonicalHost::parse(host.as_str()), Ok(host));
            }
        }
    }
}
