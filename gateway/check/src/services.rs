//! Checks whether two upstreams that are two services by the file lead to one service. Then a route through one
//! upstream bypasses the fences and the `allow` of the other.

use std::{collections::HashMap, time::Duration};

use fencegate_http::network::ConnectTarget;
use fencegate_http_client::upstream::same_listener::canonical_address;
use fencegate_policies::{
    diagnostics::DiagnosticCode,
    plan::{CanonicalAddress, CommonServingPlan, Upstream},
};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::{endpoints::resolve, findings::FindingCollector};

const LONGEST: Duration = Duration::from_secs(5);

pub(super) async fn check_shared_addresses(findings: &FindingCollector, plan: &CommonServingPlan) {
    let found = join_all(plan.upstreams.iter().map(resolve_endpoints)).await;
    for (index, (one, here)) in plan.upstreams.iter().zip(&found).enumerate() {
        for (other, there) in plan.upstreams[..index].iter().zip(&found) {
            let known = one.service.id == other.service.id;
            let is_protected = one.service.is_protected || other.service.is_protected;
            let shared = here.iter().find_map(|(spot, socket)| there.contains_key(spot).then_some(socket));
            if let (false, true, Some(socket)) = (known, is_protected, shared) {
                let message = format!(
                    "the upstreams `{}` and `{}` both lead to {socket}, and the file shows two services",
                    other.name, one.name
                );
                let remedy = "write their endpoints alike, so that the ways round a fence are looked for";
                findings.report_problem(
                    &["upstreams", &*one.name, "endpoints"],
                    DiagnosticCode::SharedService,
                    message,
                    remedy,
                );
            }
        }
    }
}

/// The addresses of the endpoints of an upstream. A name without an address is reported by another check.
async fn resolve_endpoints(upstream: &Upstream) -> HashMap<CanonicalAddress, ConnectTarget> {
    let lookups = upstream.endpoints.iter().map(|endpoint| timeout(LONGEST, resolve(endpoint)));
    let found = join_all(lookups).await.into_iter().flatten().flatten().flatten();
    found.map(|remote| (canonical_address(&remote), remote)).collect()
}
