//! Judges a run by nine invariants and the sum of the additions. [`History`] finds some of the violations.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Instant,
};

use fencegate_policies::token::FencingToken;

use super::{
    level::TestedFencingLevel,
    run_log::{ExecutionInterval, KeyExecution, RunLog},
};
use crate::history::{History, Violation};

/// A condition that must hold in every run. The comments state the violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// I1: executions of a key overlap, and not all of them only read.
    Overlap,
    /// I2: a later execution has a token that is not newer, or a request has such a token although it was sent after
    /// the response to the other request.
    Order,
    /// I3: a response reports that the request is done, without a complete execution, or with the body of another
    /// request.
    Truth,
    /// I4: an attempt, or an operation, is executed more than once.
    Twice,
    /// I5: executions of one tenure came from two gateways.
    Tenure,
    /// I6: a key is not served again in time.
    Recovery,
    /// I7: a client received `not-dispatched` but the request was executed, or a response has no outcome.
    Outcome,
    /// I8: the guard or the comparing service does not remember the newest token that it has admitted.
    Mark,
    /// I9: a node remains after the run, or a gauge is not zero.
    Rest,
    /// Additions were lost.
    Sum,
}

/// An invariant that was broken, with a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvariantViolation {
    pub law: Invariant,
    pub what: String,
}

impl Invariant {
    /// True for an invariant that a lock without fencing cannot keep once its session is lost.
    pub fn needs_a_fence(self) -> bool {
        matches!(self, Self::Overlap | Self::Order | Self::Sum)
    }
}

impl fmt::Display for InvariantViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.law, self.what)
    }
}

/// Checks a run against all invariants.
pub fn find_violations(run: &RunLog, level: TestedFencingLevel) -> Vec<InvariantViolation> {
    // A comparing service keeps executions apart inside, so requests may overlap at its listener: judge only the
    // effects.
    let readings: &[ExecutionInterval] = match level {
        TestedFencingLevel::Upstream => &[ExecutionInterval::Effect],
        TestedFencingLevel::None | TestedFencingLevel::Delay | TestedFencingLevel::Guard => {
            &[ExecutionInterval::Effect, ExecutionInterval::Door]
        }
    };
    let mut found: Vec<InvariantViolation> =
        readings.iter().flat_map(|reading| history_violations(&run.history_by(*reading), *reading)).collect();
    found.extend(check_outcomes(run));
    found.extend(check_operations(run));
    found.extend(check_tenures(run));
    found.extend(check_recovery(run));
    found.extend(check_real_time(run));
    found.extend(check_watermarks(run, level));
    found.extend(check_balances(run));
    found.extend(run.leftovers.iter().map(|what| Invariant::Rest.broken_by(what)));
    found
}

impl Invariant {
    fn broken_by(self, what: impl fmt::Display) -> InvariantViolation {
        InvariantViolation { law: self, what: what.to_string() }
    }
}

fn history_violations(history: &History, reading: ExecutionInterval) -> Vec<InvariantViolation> {
    let law = |violation: &Violation| match violation {
        Violation::Overlap { .. } => Invariant::Overlap,
        Violation::NotNewer { .. } => Invariant::Order,
        Violation::DoneWithoutExecution(_) => Invariant::Truth,
        Violation::NotDispatchedButExecuted(_) => Invariant::Outcome,
        Violation::ExecutedTwice(_) => Invariant::Twice,
    };
    let found = history.violations().into_iter();
    found.map(|violation| law(&violation).broken_by(format!("{reading:?}: {violation:?}"))).collect()
}

/// Every response of a fenced route has an outcome. A success needs a complete execution of this request, which
/// ended before the response.
fn check_outcomes(run: &RunLog) -> Vec<InvariantViolation> {
    let mut ends = BTreeMap::<&str, Vec<Option<Instant>>>::new();
    for deed in &run.deeds {
        ends.entry(deed.id()).or_default().push(deed.effect.ended);
    }
    let mut found = Vec::new();
    for asked in &run.asked {
        let (id, Some(told)) = (&asked.id, &asked.told) else { continue };
        let over = ends
            .get(id.as_str())
            .is_some_and(|ends| ends.iter().any(|end| *end <= Some(asked.completed) && end.is_some()));
        let success = (200..300).contains(&told.status);
        if told.outcome.is_none() {
            found.push(
                Invariant::Outcome.broken_by(format!("{id}: {} and no word of its outcome", told.status)),
            );
        } else if success && !asked.is_replayed() && !over {
            found.push(
                Invariant::Truth.broken_by(format!("{id}: {} before the end of an execution", told.status)),
            );
        }
        if success && !asked.is_replayed() && told.body != *id {
            found.push(Invariant::Truth.broken_by(format!("{id}: was given the answer of `{}`", told.body)));
        }
    }
    found
}

