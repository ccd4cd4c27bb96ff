//! Plays a seed in a process of its own, so that each run is alike, and the memory that killed gateways leave is
//! freed with the process.

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
use fencegate_testkit::scratch;
use fencegate_tests::repeatable::repeatable;
use serde_json::{Value, json};
use tracing::{Level, subscriber::set_default};

use super::{
    generate::{generate, generate_with_standstills},
    schedule::{Schedule, UpstreamPath},
    world::{self, ScheduleResult},
};
use crate::{event_log::EventLog, simulated_time};

/// One run of a simulation.
#[derive(Debug, Clone)]
pub(super) struct SimRun {
    pub(super) seed: u64,
    /// The indices of the schedule's events that are left out.
    left_out: BTreeSet<usize>,
    without: Option<SafetyRule>,
    way: UpstreamPath,
    chronicle: bool,
}

/// A rule of the gateway or guard that can be switched off, to test that the simulation notices its absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SafetyRule {
    /// The guard compares tokens again in the step that registers the dispatch.
    SecondCheck,
    /// An exchange goes on when its client goes away.
    Detach,
    /// The negative answer to a probe counts only if the probe was sent after every execution must have ended.
    LateNo,
    /// A plan with other keys waits for requests that run under the plan before.
    Inheritance,
    /// An operation with a principal is never queried by its name alone.
    Principal,
    /// The filter refuses late requests.
    Filter,
    /// `Fencing-Not-After` is the end of the sender's permission, and not the time at which the client stops
    /// waiting.
    NotAfter,
    /// A complete response that a proxy may have given ends no execution.
    Unfinished,
}

/// The result of one run.
#[derive(Debug, Clone)]
pub(super) struct RunResult {
    pub(super) wrong: Vec<String>,
    pub(super) seen: BTreeMap<String, u64>,
    /// The log of all events; empty unless it was requested.
    pub(super) chronicle: String,
}

/// The environment variable of a child process with the seed that it plays.
const PLAY: &str = "FENCEGATE_PLAY";

impl SafetyRule {
    /// The name of the failpoint that switches the rule off.
    fn name(self) -> &'static str {
        match self {
            Self::SecondCheck => "rule_second_check",
            Self::Detach => "rule_detach",
            Self::LateNo => "rule_late_no",
            Self::Inheritance => "rule_inheritance",
            Self::Principal => "rule_principal",
            Self::Filter => "rule_filter",
            Self::NotAfter => "rule_not_after",
            Self::Unfinished => "rule_unfinished",
        }
    }
}

impl SimRun {
    pub(super) fn new(seed: u64) -> Self {
        let way = UpstreamPath::Direct;
        Self { seed, left_out: BTreeSet::new(), without: None, way, chronicle: false }
    }

    /// The same run, with a log of all events.
    pub(super) fn with_log(self) -> Self {
        Self { chronicle: true, ..self }
    }

    /// The same seed, with standstills between guard and upstream.
    pub(super) fn with_standstills(self, way: UpstreamPath) -> Self {
        Self { way, ..self }
    }

    pub(super) fn without(self, rule: SafetyRule) -> Self {
        Self { without: Some(rule), ..self }
    }

    /// The same run, with these further events left out.
    pub(super) fn without_events(&self, events: impl IntoIterator<Item = usize>) -> Self {
        let left_out = self.left_out.iter().copied().chain(events).collect();
        Self { left_out, ..self.clone() }
    }

    /// The number of events that are not left out.
    pub(super) fn events(&self) -> usize {
        self.schedule().events.len()
    }

    /// The indices of the events that are not left out.
    pub(super) fn numbers(&self) -> Vec<usize> {
        (0..self.whole_schedule().events.len()).filter(|number| !self.left_out.contains(number)).collect()
    }

    pub(super) fn schedule(&self) -> Schedule {
        let Schedule { mild, way, events } = self.whole_schedule();
        let events = events.into_iter().enumerate();
        let events = events.filter(|(number, _)| !self.left_out.contains(number)).map(|(_, event)| event);
        Schedule { mild, way, events: events.collect() }
    }

    fn whole_schedule(&self) -> Schedule {
        match self.way {
            UpstreamPath::Direct => generate(self.seed),
            way => generate_with_standstills(self.seed, way),
        }
    }

