//! An upstream: its endpoints, who compares its tokens, and its time limits.

use fencegate_policies::{
    load_balance::LbPolicy,
    plan::{
        ClientTls, DnsSettings, EndpointSettings, FencingLevel, HealthCheck, OutlierEjection, PoolLimits,
        TokenHeaderNames, Upstream, UpstreamProtocol,
    },
};
use serde::Serialize;

use super::duration::format_duration;

#[derive(Debug, Serialize)]
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
    /// The fields in which tokens are sent.
    pub fields: EffectiveTokenFields,
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
    pub health: Option<EffectiveHealthCheck>,
    pub eject: EffectiveEjection,
    pub pool: EffectivePool,
    pub dns: EffectiveDns,
}

/// Without the paths of files.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveClientTls {
    /// The name that the certificate must have; absent means the host of the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Whether the policy names the CAs; otherwise those count that the system trusts.
    pub own_ca: bool,
    /// Whether a certificate is shown to a server that requests one.
    pub client_certificate: bool,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveTokenFields {
    pub token: String,
    pub number: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveHealthCheck {
    pub path: String,
    pub interval: String,
    pub timeout: String,
    pub healthy: usize,
    pub unhealthy: usize,
    /// Ranges of statuses of a good answer, such as `200-399`.
    pub status: Vec<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveEjection {
    pub failures: usize,
    /// The length of the first ejection.
    #[serde(rename = "for")]
    pub base: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectivePool {
    pub max_connections: usize,
    pub max_idle: usize,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveDns {
    pub refresh: String,
}

impl EffectiveUpstream {
    pub(super) fn new(upstream: &Upstream) -> Self {
        let Upstream {
            name,
            endpoints,
            tls,
            protocol,
            fencing,
            direct,
            expiry,
            fields,
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
            // What follows from the routes is shown with them.
            has_fenced_routes: _,
            service: _,
        } = upstream;
        let EndpointSettings { balance, retries, health, eject, pool, dns } = sharing;
        let TokenHeaderNames { token, number } = fields;
        let OutlierEjection { failures, base } = eject;
        let PoolLimits { max_connections, max_idle } = pool;
        let DnsSettings { refresh } = dns;
        Self {
            name: name.to_string(),
            endpoints: endpoints.iter().map(|endpoint| upstream.endpoint_url(endpoint)).collect(),
            tls: tls.as_ref().map(EffectiveClientTls::new),
            protocol: match protocol {
                UpstreamProtocol::Http1 => "http1",
                UpstreamProtocol::Http2 => "http2",
                UpstreamProtocol::Auto => "auto",
            },
            fencing: fencing.as_str(),
            delay: fencing.delay().map(format_duration),
            direct: *direct,
            not_after: expiry.as_str(),
            fields: EffectiveTokenFields { token: token.clone(), number: number.clone() },
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
            balance: match balance {
                LbPolicy::RoundRobin => "round-robin",
                LbPolicy::LeastBusy => "least-busy",
                LbPolicy::ByKey => "by-key",
            },
            retries: *retries,
            health: health.as_ref().map(EffectiveHealthCheck::new),
            eject: EffectiveEjection { failures: *failures, base: format_duration(*base) },
            pool: EffectivePool { max_connections: *max_connections, max_idle: *max_idle },
            dns: EffectiveDns { refresh: format_duration(*refresh) },
        }
    }
}

impl EffectiveClientTls {
    fn new(tls: &ClientTls) -> Self {
        let ClientTls { ca_file, server_name, client } = tls;
        Self {
            server_name: server_name.clone(),
            own_ca: ca_file.is_some(),
            client_certificate: client.is_some(),
        }
    }
}

impl EffectiveHealthCheck {
    fn new(check: &HealthCheck) -> Self {
        let HealthCheck { path, interval, timeout, healthy, unhealthy, statuses } = check;
        Self {
            path: path.clone(),
            interval: format_duration(*interval),
            timeout: format_duration(*timeout),
            healthy: *healthy,
            unhealthy: *unhealthy,
            status: statuses.iter().map(|range| format!("{}-{}", range.start(), range.end())).collect(),
        }
    }
}
