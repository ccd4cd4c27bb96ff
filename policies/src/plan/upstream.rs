//! Where requests go: the endpoints of one upstream, and what is asked of them.

use std::{sync::Arc, time::Duration};

use super::{balancing::Sharing, bind::socket_path, fields::TokenFields, service::Service, tls::Tls};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UpstreamId(pub usize);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    pub name: Arc<str>,
    /// `host:port` or `unix:/path` each, at least one.
    pub endpoints: Vec<Arc<str>>,
    /// How TLS is spoken with all of them; `None` for plain text.
    pub tls: Option<Tls>,
    pub protocol: Protocol,
    pub fencing: Level,
    /// No hop between here and there sends a request twice, so a guard that refuses has not seen it before. Default no.
    pub direct: bool,
    pub fields: TokenFields,
    /// Default 3 s.
    pub connect_timeout: Duration,
    /// From the first byte sent to the head of the response. Default 15 s; 45 s with [`Level::Guard`], 9 s with
    /// [`Level::None`]; 15 s with [`Level::Delay`] too, or the delay where that is shorter.
    pub response_timeout: Duration,
    /// Between two pieces of a response body. Default 30 s.
    pub response_body_idle: Duration,
    /// For a client to take an answer whose key is held meanwhile. Default 2 min.
    pub response_body_total: Duration,
    /// An answer over HTTP/1.1 with more fields is none. Default 100.
    pub response_fields: usize,
    /// A pooled connection is not used again after this long. Default 30 s.
    pub idle: Duration,
    /// A tunnel ends that carries nothing for this long. Default 10 min.
    pub tunnel_idle: Duration,
    pub sharing: Sharing,
    /// Some route fences requests to this upstream.
    pub has_fenced_routes: bool,
    pub service: Service,
}

/// Who compares tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Nobody: the token is stamped all the same.
    None,
    /// Nobody, but after a holder that did not say that all is over, the next one waits for so long: by then everything
    /// that was sent is over.
    Delay(Duration),
    /// A guard beside the upstream, for a service that knows nothing of tokens.
    Guard,
    /// The upstream, in the transaction of the effect.
    Upstream,
}

/// What is spoken with an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    #[default]
    Http1,
    Http2,
    /// What the upstream chooses; HTTP/1.1 without TLS.
    Auto,
}

impl Upstream {
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// An endpoint as a policy writes it.
    pub fn written(&self, endpoint: &str) -> String {
        match socket_path(endpoint) {
            Some(_) => endpoint.to_owned(),
            None => format!("{}://{endpoint}", self.scheme()),
        }
    }
}

impl Level {
    /// Somebody compares tokens: what is late is refused there.
    pub fn compares(self) -> bool {
        match self {
            Level::None | Level::Delay(_) => false,
            Level::Guard | Level::Upstream => true,
        }
    }

    /// How long a holder waits after one that left without a word; `None` where it does not.
    pub fn delay(self) -> Option<Duration> {
        match self {
            Level::Delay(delay) => Some(delay),
            Level::None | Level::Guard | Level::Upstream => None,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Level::None => "none",
            Level::Delay(_) => "delay",
            Level::Guard => "guard",
            Level::Upstream => "upstream",
        }
    }
}
