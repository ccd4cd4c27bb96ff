//! Decides whether a listener serves a host.

use std::fmt;

use serde::{Serialize, Serializer};

use super::canonical::CanonicalHost;

/// The hosts that a listener serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HostMatcher {
    #[default]
    Any,
    Only(Vec<HostPattern>),
}

/// One entry of the list of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    Host(String),
    /// Every host below a name, at any depth, but not the name itself. The text begins with a dot.
    Below(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("neither a host nor `*.` and a host")]
pub struct ParseHostPatternError;

/// Writes the entry as a policy does.
impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Below(tail) => write!(f, "*{tail}"),
        }
    }
}

/// Serializes the list; an empty list if every host is served.
impl Serialize for HostMatcher {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let patterns = match self {
            Self::Any => &[][..],
            Self::Only(patterns) => patterns,
        };
        serializer.collect_seq(patterns.iter().map(ToString::to_string))
    }
}

impl HostMatcher {
    /// Whether the listener serves the host. The port is ignored, because behind a load balancer it is not the
    /// port of this listener.
    pub fn contains(&self, host: &CanonicalHost) -> bool {
        self.contains_name(host.name())
    }

    /// Like [`Self::contains`]; `name`: the name of a [`CanonicalHost`].
    pub(crate) fn contains_name(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(served) => served.iter().any(|served| served.matches_name(name)),
        }
    }

    /// Whether this list contains every host of `other`.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::Only(_), Self::Any) => false,
            (Self::Only(ours), Self::Only(theirs)) => {
                theirs.iter().all(|their| ours.iter().any(|our| our.covers(their)))
            }
        }
    }

    /// Whether some host is in both lists.
    pub(crate) fn has_common_host(&self, other: &Self) -> bool {
        let (Self::Only(ours), Self::Only(theirs)) = (self, other) else { return true };
        ours.iter().any(|our| theirs.iter().any(|their| our.covers(their) || their.covers(our)))
    }
}

impl HostPattern {
    /// Whether this entry contains the host. The port is ignored.
    pub fn matches(&self, host: &CanonicalHost) -> bool {
        self.matches_name(host.name())
    }

    fn matches_name(&self, name: &str) -> bool {
        match self {
            Self::Host(host) => name == host,
            Self::Below(tail) => name.len() > tail.len() && name.ends_with(tail.as_str()),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match other {
            Self::Host(name) => self.matches_name(name),
            Self::Below(tail) => matches!(self, Self::Below(ours) if tail.ends_with(ours.as_str())),
        }
    }

    /// Reads a host name, an IP address, or all hosts below a name, as `*.pay.example`.
    ///
    /// # Errors
    /// Returns an error for anything else, such as a port or a star at another place.
    pub fn parse(text: &str) -> Result<Self, ParseHostPatternError> {
        let (below, name) = text.strip_prefix("*.").map_or((false, text), |name| (true, name));
        let host = CanonicalHost::parse(name).map_err(|_| ParseHostPatternError)?;
        match (host.port(), below) {
            (Some(_), _) => Err(ParseHostPatternError),
            (None, true) => Ok(Self::Below(format!(".{}", host.name()))),
            (None, false) => Ok(Self::Host(host.name().to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(list: &[&str]) -> HostMatcher {
        HostMatcher::Only(list.iter().map(|text| HostPattern::parse(text).expect(text)).collect())
    }

    /// A host is served if the list contains it, in any spelling.
    #[test]
    fn listed_host_is_served_in_any_spelling() {
        let hosts = hosts(&["Pay.Example.", "*.shop.example", "[::1]"]);
        for (host, served) in [
            ("pay.example", true),
            ("PAY.example:8443", true),
            ("a.shop.example", true),
            ("b.a.shop.example", true),
            ("[0::1]", true),
            ("shop.example", false),
            ("evilshop.example", false),
            (".shop.example", false),
            ("pay.example.evil", false),
            ("127.0.0.1", false),
        ] {
            let contained = CanonicalHost::parse(host).is_ok_and(|host| hosts.contains(&host));
            assert_eq!(contained, served, "{host}");
        }
    }

    /// A text that is no host is rejected as an entry of the list.
    #[test]
    fn invalid_host_pattern_is_rejected() {
        for bad in ["", "*", "a.*.example", "*.", "pay.example:80", "http://pay.example", "*.*.example"] {
            assert_eq!(HostPattern::parse(bad), Err(ParseHostPatternError), "{bad}");
        }
    }
}
