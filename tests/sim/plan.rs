//! The plan of a gateway, as its policy file would give it.

use std::{net::SocketAddr, time::Duration};

use fencegate_policies::{file, plan::GatewayPlan};
use fencegate_tests::policy::TestPolicy;

/// A plan for an ensemble whose tick is 200 ms.
pub(crate) fn plan(gateway: &str, zookeeper: SocketAddr, session_timeout: Duration) -> GatewayPlan {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let policy = TestPolicy::new(gateway, zookeeper, ROOT, nowhere)
        .with("/zookeeper/session_timeout", format!("{}ms", session_timeout.as_millis()));
    let loaded = file::load(&policy.to_string());
    loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
}

/// The root of every installation here: each has its own ensemble, so the roots may be equal.
pub(crate) const ROOT: &str = "/fencegate";
