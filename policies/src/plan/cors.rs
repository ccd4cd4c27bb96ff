//! The pages of other origins that may read the responses of a listener (Fetch standard, "CORS protocol").

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer};

use super::shown;
use crate::host::{CanonicalHost, HostPattern};

/// The CORS settings of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CorsSettings {
    pub allow_origins: AllowedOrigins,
    /// The methods that a preflight allows. Default: [`CorsSettings::METHODS`].
    pub allow_methods: Vec<String>,
    /// The request header fields that a preflight allows. Default: [`CorsSettings::HEADERS`].
    pub allow_headers: Vec<String>,
    /// The response header fields that a page may read. Default: [`CorsSettings::EXPOSED`].
    pub expose_headers: Vec<String>,
    /// Whether pages may send cookies and client certificates. Never together with [`AllowedOrigins::Any`]. Default
    /// false.
    pub allow_credentials: bool,
    /// The time for which a browser may cache the response to a preflight. Default 10 min.
    #[serde(serialize_with = "shown::duration")]
    pub max_age: Duration,
}

impl CorsSettings {
    /// The default of `allow_methods`.
    pub(crate) const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
    /// The default of `allow_headers`: the fields that CLIENTS.md tells clients to send.
    pub(crate) const HEADERS: [&str; 5] =
        ["Authorization", "Content-Type", "Idempotency-Key", "Prefer", "X-Request-Id"];
    /// The default of `expose_headers`: the fields that CLIENTS.md tells clients to read.
    pub(crate) const EXPOSED: [&str; 3] = ["Fencing-Outcome", "Retry-After", "X-Request-Id"];
    /// The default of `max_age`.
    pub(crate) const MAX_AGE: Duration = Duration::from_secs(600);
}

/// The origins whose pages may read responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigins {
    Any,
    /// The listed origins, at least one.
    Listed(Vec<OriginPattern>),
}

impl AllowedOrigins {
    /// The word for every origin.
    pub(crate) const ANY: &str = "*";

    /// Whether pages of an origin may read responses. `origin`: the value of an `Origin` field. `null`, which any
    /// page can make a browser send, is contained only in [`AllowedOrigins::Any`].
    pub fn contains(&self, origin: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(patterns) => patterns.iter().any(|pattern| pattern.matches(origin)),
        }
    }
}

/// Serializes the list as a policy has it.
impl Serialize for AllowedOrigins {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Any => serializer.collect_seq([Self::ANY]),
            Self::Listed(patterns) => serializer.collect_seq(patterns.iter().map(ToString::to_string)),
        }
    }
}

/// One origin, or all origins with hosts below a name (RFC 6454, section 6.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginPattern {
    scheme: String,
    host: HostPattern,
    /// The port; `None` for the default port of the scheme, which browsers leave out.
    port: Option<u16>,
}

/// The reason for which a text is no origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseOriginError {
    #[error("without a scheme")]
    Scheme,
    #[error("with a path")]
    Path,
    #[error("with a host that is neither a host nor `*.` and a host")]
    Host,
    #[error("with the default port, which no browser writes")]
    DefaultPort,
    #[error("the origin of every sandboxed page")]
    Null,
}

impl OriginPattern {
    /// Reads an origin such as `https://app.example` or `http://localhost:5173`, or `https://*.app.example` for all
    /// hosts below a name.
    ///
    /// # Errors
    /// Returns an error for a text that no browser sends as an origin.
    pub fn parse(text: &str) -> Result<Self, ParseOriginError> {
        if text == "null" {
            return Err(ParseOriginError::Null);
        }
        let (scheme, authority) = text.split_once("://").ok_or(ParseOriginError::Scheme)?;
        if !is_scheme(scheme) {
            return Err(ParseOriginError::Scheme);
        }
        if authority.contains(['/', '?', '#']) {
            return Err(ParseOriginError::Path);
        }
        let (below, authority) = authority.strip_prefix("*.").map_or((false, authority), |rest| (true, rest));
        let host = CanonicalHost::parse(authority).map_err(|_| ParseOriginError::Host)?;
        if host.as_str() != authority || below && host.is_address() {
            return Err(ParseOriginError::Host);
        }
        let port = host.port();
        if port.is_some() && port == default_port(scheme) {
            return Err(ParseOriginError::DefaultPort);
        }
        let name = host.name();
        let host =
            if below { HostPattern::Below(format!(".{name}")) } else { HostPattern::Host(name.to_owned()) };
        Ok(Self { scheme: scheme.to_owned(), host, port })
    }

