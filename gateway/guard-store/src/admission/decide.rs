//! Compares claims with the watermarks of their keys, registers dispatches, and ends them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    pin::Pin,
    time::Duration,
};

use fencegate_policies::{
    key::ResourceKey,
    token::{FencingToken, LARGEST_JUMP},
};
use fencegate_process::{clock::BootInstant, failpoint};
use tokio::sync::futures::OwnedNotified;

use super::{
    claim::{DispatchId, OpenDispatch, PresentedDispatch},
    key_state::{DispatchConflict, GuardKeyState, InDoubtDispatch, RunningDispatch},
    liveness::{EndpointLivenessTracker, LivenessProbeConfig, RequiredTargetUptime},
    quarantine::RecoveryQuarantine,
};
use crate::{
    error::DispatchRefusedError,
    store::{CommitSeq, RecoveredState, StoreMutation},
};

/// The guard's state of all its keys.
#[derive(Debug)]
pub struct AdmissionTable {
    pub(super) keys: HashMap<ResourceKey, GuardKeyState>,
    /// Every key once, in the order of its last use as of the last check of the key.
    pub(super) unused: VecDeque<(BootInstant, ResourceKey)>,
    /// Keys that count as at work in the store, although nothing is at work on them any more.
    pub(super) resting: VecDeque<(BootInstant, ResourceKey)>,
    /// Every dispatch in flight or in doubt.
    pub(super) open: BTreeMap<DispatchId, OpenDispatch>,
    /// Executions in doubt, by the time at which each counts as over.
    pub(super) doubts: BTreeSet<(BootInstant, DispatchId)>,
    /// Executions in doubt whose endpoints have to be seen running. These are not in `doubts`.
    pub(super) unseen: BTreeMap<DispatchId, RequiredTargetUptime>,
    /// `None`: the endpoints are not probed, and doubts end by the clock.
    pub(super) watch: Option<LivenessProbeConfig>,
    pub(super) answers: EndpointLivenessTracker,
    /// A key without a watermark admits no token up to this epoch, because its watermarks may have been
    /// forgotten.
    pub(super) floor: u64,
    /// The largest epoch that was ever announced.
    highest: u64,
    /// The largest era with an announced token.
    era: u64,
    pub(super) quarantine: Option<RecoveryQuarantine>,
    /// The number of keys that count as at work in the store.
    pub(super) at_work: usize,
    /// Whether the store's list of the keys at work is complete.
    pub(super) listed: bool,
    next: u64,
}

/// The result of checking a claim.
#[derive(Debug)]
pub enum AdmitDecision {
    /// The dispatch is registered as in flight, with this id.
    Running(DispatchId),
    /// Another dispatch is in the way. Check again when notified, or when a doubt may be over.
    Wait { told: ChangeNotified, doubt: Option<BootInstant> },
}

/// A future that resolves at the next change of a key.
pub type ChangeNotified = Pin<Box<OwnedNotified>>;

/// How a dispatch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DispatchEnd {
    /// The dispatch was answered in full, or not a byte of it was sent.
    Known,
    /// The upstream may execute the dispatch until `until`.
    InDoubt { until: BootInstant },
}

impl AdmissionTable {
    /// A table that begins with the stored state. `max_execution` is the present setting. If the setting of an
    /// earlier process was longer, the longer one counts for the executions of that process.
    pub fn new(recovered: &RecoveredState, now: BootInstant, max_execution: Duration) -> Self {
        let watermarks = recovered.marks.len();
        let mut table = Self {
            keys: HashMap::with_capacity(watermarks),
            unused: VecDeque::with_capacity(watermarks),
            resting: VecDeque::new(),
            open: BTreeMap::new(),
            doubts: BTreeSet::new(),
            unseen: BTreeMap::new(),
            watch: None,
            answers: EndpointLivenessTracker::default(),
            floor: recovered.floor,
            highest: recovered.floor,
            era: recovered.era,
            quarantine: None,
            at_work: 0,
            listed: false,
            next: 0,
        };
        for (key, epochs) in &recovered.marks {
            table.highest = table.highest.max(epochs.highest());
            let state = GuardKeyState::from_epochs(epochs, recovered.floor, now);
            table.keys.insert(key.clone(), state);
            table.unused.push_back((now, key.clone()));
        }
        if let Some(stop) = &recovered.clean_stop {
            for watermark in &stop.marks {
                table.key_state(&watermark.key, now).make_exact(watermark.write, watermark.read);
            }
            for doubt in &stop.doubts {
                table.inherit_doubt(doubt, now);
            }
        }
        table.take_over_active_keys(recovered, now, max_execution);
        table
    }

