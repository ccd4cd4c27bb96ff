//! The keys that clients hold while a session switches from one plan to another. After the switch the session yields
//! to other gateways, but the client of a lease does not.

use std::collections::HashSet;

use fencegate_policies::{conflicts::find_key_conflict, key::ResourceKey, plan_digest::PublishedLockRules};
use fencegate_process::key_redaction;
use fencegate_zookeeper::session::plan_publication::PeerPlanPublication;

/// The leases of the process, as far as a plan switch has to respect them.
#[derive(Default)]
pub(super) struct PlanSwitchLeaseCheck {
    /// Patterns under which leases may begin at any moment.
    granted: HashSet<String>,
    /// Keys of leases that began under earlier plans. Because of them a pattern that is no longer granted may still
    /// be published. The pattern itself would be too wide for a comparison: other gateways may lock its other keys in
    /// any way.
    held: Vec<ResourceKey>,
}

impl PlanSwitchLeaseCheck {
    pub(super) fn new(plan: &PublishedLockRules, held: Vec<ResourceKey>) -> Self {
        Self { granted: plan.leases.iter().cloned().collect(), held }
    }

    pub(super) fn is_lease_pattern_granted(&self, pattern: &str) -> bool {
        self.granted.contains(pattern)
    }

    /// Returns the reason for which a session must not switch: a client holds a key that `other` locks, or may lock,
    /// in another way than `ours`. `theirs` is the plan that `other` has published; `None` if it cannot be read.
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
