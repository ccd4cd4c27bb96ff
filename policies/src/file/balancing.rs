//! Reads how requests are distributed over the endpoints of an upstream.

use std::{ops::RangeInclusive, time::Duration};

use super::{mapping::MappingReader, scalar};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode},
    load_balance::LbPolicy,
    plan::{DnsSettings, HealthCheck, LoadBalancingSettings, OutlierEjection, PoolLimits},
};

/// Reads the settings for the endpoints of an upstream. `None` if the health check is invalid; this has been
/// reported.
pub(super) fn parse_endpoint_settings(block: &mut MappingReader) -> Option<LoadBalancingSettings> {
    let balance = block.keyword("balance", LbPolicy::WORDS).unwrap_or_default();
    let retries = block.value("retries", scalar::count);
    let has_health = block.is_present("health");
    let health = block.read_inner("health", |block| has_health.then(|| health(block)).flatten()).flatten();
    let eject = block.read_inner("eject", parse_outlier_ejection).unwrap_or_default();
    let pool = block.read_inner("pool", pool).unwrap_or_default();
    let dns = block.read_inner("dns", dns).unwrap_or_default();
    (has_health == health.is_some()).then_some(LoadBalancingSettings {
        balance,
        retries,
        health,
        eject,
        pool,
        dns,
    })
}

fn health(block: &mut MappingReader) -> Option<HealthCheck> {
    block.require("path", "path: /health");
    let path = block.value("path", path);
    let mut limit =
        |name, seconds| block.value(name, scalar::time_limit).unwrap_or(Duration::from_secs(seconds));
    let interval = limit("interval", 5);
    let timeout = limit("timeout", 2);
    let healthy = block.value("healthy", scalar::limit).unwrap_or(2);
    let unhealthy = block.value("unhealthy", scalar::limit).unwrap_or(3);
    let present = block.is_present("status");
    let statuses = block.values("status", statuses);
    let statuses = if present { statuses? } else { vec![200..=399] };
    if statuses.is_empty() {
        let fault =
            Diagnostic::new(DiagnosticCode::BadStatus, "no status would mean that an endpoint is healthy");
        block.report("status", fault.with_remedy("leave it out, or write `status: [200-399]`"));
    }
    Some(HealthCheck { path: path?, interval, timeout, healthy, unhealthy, statuses })
}

/// Reads the path, with a query, of a health check.
fn path(text: &str) -> Result<String, Diagnostic> {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte);
    if text.starts_with('/') && !text.starts_with("//") && text.bytes().all(fits) {
        return Ok(text.to_owned());
    }
    let fault =
        Diagnostic::new(DiagnosticCode::BadHealthPath, format!("`{text}` is not the path of a health check"));
    Err(fault.with_remedy("write a path such as `/health`, beginning with one `/`"))
}

/// Reads a status such as `204`, or a range such as `200-399`.
fn statuses(text: &str) -> Result<RangeInclusive<u16>, Diagnostic> {
    let status = |part: &str| {
        scalar::status(part, 100..=599, "write a status such as `204`, or a range such as `200-399`")
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first = status(first)?;
    let last = status(last)?;
    if first > last {
        return Err(scalar::out_of_range(text, "the smaller status comes first"));
    }
    Ok(first..=last)
}

fn parse_outlier_ejection(block: &mut MappingReader) -> OutlierEjection {
    let default = OutlierEjection::default();
    OutlierEjection {
        failures: block.value("failures", scalar::limit).unwrap_or(default.failures),
        base: block.value("for", scalar::time_limit).unwrap_or(default.base),
    }
}

fn pool(block: &mut MappingReader) -> PoolLimits {
    let default = PoolLimits::default();
    PoolLimits {
        max_connections: block.value("max_connections", scalar::limit).unwrap_or(default.max_connections),
        max_idle: block.value("max_idle", scalar::count).unwrap_or(default.max_idle),
    }
}

fn dns(block: &mut MappingReader) -> DnsSettings {
    let default = DnsSettings::default();
    DnsSettings { refresh: block.value("refresh", scalar::time_limit).unwrap_or(default.refresh) }
}
