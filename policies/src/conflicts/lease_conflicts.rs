//! Finds keys that requests lock by the routes of one plan while clients of the other plan hold them by leases,
//! under another lock.
//!
//! A plan grants leases of a key with the lock that its own routes have for that key, and no leases of keys whose
//! lock has a foreign layout or a delay. A gateway without such a route does not have these restrictions.

use std::collections::HashSet;

use crate::{
    key::{GlobRelation, KeyTemplate, ResourceKey, TemplateGlob},
    plan::KeyPattern,
    plan_digest::{PublishedLock, PublishedLockRules},
};

/// The most pairs that are compared. More would take about a second or longer.
pub(super) const MOST_LOOKS: usize = 1 << 20;

/// Routes and patterns of one plan, with the data that the comparison of a pair needs.
pub(super) struct LeaseConflictIndex<'p> {
    /// For each route its locks, each with the keys that it may lock.
    locks: Vec<Vec<LockKeyGlobs<'p>>>,
    known: HashSet<&'p PublishedLock>,
    /// All locks without the native layout, each with the keys that it may lock.
    special: Vec<LockKeyGlobs<'p>>,
    patterns: Vec<TemplateGlob>,
}

type LockKeyGlobs<'p> = (&'p PublishedLock, Vec<TemplateGlob>);

/// The conflicts of one plan with another plan.
pub(super) struct CrossPlanLeaseConflicts {
    /// Indices in the order of [`PublishedLockRules::entries`]: those of routes, then those of lease patterns.
    pub(super) at: Vec<usize>,
    /// True if there are too many pairs to compare each. Then `at` contains every pair that may conflict.
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

    /// The index of a plan with these keys instead of its lease patterns.
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

    /// The indices of the lease patterns that contain a key which a route of `other` may lock in another way.
    pub(super) fn conflicting_patterns(&self, other: &Self) -> Vec<usize> {
        let each = other.is_comparable_with(self);
        let doubtful: Vec<usize> =
            (0..other.locks.len()).filter(|route| other.has_doubtful_locks(*route, self)).collect();
        let clash = |pattern| doubtful.iter().any(|route| !each || other.conflicts_on(*route, pattern, self));
        let patterns = self.patterns.iter().enumerate();
        patterns.filter(|(_, pattern)| clash(pattern)).map(|(at, _)| at).collect()
    }

    /// Whether there are few enough pairs of locks of `self` and lease patterns of `leaser` to compare each.
    fn is_comparable_with(&self, leaser: &Self) -> bool {
        let doubtful: usize =
            (0..self.locks.len()).map(|route| self.doubtful_locks(route, leaser).count()).sum();
        let looks = doubtful.saturating_mul(leaser.patterns.len());
        looks.saturating_mul(1 + leaser.special.len()) <= MOST_LOOKS
    }

    /// The locks of a route that a lease of `leaser` may differ from. A lock that `leaser` has itself is left out,
    /// because its leases take the same lock. A native lock is left out if all locks of `leaser` are native,
    /// because its leases are native then.
    fn doubtful_locks<'s>(
        &'s self,
        route: usize,
        leaser: &'s Self,
    ) -> impl Iterator<Item = &'s LockKeyGlobs<'p>> {
        let alike = |lock: &PublishedLock| lock.is_native() && leaser.special.is_empty();
        self.locks[route].iter().filter(move |(lock, _)| !alike(lock) && !leaser.known.contains(lock))
    }

    fn has_doubtful_locks(&self, route: usize, leaser: &Self) -> bool {
        self.doubtful_locks(route, leaser).next().is_some()
    }

    /// Whether a request of this route may lock a key in another way than a lease that `leaser` grants for a key of
    /// `pattern`.
    fn conflicts_on(&self, route: usize, pattern: &TemplateGlob, leaser: &Self) -> bool {
        self.doubtful_locks(route, leaser).any(|(lock, globs)| {
            let leased = globs.iter().filter(|glob| glob.relation_to(pattern) == GlobRelation::Overlapping);
            leased.into_iter().any(|glob| !leaser.leases_same_lock(lock, glob, pattern))
        })
    }

    /// Whether leases of these keys take `lock` in this plan, or the plan grants none.
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
