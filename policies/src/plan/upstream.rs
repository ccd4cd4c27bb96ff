//! The upstreams: the endpoints of each, and its settings.

use std::{mem::discriminant, sync::Arc, time::Duration};

use serde::Serialize;

use super::{
    balancing::{DnsSettings, HealthCheck, LoadBalancingSettings, OutlierEjection, PoolLimits},
    bind_address::socket_path,
    inconclusive_statuses::InconclusiveStatuses,
    reserved_fields::{EffectiveHeaderNames, IdentityHeaderNames, TokenHeaderNames},
    service::UpstreamService,
    shown::format_duration,
    tls::{ClientTls, EffectiveClientTls},
};
use crate::words::words;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UpstreamId(pub usize);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    pub name: Arc<str>,
    /// The endpoints, each `host:port` or `unix:/path`; at least one.
    pub endpoints: Vec<Arc<str>>,
    /// The TLS settings for all endpoints; `None` for plain text.
    pub tls: Option<ClientTls>,
    pub protocol: UpstreamProtocol,
    pub fencing: FencingLevel,
    /// True if no proxy between here and the guard or filter repeats a request, so that a request which the guard or
    /// filter refuses has reached no service. Default false.
    pub direct: bool,
    /// The treatment of a dispatch that comes after its `Fencing-Not-After`. Default [`NotAfterEnforcement::Ignored`].
    pub expiry: NotAfterEnforcement,
    pub fields: TokenHeaderNames,
    /// The header fields with verified identities of the client.
    pub identity_fields: IdentityHeaderNames,
    /// The lower-case name of the header field with the value of `Idempotency-Key` for the upstream; `None` if the
    /// field keeps its name.
    pub operation_field: Option<Arc<str>>,
    /// The statuses of a response to a fenced request that do not prove that its execution is over. Default 502 and
    /// 504. Not used with [`FencingLevel::Guard`], because the guard reports the end of an execution.
    pub unfinished: InconclusiveStatuses,
    /// The time limit for a connection. Default 3 s.
    pub connect_timeout: Duration,
    /// The time limit from the first byte sent to the head of the response. Default 15 s; 45 s with
    /// [`FencingLevel::Guard`], 9 s with [`FencingLevel::None`]. With [`FencingLevel::Delay`] 15 s, or the delay if
    /// that is shorter.
    pub response_timeout: Duration,
    /// The kernel closes the connection of a fenced request if a byte stays unacknowledged for longer than this
    /// (`TCP_USER_TIMEOUT`), even while this process is suspended. For a gateway it is the response timeout, because
    /// every fencing level waits at least that long for sent requests. For a guard it is `send_within` if that is
    /// shorter.
    pub deliver_within: Duration,
    /// The time limit between two pieces of a response body. Default 30 s.
    pub response_body_idle: Duration,
    /// The time limit for a client to read a response while its key is held. Default 2 min.
    pub response_body_total: Duration,
    /// The most header fields of a response over HTTP/1.1; a response with more is refused. Default 100.
    pub response_fields: usize,
    /// The time after which an idle pooled connection is not used again. Default 30 s.
    pub idle: Duration,
    /// The time without a byte after which a tunnel ends. Default 10 min.
    pub tunnel_idle: Duration,
    pub sharing: LoadBalancingSettings,
    /// True if some route fences requests to this upstream.
    pub has_fenced_routes: bool,
    pub service: UpstreamService,
}

/// The component that compares tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FencingLevel {
    /// No component compares tokens. The token is stamped nevertheless.
    None,
    /// No component compares tokens. After a holder that ended without releasing the lock, the next holder waits for
    /// this time, in which every request of the former holder ends.
    Delay(Duration),
    /// A guard beside the upstream compares tokens, for a service that cannot.
    Guard,
    /// The upstream compares tokens, in the transaction of the effect.
    Upstream,
}

/// The treatment of a dispatch that reaches the upstream after its `Fencing-Not-After`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NotAfterEnforcement {
    /// The dispatch may be started at any time.
    #[default]
    Ignored,
    /// The last component before the service, or the service itself, refuses the dispatch. If `Fencing-Not-After` is
    /// later than the last byte, waits for the execution count from it.
    Enforced,
}

words! { NotAfterEnforcement { Ignored = "ignored", Enforced = "enforced" } }

/// The HTTP version for an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpstreamProtocol {
    #[default]
    Http1,
    Http2,
    /// The protocol that the upstream chooses by ALPN; HTTP/1.1 without TLS.
    Auto,
}

words! { UpstreamProtocol { Http1 = "http1", Http2 = "http2", Auto = "auto" } }

impl Upstream {
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// An endpoint as a policy writes it.
    pub fn endpoint_with_scheme(&self, endpoint: &str) -> String {
        match socket_path(endpoint) {
            Some(_) => endpoint.to_owned(),
            None => format!("{}://{endpoint}", self.scheme()),
        }
    }
}

