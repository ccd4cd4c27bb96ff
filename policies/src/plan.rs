//! The plan: a policy file after all checks, the only form that the gateway accepts.

mod admin;
mod conditions;
mod ending;
mod fence;
mod fields;
mod guard;
mod log;
pub mod memory;
mod once;
mod peer;
mod served_tls;
mod service;
mod sharing;
mod tls;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

pub use admin::Admin;
pub use conditions::Conditions;
pub use ending::Ending;
pub use fence::{BodyType, Caching, Enforce, Fence, Hold, LargeBodies, Mode, ModeRule};
pub use fields::{ReservedFields, TokenFields, are_alike, begins_plain, is_plain, plain};
pub use guard::{Guard, Journal, Missing, Probe, Store, Verification};
pub use log::{Access, KeysShown, Log, Traces};
pub use once::{Memory, Once, OnceStore, Operation};
pub use peer::{Forward, Peer, PeerTls};
pub use served_tls::{ClientAuth, Pair, ServedTls, TlsVersion};
pub use service::{Service, ServiceId, Spot, services};
pub use sharing::{Dns, Eject, Health, PoolLimits, Sharing};
pub use tls::{ClientCertificate, Tls};

use crate::{
    host::Hosts,
    path::{Bound, CanonicalPath, PathTemplate},
    route::RouteTable,
    trust::Trust,
};

/// Everything a gateway does, decided. Made by [`crate::file::load`] only.
#[derive(Debug, Clone)]
pub struct Gateway {
    pub serving: Plan,
    pub zookeeper: ZooKeeper,
    /// Where the other gateways reach this one; nowhere without.
    pub peer: Option<Peer>,
    /// What tickets are signed with; none are sent without.
    pub tickets: Option<Signing>,
    /// A folder for what has to outlive the process, such as the highest token seen.
    pub state_dir: Option<PathBuf>,
    /// Hash over all that decides keys and lock paths; equal in two gateways whose locks mean the same.
    pub fingerprint: u64,
}

/// What a process serves and where it sends it: the part that gateway and guard have in common.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The process's name in logs and in its member node; the host name unless configured.
    pub name: Option<String>,
    pub listener: Listener,
    pub admin: Admin,
    pub upstreams: Vec<Upstream>,
    pub routes: RouteTable,
    pub unmatched: Unmatched,
    pub fields: ReservedFields,
    pub log: Log,
}

/// The key that a gateway signs its tickets with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signing {
    /// An Ed25519 private key, as `fencegate keys new` writes it.
    Ed25519(PathBuf),
    /// A secret that the guards have, too.
    Secret(PathBuf),
}

impl Plan {
    pub fn upstream(&self, id: UpstreamId) -> &Upstream {
        &self.upstreams[id.0]
    }
}

/// The public listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub name: String,
    pub address: SocketAddr,
    pub protocols: Protocols,
    /// `None` for plain text.
    pub tls: Option<ServedTls>,
    pub proxy_protocol: ProxyProtocol,
    /// Whose word on the client is believed.
    pub trusted: Trust,
    /// What is served here.
    pub hosts: Hosts,
    pub limits: Limits,
    pub timeouts: Timeouts,
}

impl Listener {
    /// What becomes of it with a new plan: all of that but what an open socket cannot change.
    #[must_use]
    pub fn taken_over(&self, new: &Self) -> Self {
        Self {
            name: self.name.clone(),
            address: self.address,
            protocols: self.protocols,
            tls: self.tls.clone(),
            proxy_protocol: self.proxy_protocol,
            limits: Limits { connections: self.limits.connections, ..new.limits.clone() },
            ..new.clone()
        }
    }
}

/// What is spoken on a listener; told apart by the first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocols {
    Both,
    Http1,
    /// Without TLS by prior knowledge.
    Http2,
}

/// Whether a proxy before us says who its client is, before anything else (version 1 or 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocol {
    Off,
    /// From peers that are trusted; others are hung up on.
    Require,
}

