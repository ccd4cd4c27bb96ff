//! Counts the time in which a process that may be at work was seen running.
//!
//! The wait for an execution in doubt is a bound on its length, and a process that stands still executes nothing. A
//! stopped process, a suspended machine and a long garbage collection keep the requests that they were sent, and
//! begin or continue them when they run again. So the wait must not be measured by a clock alone. An answer to a
//! probe proves that its process ran at some moment between probe and answer. The time between two such answers
//! counts, if the later probe was sent soon enough after the earlier answer.

use std::{collections::BTreeMap, time::Duration};

use fencegate_process::clock::BootInstant;

use crate::dispatch_target::DispatchTarget;

/// The endpoints of a service that answer probes, and how often they are probed while anything is in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LivenessProbeConfig {
    pub endpoints: Vec<String>,
    /// The pause between an answer and the next probe. At most this much time counts between two answers, so a
    /// stop of the process that is shorter than this is not noticed.
    pub interval: Duration,
}

impl LivenessProbeConfig {
    /// The largest time between an answer and the next probe that counts. The prober may be late by a part of
    /// the interval; if it is later, the guard itself was asleep, and the service may have been asleep, too.
    fn max_probe_gap(&self) -> Duration {
        2 * self.interval
    }
}

/// An answered probe. The answer is of a kind that only the process itself can give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LivenessProbeAnswer {
    /// The instant before the probe's connection was made.
    pub asked: BootInstant,
    pub answered: BootInstant,
}

/// The time for which each target that may be at work still has to be seen running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredTargetUptime {
    since: BootInstant,
    left: BTreeMap<DispatchTarget, Duration>,
}

/// The last answers of each probed target.
#[derive(Debug, Default)]
pub struct EndpointLivenessTracker {
    last: BTreeMap<DispatchTarget, LastLivenessAnswer>,
}

#[derive(Debug, Clone, Copy)]
struct LastLivenessAnswer {
    /// The last good answer; `None` if there was none yet.
    answered: Option<BootInstant>,
    /// Whether the last probe was not answered.
    silent: bool,
}

/// The time between two answers in which the process counts as running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedUptime {
    from: BootInstant,
    to: BootInstant,
    most: Duration,
}

impl RequiredTargetUptime {
    /// The targets have to be seen running for `left` from `since` on.
    pub fn new(places: impl IntoIterator<Item = DispatchTarget>, left: Duration, since: BootInstant) -> Self {
        Self { since, left: places.into_iter().map(|target| (target, left)).collect() }
    }

    /// The longest time for which one of the targets still has to be seen running. At zero nothing is at work
    /// any more.
    pub fn remaining(&self) -> Duration {
        self.left.values().copied().max().unwrap_or_default()
    }

    /// The targets that have to be probed.
    pub fn targets_to_probe(&self) -> impl Iterator<Item = &DispatchTarget> {
        self.left.iter().filter(|(_, left)| !left.is_zero()).map(|(target, _)| target)
    }

    /// Counts a span in which a target was seen running. True if that changed the remaining time of the target.
    pub fn subtract_observed_uptime(&mut self, target: &DispatchTarget, span: ObservedUptime) -> bool {
        let Some(left) = self.left.get_mut(target) else { return false };
        let counted = span.to.since(span.from.max(self.since)).min(span.most);
        *left = left.saturating_sub(counted);
        !counted.is_zero()
    }
}

impl EndpointLivenessTracker {
    /// Records an answer. The counted span ends when the probe was sent: when exactly the process ran between probe
    /// and answer is not known.
    pub fn record_answer(
        &mut self,
        target: &DispatchTarget,
        answer: LivenessProbeAnswer,
        watch: &LivenessProbeConfig,
    ) -> Option<ObservedUptime> {
        let now = LastLivenessAnswer { answered: Some(answer.answered), silent: false };
        let before = self.last.insert(target.clone(), now).and_then(|last| last.answered)?;
        let pause = answer.asked.since(before);
        (!pause.is_zero() && pause <= watch.max_probe_gap()).then_some(ObservedUptime {
            from: before,
            to: answer.asked,
            most: watch.interval,
        })
    }

    /// Records that a probe was not answered. True if the previous one was answered, or if this was the first.
    pub fn record_missed_probe(&mut self, target: &DispatchTarget) -> bool {
        let last =
            self.last.entry(target.clone()).or_insert(LastLivenessAnswer { answered: None, silent: false });
        !std::mem::replace(&mut last.silent, true)
    }

    pub fn is_silent(&self, target: &DispatchTarget) -> bool {
        self.last.get(target).is_some_and(|last| last.silent)
    }

    /// Forgets the targets that are no longer probed.
    pub fn retain(&mut self, asked: impl Fn(&DispatchTarget) -> bool) {
        self.last.retain(|target, _| asked(target));
    }
}