impl FencingLevel {
    /// Whether tokens are compared and stale requests refused.
    pub fn compares_tokens(self) -> bool {
        match self {
            FencingLevel::None | FencingLevel::Delay(_) => false,
            FencingLevel::Guard | FencingLevel::Upstream => true,
        }
    }

    /// The time that the next holder waits after a holder that ended without releasing the lock; `None` if it does not
    /// wait.
    pub fn handover_delay(self) -> Option<Duration> {
        match self {
            FencingLevel::Delay(delay) => Some(delay),
            FencingLevel::None | FencingLevel::Guard | FencingLevel::Upstream => None,
        }
    }

    /// The words of a policy. The length of `delay` is in the field of the same name.
    pub(crate) const WORDS: [(&str, Self); 4] = [
        ("none", Self::None),
        ("delay", Self::Delay(Duration::ZERO)),
        ("guard", Self::Guard),
        ("upstream", Self::Upstream),
    ];

    /// The word in a policy.
    pub fn as_str(self) -> &'static str {
        let word = |(_, level): &&(&str, Self)| discriminant(level) == discriminant(&self);
        Self::WORDS.iter().find(word).expect("each level has a word").0
    }
}

/// An upstream as operators see it, with every field.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveUpstream {
    pub name: String,
    pub endpoints: Vec<String>,
    /// Absent for plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<EffectiveClientTls>,
    /// `http1`, `http2` or `auto`.
    pub protocol: &'static str,
    pub fencing: &'static str,
    /// How long the next holder waits after one that left without a word, with `fencing: delay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// No hop between here and the guard, or the filter, sends a request twice.
    pub direct: bool,
    /// `ignored` or `enforced`.
    pub not_after: &'static str,
    /// The fields in which it gets tokens, and what was verified of the client.
    pub fields: EffectiveHeaderNames,
    /// The field in which the upstream gets the value of `Idempotency-Key`, if another one.
    pub operation_field: Option<String>,
    /// The statuses of an answer that do not tell that its execution is over. Empty with `guard`: the guard tells it.
    pub unfinished: Vec<u16>,
    pub connect_timeout: String,
    pub response_timeout: String,
    /// The kernel drops the connection of a fenced request when a byte stays unacknowledged for longer.
    pub deliver_within: String,
    pub response_body_idle: String,
    pub response_body_total: String,
    pub response_fields: usize,
    pub idle: String,
    pub tunnel_idle: String,
    /// `round-robin`, `least-busy` or `by-key`.
    pub balance: &'static str,
    /// Endpoints that are tried after the first, while nothing has been sent; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<usize>,
    /// Absent without health checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCheck>,
    pub eject: OutlierEjection,
    pub pool: PoolLimits,
    pub dns: DnsSettings,
}

impl EffectiveUpstream {
    pub fn new(upstream: &Upstream) -> Self {
        // The pattern has no `..`, so that a new field does not compile until it is shown.
        let Upstream {
            name,
            endpoints,
            tls,
            protocol,
            fencing,
            direct,
            expiry,
            fields,
            identity_fields,
            operation_field,
            unfinished,
            connect_timeout,
            response_timeout,
            deliver_within,
            response_body_idle,
            response_body_total,
            response_fields,
            idle,
            tunnel_idle,
            sharing,
            // These fields follow from the routes, and are shown with them.
            has_fenced_routes: _,
            service: _,
        } = upstream;
        let LoadBalancingSettings { balance, retries, health, eject, pool, dns } = sharing;
        Self {
            name: name.to_string(),
            endpoints: endpoints.iter().map(|endpoint| upstream.endpoint_with_scheme(endpoint)).collect(),
            tls: tls.as_ref().map(EffectiveClientTls::new),
            protocol: protocol.as_str(),
            fencing: fencing.as_str(),
            delay: fencing.handover_delay().map(format_duration),
            direct: *direct,
            not_after: expiry.as_str(),
            fields: EffectiveHeaderNames::new(fields, identity_fields),
            operation_field: operation_field.as_deref().map(str::to_owned),
            unfinished: match fencing {
                FencingLevel::Guard => Vec::new(),
                FencingLevel::None | FencingLevel::Delay(_) | FencingLevel::Upstream => {
                    unfinished.statuses().to_vec()
                }
            },
            connect_timeout: format_duration(*connect_timeout),
            response_timeout: format_duration(*response_timeout),
            deliver_within: format_duration(*deliver_within),
            response_body_idle: format_duration(*response_body_idle),
            response_body_total: format_duration(*response_body_total),
            response_fields: *response_fields,
            idle: format_duration(*idle),
            tunnel_idle: format_duration(*tunnel_idle),
            balance: balance.as_str(),
            retries: *retries,
            health: health.clone(),
            eject: eject.clone(),
            pool: pool.clone(),
            dns: dns.clone(),
        }
    }
}
