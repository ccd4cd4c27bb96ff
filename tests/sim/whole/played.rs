//! Plays a seed in a process of its own: there nothing differs from one run to the next, and what a killed gateway leaves in
//! memory goes with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use fencegate_process::failpoint;
use fencegate_tests::{repeatable::repeatable, scratch};
use serde_json::{Value, json};
use tracing::{Level, subscriber::set_default};

use super::{
    draw::drawn,
    schedule::Schedule,
    world::{self, Outcome},
};
use crate::{chronicle::Chronicle, simulated};

/// One run of a simulation.
#[derive(Debug, Clone)]
pub(super) struct Play {
    pub(super) seed: u64,
    /// Events of the schedule that do not happen, by their numbers.
    left_out: BTreeSet<usize>,
    without: Option<Rule>,
    chronicle: bool,
}

/// A rule that can be switched off, so that it shows whether it is missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// The guard compares once more in the step that registers.
    SecondCheck,
    /// An exchange does not end with its client.
    Detach,
    /// A probe's *no* counts only if it was asked after nothing could run any more.
    LateNo,
    /// A plan whose keys are others waits for those that run under the plan before.
    Inheritance,
    /// What has a principal is never asked about by its name alone.
    Principal,
}

/// What came of it.
#[derive(Debug, Clone)]
pub(super) struct Played {
    pub(super) wrong: Vec<String>,
    pub(super) seen: BTreeMap<String, u64>,
    /// Empty unless it was asked for.
    pub(super) chronicle: String,
}

/// What the process is told.
const PLAY: &str = "FENCEGATE_PLAY";

impl Rule {
    /// As the failpoint is called.
    fn name(self) -> &'static str {
        match self {
            Self::SecondCheck => "rule_second_check",
            Self::Detach => "rule_detach",
            Self::LateNo => "rule_late_no",
            Self::Inheritance => "rule_inheritance",
            Self::Principal => "rule_principal",
        }
    }
}

impl Play {
    pub(super) fn of(seed: u64) -> Self {
        Self { seed, left_out: BTreeSet::new(), without: None, chronicle: false }
    }

    /// With everything that happened.
    pub(super) fn told(self) -> Self {
        Self { chronicle: true, ..self }
    }

    pub(super) fn without(self, rule: Rule) -> Self {
        Self { without: Some(rule), ..self }
    }

    /// The same, and these do not happen either.
    pub(super) fn leaving_out(&self, events: impl IntoIterator<Item = usize>) -> Self {
        let left_out = self.left_out.iter().copied().chain(events).collect();
        Self { left_out, ..self.clone() }
    }

    /// How many happen.
    pub(super) fn events(&self) -> usize {
        self.schedule().events.len()
    }

    /// The numbers of those that happen.
    pub(super) fn numbers(&self) -> Vec<usize> {
        (0..drawn(self.seed).events.len()).filter(|number| !self.left_out.contains(number)).collect()
    }

    pub(super) fn schedule(&self) -> Schedule {
        let Schedule { mild, events } = drawn(self.seed);
        let events = events.into_iter().enumerate();
        let events = events.filter(|(number, _)| !self.left_out.contains(number)).map(|(_, event)| event);
        Schedule { mild, events: events.collect() }
    }

