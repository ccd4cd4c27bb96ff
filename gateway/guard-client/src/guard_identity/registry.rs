//! The guards as this gateway knows them: the store of each, the newest token in that store, and the process that
//! uses it.
//!
//! Every connection to a guard begins with the guard's announcement. So a restarted guard is checked again before
//! anything is sent to it, and connections to a process that was replaced are not used any more.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencegate_guard::identity::GuardIdentityResponse;
use fencegate_http_client::upstream::{
    address::ResolvedEndpoint,
    identity_check::{IdentityCheckDue, IdentityCheckStartSeq},
};
use fencegate_policies::plan::Upstream;
use fencegate_process::{clock::BootInstant, display};
use fencegate_zookeeper::state::HighestEpochTracker;
use tokio::time::Instant;
use tracing::{error, warn};

use super::processes::{
    DuplicateGuardDetector, GuardProcessConflictError, GuardProcessIdentity, IdentityCheckSequence,
    IdentityResponseTiming,
};

/// The guards that this gateway has met. Shared by all workers.
#[derive(Debug)]
pub struct UpstreamGuardRegistry {
    state: Mutex<UpstreamGuardRegistryState>,
    /// The installation that issues this gateway's tokens.
    memory: Arc<HighestEpochTracker>,
}

#[derive(Debug, Default)]
struct UpstreamGuardRegistryState {
    /// By upstream, then by address of an endpoint.
    met: HashMap<Arc<str>, Vec<GuardAtAddress>>,
    /// By upstream: the largest known epoch that one of its guards has admitted, whatever the store of that guard.
    highest: HashMap<Arc<str>, HighestGuardEpoch>,
    processes: DuplicateGuardDetector,
    /// The number of entries about addresses so far.
    notes: u64,
    /// Upstreams with `direct: true` that have an intermediary all the same.
    relayed: Vec<Arc<str>>,
}

/// An address at which a guard was expected.
#[derive(Debug)]
struct GuardAtAddress {
    address: Arc<ResolvedEndpoint>,
    /// The guard that answered at the last check; `None` if no guard did.
    guard: Option<GuardProcessIdentity>,
    /// The number of the last entry about this address.
    note: u64,
    /// The time of that entry, or of the next request for the guard's identity.
    since: Instant,
}

impl UpstreamGuardRegistryState {
    fn highest(&self, upstream: &Upstream) -> Option<&HighestGuardEpoch> {
        self.highest.get(&upstream.name)
    }

    fn record(
        &mut self,
        upstream: &Upstream,
        address: &Arc<ResolvedEndpoint>,
        guard: Option<GuardProcessIdentity>,
    ) {
        let places = self.met.entry(upstream.name.clone()).or_default();
        // A guard at an address to which the name no longer resolves must not contradict the guards at its present
        // addresses.
        places.retain(|place| !place.address.is_gone_from_dns() && !place.is_at(address));
        self.notes += 1;
        places.push(GuardAtAddress {
            address: address.clone(),
            guard,
            note: self.notes,
            since: Instant::now(),
        });
    }

    fn addresses(&self, upstream: &Upstream) -> impl Iterator<Item = &GuardAtAddress> {
        self.met.get(&upstream.name).into_iter().flatten().filter(|place| !place.address.is_gone_from_dns())
    }

    fn find(&self, upstream: &Upstream, address: &ResolvedEndpoint) -> Option<&GuardAtAddress> {
        self.addresses(upstream).find(|place| place.is_at(address))
    }

    /// The last announcement of each endpoint of the plan, where a guard answered. Endpoints of another plan do not
    /// count: a guard there does not contradict the guards of this plan.
    fn announcements(
        &self,
        upstream: &Upstream,
    ) -> impl Iterator<Item = (&ResolvedEndpoint, &GuardProcessIdentity)> {
        let ours = self.addresses(upstream).filter(|place| upstream.endpoints.contains(&place.address.name));
        ours.filter_map(|place| Some((&*place.address, place.guard.as_ref()?)))
    }

