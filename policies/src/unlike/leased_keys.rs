//! Finds keys that requests lock by the routes of one plan, and clients of the other plan hold by themselves under another lock.
//!
//! A plan grants leases of a key where its own routes lock that key, and no leases of keys that its routes lock as other programs do or
//! with a delay. A gateway that has no such route knows nothing of that.

use crate::{
    key::{Glob, KeyTemplate, Meeting},
    plan::KeyPattern,
    published::{FencedRoute, Lock, Published},
};

/// Routes and patterns of one plan, with what is needed to look at a pair.
pub(super) struct Leasing<'p> {
    routes: &'p [FencedRoute],
    /// Of each route, its locks with the keys that each may be of.
    locks: Vec<Vec<(&'p Lock, Vec<Glob>)>>,
    /// Those of all of them that are not our own way.
    special: Vec<(&'p Lock, Vec<Glob>)>,
    patterns: Vec<Glob>,
}

impl<'p> Leasing<'p> {
    pub(super) fn of(plan: &'p Published) -> Self {
        let globs = |lock: &'p Lock| (lock, lock.keys.iter().map(|key| KeyTemplate::glob_of(key)).collect());
        let locks = plan.routes.iter().flat_map(|route| &route.locks);
        Self {
            routes: &plan.routes,
            locks: plan.routes.iter().map(|route| route.locks.iter().map(globs).collect()).collect(),
            special: locks.filter(|lock| !lock.is_native()).map(globs).collect(),
            patterns: plan.leases.iter().map(|pattern| KeyPattern::glob_of(pattern)).collect(),
        }
    }

    /// How many pairs are looked at, at most.
    pub(super) fn looks(&self, other: &Self) -> usize {
        let pairs = self.routes.len().saturating_mul(other.patterns.len());
        if self.is_alike(other) { 0 } else { pairs.saturating_mul(1 + other.special.len()) }
    }

    /// A plan leases nothing that its own routes lock otherwise: so nothing clashes where the routes are the same.
    fn is_alike(&self, other: &Self) -> bool {
        self.routes == other.routes
    }

    /// Places of what clashes with the other plan, with its routes before its patterns, as [`Published::entries`] has them.
    pub(super) fn unlike(&self, other: &Self) -> Vec<usize> {
        if self.is_alike(other) {
            return Vec::new();
        }
        let routes = (0..self.routes.len())
            .filter(|route| other.patterns.iter().any(|pattern| self.clashes(*route, pattern, other)));
        let patterns =
            self.patterns.iter().enumerate().filter(|(_, pattern)| {
                (0..other.routes.len()).any(|route| other.clashes(route, pattern, self))
            });
        routes.chain(patterns.map(|(at, _)| self.routes.len() + at)).collect()
    }

    /// A request of this route may lock a key otherwise than a client of `leaser` who may hold the keys of `pattern`.
    fn clashes(&self, route: usize, pattern: &Glob, leaser: &Self) -> bool {
        self.locks[route].iter().any(|(lock, globs)| {
            let leased = globs.iter().filter(|glob| glob.meets(pattern) == Meeting::Same);
            leased.into_iter().any(|glob| !leaser.leases_alike(lock, glob, pattern))
        })
    }

    /// Leases of these keys have that lock in this plan, or there are none.
    fn leases_alike(&self, lock: &Lock, keys: &Glob, pattern: &Glob) -> bool {
        let mut special = self.special.iter();
        if lock.is_native() {
            let meets = |ours: &Glob| [keys, pattern].iter().all(|of| ours.meets(of) == Meeting::Same);
            return !special.any(|(_, globs)| globs.iter().any(meets));
        }
        special.any(|(ours, _)| ours.is_placed_as(lock))
    }
}