    /// In a process of its own.
    pub(super) fn run(&self) -> Played {
        let folder = scratch::place();
        let report = folder.path().join("report.json");
        let told = json!({
            "seed": self.seed,
            "left_out": self.left_out,
            "chronicle": self.chronicle,
            "folder": folder.path(),
            "report": report,
        });
        // A simulation that does not come to its end shows it by nothing else.
        let mut command: Command = repeatable(Path::new("timeout"));
        let own = env::current_exe().expect("a test knows its own path");
        command.args(["-k", "5", "120"]).arg(own);
        command.args(["--exact", "whole::a_seed_has_one_history", "--nocapture"]).env(PLAY, told.to_string());
        command.env_remove("FAILPOINTS");
        if let Some(rule) = self.without {
            command.env("FAILPOINTS", format!("{}=return", rule.name()));
        }
        let output = command.output().expect("this binary runs");
        let Ok(report) = fs::read(&report) else {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Played {
                wrong: vec![format!("Crash: {}: {said}", output.status)],
                seen: BTreeMap::new(),
                chronicle: String::new(),
            };
        };
        let report: Value = serde_json::from_slice(&report).expect("as it was written");
        let seen = report["seen"].as_object().expect("a mapping").iter();
        // What a process of the simulation has panicked with.
        let said = String::from_utf8_lossy(&output.stderr);
        let panicked =
            said.lines().filter(|line| line.contains("panicked at")).map(|line| format!("Panic: {line}"));
        let wrong = report["wrong"].as_array().expect("a list").iter();
        let wrong = wrong.map(|wrong| wrong.as_str().expect("text").to_owned());
        Played {
            wrong: wrong.chain(panicked).collect(),
            seen: seen.map(|(what, often)| (what.clone(), often.as_u64().unwrap_or_default())).collect(),
            chronicle: report["chronicle"].as_str().expect("text").to_owned(),
        }
    }
}

/// Plays what this process was told to play, and says whether that was anything.
pub(super) fn plays_here() -> bool {
    let Ok(told) = env::var(PLAY) else { return false };
    let told: Value = serde_json::from_str(&told).expect("as it was written");
    let left_out = told["left_out"].as_array().expect("a list").iter();
    let left_out = left_out.filter_map(|number| usize::try_from(number.as_u64()?).ok()).collect();
    let play = Play {
        left_out,
        chronicle: told["chronicle"] == true,
        ..Play::of(told["seed"].as_u64().expect("a number"))
    };
    let folder: PathBuf = told["folder"].as_str().expect("a path").into();
    let _rules = failpoint::armed_by_environment();
    let (schedule, chronicle) = (play.schedule(), Chronicle::default());
    simulated::run(async {
        let level = if play.chronicle { Level::DEBUG } else { Level::ERROR };
        let _collecting = set_default(chronicle.subscriber(level));
        let Outcome { wrong, seen } = world::play(&schedule, play.seed, folder).await;
        let report = json!({"wrong": wrong, "seen": seen, "chronicle": chronicle.text()});
        fs::write(told["report"].as_str().expect("a path"), report.to_string()).expect("a folder of ours");
        // What still runs is not to be ended in order, nor is what was killed.
        std::process::exit(0)
    })
}

/// What came of many plays.
#[derive(Default)]
pub(super) struct All {
    /// Those that failed, by their places.
    pub(super) failed: BTreeMap<usize, (Play, Vec<String>)>,
    pub(super) seen: BTreeMap<String, u64>,
}

/// Plays as many at once as there are cores, in their order, until so many have failed.
pub(super) fn all(plays: impl Iterator<Item = Play>, most: usize) -> All {
    let plays: Vec<Play> = plays.collect();
    let (next, all) = (AtomicUsize::new(0), Mutex::new(All::default()));
    let played = |at: usize| {
        let Played { wrong, seen, .. } = plays[at].run();
        let mut all = all.lock().expect("nobody panics here");
        for (what, often) in seen {
            *all.seen.entry(what).or_default() += often;
        }
        if !wrong.is_empty() {
            all.failed.insert(at, (plays[at].clone(), wrong));
        }
    };
    thread::scope(|threads| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            threads.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= plays.len() || all.lock().expect("nobody panics here").failed.len() >= most {
                        return;
                    }
                    played(at);
                }
            });
        }
    });
    all.into_inner().expect("nobody panics here")
}

/// The first one that fails.
pub(super) fn first_failing(plays: impl Iterator<Item = Play>) -> Option<(Play, Vec<String>)> {
    all(plays, 1).failed.into_values().next()
}
