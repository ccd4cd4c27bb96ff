//! Doubts and quarantines that end only with time in which the endpoints were seen running.

use std::{collections::BTreeSet, time::Duration};

use fencegate_policies::{key::ResourceKey, token::FencingToken};
use fencegate_process::clock::BootInstant;

use super::{
    claim::DispatchId,
    decide::AdmissionTable,
    key_state::GuardKeyState,
    liveness::{LivenessProbeAnswer, LivenessProbeConfig, ObservedUptime, RequiredTargetUptime},
};
use crate::dispatch_target::DispatchTarget;

impl AdmissionTable {
    /// Lets the endpoints be probed from now on. A doubt, also one of an earlier process, and a quarantine then
    /// end only after the endpoints were seen running.
    pub fn start_probing(&mut self, watch: LivenessProbeConfig, now: BootInstant) {
        let inherited: Vec<(BootInstant, DispatchId)> =
            std::mem::take(&mut self.doubts).into_iter().collect();
        if let Some(quarantine) = &mut self.quarantine {
            let everywhere =
                watch.endpoints.iter().map(|endpoint| DispatchTarget::whole_endpoint_target(endpoint));
            quarantine.unseen = Some(RequiredTargetUptime::new(everywhere, quarantine.until.since(now), now));
        }
        self.watch = Some(watch);
        for (until, id) in inherited {
            self.require_target_uptime(id, until.since(now), now);
        }
    }

    /// Records that the dispatch in doubt was sent to this target. If the endpoints are probed, the doubt ends
    /// only when its endpoint was seen running for `longest`, counted from `now` or later.
    pub fn record_target(
        &mut self,
        id: DispatchId,
        target: Option<DispatchTarget>,
        longest: Duration,
        now: BootInstant,
    ) {
        let Some(open) = self.open.get_mut(&id) else { return };
        open.place = target;
        let Some(until) = open.until else { return };
        // The wait begins `longest` before `until`, if that is later than now.
        let now = now.max(until - longest);
        if self.watch.is_some() {
            self.doubts.remove(&(until, id));
            self.require_target_uptime(id, longest, now);
        }
    }

    fn require_target_uptime(&mut self, id: DispatchId, left: Duration, now: BootInstant) {
        let Some(watch) = &self.watch else { return };
        let Some(open) = self.open.get(&id) else { return };
        // An endpoint that the policy no longer has is never probed. By its removal the operator declares that
        // nothing runs there.
        let target = open.place.clone().filter(|target| watch.endpoints.contains(&target.endpoint));
        let places = match target {
            Some(target) => vec![target],
            None => watch
                .endpoints
                .iter()
                .map(|endpoint| DispatchTarget::whole_endpoint_target(endpoint))
                .collect(),
        };
        let unseen = RequiredTargetUptime::new(places, left, now);
        let left = unseen.remaining();
        for key in open.keys.clone().iter() {
            if let Some(state) = self.keys.get_mut(key) {
                state.set_required_liveness(id, left);
            }
        }
        self.unseen.insert(id, unseen);
    }

    /// The target to which the dispatch of this token was sent. `None` if the dispatch is not in doubt, or if
    /// the target is not known.
    pub fn dispatch_target(&self, keys: &[ResourceKey], token: FencingToken) -> Option<DispatchTarget> {
        let states = keys.iter().filter_map(|key| self.keys.get(key));
        let doubt = states
            .into_iter()
            .flat_map(GuardKeyState::doubts_with_ended)
            .find(|doubt| doubt.token == token)?;
        self.open.get(&doubt.id)?.place.clone()
    }

    /// The targets that have to be probed now, each once. Empty if nothing is in doubt.
    pub fn targets_to_probe(&mut self) -> Vec<DispatchTarget> {
        let quarantine = self.quarantine.as_ref().and_then(|quarantine| quarantine.unseen.as_ref());
        let all: BTreeSet<&DispatchTarget> =
            self.unseen.values().chain(quarantine).flat_map(RequiredTargetUptime::targets_to_probe).collect();
        let targets: Vec<DispatchTarget> = all.into_iter().cloned().collect();
        self.answers.retain(|target| targets.contains(target));
        targets
    }

    /// Records that the process at this target has answered a probe on a new connection. True if the previous probe
    /// was not answered.
    pub fn record_alive(
        &mut self,
        target: &DispatchTarget,
        answer: LivenessProbeAnswer,
        now: BootInstant,
    ) -> bool {
        let was_silent = self.answers.is_silent(target);
        let span = self.watch.as_ref().and_then(|watch| self.answers.record_answer(target, answer, watch));
        if let Some(span) = span {
            self.credit_observed_uptime(target, span, now);
        }
        was_silent
    }

    fn credit_observed_uptime(&mut self, target: &DispatchTarget, span: ObservedUptime, now: BootInstant) {
        if let Some(unseen) = self.quarantine.as_mut().and_then(|quarantine| quarantine.unseen.as_mut()) {
            unseen.subtract_observed_uptime(target, span);
        }
        let mut changed = Vec::new();
        for (id, unseen) in &mut self.unseen {
            if unseen.subtract_observed_uptime(target, span) {
                changed.push((*id, unseen.remaining()));
            }
        }
        for (id, left) in changed {
            let keys = self.open.get(&id).map(|open| open.keys.clone()).unwrap_or_default();
            for key in keys.iter() {
                if let Some(state) = self.keys.get_mut(key) {
                    state.set_required_liveness(id, left);
                }
            }
            if left.is_zero() {
                self.unseen.remove(&id);
                self.remove_ended_dispatch(id, now);
            }
        }
    }

    /// Records that a probe of this target was not answered. True if the previous probe was answered, or if this was
    /// the first.
    pub fn record_silent(&mut self, target: &DispatchTarget) -> bool {
        self.answers.record_missed_probe(target)
    }

    /// The number of executions in doubt whose remaining time does not get shorter, because their endpoint does
    /// not answer.
    pub fn silent_doubt_count(&self) -> usize {
        self.unseen.values().filter(|unseen| self.is_uptime_countdown_paused(unseen)).count()
    }

    pub(super) fn is_uptime_countdown_paused(&self, unseen: &RequiredTargetUptime) -> bool {
        unseen.targets_to_probe().any(|target| self.answers.is_silent(target))
    }

    /// Records that this process did not run for the time `by`, so that the service may not have run, either:
    /// every end by the clock moves later by that time.
    pub fn record_process_pause(&mut self, by: Duration, now: BootInstant) {
        let before = now - by;
        let open: Vec<(BootInstant, DispatchId)> =
            self.doubts.iter().copied().filter(|(until, _)| before < *until).collect();
        for (until, id) in open {
            self.doubts.remove(&(until, id));
            self.doubts.insert((until + by, id));
            let Some(open) = self.open.get_mut(&id) else { continue };
            open.until = Some(until + by);
            for key in open.keys.clone().iter() {
                if let Some(state) = self.keys.get_mut(key) {
                    state.postpone_doubt_end(id, by);
                }
            }
        }
        if let Some(quarantine) = &mut self.quarantine
            && before < quarantine.until
        {
            quarantine.until = quarantine.until + by;
        }
    }
}
