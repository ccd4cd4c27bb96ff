//! A plan in force, and how the next one takes its place: no request sees half of each, and a resource whose key changes
//! its name is not worked on under both names at once.

mod entrance;
mod kin;
mod term;

use std::sync::Arc;

use fencegate_http::upstream::fleet::Upstreams;
use fencegate_policies::plan::{Plan, UpstreamId};
use fencegate_process::failpoint;

pub use self::{
    entrance::{CountedEntry, EntryCounter},
    term::{GenerationSwitch, KeyGeneration, RequestToken},
};
use self::{
    kin::{KeyChange, TrackedUpstream, groups},
    term::distinct,
};

/// One plan as all workers serve it.
#[derive(Debug)]
pub struct ActiveConfig {
    pub plan: Arc<Plan>,
    pub fleets: Arc<Upstreams>,
    /// The service of each upstream of the plan, by its number. Behind these, the services of older plans that still
    /// have requests under way.
    known: Vec<TrackedUpstream>,
    /// Terms of requests that may now belong to another route. Only the request itself could tell to which one.
    moved: Vec<Arc<KeyGeneration>>,
}

impl ActiveConfig {
    pub fn first(plan: Arc<Plan>, fleets: Arc<Upstreams>) -> Arc<Self> {
        let known = kin::upstreams(&plan).map(|upstream| upstream.within(KeyGeneration::open())).collect();
        Arc::new(Self { plan, fleets, known, moved: Vec::new() })
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
    pub fn after(
        old: &Self,
        plan: Arc<Plan>,
        fleets: Arc<Upstreams>,
        rekeyed: &[String],
    ) -> (Arc<Self>, Vec<GenerationSwitch>) {
        let mut openings = Vec::new();
        let (mut known, mut left) = (vec![None; plan.upstreams.len()], Vec::new());
        let mut moved = old.still_moved();
        for group in groups((&old.plan, old.still_known()), &plan, rekeyed) {
            let mut before = group.terms();
            if group.keys == KeyChange::Moved {
                moved = distinct(moved.into_iter().chain(before));
                before = moved.clone();
            }
            if group.after.is_empty() {
                left.extend(group.before.into_iter().cloned());
                continue;
            }
            let term = match before.as_slice() {
                [] => KeyGeneration::open(),
                _ if failpoint::is_off("rule_inheritance") => KeyGeneration::open(),
                [same] if group.keys == KeyChange::Same => same.clone(),
                _ => {
                    let (term, opening) = KeyGeneration::behind(before);
                    openings.push(opening);
                    term
                }
            };
            left.extend(group.gone().into_iter().map(|gone| gone.within(term.clone())));
            for (number, upstream) in group.after {
                known[number] = Some(upstream.within(term.clone()));
            }
        }
        let known = known.into_iter().map(|known| known.expect("each upstream is in one group"));
        (Arc::new(Self { known: known.chain(left).collect(), plan, fleets, moved }), openings)
    }

    /// The terms of plans before `new`, whose requests hold locks that `new` does not know any more.
    pub fn left(old: &Self, new: &Self) -> Vec<Arc<KeyGeneration>> {
        let stay = |term: &Arc<KeyGeneration>| {
            new.known[..new.plan.upstreams.len()].iter().any(|known| Arc::ptr_eq(&known.term, term))
        };
        let before = old.known.iter().map(|known| &known.term).chain(&old.moved);
        distinct(before.filter(|term| !stay(term)).cloned())
    }

    /// Nothing begins in these terms: the workers have turned since.
    fn still_moved(&self) -> Vec<Arc<KeyGeneration>> {
        self.moved.iter().filter(|term| !term.is_over()).cloned().collect()
    }

    /// All known services but those that an older plan left and whose requests are over. No worker takes a request
    /// for these any more. For a service of the present plan a request may come at any time.
    fn still_known(&self) -> Vec<&TrackedUpstream> {
        let (in_plan, left) = self.known.split_at(self.plan.upstreams.len());
        in_plan.iter().chain(left.iter().filter(|left| !left.term.is_over())).collect()
    }

    /// True if some route fences requests to the service behind `upstream`. Two names count as one service if the
    /// file shows that, or if both resolve to a common address. If that cannot be found out within a second, it
    /// counts as true.
    pub async fn leads_to_fence(&self, upstream: UpstreamId) -> bool {
        self.plan.upstream(upstream).service.is_fenced || self.fleets.meets_fenced(upstream).await
    }

    /// Counts a fenced request. Keep this as long as anything of the request runs.
    pub fn runs(&self, upstream: UpstreamId) -> RequestToken {
        self.known[upstream.0].term.runs()
    }

    /// True if a fenced request to `upstream` need not wait.
    pub fn is_open(&self, upstream: UpstreamId) -> bool {
        self.known[upstream.0].term.is_open()
    }

    /// Returns when everything is over that began under other keys, and may be about a resource of `upstream`.
    pub async fn opened(&self, upstream: UpstreamId) {
        self.known[upstream.0].term.opened().await;
    }
}

#[cfg(test)]
mod tests;
