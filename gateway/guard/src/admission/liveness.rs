//! Counts the time in which a process that may be at work was seen to run.
//!
//! The wait for an execution in doubt is a bound on its length, and a process that stands still executes nothing. A
//! stopped process, a suspended machine and a long garbage collection keep what they were sent, and begin it or go on
//! with it when they run again. So the wait must not be measured by a clock alone. An answer to a question proves that
//! its process ran at some moment between question and answer. What lies between two such proofs counts, if the
//! question was asked soon enough after the answer before it.

use std::{collections::BTreeMap, time::Duration};

use fencegate_process::clock::BootInstant;

use crate::dispatch_target::DispatchTarget;

/// The endpoints of a service that answer questions, and how often they are asked while anything is in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointWatch {
    pub endpoints: Vec<String>,
    /// The pause between an answer and the next question. It is the most that counts between two answers, so a pause of
    /// the process that is shorter is not noticed.
    pub interval: Duration,
}

impl EndpointWatch {
    /// Time between an answer and the next question of which nothing counts. Whoever asks may be late by a part of the
    /// interval; what is later was asleep itself, and then so may the service have been.
    fn max_gap(&self) -> Duration {
        2 * self.interval
    }
}

/// A question that was answered, in a way that only the process itself can have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LivenessAnswer {
    /// Before its connection was made.
    pub asked: BootInstant,
    pub answered: BootInstant,
}

/// How much of a wait is left, at each of the places that may be at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnseenTime {
    since: BootInstant,
    left: BTreeMap<DispatchTarget, Duration>,
}

/// The last answers of each place that was asked.
#[derive(Debug, Default)]
pub(crate) struct LivenessAnswers {
    last: BTreeMap<DispatchTarget, LastAnswer>,
}

#[derive(Debug, Clone, Copy)]
struct LastAnswer {
    /// The last good answer; `None` if there was none yet.
    answered: Option<BootInstant>,
    /// Whether the last question was not answered.
    silent: bool,
}

/// The time between two answers in which the process counts as running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LivenessSpan {
    from: BootInstant,
    to: BootInstant,
    most: Duration,
}

impl UnseenTime {
    /// The places have to be seen running for `left` from `since` on.
    pub(crate) fn new(
        places: impl IntoIterator<Item = DispatchTarget>,
        left: Duration,
        since: BootInstant,
    ) -> Self {
        Self { since, left: places.into_iter().map(|place| (place, left)).collect() }
    }

    /// The time that is still to be seen. At zero nothing is at work any more.
    pub(crate) fn remaining(&self) -> Duration {
        self.left.values().copied().max().unwrap_or_default()
    }

    /// The places that have to be asked.
    pub(crate) fn places(&self) -> impl Iterator<Item = &DispatchTarget> {
        self.left.iter().filter(|(_, left)| !left.is_zero()).map(|(place, _)| place)
    }

    /// Takes what was seen of a place. True if that changed what is left.
    pub(crate) fn record(&mut self, place: &DispatchTarget, span: LivenessSpan) -> bool {
        let Some(left) = self.left.get_mut(place) else { return false };
        let counted = span.to.since(span.from.max(self.since)).min(span.most);
        *left = left.saturating_sub(counted);
        !counted.is_zero()
    }
}

impl LivenessAnswers {
    /// Takes an answer. The span ends with the question: when exactly the process ran between question and answer is
    /// not known.
    pub(crate) fn record(
        &mut self,
        place: &DispatchTarget,
        answer: LivenessAnswer,
        watch: &EndpointWatch,
    ) -> Option<LivenessSpan> {
        let now = LastAnswer { answered: Some(answer.answered), silent: false };
        let before = self.last.insert(place.clone(), now).and_then(|last| last.answered)?;
        let pause = answer.asked.since(before);
        (!pause.is_zero() && pause <= watch.max_gap()).then_some(LivenessSpan {
            from: before,
            to: answer.asked,
            most: watch.interval,
        })
    }

    /// A question was not answered. True if the one before it was, or was the first.
    pub(crate) fn record_missed(&mut self, place: &DispatchTarget) -> bool {
        let last = self.last.entry(place.clone()).or_insert(LastAnswer { answered: None, silent: false });
        !std::mem::replace(&mut last.silent, true)
    }

    pub(crate) fn is_silent(&self, place: &DispatchTarget) -> bool {
        self.last.get(place).is_some_and(|last| last.silent)
    }

    /// Forgets the places that are not asked any more.
    pub(crate) fn retain(&mut self, asked: impl Fn(&DispatchTarget) -> bool) {
        self.last.retain(|place, _| asked(place));
    }
}
