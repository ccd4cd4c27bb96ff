//! The keys that clients hold while a session switches from one plan to another: the session gives way from then on,
//! and the client of a lease does not.

use std::collections::HashSet;

use fencegate_policies::{conflicts::find_key_conflict, key::ResourceKey, plan_digest::PublishedLockRules};
use fencegate_process::key_redaction;
use fencegate_zookeeper::session::plan_publication::PeerPlanPublication;

/// The leases of the process.
#[derive(Default)]
pub(super) struct PlanSwitchLeaseCheck {
    /// Patterns under which leases may begin at any moment.
    granted: HashSet<String>,
    /// Keys of leases that began under earlier plans. A pattern that is no longer granted may still be published
    /// because of them. By itself it would be too wide: other gateways may lock further keys of it in any way.
    held: Vec<ResourceKey>,
}

impl PlanSwitchLeaseCheck {
    pub(super) fn new(plan: &PublishedLockRules, held: Vec<ResourceKey>) -> Self {
        Self { granted: plan.leases.iter().cloned().collect(), held }
    }

    pub(super) fn is_lease_pattern_granted(&self, pattern: &str) -> bool {
        self.granted.contains(pattern)
    }

    /// The reason that keeps a session from switching: a key is held here that `other` locks, or may lock, in another
    /// way than `ours`. `theirs`: the plan that `other` has published; `None` if it cannot be read.
    pub(super) fn held_key_conflict_reason(
        &self,
        ours: &PublishedLockRules,
        other: &PeerPlanPublication,
        theirs: Option<&PublishedLockRules>,
    ) -> Option<String> {
        let first = self.held.first()?;
        let clash = match theirs {
            Some(theirs) => find_key_conflict(ours, &self.held, theirs),
            None => Some(first),
        };
        clash.map(|key| {
            let key = key_redaction::redact_key(key);
            format!("{} locks key {key} otherwise, of which a client holds a lease here", other.gateway)
        })
    }
}