    fn is_consistent(&self, upstream: &Upstream) -> bool {
        let mut guards = self.announcements(upstream).map(|(_, guard)| guard);
        guards.next().is_none_or(|first| guards.all(|guard| guard == first))
    }

    /// Records that this request repeats the check, so that other requests need not.
    fn mark_recheck_started(&mut self, upstream: &Upstream, address: &ResolvedEndpoint) {
        let places = self.met.get_mut(&upstream.name).into_iter().flatten();
        places.filter(|place| place.is_at(address)).for_each(|place| place.since = Instant::now());
    }

    /// Forgets processes at names and addresses that are not in use any more.
    fn forget_unused_processes(&mut self, at: BootInstant) {
        let Self { met, processes, .. } = self;
        processes.forget_unused_addresses(at, |name, socket| {
            let mut places = met.values().flatten();
            places.any(|place| (&*place.address.name, &place.address.socket) == (name, socket))
        });
    }
}

impl GuardAtAddress {
    fn is_at(&self, address: &ResolvedEndpoint) -> bool {
        (&self.address.name, &self.address.socket) == (&address.name, &address.socket)
    }
}

#[derive(Debug)]
struct HighestGuardEpoch {
    epoch: u64,
    /// The process that admitted the epoch.
    by: Arc<str>,
}

/// The state when the identity of a guard was requested. While its announcement is on its way, other requests may be
/// admitted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuardIdentityCheckSnapshot {
    known: u64,
    asked: IdentityCheckSequence,
}

/// The reason for which nothing is sent to a guard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardIdentityError {
    #[error(
        "the guards of the upstream announce different stores, so one guard does not know what the other lets in"
    )]
    Split,
    #[error(
        "two guards answer at this address, so one guard does not know what the other lets in; nothing is sent there until a new process answers: end one of them and restart the other"
    )]
    MultipleProcesses,
    /// The announcement is out of date, and so is the connection.
    #[error("another process of the guard has taken the place of the one that answered")]
    Replaced,
    #[error("no guard answers at this endpoint: {0}")]
    NoGuard(String),
    #[error("the guard compares tokens of another installation, {theirs}; ours is {ours}")]
    OtherInstallation { theirs: String, ours: String },
    #[error(
        "the guard came back with an older store: its highest epoch is {announced}, and it let in epoch {known} \
         before"
    )]
    RolledBack { announced: u64, known: u64 },
    #[error(
        "FG0504: `response_timeout` of {ours:?} is not above the {theirs:?} that the guard may take to settle and execute"
    )]
    TimeoutTooShort { ours: Duration, theirs: Duration },
}

impl UpstreamGuardRegistry {
    pub fn new(memory: Arc<HighestEpochTracker>) -> Self {
        Self { state: Mutex::default(), memory }
    }

    /// Call this before requesting the identity of a guard.
    pub(crate) fn begin_check(&self, upstream: &Upstream) -> GuardIdentityCheckSnapshot {
        let state = self.lock();
        GuardIdentityCheckSnapshot {
            known: state.highest(upstream).map_or(0, |highest| highest.epoch),
            asked: state.processes.begin_check(),
        }
    }

    /// Records the announcement of a guard at the beginning of a connection. Returns its process, for
    /// [`UpstreamGuardRegistry::record_admitted`].
    pub(crate) fn record_announcement(
        &self,
        upstream: &Upstream,
        address: &Arc<ResolvedEndpoint>,
        announced: &GuardIdentityResponse,
        check: GuardIdentityCheckSnapshot,
        at: BootInstant,
    ) -> Result<Arc<str>, GuardIdentityError> {
        let process = GuardProcessIdentity::from_announcement(announced);
        let instance = process.instance.clone();
        let trusted = self.evaluate_announcement(upstream, address, announced, process, check, at);
        // If two announcements differ, one of them may be out of date. So a split is reported only after the
        // identity of both guards was requested again.
        if let Err(error) = &trusted
            && !matches!(error, GuardIdentityError::Replaced | GuardIdentityError::Split)
        {
            let endpoint = &address.name;
            let address = &address.socket;
            error!(upstream = %upstream.name, %endpoint, %address, why = %error, "guard.distrusted");
        }
        trusted.map(|()| instance)
    }

