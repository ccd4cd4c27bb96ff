//! A case as data, and the playing and judging of its runs.

use std::{collections::BTreeMap, time::Duration};

use super::{
    accidents::AccidentFn,
    environment::{RunEnvironment, RunResult},
    invariants::{InvariantViolation, find_violations},
    level::TestedFencingLevel,
    setup::{CaseSetup, NetworkSetup},
    verdict::{RunVerdict, Verdict},
};
use crate::{ensemble::Ensemble, namespaces::NetworkNamespaces};

#[derive(Debug, Clone, Copy)]
pub struct MatrixCase {
    pub name: &'static str,
    /// The number in the list of `tests/faults/README.md`.
    pub number: &'static str,
    /// The levels at which no invariant may be broken.
    pub holds_at: &'static [TestedFencingLevel],
    /// The levels at which an invariant must be broken. Otherwise the accident would prove nothing at the other
    /// levels.
    pub breaks_at: &'static [TestedFencingLevel],
    pub apparatus: CaseSetup,
    pub accident: AccidentFn,
    pub least: MinimumCoverage,
    /// The time within which each key must be served again.
    pub recovers_within: Duration,
}

/// The minimum of a run. A run with less shows nothing.
#[derive(Debug, Clone, Copy)]
pub struct MinimumCoverage {
    pub executions: usize,
    /// The number of times that a key went from one gateway to another.
    pub hand_overs: usize,
    /// The number of stale requests that were refused, at the levels at which tokens are compared.
    pub stale: usize,
    /// The number of executions in flight at the accident.
    pub hit: usize,
}

/// One run of a case.
#[derive(Debug, Clone, Copy)]
pub struct CaseRun {
    pub case: &'static MatrixCase,
    pub level: TestedFencingLevel,
    pub seed: u64,
}

impl MatrixCase {
    /// The runs of the case at all of its levels.
    pub fn runs(&'static self, seed: u64) -> impl Iterator<Item = CaseRun> {
        let levels = self.holds_at.iter().chain(self.breaks_at);
        levels.map(move |level| CaseRun { case: self, level: *level, seed })
    }
}

impl CaseRun {
    /// True if the run has to break an invariant.
    pub fn is_control(&self) -> bool {
        self.case.breaks_at.contains(&self.level)
    }

    /// Plays the run. Returns its verdict, and the servers for another run.
    pub async fn run(self, ensemble: Ensemble) -> (RunVerdict, Ensemble) {
        let CaseSetup { ways, gateways, .. } = self.case.apparatus;
        if ways != NetworkSetup::Namespaces {
            return self.play_at((ensemble, None)).await;
        }
        let namespaces = match NetworkNamespaces::new(gateways).await {
            Ok(namespaces) => namespaces,
            Err(reason) => return (self.empty_verdict(Verdict::Skipped, reason), ensemble),
        };
        // A namespace cannot reach servers on loopback, so start others at the address of the bridge.
        let own = Ensemble::start_at(namespaces.machine()).await;
        let (ruling, _own) = self.play_at((own, Some(namespaces))).await;
        (ruling, ensemble)
    }

    async fn play_at(self, place: (Ensemble, Option<NetworkNamespaces>)) -> (RunVerdict, Ensemble) {
        let (ensemble, namespaces) = place;
        let mut lab =
            RunEnvironment::open(self.case.apparatus, self.level, self.seed, ensemble, namespaces).await;
        match (self.case.accident)(&mut lab).await {
            Ok(from) => {
                let (shown, ensemble) = lab.finish(from, self.case.recovers_within).await;
                (self.judge(&shown), ensemble)
            }
            Err(reason) => (self.empty_verdict(Verdict::Skipped, reason), lab.ensemble),
        }
    }

    /// The verdict of a run that has shown nothing.
    pub fn empty_verdict(self, verdict: Verdict, reason: String) -> RunVerdict {
        RunVerdict {
            case: self.case.name.to_owned(),
            level: self.level.name().to_owned(),
            seed: self.seed,
            executions: 0,
            hand_overs: 0,
            stale: 0,
            hit: 0,
            violations: 0,
            recovery: None,
            verdict,
            reason,
        }
    }

    fn judge(self, shown: &RunResult) -> RunVerdict {
        let broken = find_violations(&shown.chronicle, self.level);
        let history = shown.chronicle.history_by(super::run_log::ExecutionInterval::Effect);
        // If gateways forward requests, the gateway that got a request may not be the holder, so count tenures and
        // not handovers.
        let hand_overs = if shown.chronicle.forwards { history.tenures() } else { history.hand_overs() };
        let executions = history.executions.len();
        let why_not =
            self.missing_coverage(executions, hand_overs, shown).or_else(|| self.failure_reason(&broken));
        let verdict = if why_not.is_some() { Verdict::Fail } else { Verdict::Pass };
        RunVerdict {
            executions,
            hand_overs,
            stale: shown.stale,
            hit: shown.hit,
            violations: broken.len(),
            recovery: shown.chronicle.recovery().map(|time| time.as_secs_f64()),
            ..self.empty_verdict(verdict, why_not.unwrap_or_else(|| count_by_invariant(&broken)))
        }
    }

