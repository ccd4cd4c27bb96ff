//! `fencegate verify` passes a service that compares tokens as it should, and names the right case for one that does
//! not.
//!
//! The sample service passes in full, as two processes that are killed and started again. Each of two dozen services
//! has one planted fault, and fails with the case that names it. Some of them report *not done* and do not close the
//! name. A case that could not be shown counts as not passed. The text, JSON and XML reports and the exit codes are
//! tested as well.

mod fault;
mod faulty;
mod genuine;
mod told;
mod work;

use std::{
    collections::BTreeSet,
    pin::pin,
    process::{Command, Output},
};

use fencegate_testkit::scratch;
use futures_util::{StreamExt, stream};
use serde_json::Value;
use tokio::task::spawn_blocking;

use self::{
    fault::ServiceFault,
    faulty::{FaultyDatabase, FaultyInstance},
};

/// The time limit of a run in seconds. A run has many cases of several requests each, on a machine with other tests.
const LONGEST: &str = "150";

async fn command(arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.arg(LONGEST).arg(scratch::binaries().join("fencegate")).args(arguments);
    spawn_blocking(move || command.output()).await.expect("no panic").expect("started")
}

/// The result of a run: the exit code, and the report with the names of the cases by verdict.
#[derive(Debug)]
struct VerifyResult {
    code: Option<i32>,
    report: Value,
}

impl VerifyResult {
    async fn run(arguments: &[&str]) -> Self {
        let asked = [&["verify", "--format", "json"], arguments].concat();
        let output = command(&asked).await;
        let report = serde_json::from_slice(&output.stdout);
        let report = report.unwrap_or_else(|error| panic!("{error}: {output:?}"));
        Self { code: output.status.code(), report }
    }

    fn cases_with(&self, verdict: &str) -> BTreeSet<&str> {
        let cases = self.report["cases"].as_array().expect("a list").iter();
        let of = cases.filter(|case| case["verdict"] == verdict);
        of.map(|case| case["name"].as_str().expect("a name")).collect()
    }

    fn reason_of(&self, name: &str) -> &str {
        let mut cases = self.report["cases"].as_array().expect("a list").iter();
        let case = cases.find(|case| case["name"] == name).expect("listed");
        case["why"].as_str().unwrap_or_default()
    }
}

/// Verifies two instances of a service with this fault, with all cases.
async fn verify_faulty(fault: ServiceFault, more: &[&str]) -> VerifyResult {
    let database = FaultyDatabase::new();
    let one = FaultyInstance::start(&database, fault).await;
    let two = FaultyInstance::start(&database, fault).await;
    let urls = [&one, &two].map(|instance| format!("http://{}", instance.address));
    let crash = format!("curl -s -X POST {0}/crash; curl -s -X POST {1}/crash; true", urls[0], urls[1]);
    let request = [&*urls[0], &urls[1], "--request", "POST /{key}", "--body", "some money"];
    let sight = ["--observe", "GET /{key}", "--pick", "/effects"];
    let rounds: &[&str] = if more.contains(&"--rounds") { &[] } else { &["--rounds", "6"] };
    VerifyResult::run(&[&request[..], &sight, &["--restart", &crash], rounds, more].concat()).await
}

const SHARED: &[&str] = &["--shared", "--read", "GET /{key}"];

#[tokio::test(flavor = "multi_thread")]
async fn faultless_service_passes() {
    let verified = verify_faulty(ServiceFault::None, SHARED).await;
    assert_eq!(verified.code, Some(0), "{:#}", verified.report);
    let skipped = [
        "all-or-none",
        "crossed",
        "late",
        "no-elsewhere",
        "no-is-final",
        "no-is-kept",
        "not-after-malformed",
        "not-after-twice",
        "number-suffices",
        "one-is-stale",
        "other-request",
        "remembered",
        "repeat-runs",
        "slow-effect",
    ];
    assert_eq!(verified.cases_with("skipped"), skipped.into());
    assert_eq!(
        verified.cases_with("passed").len() + skipped.len(),
        verified.report["cases"].as_array().unwrap().len()
    );
}

