//! Executions of this guard in doubt whose time counts only while their endpoints were seen running.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use fencegate_guard_store::{
    admission::{EndpointLivenessTracker, LivenessProbeAnswer, LivenessProbeConfig, RequiredTargetUptime},
    dispatch_target::DispatchTarget,
};
use fencegate_policies::{key::ResourceKey, token::FencingToken};
use fencegate_process::{clock::BootInstant, randomness::Guid};

use super::admit_reply::InFlightDispatch;

/// The doubts of one instance whose endpoints are probed.
#[derive(Debug)]
pub(super) struct InDoubtUptimeTracker {
    watch: LivenessProbeConfig,
    answers: EndpointLivenessTracker,
    doubts: HashMap<Guid, InDoubtUptimeEntry>,
}

#[derive(Debug)]
struct InDoubtUptimeEntry {
    dispatch: InFlightDispatch,
    /// The target to which the dispatch was sent, if known.
    place: Option<DispatchTarget>,
    unseen: RequiredTargetUptime,
}

impl InDoubtUptimeTracker {
    pub(super) fn new(watch: LivenessProbeConfig) -> Self {
        Self { watch, answers: EndpointLivenessTracker::default(), doubts: HashMap::new() }
    }

    /// Adds a dispatch whose endpoint has to be seen running for `left` from `since` on.
    pub(super) fn add(
        &mut self,
        dispatch: &InFlightDispatch,
        target: Option<DispatchTarget>,
        left: Duration,
        since: BootInstant,
    ) {
        // An endpoint that the policy no longer has is never probed, so all endpoints are probed in its place.
        let known = target.clone().filter(|target| self.watch.endpoints.contains(&target.endpoint));
        let places = match known {
            Some(target) => vec![target],
            None => self
                .watch
                .endpoints
                .iter()
                .map(|endpoint| DispatchTarget::whole_endpoint_target(endpoint))
                .collect(),
        };
        let unseen = RequiredTargetUptime::new(places, left, since);
        self.doubts.insert(
            dispatch.name.0,
            InDoubtUptimeEntry { dispatch: dispatch.clone(), place: target, unseen },
        );
    }

    /// The targets that have to be probed now. The answers of all others are forgotten.
    pub(super) fn targets_to_probe(&mut self) -> Vec<DispatchTarget> {
        let all: BTreeSet<&DispatchTarget> =
            self.doubts.values().flat_map(|doubt| doubt.unseen.targets_to_probe()).collect();
        let targets: Vec<DispatchTarget> = all.into_iter().cloned().collect();
        self.answers.retain(|target| targets.contains(target));
        targets
    }

    /// Records an answer, and returns the dispatches that are over with it.
    pub(super) fn record_alive(
        &mut self,
        target: &DispatchTarget,
        answer: LivenessProbeAnswer,
    ) -> Vec<InFlightDispatch> {
        let Some(span) = self.answers.record_answer(target, answer, &self.watch) else { return Vec::new() };
        self.doubts.values_mut().for_each(|doubt| {
            doubt.unseen.subtract_observed_uptime(target, span);
        });
        let over = self.doubts.extract_if(|_, doubt| doubt.unseen.remaining().is_zero());
        over.map(|(_, doubt)| doubt.dispatch).collect()
    }

    pub(super) fn is_silent(&self, target: &DispatchTarget) -> bool {
        self.answers.is_silent(target)
    }

    /// Records that a probe was not answered. True if the previous one was answered, or if this was the first.
    pub(super) fn record_silent(&mut self, target: &DispatchTarget) -> bool {
        self.answers.record_missed_probe(target)
    }

    /// The number of doubts whose remaining time does not get shorter, because an endpoint does not answer.
    pub(super) fn silent_doubt_count(&self) -> usize {
        self.doubts.values().filter(|doubt| self.is_uptime_countdown_paused(doubt)).count()
    }

    /// The target to which the dispatch of this token was sent, if known.
    pub(super) fn dispatch_target(
        &self,
        keys: &[ResourceKey],
        token: FencingToken,
    ) -> Option<DispatchTarget> {
        let is_it = |doubt: &&InDoubtUptimeEntry| {
            doubt.dispatch.token == token && doubt.dispatch.keys.iter().any(|key| keys.contains(key))
        };
        self.doubts.values().find(is_it)?.place.clone()
    }

    /// The target of the dispatch of this name, and whether its endpoint is silent. `None` if it is not one of
    /// these dispatches.
    pub(super) fn find(&self, name: &str) -> Option<(Option<DispatchTarget>, bool)> {
        let (_, doubt) = self.doubts.iter().find(|(id, _)| id.to_string() == name)?;
        Some((doubt.place.clone(), self.is_uptime_countdown_paused(doubt)))
    }

    /// The name of each dispatch, and the time for which its endpoint still has to be seen running.
    pub(super) fn remaining_time_by_dispatch(&self) -> impl Iterator<Item = (String, Duration)> {
        self.doubts.iter().map(|(name, doubt)| (name.to_string(), doubt.unseen.remaining()))
    }

    pub(super) fn forget_dispatches(&mut self, gone: &HashSet<String>) {
        self.doubts.retain(|name, _| !gone.contains(&name.to_string()));
    }

    fn is_uptime_countdown_paused(&self, doubt: &InDoubtUptimeEntry) -> bool {
        doubt.unseen.targets_to_probe().any(|target| self.answers.is_silent(target))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fencegate_policies::plan::LockMode;
    use fencegate_process::randomness::SystemRandomness;

    use super::*;
    use crate::postgres::{admit_reply::DispatchName, name_registry::OwnedRowRefCounts};

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(0) + Duration::from_secs(seconds)
    }

    fn answer(second: u64) -> LivenessProbeAnswer {
        LivenessProbeAnswer { asked: at(second), answered: at(second) }
    }

    fn dispatch() -> InFlightDispatch {
        let name = Guid::new(&SystemRandomness);
        InFlightDispatch {
            name: DispatchName(name),
            keys: Arc::new([]),
            token: FencingToken::new(1, 0, 1).expect("small"),
            mode: LockMode::Exclusive,
            _in_hand: Arc::<OwnedRowRefCounts>::default().register_row_name(name),
        }
    }

    /// A doubt ends when its own endpoint, or every one if it is unknown, was seen running for as long as it lasts.
    #[test]
    fn doubt_ends_after_endpoint_seen_running() {
        let [one, two] = ["one", "two"].map(DispatchTarget::whole_endpoint_target);
        let endpoints = vec!["one".to_owned(), "two".to_owned()];
        let mut unseen = InDoubtUptimeTracker::new(LivenessProbeConfig { endpoints, interval: SECOND });
        let known = dispatch();
        let unknown = dispatch();
        unseen.add(&known, Some(one.clone()), 2 * SECOND, at(10));
        unseen.add(&unknown, None, 2 * SECOND, at(10));
        assert_eq!(unseen.targets_to_probe(), [one.clone(), two.clone()]);
        // Nothing counts for a target that was not probed, or that was silent meanwhile.
        for second in 10..20 {
            assert!(unseen.record_alive(&two, answer(second)).is_empty(), "{second}");
        }
        assert!(unseen.record_silent(&one));
        assert_eq!(unseen.silent_doubt_count(), 2);
        assert!(unseen.record_alive(&one, answer(20)).is_empty());
        assert!(unseen.record_alive(&one, answer(21)).is_empty());
        let over = unseen.record_alive(&one, answer(22));
        assert_eq!(over.len(), 2, "{over:?}");
        assert!(unseen.targets_to_probe().is_empty());
    }
}
