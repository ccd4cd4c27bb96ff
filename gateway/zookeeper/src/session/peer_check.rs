//! Detects whether peers of the installation lock other keys than this gateway: then one resource has two locks.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fencegate_process::clock::BootInstant;
use tracing::{info, warn};

/// The last check of the peers. One session of the process checks, and all share the result.
#[derive(Debug, Default)]
pub(super) struct PeerPlanCheck {
    /// The time of the last check, in nanoseconds since boot; 0 if a check is due.
    looked: AtomicU64,
    /// Peers that lock other keys, by name.
    unlike: Mutex<BTreeSet<String>>,
    /// The paths of the member nodes of this process's latest sessions.
    ours: Mutex<VecDeque<String>>,
}

/// The most member nodes of this process that are remembered: several times as many as it has sessions at once, because
/// a lost session leaves its node for a while.
const MAX_OWN_MEMBERS: usize = 512;

impl PeerPlanCheck {
    /// Makes a check due, because this gateway's own plan has changed.
    pub(super) fn schedule_check(&self) {
        self.looked.store(0, Ordering::Release);
    }

    /// Records a member node of this process; call it before the node is created. After a reload the node has the old
    /// plan until the next heartbeat, and must not count as a peer's. The gateway's name alone does not identify the
    /// node: in a rolling restart two processes have one name.
    pub(super) fn add_own_member(&self, member: &str) {
        let mut ours = self.ours.lock().unwrap_or_else(PoisonError::into_inner);
        ours.push_back(member.to_owned());
        if ours.len() > MAX_OWN_MEMBERS {
            ours.pop_front();
        }
    }

    pub(super) fn without_own_members(&self, mut members: Vec<String>) -> Vec<String> {
        let ours = self.ours.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|member| !ours.contains(member));
        members
    }

    /// Once per `every`, true for exactly one caller.
    pub(super) fn claim_check(&self, now: BootInstant, every: Duration) -> bool {
        let last = self.looked.load(Ordering::Acquire);
        let due = last == 0 || now.since(BootInstant::from_nanos(last)) >= every;
        let mine = || self.looked.compare_exchange(last, now.as_nanos(), Ordering::AcqRel, Ordering::Acquire);
        due && mine().is_ok()
    }

    /// Logs each change once, and returns the number of incompatible peers.
    pub(super) fn update_mismatched(&self, unlike: BTreeSet<String>) -> usize {
        let mut known = self.unlike.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != unlike {
            let gateways = unlike.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            match unlike.is_empty() {
                true => info!("all gateways of the installation lock the same keys"),
                false => {
                    warn!(code = "FG0515", gateways, "other gateways of the installation lock other keys")
                }
            }
            *known = unlike;
        }
        known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of all sessions checks the peers once per period, and at once after a check was scheduled.
    #[test]
    fn one_session_checks_per_period() {
        let others = PeerPlanCheck::default();
        let every = Duration::from_secs(10);
        let second = |n: u64| BootInstant::from_nanos(n * 1_000_000_000);
        let due: Vec<bool> = [1, 1, 5, 11, 11, 12].map(|now| others.claim_check(second(now), every)).into();
        assert_eq!(due, [true, false, false, true, false, false]);
        others.schedule_check();
        assert!(others.claim_check(second(13), every) && !others.claim_check(second(13), every));
    }

    /// Member nodes of this process are no peers; a node of the same name from another session is one.
    #[test]
    fn own_members_are_excluded_by_session() {
        let others = PeerPlanCheck::default();
        others.add_own_member("/f/members/gw-1-01");
        let members = ["/f/members/gw-1-01", "/f/members/gw-1-02", "/f/members/gw-2-03"];
        let left = others.without_own_members(members.map(str::to_owned).into());
        assert_eq!(left, ["/f/members/gw-1-02", "/f/members/gw-2-03"]);
        for session in 0..MAX_OWN_MEMBERS {
            others.add_own_member(&format!("/f/members/gw-1-{session}-later"));
        }
        assert_eq!(others.without_own_members(vec![members[0].to_owned()]).len(), 1, "kept for ever");
    }
}
