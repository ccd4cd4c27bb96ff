//! A plan in force, and how the next one takes its place: no request sees half of each, and a resource whose key changes
//! its name is not worked on under both names at once.

mod entrance;
mod kin;
mod term;

use std::sync::Arc;

use fencegate_http::upstream::fleet::Fleets;
use fencegate_policies::plan::{Plan, UpstreamId};

pub use self::{
    entrance::{Entering, Entrance},
    term::{Opening, Running, Term},
};
use self::{
    kin::{KeyChange, Known, groups},
    term::distinct,
};

/// One plan as all workers serve it.
#[derive(Debug)]
pub struct Edition {
    pub plan: Arc<Plan>,
    pub fleets: Arc<Fleets>,
    /// Where each upstream of the plan leads, by its number; behind them those of older plans to which requests are
    /// still under way.
    known: Vec<Known>,
    /// Terms in which a request may still run that is no longer its route's: whose it is, only the request could tell.
    moved: Vec<Arc<Term>>,
}

impl Edition {
    pub fn first(plan: Arc<Plan>, fleets: Arc<Fleets>) -> Arc<Self> {
        let known = kin::upstreams(&plan).map(|upstream| upstream.within(Term::open())).collect();
        Arc::new(Self { plan, fleets, known, moved: Vec::new() })
    }

    /// The edition after `old`, and the terms in it that are to be opened. `rekeyed`: routes of either plan whose requests
    /// take other locks than before.
    ///
    /// A request that runs under an old key and one that comes under the new key may be about one resource. So a service
    /// to which a route is rekeyed begins another term: its fenced requests wait until those of the terms before are over.
    /// All others go on in the term in which they are, and share its count: however many plans it outlives, whoever
    /// comes after it waits for all of it.
    ///
    /// What `plan` leaves out may come back, under other keys, before the last of its requests is over. So it stays
    /// known; and until the workers have turned, requests to it still begin. It may come back by another name and at another
    /// endpoint as well, or what a route no longer takes may be another's some plans later. So where requests wander, they also
    /// wait for all from whom some wandered before.
    pub fn after(
        old: &Self,
        plan: Arc<Plan>,
        fleets: Arc<Fleets>,
        rekeyed: &[String],
    ) -> (Arc<Self>, Vec<Opening>) {
        let mut openings = Vec::new();
        let (mut known, mut left) = (vec![None; plan.upstreams.len()], Vec::new());
        let mut moved = old.still_moved();
        for group in groups((&old.plan, old.still_known()), &plan, rekeyed) {
            let mut before = group.terms();
            if group.keys == KeyChange::Wander {
                moved = distinct(moved.into_iter().chain(before));
                before = moved.clone();
            }
            if group.after.is_empty() {
                left.extend(group.before.into_iter().cloned());
                continue;
            }
            let term = match before.as_slice() {
                [] => Term::open(),
                [same] if group.keys == KeyChange::Stay => same.clone(),
                _ => {
                    let (term, opening) = Term::behind(before);
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

    /// Terms in which requests began by plans before `new`, under locks that it does not know any more.
    pub fn left(old: &Self, new: &Self) -> Vec<Arc<Term>> {
        let stay = |term: &Arc<Term>| {
            new.known[..new.plan.upstreams.len()].iter().any(|known| Arc::ptr_eq(&known.term, term))
        };
        let before = old.known.iter().map(|known| &known.term).chain(&old.moved);
        distinct(before.filter(|term| !stay(term)).cloned())
    }

    /// The workers have turned since these were left, so nothing begins in them.
    fn still_moved(&self) -> Vec<Arc<Term>> {
        self.moved.iter().filter(|term| !term.is_over()).cloned().collect()
    }

    /// All but those left by older plans whose requests are over. No worker takes a request for these any more; for one of
    /// this plan it may, whatever its count says.
    fn still_known(&self) -> Vec<&Known> {
        let (in_plan, left) = self.known.split_at(self.plan.upstreams.len());
        in_plan.iter().chain(left.iter().filter(|left| !left.term.is_over())).collect()
    }

    /// Some route fences requests to the service behind `upstream`. Whether two names lead to one service is known where the
    /// file shows it, and where both were found to have an address in common. Where that cannot be found out within a second
    /// it is taken for true.
    pub async fn leads_to_fence(&self, upstream: UpstreamId) -> bool {
        self.plan.upstream(upstream).service.is_fenced || self.fleets.meets_fenced(upstream).await
    }

    /// To be kept for as long as anything of a fenced request runs.
    pub fn runs(&self, upstream: UpstreamId) -> Running {
        self.known[upstream.0].term.runs()
    }

    /// A fenced request to `upstream` may go on at once.
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