/// What one listener takes at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Open client connections over all workers.
    pub connections: usize,
    /// Of those, from one client. Default: all.
    pub connections_per_client: Option<usize>,
    /// Requests in flight over all workers.
    pub in_flight: usize,
    /// Of those, for one client. Default: all.
    pub per_client: Option<usize>,
    /// Requests at once on one HTTP/2 connection. Default 100.
    pub streams: usize,
    /// Bytes of request head. Default 64 KiB.
    pub max_header: usize,
    /// Header fields in a request. Default 100.
    pub max_fields: usize,
    /// Bytes of request body on fenced routes (unfenced ones stream). Default 1 MiB.
    pub max_body: usize,
    /// Bytes that all bodies together may take which are here in full. Default: as much as the process may have allows.
    pub buffered: Option<usize>,
}

/// How long a listener waits for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// For the handshake of TLS. Default 5 s.
    pub tls_handshake: Duration,
    /// From the connection to the bytes that tell its protocol. Default 5 s.
    pub detect: Duration,
    /// From the first byte of a request head to its end; for a connection's first, from its beginning. Default 10 s.
    pub request_headers: Duration,
    /// Between two requests of a connection. Default 60 s.
    pub idle: Duration,
    /// For the whole body on fenced routes, between two pieces of it on others. Default 10 s.
    pub request_body: Duration,
    /// For a client to take something of its answer. Default 30 s.
    pub response_write: Duration,
    /// From the signal to stop to the end of the process. Default 30 s.
    pub drain: Duration,
}

/// Where the locks live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZooKeeper {
    /// `host:port`, at least one.
    pub servers: Vec<String>,
    /// Absolute, normalised, without a trailing slash; `/fencegate` by default.
    pub root: String,
    /// Asked for; the negotiated value is what counts.
    pub session_timeout: Duration,
    /// The ensemble's `tickTime`.
    pub tick: Duration,
    /// Nothing is sent this long before the session could end; [`ZooKeeper::margin`] when absent.
    pub safety_margin: Option<Duration>,
    /// Sessions that share the keys between them, 1 to [`ZooKeeper::MOST_SESSIONS`]. Default 4.
    pub sessions: usize,
    pub acl: Acl,
}

/// Whether it has to be told that everybody who reaches ZooKeeper may write there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Acl {
    #[default]
    Checked,
    /// That is meant: something else keeps strangers away.
    Open,
}

impl ZooKeeper {
    /// Each session costs the ensemble a heartbeat and a connection per gateway.
    pub const MOST_SESSIONS: usize = 64;

    /// How often the session proves itself with a committed write: min(1 s, T / 6), T being the negotiated timeout.
    pub fn heartbeat(negotiated: Duration) -> Duration {
        (negotiated / 6).min(Duration::from_secs(1))
    }

    /// The least margin that is safe: a heartbeat may be late by its own period, and the server rounds an expiry by
    /// up to a tick.
    pub fn least_margin(negotiated: Duration, tick: Duration) -> Duration {
        Self::heartbeat(negotiated) + tick
    }

    /// The margin in force for a negotiated timeout: what is configured, else max(25 % of T, the least margin).
    pub fn margin(&self, negotiated: Duration) -> Duration {
        self.safety_margin.unwrap_or_else(|| (negotiated / 4).max(Self::least_margin(negotiated, self.tick)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UpstreamId(pub usize);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    pub name: Arc<str>,
    /// `host:port` each, at least one.
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
    /// [`Level::None`].
    pub response_timeout: Duration,
    /// Between two pieces of a response body. Default 30 s.
    pub response_body_idle: Duration,
    /// For a client to take an answer whose key is held meanwhile. Default 2 min.
    pub response_body_total: Duration,
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
}

impl Level {
    pub fn word(self) -> &'static str {
        match self {
            Level::None => "none",
            Level::Guard => "guard",
            Level::Upstream => "upstream",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteId(pub usize);

#[derive(Debug, Clone)]
pub struct Route {
    pub id: RouteId,
    pub name: Arc<str>,
    pub upstream: UpstreamId,
    /// Exact, upper case; empty means every method.
    pub methods: Vec<String>,
    pub path: PathTemplate,
    pub conditions: Conditions,
    pub fence: Option<Fence>,
    /// Protocols that its requests may switch to. Default none.
    pub upgrade: Vec<String>,
}

impl Route {
    /// What the route's path template binds in `path`, which has to be one that the route was found for.
    pub fn bind<'a>(&'a self, path: &'a CanonicalPath) -> Bound<'a> {
        Bound::new(&self.path, path)
    }
}

/// A request that no route matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmatched {
    Reject,
    /// Forwarded unfenced.
    Pass(UpstreamId),
}
