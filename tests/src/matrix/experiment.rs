//! A case as data, and how one run of it is played and judged.

use std::{collections::BTreeMap, time::Duration};

use super::{
    accidents::Accident,
    apparatus::{Apparatus, Ways},
    invariants::{Breach, breaches},
    laboratory::{Laboratory, Shown},
    level::Level,
    ruling::{Ruling, Verdict},
};
use crate::{ensemble::Ensemble, namespaces::Namespaces};

#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    /// The number in the list of `tests/README.md`.
    pub number: &'static str,
    /// No law may be broken at these levels.
    pub holds_at: &'static [Level],
    /// At these levels a law must be broken. Otherwise the accident would prove nothing at the other levels.
    pub breaks_at: &'static [Level],
    pub apparatus: Apparatus,
    pub accident: Accident,
    pub least: Least,
    /// Each key is served again within this time.
    pub recovers_within: Duration,
}

/// The least that a run must have met. A run that has met less proves nothing.
#[derive(Debug, Clone, Copy)]
pub struct Least {
    pub executions: usize,
    /// How often a key went from one gateway to another.
    pub hand_overs: usize,
    /// Stale requests that were refused. This counts only at the levels at which tokens are compared.
    pub stale: usize,
    /// Executions that were under way at the accident.
    pub hit: usize,
}

/// One run of a case.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub case: &'static Case,
    pub level: Level,
    pub seed: u64,
}

impl Case {
    /// The runs of the case at all its levels.
    pub fn runs(&'static self, seed: u64) -> impl Iterator<Item = Run> {
        let levels = self.holds_at.iter().chain(self.breaks_at);
        levels.map(move |level| Run { case: self, level: *level, seed })
    }
}

impl Run {
    /// The run has to break a law.
    pub fn is_control(&self) -> bool {
        self.case.breaks_at.contains(&self.level)
    }

    /// Plays the run. Returns the servers for another run.
    pub async fn plays(self, ensemble: Ensemble) -> (Ruling, Ensemble) {
        let Apparatus { ways, gateways, .. } = self.case.apparatus;
        if ways != Ways::Namespaces {
            return self.plays_at((ensemble, None)).await;
        }
        let namespaces = match Namespaces::of(gateways).await {
            Ok(namespaces) => namespaces,
            Err(why) => return (self.unseen(Verdict::Skipped, why), ensemble),
        };
        // Servers on loopback cannot be reached from a namespace.
        let own = Ensemble::start_at(namespaces.machine()).await;
        let (ruling, _own) = self.plays_at((own, Some(namespaces))).await;
        (ruling, ensemble)
    }

    async fn plays_at(self, place: (Ensemble, Option<Namespaces>)) -> (Ruling, Ensemble) {
        let mut lab = Laboratory::open(self.case.apparatus, self.level, self.seed, place).await;
        match (self.case.accident)(&mut lab).await {
            Ok(from) => {
                let (shown, ensemble) = lab.shows(from, self.case.recovers_within).await;
                (self.judges(&shown), ensemble)
            }
            Err(why) => (self.unseen(Verdict::Skipped, why), lab.ensemble),
        }
    }

