//! The holders of the key, and the conditions that release it at the latest.

use fencegate_lock::manager::{admin_query::LockQueueEntry, listing::HeldLockInfo};
use fencegate_policies::{
    key::ResourceKey,
    plan::{GatewayPlan, LockReusePolicy},
};

use super::{
    key_facts::{KeyFacts, routes_for_key},
    related::key_page_url,
    waiters::node_age,
};
use crate::{models::millis, page::layout::format_millis};

/// One holder.
pub(super) struct HolderRow {
    pub(super) gateway: String,
    /// The page of that gateway about the key.
    pub(super) page: Option<String>,
    /// The address at which other gateways reach that gateway.
    pub(super) peer: Option<String>,
    pub(super) token: String,
    pub(super) since: String,
    pub(super) route: Option<String>,
    pub(super) requests: Vec<String>,
    pub(super) state: &'static str,
    pub(super) node: String,
}

pub(super) fn holder_rows(known: &KeyFacts, gateway: &str) -> Vec<HolderRow> {
    let held = known.local.as_ref().map(|lock| &*lock.held).unwrap_or_default();
    let line = known.line.as_deref().unwrap_or_default();
    let holding: Vec<&LockQueueEntry> = line.iter().filter(|node| node.holds).collect();
    let ours = |node: &LockQueueEntry| {
        held.iter().find(|tenure| tenure.nodes.iter().any(|path| path.ends_with(&node.node)))
    };
    let mut holders: Vec<HolderRow> =
        holding.iter().map(|node| HolderRow::remote(known, gateway, node, ours(node))).collect();
    // A tenure is missing from the response of ZooKeeper if ZooKeeper was not queried, or if the response is
    // older than the grant of this gateway.
    let is_listed = |tenure: &HeldLockInfo| {
        holding.iter().any(|node| tenure.nodes.iter().any(|path| path.ends_with(&node.node)))
    };
    holders.extend(
        held.iter()
            .filter(|tenure| !is_listed(tenure))
            .map(|tenure| HolderRow::local(known, gateway, tenure)),
    );
    holders
}

impl HolderRow {
    fn local(known: &KeyFacts, gateway: &str, tenure: &HeldLockInfo) -> Self {
        let working = known.active.iter().filter(|staying| staying.works.is_some());
        let named = working.filter_map(|staying| staying.request.as_ref()?.to_str().ok().map(str::to_owned));
        Self {
            gateway: gateway.to_owned(),
            page: None,
            peer: peer_address(known, gateway),
            token: tenure
                .token
                .map(|token| format!("{token} (number {})", token.number()))
                .unwrap_or_default(),
            since: format_millis(millis(tenure.since)),
            route: tenure.route.as_deref().map(str::to_owned),
            requests: named.collect(),
            state: state_text(tenure),
            node: tenure
                .nodes
                .first()
                .map(|path| path.rsplit('/').next().unwrap_or(path).to_owned())
                .unwrap_or_default(),
        }
    }

    fn remote(known: &KeyFacts, gateway: &str, node: &LockQueueEntry, ours: Option<&HeldLockInfo>) -> Self {
        if let Some(tenure) = ours {
            return Self { node: node.node.clone(), ..Self::local(known, gateway, tenure) };
        }
        let name = node.owner_name().to_owned();
        Self {
            page: key_page_url(known, &name, gateway),
            peer: peer_address(known, &name),
            token: node.number.map(|number| format!("number {number}")).unwrap_or_default(),
            since: node_age(node).map(|age| format!("{age} at most")).unwrap_or_default(),
            route: None,
            requests: Vec::new(),
            state: "as its node in ZooKeeper says",
            node: node.node.clone(),
            gateway: name,
        }
    }
}

fn peer_address(known: &KeyFacts, gateway: &str) -> Option<String> {
    known.members.iter().find(|member| member.gateway == gateway)?.peer.clone()
}

fn state_text(tenure: &HeldLockInfo) -> &'static str {
    match tenure {
        tenure if !tenure.proven => "its session is not proven: it writes nothing",
        tenure if tenure.ending => "nothing more is started under it",
        tenure if tenure.contended => "at work, and wanted elsewhere",
        tenure if tenure.in_flight == 0 => "kept for the next request",
        _ => "at work",
    }
}

/// The conditions that release the key at the latest, by the plan in force.
pub(super) fn release_conditions(known: &KeyFacts, gateway: &str, plan: &GatewayPlan) -> Vec<String> {
    let mut ends = Vec::new();
    let line = known.line.as_deref().unwrap_or_default();
    let held = known.local.as_ref().map(|lock| &*lock.held).unwrap_or_default();
    let node = line.iter().find(|node| node.holds);
    let holder = match (held, node) {
        ([], None) => return ends,
        ([_, ..], _) => gateway,
        ([], Some(node)) => node.owner_name(),
    };
    for lease in known.leases.iter().filter(|lease| lease.token.is_some()) {
        let reference = &lease.reference;
        let left = format_millis(lease.expires_in_ms);
        ends.push(format!("Lease {reference} ends in {left}, unless its client renews it."));
    }
    ends.extend(route_release_conditions(&known.key, plan, held));
    let session = format_millis(millis(plan.zookeeper.session_timeout));
    ends.push(format!(
        "If {holder} dies or freezes, ZooKeeper ends its session after {session} (session_timeout), and the next one gets the key."
    ));
    ends
}

fn route_release_conditions(key: &ResourceKey, plan: &GatewayPlan, held: &[HeldLockInfo]) -> Vec<String> {
    // For a key that is held here, its route is known. For a key that is held elsewhere, it is one of these routes.
    let meant =
        |name: &str| held.iter().filter_map(|tenure| tenure.route.as_deref()).all(|route| route == name);
    let mut ends = Vec::new();
    for (route, fence, upstream) in routes_for_key(plan, key).filter(|(route, ..)| meant(&route.name)) {
        let answers = format_millis(millis(upstream.response_timeout));
        ends.push(format!(
            "A request of route {} is given up when the service has not answered {answers} after its last byte (response_timeout).",
            route.name
        ));
        if let LockReusePolicy::Cached(caching) = fence.hold {
            let hold = format_millis(millis(caching.max_hold));
            ends.push(format!(
                "No further request of route {} begins {hold} after another gateway began to wait (max_hold).",
                route.name
            ));
        }
    }
    ends
}