    /// Compares the claim with the watermarks of all its keys, and raises all or none. The changes have to be durable
    /// before [`AdmissionTable::check_and_register`] is called.
    ///
    /// Every announced token raises its watermark, even if the claim is never admitted. So a token that comes twice
    /// is found to be a duplicate at once.
    ///
    /// # Errors
    /// Returns an error if the claim is refused. No watermark was raised then.
    pub fn check_and_raise_watermarks(
        &mut self,
        claim: &PresentedDispatch,
        now: BootInstant,
    ) -> Result<Vec<StoreMutation>, DispatchRefusedError> {
        let token = claim.token;
        if !self.is_plausible(claim) {
            return Err(DispatchRefusedError::Future { highest: self.highest });
        }
        for key in claim.keys.iter() {
            match self.keys.get(key) {
                Some(state) => state.compare_with_watermarks(token, claim.mode)?,
                None => GuardKeyState::new(self.floor, now).compare_with_watermarks(token, claim.mode)?,
            }
        }
        Ok(self.raise_watermarks(claim, now))
    }

    /// Records the position in the commit queue at which these changes were submitted.
    pub fn record_submitted(&mut self, changes: &[StoreMutation], moment: CommitSeq) {
        for change in changes {
            if let StoreMutation::Mark { key, .. } | StoreMutation::AtWork { key } = change
                && let Some(state) = self.keys.get_mut(key)
            {
                state.written = moment;
            }
        }
    }

    /// The position in the commit queue that has to be durable before the claim may be sent.
    pub fn required_seq(&self, claim: &PresentedDispatch) -> CommitSeq {
        let moments = claim.keys.iter().filter_map(|key| Some(self.keys.get(key)?.written));
        moments.max().unwrap_or_default()
    }

    /// Raises the watermarks that are below the claim. A token that is implausible, or not above the floor, raises
    /// nothing. The same holds for a guard that only observes, because its watermarks will be enforced one day.
    pub fn raise_watermarks(&mut self, claim: &PresentedDispatch, now: BootInstant) -> Vec<StoreMutation> {
        if !self.is_plausible(claim) {
            return Vec::new();
        }
        self.highest = self.highest.max(claim.token.number());
        // The era is recorded only together with a first token of it. Otherwise that token would later be too far
        // above all others.
        let later = self.claim_era_if_newer(claim);
        self.era = later.unwrap_or(self.era);
        let mut changes: Vec<StoreMutation> = later.map(StoreMutation::Era).into_iter().collect();
        for key in claim.keys.iter() {
            if let Some(change) = self.key_state(key, now).raise_watermark(key, claim.token, claim.mode) {
                changes.push(change);
            }
        }
        changes
    }

    fn is_plausible(&self, claim: &PresentedDispatch) -> bool {
        self.claim_era_if_newer(claim).is_some()
            || claim.token.number() <= self.highest.saturating_add(LARGEST_JUMP)
    }

    fn claim_era_if_newer(&self, claim: &PresentedDispatch) -> Option<u64> {
        claim.era.filter(|era| *era > self.era)
    }

