//! Finds keys that requests lock by the routes of one plan, and that clients of the other plan hold by themselves
//! under another lock.
//!
//! A plan grants leases of a key where its own routes lock that key, and no leases of keys that its routes lock as
//! other programs do or with a delay. A gateway without such a route does not have these restrictions.

use std::collections::HashSet;

use crate::{
    key::{GlobRelation, KeyTemplate, ResourceKey, TemplateGlob},
    plan::KeyPattern,
    plan_digest::{PublishedLock, PublishedLockRules},
};

/// The most pairs that are compared: more would take a second.
pub(super) const MOST_LOOKS: usize = 1 << 20;

/// Routes and patterns of one plan, with the data that the comparison of a pair needs.
pub(super) struct LeaseConflictIndex<'p> {
    /// Of each route, its locks with the keys that each may have.
    locks: Vec<Vec<LockKeys<'p>>>,
    known: HashSet<&'p PublishedLock>,
    /// Those of all locks that do not have the native layout.
    special: Vec<LockKeys<'p>>,
    patterns: Vec<TemplateGlob>,
}

type LockKeys<'p> = (&'p PublishedLock, Vec<TemplateGlob>);

/// The conflicts with another plan.
pub(super) struct CrossPlanLeaseConflicts {
    /// Indices of routes, and behind them of patterns, in the order of [`PublishedLockRules::entries`].
    pub(super) at: Vec<usize>,
    /// There are so many pairs that not each was compared: every pair that may conflict is among these.
    pub(super) unfinished: bool,
}

impl<'p> LeaseConflictIndex<'p> {
    pub(super) fn new(plan: &'p PublishedLockRules) -> Self {
        let globs = |lock: &'p PublishedLock| {
            (lock, lock.keys.iter().map(|key| KeyTemplate::published_glob(key)).collect())
        };
        let locks = plan.routes.iter().flat_map(|route| &route.locks);
        Self {
            locks: plan.routes.iter().map(|route| route.locks.iter().map(globs).collect()).collect(),
            known: locks.clone().collect(),
            special: locks.filter(|lock| !lock.is_native()).map(globs).collect(),
            patterns: plan.leases.iter().map(|pattern| KeyPattern::published_glob(pattern)).collect(),
        }
    }

    /// With these keys in the place of the patterns of the plan.
    pub(super) fn for_lease_keys(plan: &'p PublishedLockRules, keys: &[ResourceKey]) -> Self {
        Self {
            patterns: keys.iter().map(|key| TemplateGlob::literal(key.as_str())).collect(),
            ..Self::new(plan)
        }
    }

    pub(super) fn conflicts_with(&self, other: &Self) -> CrossPlanLeaseConflicts {
        let each = self.is_comparable_with(other);
        let clash = |route: &usize| {
            let clashes = |pattern| !each || self.conflicts_on(*route, pattern, other);
            self.has_doubtful_locks(*route, other) && other.patterns.iter().any(clashes)
        };
        let routes = (0..self.locks.len()).filter(clash);
        let patterns = self.conflicting_patterns(other).into_iter().map(|at| self.locks.len() + at);
        let unfinished = !(each && other.is_comparable_with(self));
        CrossPlanLeaseConflicts { at: routes.chain(patterns).collect(), unfinished }
    }

    /// Indices of the patterns of which a route of `other` may lock a key in another way.
    pub(super) fn conflicting_patterns(&self, other: &Self) -> Vec<usize> {
        let each = other.is_comparable_with(self);
        let doubtful: Vec<usize> =
            (0..other.locks.len()).filter(|route| other.has_doubtful_locks(*route, self)).collect();
        let clash = |pattern| doubtful.iter().any(|route| !each || other.conflicts_on(*route, pattern, self));
        let patterns = self.patterns.iter().enumerate();
        patterns.filter(|(_, pattern)| clash(pattern)).map(|(at, _)| at).collect()
    }

    /// All pairs of its locks and the patterns of `leaser` can be compared.
    fn is_comparable_with(&self, leaser: &Self) -> bool {
        let doubtful: usize =
            (0..self.locks.len()).map(|route| self.doubtful_locks(route, leaser).count()).sum();
        let looks = doubtful.saturating_mul(leaser.patterns.len());
        looks.saturating_mul(1 + leaser.special.len()) <= MOST_LOOKS
    }

    /// The locks of a route that leases of `leaser` may not have. A plan leases nothing that its own routes lock in
    /// another way, and where all its locks have the native layout, so have its leases.
    fn doubtful_locks<'s>(
        &'s self,
        route: usize,
        leaser: &'s Self,
    ) -> impl Iterator<Item = &'s LockKeys<'p>> {
        let alike = |lock: &PublishedLock| lock.is_native() && leaser.special.is_empty();
        self.locks[route].iter().filter(move |(lock, _)| !alike(lock) && !leaser.known.contains(lock))
    }

    fn has_doubtful_locks(&self, route: usize, leaser: &Self) -> bool {
        self.doubtful_locks(route, leaser).next().is_some()
    }

    /// A request of this route may lock a key in another way than a client of `leaser` that may hold the keys of
    /// `pattern`.
    fn conflicts_on(&self, route: usize, pattern: &TemplateGlob, leaser: &Self) -> bool {
        self.doubtful_locks(route, leaser).any(|(lock, globs)| {
            let leased = globs.iter().filter(|glob| glob.relation_to(pattern) == GlobRelation::Overlapping);
            leased.into_iter().any(|glob| !leaser.leases_same_lock(lock, glob, pattern))
        })
    }

    /// Leases of these keys have that lock in this plan, or there are none.
    fn leases_same_lock(&self, lock: &PublishedLock, keys: &TemplateGlob, pattern: &TemplateGlob) -> bool {
        let mut special = self.special.iter();
        if lock.is_native() {
            let meets = |ours: &TemplateGlob| {
                [keys, pattern].iter().all(|of| ours.relation_to(of) == GlobRelation::Overlapping)
            };
            return !special.any(|(_, globs)| globs.iter().any(meets));
        }
        special.any(|(ours, _)| ours.has_placement_of(lock))
    }
}
