//! The data of a gateway's member node. Every heartbeat writes it, so it follows the plan.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use super::{
    member::{MemberRecord, format_fingerprint, is_no_plan},
    peer_check::PeerPlanCheck,
    plan_publication::{PlanConflictHandler, PublishedPlanBytes},
};
use crate::installation::FORMAT;
use crate::peer_endpoint::{AdminPageAddress, PeerEndpoint};

/// The data of the member nodes of this process, as the next heartbeat writes it; shared by all its sessions.
#[derive(Debug, Clone)]
pub struct LocalMember {
    written: Arc<Mutex<EncodedMember>>,
    /// The endpoint for peers, which stays the same as long as the process lives.
    reach: Option<PeerEndpoint>,
    /// The result of the last check of the peers' member nodes.
    others: Arc<PeerPlanCheck>,
    /// The publication of the plan; `None` for a program that names its keys itself.
    publishes: Option<MemberPlanPublisher>,
}

#[derive(Debug)]
struct EncodedMember {
    member: MemberRecord,
    data: Arc<[u8]>,
}

/// The plan publication of a process that publishes its plan.
#[derive(Debug, Clone)]
pub(super) struct MemberPlanPublisher {
    /// The plan that the sessions of the process have to publish from now on.
    pub(super) now: watch::Sender<PublishedPlanBytes>,
    pub(super) judge: Arc<dyn PlanConflictHandler>,
    /// Plans of peers, by fingerprint. A published plan never changes, so it is read once.
    known: Arc<Mutex<HashMap<String, PublishedPlanBytes>>>,
    /// Member nodes of programs that name their keys themselves. They never contain a plan, so they are not read again.
    programs: Arc<Mutex<HashSet<String>>>,
}

/// The most plans that are cached. An installation has two while it changes from one to another.
const MAX_CACHED_PLANS: usize = 16;

impl LocalMember {
    /// The data of a process without a peer listener. `plan`: the fingerprint of the part of the plan that determines
    /// keys and lock paths.
    pub fn new(plan: u64) -> Self {
        Self::with_endpoint(plan, None)
    }

    /// The data of a process with a peer listener at `reach`; see [`LocalMember::new`].
    pub fn with_endpoint(plan: u64, reach: Option<PeerEndpoint>) -> Self {
        let written = EncodedMember::encode(MemberRecord {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            plan: format_fingerprint(plan),
            peer: reach.clone(),
            page: None,
            publishes: false,
            leaving: false,
        });
        Self { written: Arc::new(Mutex::new(written)), reach, others: Arc::default(), publishes: None }
    }

    /// Adds the address of the admin page, if there is a reachable one.
    #[must_use]
    pub fn with_page(self, page: Option<AdminPageAddress>) -> Self {
        self.lock_member().update(|member| member.page = page);
        self
    }

    /// Adds the plan that the gateway publishes. Such a gateway gives way to peers that published an incompatible plan
    /// before.
    #[must_use]
    pub fn with_publication(
        self,
        plan: u64,
        publication: PublishedPlanBytes,
        judge: Arc<dyn PlanConflictHandler>,
    ) -> Self {
        let now = watch::Sender::new(publication);
        let publishes =
            Some(MemberPlanPublisher { now, judge, known: Arc::default(), programs: Arc::default() });
        self.lock_member().update(|member| {
            member.plan = format_fingerprint(plan);
            member.publishes = true;
        });
        Self { publishes, ..self }
    }

    /// Sets the fingerprint of a new plan that is in force.
    pub fn set_plan_fingerprint(&self, plan: u64) {
        self.lock_member().update(|member| member.plan = format_fingerprint(plan));
        self.others.schedule_check();
    }

    /// Marks the process as draining.
    pub fn set_draining(&self) {
        self.lock_member().update(|member| member.leaving = true);
    }

    /// Starts the publication of this plan. Call it when no request runs any more that took a lock by another plan.
    pub fn publish(&self, publication: PublishedPlanBytes) {
        if let Some(publishes) = &self.publishes {
            publishes.now.send_replace(publication);
        }
    }

    /// The endpoint at which peers reach this process.
    pub fn endpoint(&self) -> Option<&PeerEndpoint> {
        self.reach.as_ref()
    }

    pub(super) fn publisher(&self) -> Option<&MemberPlanPublisher> {
        self.publishes.as_ref()
    }

    pub(super) fn peer_check(&self) -> &PeerPlanCheck {
        &self.others
    }

    pub(crate) fn encoded_member(&self) -> Arc<[u8]> {
        self.lock_member().data.clone()
    }

    /// Whether a gateway with this fingerprint locks the same keys as this process, or has no plan.
    pub(super) fn is_compatible_with(&self, plan: &str) -> bool {
        plan == self.lock_member().member.plan || is_no_plan(plan)
    }

    pub(super) fn cached_plan(&self, fingerprint: &str) -> Option<PublishedPlanBytes> {
        self.publishes.as_ref()?.known_plans().get(fingerprint).cloned()
    }

    pub(super) fn cache_plan(&self, publication: &PublishedPlanBytes) {
        let Some(publishes) = &self.publishes else { return };
        let mut known = publishes.known_plans();
        if known.len() >= MAX_CACHED_PLANS {
            known.clear();
        }
        known.insert(publication.fingerprint().to_owned(), publication.clone());
    }

    /// The members that have to be read: all but known programs without a plan. Forgets those programs that are gone.
    pub(super) fn members_to_read(&self, members: Vec<String>) -> Vec<String> {
        let Some(publishes) = &self.publishes else { return members };
        let mut programs = publishes.planless_members();
        let all: HashSet<&String> = members.iter().collect();
        programs.retain(|program| all.contains(program));
        members.iter().filter(|member| !programs.contains(*member)).cloned().collect()
    }

    pub(super) fn record_if_planless(&self, member: &str, record: &MemberRecord) {
        if let Some(publishes) = self.publishes.as_ref().filter(|_| record.is_lock_client()) {
            publishes.planless_members().insert(member.to_owned());
        }
    }

    fn lock_member(&self) -> MutexGuard<'_, EncodedMember> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemberPlanPublisher {
    fn planless_members(&self) -> MutexGuard<'_, HashSet<String>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_plans(&self) -> MutexGuard<'_, HashMap<String, PublishedPlanBytes>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EncodedMember {
    fn encode(member: MemberRecord) -> Self {
        let data = serde_json::to_vec(&member).expect("plain fields serialise").into();
        Self { member, data }
    }

    fn update(&mut self, change: impl FnOnce(&mut MemberRecord)) {
        change(&mut self.member);
        *self = Self::encode(self.member.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member record of an older build without a peer endpoint, and one of a newer build with unknown fields, can
    /// be read.
    #[test]
    fn member_record_reads_across_versions() {
        let older = r#"{"format":1,"version":"0.4.0","plan":"00"}"#;
        assert_eq!(serde_json::from_str::<MemberRecord>(older).expect("read").peer, None);
        let pass = "5a".repeat(32);
        let newer = format!(
            r#"{{"format":1,"version":"9","plan":"00","peer":{{"address":"gw:9910","pass":"{pass}","more":1}},"more":2}}"#
        );
        let peer = serde_json::from_str::<MemberRecord>(&newer).expect("read").peer.expect("it is reached");
        assert_eq!((peer.address.as_str(), peer.pass.as_str()), ("gw:9910", &*pass));
    }
}