    fn evaluate_announcement(
        &self,
        upstream: &Upstream,
        address: &Arc<ResolvedEndpoint>,
        announced: &GuardIdentityResponse,
        process: GuardProcessIdentity,
        check: GuardIdentityCheckSnapshot,
        at: BootInstant,
    ) -> Result<(), GuardIdentityError> {
        let mut state = self.lock();
        let timing =
            IdentityResponseTiming { asked: check.asked, at, up: announced.up.map(Duration::from_millis) };
        let alone = state.processes.record_announcement(address, &process, timing);
        if alone == Err(GuardProcessConflictError::Replaced) {
            return Err(GuardIdentityError::Replaced);
        }
        // An epoch that the same process admitted while its announcement was on its way does not contradict that
        // announcement.
        let known = match state.highest(upstream) {
            Some(highest) if highest.by != process.instance => highest.epoch,
            _ => check.known,
        };
        state.record(upstream, address, Some(process));
        state.forget_unused_processes(at);
        drop(state);
        alone.map_err(|_| GuardIdentityError::MultipleProcesses)?;
        self.check(upstream, announced, known)
    }

    fn check(
        &self,
        upstream: &Upstream,
        announced: &GuardIdentityResponse,
        known: u64,
    ) -> Result<(), GuardIdentityError> {
        if let Some(served) = self.memory.installation()
            && served.uuid != announced.ensemble
        {
            let theirs = announced.ensemble.clone();
            let ours = served.uuid.clone();
            return Err(GuardIdentityError::OtherInstallation { theirs, ours });
        }
        self.check_consistent(upstream)?;
        if announced.highest < known {
            return Err(GuardIdentityError::RolledBack { announced: announced.highest, known });
        }
        if upstream.response_timeout <= announced.max_response_time() {
            let ours = upstream.response_timeout;
            let theirs = announced.max_response_time();
            return Err(GuardIdentityError::TimeoutTooShort { ours, theirs });
        }
        Ok(())
    }

    /// True if the process is the last that answered at the address, and no other process of the upstream contradicts
    /// it.
    pub fn is_trusted(&self, upstream: &Upstream, address: &ResolvedEndpoint, instance: &Arc<str>) -> bool {
        let state = self.lock();
        let alone = || state.announcements(upstream).all(|(_, guard)| guard.instance == *instance);
        state.processes.is_current(address, instance) && alone()
    }

    /// Succeeds if all guards of the upstream have one store by their last announcements. If two processes use it, it
    /// must be a store that can be shared. An address where no guard answers contradicts nothing.
    pub fn check_consistent(&self, upstream: &Upstream) -> Result<(), GuardIdentityError> {
        if self.lock().is_consistent(upstream) { Ok(()) } else { Err(GuardIdentityError::Split) }
    }

    /// The announcements of all guards of an upstream, for an operator who has to choose one.
    pub(crate) fn describe_announcements(&self, upstream: &Upstream) -> String {
        let state = self.lock();
        let one = |(at, guard): (&ResolvedEndpoint, &GuardProcessIdentity)| {
            let GuardProcessIdentity { store, instance, database } = guard;
            let who = database
                .as_ref()
                .map_or_else(|| format!("process {instance}"), |database| format!("in database {database}"));
            format!("{} at {}: store {store}, {who}", at.name, at.socket)
        };
        display::join_display(state.announcements(upstream).map(one))
    }