    /// Plays the run in a process of its own.
    pub(super) fn run(&self) -> RunResult {
        let folder = scratch::temp_dir();
        let report = folder.path().join("report.json");
        let told = json!({
            "seed": self.seed,
            "left_out": self.left_out,
            "way": format!("{:?}", self.way),
            "chronicle": self.chronicle,
            "folder": folder.path(),
            "report": report,
        });
        // With a time limit, because a simulation that never ends would not show that otherwise.
        let mut command: Command = repeatable(Path::new("timeout"));
        let own = env::current_exe().expect("a test knows its own path");
        command.args(["-k", "5", "120"]).arg(own);
        command.args(["--exact", "whole::seed_has_one_history", "--nocapture"]).env(PLAY, told.to_string());
        command.env_remove("FAILPOINTS");
        if let Some(rule) = self.without {
            command.env("FAILPOINTS", format!("{}=return", rule.name()));
        }
        let output = command.output().expect("this binary runs");
        let Ok(report) = fs::read(&report) else {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return RunResult {
                wrong: vec![format!("Crash: {}: {said}", output.status)],
                seen: BTreeMap::new(),
                chronicle: String::new(),
            };
        };
        let report: Value = serde_json::from_slice(&report).expect("as it was written");
        let seen = report["seen"].as_object().expect("a mapping").iter();
        // Standard error has the panic message of the process, if it panicked.
        let said = String::from_utf8_lossy(&output.stderr);
        let panicked =
            said.lines().filter(|line| line.contains("panicked at")).map(|line| format!("Panic: {line}"));
        let wrong = report["wrong"].as_array().expect("a list").iter();
        let wrong = wrong.map(|wrong| wrong.as_str().expect("text").to_owned());
        RunResult {
            wrong: wrong.chain(panicked).collect(),
            seen: seen.map(|(what, often)| (what.clone(), often.as_u64().unwrap_or_default())).collect(),
            chronicle: report["chronicle"].as_str().expect("text").to_owned(),
        }
    }
}

/// Plays the seed in this process's environment variable. Returns false if it is not set.
pub(super) fn is_child_process() -> bool {
    let Ok(told) = env::var(PLAY) else { return false };
    let told: Value = serde_json::from_str(&told).expect("as it was written");
    let left_out = told["left_out"].as_array().expect("a list").iter();
    let left_out = left_out.filter_map(|number| usize::try_from(number.as_u64()?).ok()).collect();
    let way = match told["way"].as_str().expect("text") {
        "Relayed" => UpstreamPath::Relayed,
        "Filtered" => UpstreamPath::Filtered,
        _ => UpstreamPath::Direct,
    };
    let play = SimRun {
        left_out,
        way,
        chronicle: told["chronicle"] == true,
        ..SimRun::new(told["seed"].as_u64().expect("a number"))
    };
    let folder: PathBuf = told["folder"].as_str().expect("a path").into();
    let _rules = failpoint::arm_from_env();
    let schedule = play.schedule();
    let chronicle = EventLog::default();
    simulated_time::run(async {
        let level = if play.chronicle { Level::DEBUG } else { Level::ERROR };
        let _collecting = set_default(chronicle.subscriber(level));
        let ScheduleResult { wrong, seen } = world::play(&schedule, play.seed, folder).await;
        let report = json!({"wrong": wrong, "seen": seen, "chronicle": chronicle.text()});
        fs::write(told["report"].as_str().expect("a path"), report.to_string()).expect("a folder of ours");
        // End the process at once: tasks that still run, and those of killed processes, must not end in order.
        std::process::exit(0)
    })
}

/// The results of many runs.
#[derive(Default)]
pub(super) struct RunResults {
    /// The runs that failed with their violations, by the index of the run.
    pub(super) failed: BTreeMap<usize, (SimRun, Vec<String>)>,
    pub(super) seen: BTreeMap<String, u64>,
}

/// Plays the runs in their order, as many at the same time as there are cores, until `most` of them have failed.
pub(super) fn run_all(plays: impl Iterator<Item = SimRun>, most: usize) -> RunResults {
    let plays: Vec<SimRun> = plays.collect();
    let next = AtomicUsize::new(0);
    let all = Mutex::new(RunResults::default());
    let played = |at: usize| {
        let RunResult { wrong, seen, .. } = plays[at].run();
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

/// Returns the first run that fails, with its violations.
pub(super) fn first_failing(plays: impl Iterator<Item = SimRun>) -> Option<(SimRun, Vec<String>)> {
    run_all(plays, 1).failed.into_values().next()
}
