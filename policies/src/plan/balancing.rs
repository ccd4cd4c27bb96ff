//! The distribution of requests over the endpoints of an upstream, and the reasons for which an endpoint gets none.

use std::{ops::RangeInclusive, time::Duration};

use serde::{Serialize, Serializer};

use super::shown;
use crate::load_balance::LbPolicy;

/// The settings for the endpoints of an upstream, except their addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadBalancingSettings {
    /// The way in which requests are distributed. Default: round robin.
    pub balance: LbPolicy,
    /// The number of endpoints that are tried after the first, as long as nothing has been sent. Default: all.
    pub retries: Option<usize>,
    /// The health checks. Default: none.
    pub health: Option<HealthCheck>,
    pub eject: OutlierEjection,
    pub pool: PoolLimits,
    pub dns: DnsSettings,
}

/// How the health of endpoints is checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = EffectiveHealthCheck))]
pub struct HealthCheck {
    /// Path and query.
    pub path: String,
    /// Between two checks. Default 5 s.
    #[serde(serialize_with = "shown::duration")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub interval: Duration,
    /// The time limit for an answer. Default 2 s.
    #[serde(serialize_with = "shown::duration")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub timeout: Duration,
    /// Good answers in a row that make an endpoint healthy. Default 2.
    pub healthy: usize,
    /// Bad or missing answers in a row that make an endpoint unhealthy. Default 3.
    pub unhealthy: usize,
    /// Ranges of statuses of a good answer, such as `200-399`, which is the default.
    #[serde(rename = "status", serialize_with = "status_ranges")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub statuses: Vec<RangeInclusive<u16>>,
}

fn status_ranges<S: Serializer>(ranges: &[RangeInclusive<u16>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ranges.iter().map(|range| format!("{}-{}", range.start(), range.end())))
}

/// When a failing endpoint gets no requests for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = EffectiveEjection))]
pub struct OutlierEjection {
    /// Failures in a row. Default 5.
    pub failures: usize,
    /// The length of the first ejection. Each further ejection in a row is twice as long, up to 16 times this length.
    /// Default 30 s.
    #[serde(rename = "for", serialize_with = "shown::duration")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub base: Duration,
}

impl OutlierEjection {
    pub const LONGEST: u32 = 16;

    /// The length of an ejection after `earlier` ejections in a row.
    pub fn ejection_duration(&self, earlier: u32) -> Duration {
        self.base.saturating_mul(1_u32.checked_shl(earlier).unwrap_or(Self::LONGEST).min(Self::LONGEST))
    }
}

impl Default for OutlierEjection {
    fn default() -> Self {
        Self { failures: 5, base: Duration::from_secs(30) }
    }
}

/// Connections to one endpoint, over all workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = EffectivePool))]
pub struct PoolLimits {
    /// Default 1024.
    pub max_connections: usize,
    /// Idle connections that are kept. Default 256.
    pub max_idle: usize,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { max_connections: 1024, max_idle: 256 }
    }
}

/// How the names of endpoints are looked up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = EffectiveDns))]
pub struct DnsSettings {
    /// Between two lookups. Default 30 s.
    #[serde(serialize_with = "shown::duration")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub refresh: Duration,
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self { refresh: Duration::from_secs(30) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of ejections grows with each failure, up to a limit.
    #[test]
    fn ejection_grows_to_limit() {
        let eject = OutlierEjection::default();
        let seconds: Vec<u64> = [0, 1, 2, 4, 5, 31, 40].map(|n| eject.ejection_duration(n).as_secs()).into();
        assert_eq!(seconds, [30, 60, 120, 480, 480, 480, 480]);
    }
}