    /// The ruling of a run that has shown nothing.
    pub fn unseen(self, verdict: Verdict, reason: String) -> Ruling {
        Ruling {
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

    fn judges(self, shown: &Shown) -> Ruling {
        let broken = breaches(&shown.chronicle, self.level);
        let history = shown.chronicle.read_as(super::chronicle::Reading::Effect);
        // Where gateways forward requests, the gateway that was asked may be another one than the holder. The run then
        // counts tenures.
        let hand_overs = if shown.chronicle.forwards { history.tenures() } else { history.hand_overs() };
        let executions = history.executions.len();
        let why_not = self.missing(executions, hand_overs, shown).or_else(|| self.wrong(&broken));
        let verdict = if why_not.is_some() { Verdict::Fail } else { Verdict::Pass };
        Ruling {
            executions,
            hand_overs,
            stale: shown.stale,
            hit: shown.hit,
            violations: broken.len(),
            recovery: shown.chronicle.recovery().map(|time| time.as_secs_f64()),
            ..self.unseen(verdict, why_not.unwrap_or_else(|| counted(&broken)))
        }
    }

    fn missing(&self, executions: usize, hand_overs: usize, shown: &Shown) -> Option<String> {
        let Least { executions: most, hand_overs: handed, stale, hit } = self.case.least;
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

    fn wrong(&self, broken: &[Breach]) -> Option<String> {
        let (expected, other): (Vec<&Breach>, Vec<&Breach>) =
            broken.iter().partition(|breach| breach.law.needs_a_fence());
        if !self.is_control() {
            return (!broken.is_empty()).then(|| told(broken.iter()));
        }
        if expected.is_empty() {
            return Some("a control that breaks nothing".to_owned());
        }
        // A control makes no promise about recovery, because nobody compares tokens there.
        let other: Vec<&Breach> =
            other.into_iter().filter(|breach| breach.law != super::invariants::Law::Recovery).collect();
        (!other.is_empty()).then(|| told(other.into_iter()))
    }
}

/// How often each law was broken.
fn counted(broken: &[Breach]) -> String {
    let mut laws = BTreeMap::new();
    for breach in broken {
        *laws.entry(breach.law).or_insert(0) += 1;
    }
    let counts: Vec<String> = laws.iter().map(|(law, count)| format!("{law:?} {count}")).collect();
    counts.join(", ")
}

/// The counts of all breaches, and the first three in full.
fn told<'a>(broken: impl Iterator<Item = &'a Breach>) -> String {
    let broken: Vec<Breach> = broken.cloned().collect();
    let first: Vec<String> = broken.iter().take(3).map(Breach::to_string).collect();
    format!("{}: {}", counted(&broken), first.join("; "))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use fencegate_policies::token::Token;

    use super::*;
    use crate::{
        history::Execution,
        matrix::{
            apparatus::PLAIN,
            chronicle::{Chronicle, Deed},
        },
        origin::{Access, Effect},
    };

    const CASE: Case = Case {
        name: "nothing",
        number: "0",
        holds_at: &[Level::Guard],
        breaks_at: &[Level::None],
        apparatus: PLAIN,
        accident: |_| Box::pin(async { Ok(Instant::now()) }),
        least: Least { executions: 0, hand_overs: 0, stale: 2, hit: 0 },
        recovers_within: Duration::from_secs(1),
    };

    /// One execution whose addition is missing in the balance.
    fn loss() -> Deed {
        let (began, ended) = (Instant::now(), Some(Instant::now()));
        let door = Execution {
            key: "account/0".into(),
            access: Access::Exclusive,
            token: Token::new(1, 0, 1).expect("small"),
            gateway: "gw-1".into(),
            attempt: Some("c0-0@gw-1".into()),
            sent: None,
            began,
            ended,
        };
        Deed { door, effect: Effect { began, ended } }
    }

    fn ruled(level: Level, stale: usize, chronicle: Chronicle) -> (Verdict, String) {
        let ruling = Run { case: &CASE, level, seed: 1 }.judges(&Shown { chronicle, stale, hit: 0 });
        (ruling.verdict, ruling.reason)
    }

    #[test]
    fn a_run_that_has_met_too_little_fails_whatever_it_has_shown() {
        let (verdict, why) = ruled(Level::Guard, 1, Chronicle::default());
        assert_eq!((verdict, why.as_str()), (Verdict::Fail, "not exercised: 1 stale refusals and not 2"));
        assert_eq!(ruled(Level::Guard, 2, Chronicle::default()), (Verdict::Pass, String::new()));
    }

    #[test]
    fn a_control_breaks_what_needs_a_fence_and_nothing_else() {
        // Nobody compares tokens there, so nobody refuses one.
        let (verdict, why) = ruled(Level::None, 0, Chronicle::default());
        assert_eq!((verdict, why.as_str()), (Verdict::Fail, "a control that breaks nothing"));
        let lost = Chronicle { deeds: vec![loss()], ..Chronicle::default() };
        assert_eq!(ruled(Level::None, 0, lost.clone()), (Verdict::Pass, "Sum 1".to_owned()));
        assert_eq!(ruled(Level::Guard, 2, lost.clone()).0, Verdict::Fail);
        let left = Chronicle { leftovers: vec!["a node".into()], ..lost };
        assert_eq!(ruled(Level::None, 0, left), (Verdict::Fail, "Rest 1: Rest: a node".to_owned()));
    }
}
