//! The plan in force, and its replacement by the next one: no request uses parts of both, and no resource whose key is
//! renamed is processed under both names at once.

mod entry_counter;
mod key_generation;
mod service_groups;

use std::sync::Arc;

use fencegate_http_client::upstream::endpoint_set::UpstreamSet;
use fencegate_policies::plan::{CommonServingPlan, UpstreamId};
use fencegate_process::failpoint;

use crate::access_tokens::AccessTokenAuthenticator;

pub use self::{
    entry_counter::{PipelineEntryCounter, PipelineEntryGuard},
    key_generation::{KeyRulesDrainGate, PendingKeyRulesGeneration, RunningRequestGuard},
};
use self::{
    key_generation::dedup_generations,
    service_groups::{KeyRulesChange, UpstreamKeyRulesGate, group_services},
};

/// One plan with its state, as all workers serve it.
#[derive(Debug)]
pub struct ActiveConfig {
    pub plan: Arc<CommonServingPlan>,
    pub fleets: Arc<UpstreamSet>,
    /// Verifies bearer tokens; `None` if the plan has no issuers.
    pub tokens: Option<Arc<AccessTokenAuthenticator>>,
    /// The service of each upstream of the plan, by the index of the upstream. After these come the services of older
    /// plans that still have requests in flight.
    upstreams: Vec<UpstreamKeyRulesGate>,
    /// Key generations with requests that would belong to another route now. Only the request itself shows to which
    /// one.
    moved_generations: Vec<Arc<KeyRulesDrainGate>>,
}

impl ActiveConfig {
    pub fn initial(
        plan: Arc<CommonServingPlan>,
        fleets: Arc<UpstreamSet>,
        tokens: Option<Arc<AccessTokenAuthenticator>>,
    ) -> Arc<Self> {
        let known = service_groups::upstream_identities(&plan)
            .map(|upstream| upstream.with_generation(KeyRulesDrainGate::new_open()))
            .collect();
        Arc::new(Self { plan, fleets, tokens, upstreams: known, moved_generations: Vec::new() })
    }

    /// Makes the configuration after `old`, and returns it with its key generations that still have to be opened.
    /// `rekeyed` are the routes of either plan whose requests take other locks than before.
    ///
    /// A request under an old key and a request under a new key may concern one resource. So a service with a rekeyed
    /// route begins a new key generation: its fenced requests wait until the requests of the former generations have
    /// ended. All other services keep their generation with its count of requests. So a request may outlive several
    /// plans, and every request that has to wait for it still waits for it.
    ///
    /// A service that `plan` leaves out may return with other keys before its last request has ended, and requests to
    /// it still begin until all workers have switched to the new plan. So it is remembered. It may also return under
    /// another name and at another endpoint, or its requests may go to another route some plans later. So requests that
    /// change their route also wait for all former generations in which requests changed their route.
    pub fn successor(
        old: &Self,
        plan: Arc<CommonServingPlan>,
        fleets: Arc<UpstreamSet>,
        tokens: Option<Arc<AccessTokenAuthenticator>>,
        rekeyed: &[String],
    ) -> (Arc<Self>, Vec<PendingKeyRulesGeneration>) {
        let mut openings = Vec::new();
        let mut known = vec![None; plan.upstreams.len()];
        let mut left = Vec::new();
        let mut moved = old.unfinished_moved_generations();
        for group in group_services(&old.plan, old.tracked_upstreams(), &plan, rekeyed) {
            let mut before = group.generations();
            if group.keys == KeyRulesChange::Moved {
                moved = dedup_generations(moved.into_iter().chain(before));
                before = moved.clone();
            }
            if group.after.is_empty() {
                left.extend(group.before.into_iter().cloned());
                continue;
            }
            let term = match before.as_slice() {
                [] => KeyRulesDrainGate::new_open(),
                _ if failpoint::is_disabled_by_test("rule_inheritance") => KeyRulesDrainGate::new_open(),
                [same] if group.keys == KeyRulesChange::Same => same.clone(),
                _ => {
                    let (term, opening) = KeyRulesDrainGate::new_after(before);
                    openings.push(opening);
                    term
                }
            };
            left.extend(group.removed_upstreams().into_iter().map(|gone| gone.with_generation(term.clone())));
            for (number, upstream) in group.after {
                known[number] = Some(upstream.with_generation(term.clone()));
            }
        }
        let known = known.into_iter().map(|known| known.expect("each upstream is in one group"));
        let upstreams = known.chain(left).collect();
        (Arc::new(Self { upstreams, plan, fleets, tokens, moved_generations: moved }), openings)
    }

    /// The key generations of plans before `new` whose requests hold locks that are not in `new` any more.
    pub fn dropped_generations(old: &Self, new: &Self) -> Vec<Arc<KeyRulesDrainGate>> {
        let stay = |term: &Arc<KeyRulesDrainGate>| {
            new.upstreams[..new.plan.upstreams.len()].iter().any(|known| Arc::ptr_eq(&known.generation, term))
        };
        let before = old.upstreams.iter().map(|known| &known.generation).chain(&old.moved_generations);
        dedup_generations(before.filter(|term| !stay(term)).cloned())
    }

    /// The generations in which requests that changed their route still run. No request begins in them any more,
    /// because the workers have switched plans.
    fn unfinished_moved_generations(&self) -> Vec<Arc<KeyRulesDrainGate>> {
        self.moved_generations.iter().filter(|term| !term.is_drained()).cloned().collect()
    }

    /// All known services except those that are not in the plan and whose requests have ended. No worker accepts a
    /// request for these any more. For a service of the present plan a request may arrive at any time.
    fn tracked_upstreams(&self) -> Vec<&UpstreamKeyRulesGate> {
        let (in_plan, left) = self.upstreams.split_at(self.plan.upstreams.len());
        in_plan.iter().chain(left.iter().filter(|left| !left.generation.is_drained())).collect()
    }

    /// True if some route fences requests to the service behind `upstream`, or restricts its clients. Two upstreams
    /// count as one service if the policy shows that, or if both names resolve to a common address. If that cannot be
    /// determined within a second, the result is true.
    pub async fn is_service_protected(&self, upstream: UpstreamId) -> bool {
        self.plan.upstream(upstream).service.is_protected || self.fleets.overlaps_protected(upstream).await
    }

    /// Counts a fenced request until the returned guard is dropped. It must be kept as long as any part of the request
    /// runs.
    pub fn track_request(&self, upstream: UpstreamId) -> RunningRequestGuard {
        self.upstreams[upstream.0].generation.track_request()
    }

    /// True if a fenced request to `upstream` need not wait.
    pub fn is_generation_open(&self, upstream: UpstreamId) -> bool {
        self.upstreams[upstream.0].generation.is_open()
    }

    /// Returns when all requests have ended that began under other keys and may concern a resource of `upstream`.
    pub async fn wait_generation_open(&self, upstream: UpstreamId) {
        self.upstreams[upstream.0].generation.wait_open().await;
    }
}

#[cfg(test)]
mod tests;
