//! A plan in force, and how the next one takes its place: no request sees half of each, and a resource whose key changes
//! its name is not worked on under both names at once.

mod entry_counter;
mod key_generation;
mod service_groups;

use std::sync::Arc;

use fencegate_http::upstream::endpoint_set::Upstreams;
use fencegate_policies::plan::{Plan, UpstreamId};
use fencegate_process::failpoint;

pub use self::{
    entry_counter::{CountedEntry, EntryCounter},
    key_generation::{GenerationSwitch, KeyGeneration, RequestToken},
};
use self::{
    key_generation::dedup_generations,
    service_groups::{KeyChange, TrackedUpstream, group_services},
};

/// One plan as all workers serve it.
#[derive(Debug)]
pub struct ActiveConfig {
    pub plan: Arc<Plan>,
    pub fleets: Arc<Upstreams>,
    /// The service of each upstream of the plan, by its number. Behind these, the services of older plans that still
    /// have requests under way.
    upstreams: Vec<TrackedUpstream>,
    /// Terms of requests that may now belong to another route. Only the request itself could tell to which one.
    moved_generations: Vec<Arc<KeyGeneration>>,
}

impl ActiveConfig {
    pub fn initial(plan: Arc<Plan>, fleets: Arc<Upstreams>) -> Arc<Self> {
        let known = service_groups::upstream_locations(&plan)
            .map(|upstream| upstream.with_generation(KeyGeneration::new_open()))
            .collect();
        Arc::new(Self { plan, fleets, upstreams: known, moved_generations: Vec::new() })
    }

    /// The edition after `old`, and the terms in it that are to be opened. `rekeyed`: routes of either plan whose requests
    /// take other locks than before.
    ///
    /// A request under an old key and a request under a new key may be about one resource. So a service with a
    /// rekeyed route begins a new term: its fenced requests wait until the requests of the former terms are over. All
    /// other services keep their term, and its count of requests. So a request may outlive several plans, and still
    /// everybody waits for it who has to.
    ///
    /// A service that `plan` leaves out may come back with other keys before its last request is over. So it stays
    /// known; and requests to it still begin until the workers have turned to the new plan. It may also come back
    /// under another name and at another endpoint, or its requests may go to another route some plans later. So where
    /// requests change their route, they also wait for all former terms in which requests changed their route.
    pub fn successor(
        old: &Self,
        plan: Arc<Plan>,
        fleets: Arc<Upstreams>,
        rekeyed: &[String],
    ) -> (Arc<Self>, Vec<GenerationSwitch>) {
        let mut openings = Vec::new();
        let (mut known, mut left) = (vec![None; plan.upstreams.len()], Vec::new());
        let mut moved = old.unfinished_moved();
        for group in group_services((&old.plan, old.tracked_upstreams()), &plan, rekeyed) {
            let mut before = group.generations();
            if group.keys == KeyChange::Moved {
                moved = dedup_generations(moved.into_iter().chain(before));
                before = moved.clone();
            }
            if group.after.is_empty() {
                left.extend(group.before.into_iter().cloned());
                continue;
            }
            let term = match before.as_slice() {
                [] => KeyGeneration::new_open(),
                _ if failpoint::is_off("rule_inheritance") => KeyGeneration::new_open(),
                [same] if group.keys == KeyChange::Same => same.clone(),
                _ => {
                    let (term, opening) = KeyGeneration::new_after(before);
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
        (
            Arc::new(Self { upstreams: known.chain(left).collect(), plan, fleets, moved_generations: moved }),
            openings,
        )
    }

    /// The terms of plans before `new`, whose requests hold locks that `new` does not know any more.
    pub fn dropped_generations(old: &Self, new: &Self) -> Vec<Arc<KeyGeneration>> {
        let stay = |term: &Arc<KeyGeneration>| {
            new.upstreams[..new.plan.upstreams.len()].iter().any(|known| Arc::ptr_eq(&known.generation, term))
        };
        let before = old.upstreams.iter().map(|known| &known.generation).chain(&old.moved_generations);
        dedup_generations(before.filter(|term| !stay(term)).cloned())
    }

    /// Nothing begins in these terms: the workers have turned since.
    fn unfinished_moved(&self) -> Vec<Arc<KeyGeneration>> {
        self.moved_generations.iter().filter(|term| !term.is_over()).cloned().collect()
    }

    /// All known services but those that an older plan left and whose requests are over. No worker takes a request
    /// for these any more. For a service of the present plan a request may come at any time.
    fn tracked_upstreams(&self) -> Vec<&TrackedUpstream> {
        let (in_plan, left) = self.upstreams.split_at(self.plan.upstreams.len());
        in_plan.iter().chain(left.iter().filter(|left| !left.generation.is_over())).collect()
    }

    /// True if some route fences requests to the service behind `upstream`. Two names count as one service if the
    /// file shows that, or if both resolve to a common address. If that cannot be found out within a second, it
    /// counts as true.
    pub async fn leads_to_fence(&self, upstream: UpstreamId) -> bool {
        self.plan.upstream(upstream).service.is_fenced || self.fleets.overlaps_fenced(upstream).await
    }

    /// Counts a fenced request. Keep this as long as anything of the request runs.
    pub fn track_request(&self, upstream: UpstreamId) -> RequestToken {
        self.upstreams[upstream.0].generation.track_request()
    }

    /// True if a fenced request to `upstream` need not wait.
    pub fn is_open(&self, upstream: UpstreamId) -> bool {
        self.upstreams[upstream.0].generation.is_open()
    }

    /// Returns when everything is over that began under other keys, and may be about a resource of `upstream`.
    pub async fn wait_open(&self, upstream: UpstreamId) {
        self.upstreams[upstream.0].generation.wait_open().await;
    }
}

#[cfg(test)]
mod tests;