/// A fault, further options of the command, the case that names the fault, and other cases that may fail.
type PlantedFault = (ServiceFault, &'static [&'static str], &'static str, &'static [&'static str]);

/// The number of runs at once. Each run is a process and two instances of a service.
const AT_ONCE: usize = 4;

async fn assert_planted_faults_found(planted: &[PlantedFault], more: &[&str]) {
    let verified = stream::iter(planted).map(|one| {
        let said = [one.1, more].concat();
        async move { (one, verify_faulty(one.0, &said).await) }
    });
    let mut verified = pin!(verified.buffered(AT_ONCE));
    while let Some(((fault, _, case, beside), verified)) = verified.next().await {
        let failed = verified.cases_with("failed");
        assert_eq!(verified.code, Some(3), "{fault:?}: {:#}", verified.report);
        assert!(failed.contains(case), "{fault:?} is not told as `{case}`: {failed:?}");
        let other: Vec<_> = failed.iter().filter(|name| *name != case && !beside.contains(name)).collect();
        assert!(other.is_empty(), "{fault:?} is told as {other:?} too: {:#}", verified.report);
    }
}

/// For a fault that each request shows. Other faults show only in some rounds of a race.
const FEWER_ROUNDS: &[&str] = &["--rounds", "4"];

/// In a full run, each fault fails with the case that names it, and with no unrelated case.
#[tokio::test(flavor = "multi_thread")]
async fn planted_fault_fails_its_case() {
    const RACES: &[&str] = &["overtaken", "writers", "same-token-apart", "overtaken-apart"];
    const APART: &[&str] = &["overtaken-apart", "writers"];
    // As decimal text 16 sorts before 8, so these cases may fail too.
    const DIGITS: &[&str] = &["beyond-32-bits", "held-body", "overtaken", "overtaken-apart", "writers"];
    let planted: &[PlantedFault] = &[
        (ServiceFault::CheckOutside, &[], "same-token", RACES),
        (
            ServiceFault::NotStrict,
            FEWER_ROUNDS,
            "equal",
            &["duplicate", "same-token", "same-token-apart", "after-restart", "cut"],
        ),
        (
            ServiceFault::CachedMark,
            FEWER_ROUNDS,
            "elsewhere",
            &["same-token-apart", "overtaken-apart", "writers"],
        ),
        (ServiceFault::ProcessLock, &[], "same-token-apart", APART),
        (
            ServiceFault::NoUpsert,
            FEWER_ROUNDS,
            "first",
            &["overtaken", "overtaken-apart", "same-token", "same-token-apart"],
        ),
        (ServiceFault::TextNumbers, &["--token", "number", "--rounds", "4"], "as-text", DIGITS),
        (
            ServiceFault::IgnoresReads,
            &["--shared", "--read", "GET /{key}", "--rounds", "4"],
            "stale-reader",
            &["writer-behind-reader", "older-reader"],
        ),
        (ServiceFault::AcceptsNoToken, FEWER_ROUNDS, "no-token", &["number-alone", "look-alike"]),
    ];
    assert_planted_faults_found(planted, &[]).await;
}

/// Further faults, each checked with the one case that names it.
#[tokio::test(flavor = "multi_thread")]
async fn further_faults_fail_their_case() {
    let planted: &[PlantedFault] = &[
        (ServiceFault::CheckOutside, &["--only", "overtaken"], "overtaken", &[]),
        (ServiceFault::CheckOutsideNewestStays, &["--only", "same-token"], "same-token", &[]),
        (ServiceFault::CheckOutsideNewestStays, &["--only", "overtaken"], "overtaken", &[]),
        (ServiceFault::CheckAtHead, &["--only", "held-body"], "held-body", &[]),
        (ServiceFault::ClaimsApart, &["--only", "overtaken"], "overtaken", &[]),
        (ServiceFault::NoRowPasses, &["--only", "older"], "older", &[]),
        (ServiceFault::Narrow, &["--only", "beyond-32-bits", "--token", "number"], "beyond-32-bits", &[]),
        (ServiceFault::Float, &["--only", "beyond-53-bits", "--token", "number"], "beyond-53-bits", &[]),
        (ServiceFault::AcceptsAnything, &["--only", "malformed"], "malformed", &[]),
        (ServiceFault::AcceptsAnything, &["--only", "overflow"], "overflow", &[]),
        (ServiceFault::FirstOfTwo, &["--only", "twice"], "twice", &[]),
        (ServiceFault::OneMark, &["--only", "keys-apart"], "keys-apart", &[]),
        (
            ServiceFault::MarkPerRoute,
            &["--only", "other-request", "--also", "POST /credit/{key}"],
            "other-request",
            &[],
        ),
        (ServiceFault::None, &["--only", "late", "--not-after"], "late", &[]),
        (ServiceFault::None, &["--only", "not-after-malformed", "--not-after"], "not-after-malformed", &[]),
        (ServiceFault::None, &["--only", "not-after-twice", "--not-after"], "not-after-twice", &[]),
        (ServiceFault::Forgets, &["--only", "remembered", "--remember", "1500ms"], "remembered", &[]),
        (ServiceFault::RefusesAndDoes, &["--only", "older"], "older", &[]),
        (ServiceFault::SaysAndDoesNot, &["--only", "first"], "first", &[]),
        (ServiceFault::Conflict, &["--only", "older"], "older", &[]),
        (ServiceFault::InMemory, &["--only", "after-restart"], "after-restart", &[]),
        (ServiceFault::MarkAfterwards, &["--only", "cut"], "cut", &[]),
        (ServiceFault::MarkBefore, &["--only", "cut"], "cut", &[]),
    ];
    assert_planted_faults_found(planted, &["--rounds", "16"]).await;
}

/// A service that reports an operation as not done has to close its name.
///
/// The run asks the service for the outcome of operations by the probe that a guard would use.
#[tokio::test(flavor = "multi_thread")]
async fn not_done_answer_must_be_final() {
    const CASES: [&str; 4] = ["no-elsewhere", "no-is-final", "no-is-kept", "repeat-runs"];
    let probe = ["--header", "x-operation: {operation}", "--probe", "/operations/{operation}"];
    let asked = [&probe[..], &["--done", "200", "--not-done", "404"]].concat();
    let only: Vec<_> = CASES.iter().flat_map(|case| ["--only", case]).collect();
    let sound = verify_faulty(ServiceFault::None, &[&asked[..], &only].concat()).await;
    assert_eq!(sound.code, Some(0), "{:#}", sound.report);
    assert_eq!(sound.cases_with("passed"), CASES.into());
    for (fault, failed) in [
        (ServiceFault::OpenNames, &["no-elsewhere", "no-is-final", "no-is-kept"][..]),
        (ServiceFault::LowersNames, &["no-is-kept"]),
        (ServiceFault::NamesInMemory, &["no-elsewhere"]),
        (ServiceFault::ClosesForGood, &["repeat-runs"]),
    ] {
        let verified = verify_faulty(fault, &[&asked[..], &only].concat()).await;
        assert_eq!(verified.code, Some(3), "{fault:?}: {:#}", verified.report);
        assert_eq!(
            verified.cases_with("failed"),
            failed.iter().copied().collect(),
            "{fault:?}: {:#}",
            verified.report
        );
    }
}