    /// Whether an origin matches. Browsers send only the canonical spelling of an origin, so no other spelling
    /// matches.
    fn matches(&self, origin: &str) -> bool {
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        scheme == self.scheme
            && CanonicalHost::parse(authority).is_ok_and(|host| {
                host.as_str() == authority && host.port() == self.port && self.host.matches(&host)
            })
    }
}

/// Writes the origin as a policy does.
impl fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, host, port } = self;
        match port {
            Some(port) => write!(f, "{scheme}://{host}:{port}"),
            None => write!(f, "{scheme}://{host}"),
        }
    }
}

/// Whether a text is a scheme in lower case, as browsers write it (RFC 3986, section 3.1).
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte))
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(patterns: &[&str]) -> AllowedOrigins {
        AllowedOrigins::Listed(patterns.iter().map(|text| OriginPattern::parse(text).expect(text)).collect())
    }

    /// An origin matches only if scheme, host and port are equal. A similar origin does not match.
    #[test]
    fn listed_origin_matches_exactly() {
        let origins = listed(&[
            "https://app.example",
            "https://*.shop.example",
            "http://localhost:5173",
            "https://[::1]:8443",
            "capacitor://localhost",
        ]);
        for (origin, is_allowed) in [
            ("https://app.example", true),
            ("https://a.shop.example", true),
            ("https://b.a.shop.example", true),
            ("http://localhost:5173", true),
            ("https://[::1]:8443", true),
            ("capacitor://localhost", true),
            ("http://app.example", false),
            ("https://app.example:8443", false),
            ("https://app.example:443", false),
            ("https://app.example:", false),
            ("https://app.example.", false),
            ("https://APP.example", false),
            ("https://app.example/", false),
            ("https://app.example.evil", false),
            ("https://evilapp.example", false),
            ("https://app.example@evil", false),
            ("https://shop.example", false),
            ("https://evilshop.example", false),
            ("https://a.shop.example:8443", false),
            ("http://a.shop.example", false),
            ("http://localhost", false),
            ("http://localhost:5174", false),
            ("https://[0::1]:8443", false),
            ("null", false),
            ("", false),
            ("app.example", false),
            ("https://app.example https://evil.example", false),
        ] {
            assert_eq!(origins.contains(origin), is_allowed, "{origin}");
        }
        assert!(AllowedOrigins::Any.contains("null") && AllowedOrigins::Any.contains("https://app.example"));
    }

    /// An origin that no browser sends is refused, because it would never match.
    #[test]
    fn text_that_no_browser_sends_is_rejected() {
        use ParseOriginError::{DefaultPort, Host, Null, Path, Scheme};
        for (text, error) in [
            ("app.example", Scheme),
            ("HTTPS://app.example", Scheme),
            ("://app.example", Scheme),
            ("https://app.example/", Path),
            ("https://app.example/shop", Path),
            ("https://app.example:443", DefaultPort),
            ("http://app.example:80", DefaultPort),
            ("https://App.example", Host),
            ("https://app.example.", Host),
            ("https://*", Host),
            ("https://*.", Host),
            ("https://a.*.example", Host),
            ("https://*.127.0.0.1", Host),
            ("https://", Host),
            ("https://user@app.example", Host),
            ("https://app.example:port", Host),
            ("null", Null),
        ] {
            assert_eq!(OriginPattern::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn pattern_is_shown_as_written() {
        for text in ["https://app.example", "https://*.shop.example:8443", "http://[::1]:3000"] {
            assert_eq!(OriginPattern::parse(text).expect(text).to_string(), text);
        }
    }
}
