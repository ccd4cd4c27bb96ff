//! Logs which routes are refused because of other gateways.

use std::collections::{BTreeMap, BTreeSet};

use fencegate_policies::plan::MixedPlanPolicy;
use tracing::{error, info, warn};

/// Routes by name, with the gateways because of which they are refused.
type RefusedRoutes = BTreeMap<String, BTreeSet<String>>;

/// The most routes that are named in one line.
const NAMED: usize = 20;

pub(super) fn log_refused(refused: &RefusedRoutes, mixed: MixedPlanPolicy) {
    if refused.is_empty() {
        info!("no earlier gateway locks a route in another way any more");
        return;
    }
    let routes = format_refused_routes(refused);
    let gateways = format_conflicting_gateways(refused);
    match mixed {
        MixedPlanPolicy::Refuse => error!(
            code = "FG0550",
            routes,
            gateways,
            "config-mismatch: these routes are refused until those gateways have gone or agree"
        ),
        MixedPlanPolicy::Allow => warn!(
            code = "FG0254",
            routes,
            gateways,
            "config-mismatch: these routes are served all the same, because `allow_mixed` is set"
        ),
    }
}

/// Logs that the plan of `gateway` is too large and too different to compare each route with every other one.
pub(super) fn log_incomplete_comparison(gateway: &str) {
    warn!(
        code = "FG0550",
        gateway,
        "config-mismatch: the plans differ in thousands of routes, and those that were not compared count as unlike"
    );
}

fn format_refused_routes(refused: &RefusedRoutes) -> String {
    let more = refused.len().saturating_sub(NAMED);
    let named = refused.keys().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{named}, and {more} more") } else { named }
}

fn format_conflicting_gateways(refused: &RefusedRoutes) -> String {
    let gateways: BTreeSet<&str> = refused.values().flatten().map(String::as_str).collect();
    gateways.into_iter().collect::<Vec<_>>().join(", ")
}