    /// Forgets the endpoints that these upstreams do not have: a guard that was removed from the policy must not
    /// contradict the remaining guards.
    pub fn retain(&self, upstreams: &[Upstream]) {
        let mut state = self.lock();
        for (name, met) in &mut state.met {
            let upstream = upstreams.iter().find(|upstream| upstream.name == *name);
            met.retain(|place| {
                upstream.is_some_and(|upstream| upstream.endpoints.contains(&place.address.name))
            });
        }
    }

    /// Call this before connecting to an address to look for a guard.
    pub(crate) fn begin_attempt(&self) -> IdentityCheckStartSeq {
        IdentityCheckStartSeq(self.lock().notes)
    }

    /// Records that no guard answers at the address. If a guard has announced itself since the attempt began,
    /// its announcement still counts.
    pub(crate) fn record_no_guard(
        &self,
        upstream: &Upstream,
        address: &Arc<ResolvedEndpoint>,
        attempt: IdentityCheckStartSeq,
    ) {
        let mut state = self.lock();
        let since = |place: &GuardAtAddress| place.guard.is_some() && place.note > attempt.0;
        if !state.find(upstream, address).is_some_and(since) {
            state.record(upstream, address, None);
        }
    }

    /// Reports whether this address has to be checked before a request is sent to any guard of the upstream. It has
    /// to be if it was not checked yet, or if the announcements contradict each other: a guard that was restarted or
    /// replaced may differ from its last announcement. An address without a guard contradicts nothing, and the next
    /// connection to it learns which guard returned. But no request connects there while other guards answer, and
    /// that guard may serve another gateway. So such an address is checked again at intervals, in the background.
    pub fn check_due(&self, upstream: &Upstream, address: &ResolvedEndpoint) -> IdentityCheckDue {
        let mut state = self.lock();
        match state.find(upstream, address) {
            None => IdentityCheckDue::Before,
            Some(GuardAtAddress { guard: Some(_), .. }) if !state.is_consistent(upstream) => {
                IdentityCheckDue::Before
            }
            Some(GuardAtAddress { guard: None, since, .. })
                if since.elapsed() >= upstream.sharing.dns.refresh =>
            {
                state.mark_recheck_started(upstream, address);
                IdentityCheckDue::Background
            }
            Some(_) => IdentityCheckDue::NotDue,
        }
    }

    #[cfg(test)]
    fn age_by(&self, by: Duration) {
        self.lock().met.values_mut().flatten().for_each(|place| place.since -= by);
    }

    /// Records that a process of a guard has admitted a token of this epoch.
    pub fn record_admitted(
        &self,
        upstream: &Upstream,
        address: &ResolvedEndpoint,
        by: &Arc<str>,
        epoch: u64,
        at: BootInstant,
    ) {
        let mut state = self.lock();
        state.processes.record_answer(address, by, at);
        match state.highest.get_mut(&upstream.name) {
            Some(highest) if highest.epoch >= epoch => {}
            Some(highest) => *highest = HighestGuardEpoch { epoch, by: by.clone() },
            None => {
                drop(state.highest.insert(upstream.name.clone(), HighestGuardEpoch { epoch, by: by.clone() }))
            }
        }
    }

    /// Records that an intermediary was detected although the policy has `direct: true`. From now on a refusal
    /// does not prove that the guard has not received the request before.
    pub fn record_intermediary(&self, upstream: &Upstream) {
        let mut state = self.lock();
        if upstream.direct && !state.relayed.contains(&upstream.name) {
            warn!(upstream = %upstream.name, "guard.not_direct: an intermediary stands between this gateway and the guard");
            state.relayed.push(upstream.name.clone());
        }
    }

    /// True if no intermediary repeats requests, so a request that the guard refuses has not been admitted before.
    pub fn is_direct(&self, upstream: &Upstream) -> bool {
        upstream.direct && !self.lock().relayed.contains(&upstream.name)
    }

    fn lock(&self) -> MutexGuard<'_, UpstreamGuardRegistryState> {
        // No panic can leave the map partly changed, so a poisoned lock is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
