//! Collects the facts about a key from this gateway and ZooKeeper.

use fencegate_lock::manager::{
    admin_query::{LockQueueEntry, RegisteredGateway},
    listing::ListedLock,
};
use fencegate_metrics::request_tracker::{ActiveRequest, FinishedRequest};
use fencegate_policies::{
    key::ResourceKey,
    plan::{FenceRule, GatewayPlan, Route, Upstream},
};

use crate::{
    leases::AdminLease, models::encode_path_segment, page::layout::ErrorPage, state::GatewayAdminState,
};

/// All facts about a key at one moment.
pub(super) struct KeyFacts {
    pub(super) key: ResourceKey,
    /// The key in the form in which it may be shown.
    pub(super) display_name: String,
    /// The key as a segment of a path, as the reader requested it: its name or its hash.
    pub(super) link: String,
    pub(super) local: Option<ListedLock>,
    pub(super) line: Result<Vec<LockQueueEntry>, String>,
    pub(super) members: Vec<RegisteredGateway>,
    pub(super) active: Vec<ActiveRequest>,
    pub(super) finished: Vec<FinishedRequest>,
    pub(super) leases: Vec<AdminLease>,
}

/// The most finished requests that are shown.
const PAST: usize = 10;

impl KeyFacts {
    pub(super) async fn load(seen: &GatewayAdminState, text: &str) -> Result<Self, ErrorPage> {
        let names = seen.key_redaction();
        let key = seen.resolve_key(text)?;
        let (line, members) =
            tokio::join!(seen.locks.queue_entries(&key, seen.config.site(&key)), seen.locks.members());
        Ok(Self {
            display_name: names.display(&key),
            link: encode_path_segment(text),
            local: seen.locks.lock_info(&key),
            line: line.map_err(|error| error.to_string()),
            // Without the members, only the links are missing from the page.
            members: members.unwrap_or_default(),
            active: seen.requests.active(&key),
            finished: seen.requests.finished(&key, PAST),
            leases: seen.leases_for_key(&key),
            key,
        })
    }
}

/// The routes of a plan whose requests may lock a key.
pub(super) fn routes_for_key<'p>(
    plan: &'p GatewayPlan,
    key: &ResourceKey,
) -> impl Iterator<Item = (&'p Route, &'p FenceRule, &'p Upstream)> {
    plan.serving.routes.routes().iter().filter_map(move |route| {
        let fence = route.fence.as_ref()?;
        let may_give = fence.templates().any(|template| template.may_produce(key));
        may_give.then(|| (route, fence, plan.serving.upstream(route.upstream)))
    })
}
