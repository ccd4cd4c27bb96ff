//! Compares the plan of a file with those of all registered gateways, to find the routes that they lock in another way.

use std::collections::BTreeSet;

use fencegate_policies::{
    conflicts::{PlanConflictReport, find_conflicts},
    plan_digest::PublishedLockRules,
};
use fencegate_zookeeper::session::plan_publication::{
    PeerPlanPublication, PeerPlanStatus, PublishedPlanBytes,
};
use serde::{Deserialize, Serialize};

/// The result of the comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = FleetReport))]
pub struct FleetPlanComparison {
    /// The file can be put in force here now: nothing is refused.
    pub safe: bool,
    /// The other gateways that are registered.
    pub gateways: Vec<String>,
    /// The fenced routes of the file, in its order, and behind them its patterns of leases: `leases of job/*`.
    pub routes: Vec<FleetRouteComparison>,
    /// Gateways of which not all can be known, and why: all routes that were not compared count as locked otherwise by them.
    pub unreadable: Vec<String>,
}

/// The result for one route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RouteAgreement))]
pub struct FleetRouteComparison {
    pub route: String,
    pub agrees: bool,
    /// Gateways that lock the route in another way. Beside them it is refused here.
    pub unlike: Vec<String>,
}

/// Compares the plan of `file` with all gateways. `same` are the gateways that have published `ours`, the plan of this
/// gateway.
pub fn compare(
    file: &PublishedLockRules,
    ours: &PublishedPlanBytes,
    same: &[String],
    others: &[PeerPlanPublication],
) -> FleetPlanComparison {
    let entries = file.entries();
    let mut found: Vec<BTreeSet<&str>> = vec![BTreeSet::new(); entries.len()];
    let mut unreadable = BTreeSet::new();
    let ours = PeerPlanStatus::Published(ours.clone());
    let all = same.iter().map(|gateway| (gateway, &ours));
    for (gateway, says) in all.chain(others.iter().map(|other| (&other.gateway, &other.says))) {
        let (places, reason) = differing_routes(file, says);
        unreadable.extend(reason.map(|reason| format!("{gateway}: {reason}")));
        for at in places {
            found[at].insert(gateway);
        }
    }
    let gateways: BTreeSet<&String> = same.iter().chain(others.iter().map(|other| &other.gateway)).collect();
    let routes = entries.iter().zip(found).map(|(route, unlike)| FleetRouteComparison {
        route: route.name.clone(),
        agrees: unlike.is_empty(),
        unlike: unlike.into_iter().map(str::to_owned).collect(),
    });
    let routes: Vec<FleetRouteComparison> = routes.collect();
    FleetPlanComparison {
        safe: routes.iter().all(|route| route.agrees),
        gateways: gateways.into_iter().cloned().collect(),
        routes,
        unreadable: unreadable.into_iter().collect(),
    }
}

/// Reported if the plans are too large and too different to compare each route with every other one.
const UNFINISHED: &str =
    "it differs in thousands of routes: those that were not compared count as locked otherwise";

/// The indices of the routes that another gateway locks in another way. If that cannot be determined, all of them with
/// the reason.
fn differing_routes(file: &PublishedLockRules, says: &PeerPlanStatus) -> (Vec<usize>, Option<String>) {
    let all = || (0..file.routes.len() + file.leases.len()).collect();
    match says {
        PeerPlanStatus::Published(theirs) => match PublishedLockRules::parse(theirs.bytes()) {
            Ok(theirs) => {
                let PlanConflictReport { ours, unfinished } = find_conflicts(file, &theirs);
                (ours, unfinished.then(|| UNFINISHED.to_owned()))
            }
            Err(reason) => (all(), Some(reason.to_string())),
        },
        PeerPlanStatus::Unreadable(reason) => (all(), Some(reason.clone())),
        PeerPlanStatus::Incompatible => {
            (all(), Some("a build that publishes no routes, and has another plan".to_owned()))
        }
    }
}