    fn missing_coverage(&self, executions: usize, hand_overs: usize, shown: &RunResult) -> Option<String> {
        let MinimumCoverage { executions: most, hand_overs: handed, stale, hit } = self.case.least;
        let compared = if self.level.compares() { stale } else { 0 };
        let counts = [
            ("executions", executions, most),
            ("hand-overs", hand_overs, handed),
            ("stale refusals", shown.stale, compared),
            ("executions hit", shown.hit, hit),
        ];
        let few = counts.into_iter().find(|(_, seen, least)| seen < least);
        few.map(|(what, seen, least)| format!("not exercised: {seen} {what} and not {least}"))
    }

    fn failure_reason(&self, broken: &[InvariantViolation]) -> Option<String> {
        let (expected, other): (Vec<&InvariantViolation>, Vec<&InvariantViolation>) =
            broken.iter().partition(|breach| breach.law.needs_a_fence());
        if !self.is_control() {
            return (!broken.is_empty()).then(|| describe(broken.iter()));
        }
        if expected.is_empty() {
            return Some("a control that breaks nothing".to_owned());
        }
        // A control makes no promise about recovery, because its service compares no tokens.
        let other: Vec<&InvariantViolation> =
            other.into_iter().filter(|breach| breach.law != super::invariants::Invariant::Recovery).collect();
        (!other.is_empty()).then(|| describe(other.into_iter()))
    }
}

/// The number of violations of each invariant.
fn count_by_invariant(broken: &[InvariantViolation]) -> String {
    let mut laws = BTreeMap::new();
    for breach in broken {
        *laws.entry(breach.law).or_insert(0) += 1;
    }
    let counts: Vec<String> = laws.iter().map(|(law, count)| format!("{law:?} {count}")).collect();
    counts.join(", ")
}

/// The number of violations of each invariant, and the first three violations in full.
fn describe<'a>(broken: impl Iterator<Item = &'a InvariantViolation>) -> String {
    let broken: Vec<InvariantViolation> = broken.cloned().collect();
    let first: Vec<String> = broken.iter().take(3).map(InvariantViolation::to_string).collect();
    format!("{}: {}", count_by_invariant(&broken), first.join("; "))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use fencegate_policies::token::FencingToken;

    use super::*;
    use crate::{
        history::Execution,
        matrix::{
            run_log::{KeyExecution, RunLog},
            setup::PLAIN,
        },
        origin::{AccessMode, AccountEffect},
    };

    const CASE: MatrixCase = MatrixCase {
        name: "nothing",
        number: "0",
        holds_at: &[TestedFencingLevel::Guard],
        breaks_at: &[TestedFencingLevel::None],
        apparatus: PLAIN,
        accident: |_| Box::pin(async { Ok(Instant::now()) }),
        least: MinimumCoverage { executions: 0, hand_overs: 0, stale: 2, hit: 0 },
        recovers_within: Duration::from_secs(1),
    };

    /// An execution whose addition is missing in the balance.
    fn loss() -> KeyExecution {
        let began = Instant::now();
        let ended = Some(Instant::now());
        let door = Execution {
            key: "account/0".into(),
            access: AccessMode::Exclusive,
            token: FencingToken::new(1, 0, 1).expect("small"),
            gateway: "gw-1".into(),
            attempt: Some("c0-0@gw-1".into()),
            sent: None,
            began,
            ended,
        };
        KeyExecution { door, effect: AccountEffect { began, ended } }
    }

    fn judge_run(level: TestedFencingLevel, stale: usize, chronicle: RunLog) -> (Verdict, String) {
        let ruling = CaseRun { case: &CASE, level, seed: 1 }.judge(&RunResult { chronicle, stale, hit: 0 });
        (ruling.verdict, ruling.reason)
    }

    /// A run with fewer stale refusals than its case requires fails, whatever else it has shown.
    #[test]
    fn underexercised_run_fails() {
        let (verdict, why) = judge_run(TestedFencingLevel::Guard, 1, RunLog::default());
        assert_eq!((verdict, why.as_str()), (Verdict::Fail, "not exercised: 1 stale refusals and not 2"));
        assert_eq!(
            judge_run(TestedFencingLevel::Guard, 2, RunLog::default()),
            (Verdict::Pass, String::new())
        );
    }

    /// A run at level `none` passes only if it breaks an invariant that needs fencing, and no other invariant.
    #[test]
    fn control_run_breaks_fenced_invariants_only() {
        // No service compares tokens at this level, so no request is refused as stale.
        let (verdict, why) = judge_run(TestedFencingLevel::None, 0, RunLog::default());
        assert_eq!((verdict, why.as_str()), (Verdict::Fail, "a control that breaks nothing"));
        let lost = RunLog { deeds: vec![loss()], ..RunLog::default() };
        assert_eq!(judge_run(TestedFencingLevel::None, 0, lost.clone()), (Verdict::Pass, "Sum 1".to_owned()));
        assert_eq!(judge_run(TestedFencingLevel::Guard, 2, lost.clone()).0, Verdict::Fail);
        let left = RunLog { leftovers: vec!["a node".into()], ..lost };
        assert_eq!(
            judge_run(TestedFencingLevel::None, 0, left),
            (Verdict::Fail, "Rest 1: Rest: a node".to_owned())
        );
    }
}