    /// Checks the claim a second time, and registers it in the same step. The second check is needed because
    /// another tenure may have been announced while this claim waited, or while its watermark was written. The
    /// returned changes list the keys at work, and have to be durable before a byte is sent.
    ///
    /// # Errors
    /// Returns an error if the claim is no longer the newest of its keys, or if a key is in quarantine.
    pub fn check_and_register(
        &mut self,
        claim: &PresentedDispatch,
        now: BootInstant,
    ) -> Result<(AdmitDecision, Vec<StoreMutation>), DispatchRefusedError> {
        if let Some(until) = self.quarantined_until(&claim.keys, now) {
            return Err(DispatchRefusedError::Quarantine { until });
        }
        if !failpoint::is_disabled_by_test("rule_second_check") {
            for key in claim.keys.iter() {
                self.key_state(key, now).check_still_newest(claim.token, claim.mode)?;
            }
        }
        for key in claim.keys.iter() {
            let state = self.key_state(key, now);
            if let Some(DispatchConflict { doubt }) = state.find_conflict(claim, now) {
                // Subscribed under the caller's lock, so that no change is missed between check and wait.
                return Ok((AdmitDecision::Wait { told: Box::pin(state.subscribe()), doubt }, Vec::new()));
            }
        }
        let (id, at_work) = self.register_dispatch(claim, now);
        Ok((AdmitDecision::Running(id), at_work))
    }

    /// Registers the claim as in flight, even beside conflicting dispatches. The returned changes are those of
    /// [`AdmissionTable::check_and_register`].
    pub fn register_dispatch(
        &mut self,
        claim: &PresentedDispatch,
        now: BootInstant,
    ) -> (DispatchId, Vec<StoreMutation>) {
        let id = self.next_id();
        for key in claim.keys.iter() {
            let token = claim.token;
            let mode = claim.mode;
            let caller = claim.caller();
            let running = RunningDispatch { id, token, mode, since: now, caller };
            self.key_state(key, now).add_running(running);
        }
        self.open.insert(id, OpenDispatch::from_claim(claim));
        (id, self.mark_active(&claim.keys))
    }

    /// Ends the dispatch, and wakes the requests that wait for its keys.
    pub fn end_dispatch(
        &mut self,
        claim: &PresentedDispatch,
        id: DispatchId,
        ended: DispatchEnd,
        now: BootInstant,
    ) {
        let doubt = match ended {
            DispatchEnd::Known => {
                self.open.remove(&id);
                None
            }
            DispatchEnd::InDoubt { until } => {
                self.doubts.insert((until, id));
                self.open.entry(id).or_insert_with(|| OpenDispatch::from_claim(claim)).until = Some(until);
                Some(InDoubtDispatch { id, token: claim.token, mode: claim.mode, until, left: None })
            }
        };
        for key in claim.keys.iter() {
            self.key_state(key, now).end_dispatch(id, doubt.clone());
            self.enqueue_idle_key(key, now);
        }
    }

    /// Ends a doubt, because no execution under this token is running any more. False if there was no such
    /// doubt.
    pub fn resolve_doubt(&mut self, keys: &[ResourceKey], token: FencingToken, now: BootInstant) -> bool {
        let mut over = Vec::new();
        for key in keys {
            if let Some(state) = self.keys.get_mut(key) {
                over.extend(state.resolve_doubts_with_token(token));
            }
            self.enqueue_idle_key(key, now);
        }
        for id in &over {
            self.unseen.remove(id);
            if let Some(until) = self.open.remove(id).and_then(|open| open.until) {
                self.doubts.remove(&(until, *id));
            }
        }
        !over.is_empty()
    }

    pub fn epoch_floor(&self) -> u64 {
        self.floor
    }

    pub fn highest_epoch(&self) -> u64 {
        self.highest
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn next_id(&mut self) -> DispatchId {
        self.next += 1;
        DispatchId(self.next)
    }

    pub(super) fn key_state(&mut self, key: &ResourceKey, now: BootInstant) -> &mut GuardKeyState {
        let floor = self.floor;
        let unused = &mut self.unused;
        let state = self.keys.entry(key.clone()).or_insert_with(|| {
            unused.push_back((now, key.clone()));
            GuardKeyState::new(floor, now)
        });
        state.used = now;
        state
    }
}