/// An operation is executed at most once, and exactly once if one of its attempts was reported as done.
fn check_operations(run: &RunLog) -> Vec<InvariantViolation> {
    let operation =
        |asked: &super::run_log::ClientAttempt| Some((asked.operation.clone()?, asked.id.clone()));
    let of_attempt: BTreeMap<String, String> =
        run.asked.iter().filter_map(operation).map(|(operation, id)| (id, operation)).collect();
    let mut executions = BTreeMap::<&str, BTreeSet<Instant>>::new();
    for deed in &run.deeds {
        if let Some(operation) = of_attempt.get(deed.id()) {
            executions.entry(operation).or_default().insert(deed.door.began);
        }
    }
    let times = |operation: &str| executions.get(operation).map_or(0, BTreeSet::len);
    let twice = executions.iter().filter(|(_, begun)| begun.len() > 1);
    let mut found: Vec<InvariantViolation> = twice
        .map(|(operation, begun)| {
            Invariant::Twice.broken_by(format!("{operation}: {} executions", begun.len()))
        })
        .collect();
    for asked in run.asked.iter().filter(|asked| asked.is_settled()) {
        if let Some(operation) = asked.operation.as_deref().filter(|operation| times(operation) == 0) {
            found.push(
                Invariant::Truth
                    .broken_by(format!("{operation}: told as done to {}, never executed", asked.id)),
            );
        }
    }
    found
}

fn check_tenures(run: &RunLog) -> Vec<InvariantViolation> {
    let mut gateways = BTreeMap::<(&str, u64), BTreeSet<&str>>::new();
    for KeyExecution { door, .. } in run.deeds.iter().filter(|_| !run.forwards) {
        gateways.entry((&door.key, door.token.number())).or_default().insert(&door.gateway);
    }
    let several = gateways.into_iter().filter(|(_, gateways)| gateways.len() > 1);
    several
        .map(|((key, epoch), gateways)| Invariant::Tenure.broken_by(format!("{key} {epoch}: {gateways:?}")))
        .collect()
}

fn check_recovery(run: &RunLog) -> Option<InvariantViolation> {
    let bound = run.struck.as_ref()?.bound;
    match run.recovery() {
        None => Some(Invariant::Recovery.broken_by("a key was never served again")),
        Some(time) if time > bound => {
            Some(Invariant::Recovery.broken_by(format!("{time:?} and not {bound:?}")))
        }
        Some(_) => None,
    }
}

/// A request that was sent after the response to another one must have a newer token.
fn check_real_time(run: &RunLog) -> Vec<InvariantViolation> {
    let mut tokens = BTreeMap::<&str, (&str, FencingToken)>::new();
    for deed in run.deeds.iter().filter(|deed| deed.writes()) {
        // If an attempt was executed twice, the token of the first execution counts.
        let (_, token) = tokens.entry(deed.id()).or_insert((&deed.door.key, deed.door.token));
        *token = (*token).min(deed.door.token);
    }
    let mut events = BTreeMap::<&str, Vec<(Instant, bool, FencingToken, &str)>>::new();
    for asked in &run.asked {
        let Some((key, token)) = tokens.get(asked.id.as_str()).copied() else { continue };
        let line = events.entry(key).or_default();
        line.push((asked.invoked, true, token, &asked.id));
        if asked.is_done() {
            line.push((asked.completed, false, token, &asked.id));
        }
    }
    let mut found = Vec::new();
    for (key, mut line) in events {
        // A request and a response at the same moment have no known order, so sort the request first: it does not
        // count as later.
        line.sort_by_key(|(at, asks, ..)| (*at, !asks));
        let mut answered: Option<FencingToken> = None;
        for (_, asks, token, id) in line {
            if asks && Some(token) <= answered {
                let what =
                    format!("{key}: {id} has {token}, and was asked for after {answered:?} was answered");
                found.push(Invariant::Order.broken_by(what));
            }
            if !asks {
                answered = answered.max(Some(token));
            }
        }
    }
    found
}

fn check_watermarks(run: &RunLog, level: TestedFencingLevel) -> Vec<InvariantViolation> {
    let mut newest = BTreeMap::<&str, FencingToken>::new();
    for deed in run.deeds.iter().filter(|deed| deed.writes() && level.compares()) {
        let token = newest.entry(&deed.door.key).or_insert(deed.door.token);
        *token = (*token).max(deed.door.token);
    }
    let forgotten = newest.into_iter().filter(|(key, token)| run.marks.get(*key) < Some(token));
    forgotten
        .map(|(key, token)| {
            Invariant::Mark.broken_by(format!("{key}: {token} and not {:?}", run.marks.get(key)))
        })
        .collect()
}

fn check_balances(run: &RunLog) -> Vec<InvariantViolation> {
    let mut added = BTreeMap::<&str, u64>::new();
    for deed in run.deeds.iter().filter(|deed| deed.writes() && deed.effect.ended.is_some()) {
        *added.entry(&deed.door.key).or_default() += 1;
    }
    let balance = |key: &str| run.balances.get(key).copied().unwrap_or_default();
    let wrong = added.into_iter().filter(|(key, sum)| balance(key) != *sum);
    wrong
        .map(|(key, sum)| Invariant::Sum.broken_by(format!("{key}: {} and not {sum}", balance(key))))
        .collect()
}
