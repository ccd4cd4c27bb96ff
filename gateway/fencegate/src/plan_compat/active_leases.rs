//! What clients hold while a session turns from one plan to another: whoever turns gives way from then on, and a client does not.

use std::collections::HashSet;

use fencegate_lock::session::plan_publication::PeerSession;
use fencegate_policies::{conflicts::find_key_conflict, key::ResourceKey, plan_digest::PlanDigest};
use fencegate_process::key_redaction;

/// The leases of the process.
#[derive(Default)]
pub(super) struct ActiveLeases {
    /// Patterns by which leases may begin at any moment.
    granted: HashSet<String>,
    /// Keys of leases that began by plans before. For their sake a pattern may be told that nobody is granted any more, and which would say
    /// too much: others may lock other keys of it as they like.
    held: Vec<ResourceKey>,
}

impl ActiveLeases {
    pub(super) fn new(plan: &PlanDigest, held: Vec<ResourceKey>) -> Self {
        Self { granted: plan.leases.iter().cloned().collect(), held }
    }

    pub(super) fn is_granted(&self, pattern: &str) -> bool {
        self.granted.contains(pattern)
    }

    /// A key is held here that `other` locks otherwise than `ours`, or may: why that keeps a session from turning.
    /// `theirs`: what `other` has published; `None` if nobody can read it.
    pub(super) fn conflict_reason(
        &self,
        ours: &PlanDigest,
        other: &PeerSession,
        theirs: Option<&PlanDigest>,
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
