//! Every wire case also runs against nginx and HAProxy. The cases in which a gateway differs from nginx are exactly those
//! in a list, each with its reason.
//!
//! The list is `wire/expected.toml`. `tests/run --differential` prints the table, with HAProxy.

use std::{collections::BTreeMap, fmt::Write as _, fs, net::SocketAddr};

use fencegate_tests::{
    case::{
        self, WireCase,
        run::{self, CaseResult},
        service::ScriptedService,
    },
    gateway::Gateway,
    peers::ProxyProcess,
    site::TestSite,
    zookeeper::fresh_root,
};
use futures_util::future::join_all;
use serde::Deserialize;

use crate::wire;

/// The content of `tests/wire/expected.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedDifferences {
    differs: Vec<ExpectedProxyDifference>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedProxyDifference {
    reason: String,
    /// The names of the cases, which are unique.
    cases: Vec<String>,
}

/// The statuses that a client received and the number of forwarded requests: `200,400 (1)`.
fn summarize(played: &CaseResult) -> String {
    let status = |answer: &Option<run::ReceivedResponse>| match answer {
        Some(answer) if answer.broken => format!("{} broken", answer.message.word(1)),
        Some(answer) => answer.message.word(1).to_owned(),
        None => "-".to_owned(),
    };
    let statuses: Vec<String> = played.answers.iter().map(status).collect();
    let stuck = if played.stuck { " stuck" } else { "" };
    format!("{}{stuck} ({})", statuses.join(","), played.requests.len())
}

/// Each lane has a proxy and a service of its own, so cases that wait for a time limit wait in parallel.
const LANES: usize = 8;

/// Plays every case, and returns the results in the order of the files.
async fn play_all<P>(
    cases: &[WireCase],
    lanes: Vec<(P, ScriptedService)>,
    address: impl Fn(&P) -> SocketAddr,
) -> Vec<String> {
    let share = cases.len().div_ceil(lanes.len());
    let address = &address;
    let played = cases.chunks(share).zip(&lanes).map(async |(cases, (proxy, service))| {
        let mut results = Vec::new();
        for case in cases {
            results.push(summarize(&run::play(case, address(proxy), service).await));
        }
        results
    });
    join_all(played).await.concat()
}

fn start_proxies(start: impl Fn(SocketAddr) -> ProxyProcess) -> Vec<(ProxyProcess, ScriptedService)> {
    let mut lanes = Vec::new();
    for _ in 0..LANES {
        let service = ScriptedService::start();
        lanes.push((start(service.address), service));
    }
    lanes
}

/// The name of a case, and its results at nginx, HAProxy and Fencegate.
type ComparisonRow = (String, [String; 3]);

async fn comparison_rows() -> Vec<ComparisonRow> {
    // The time limits of the three proxies are short and are compared, so this test runs alone.
    let site = TestSite::alone().await;
    let cases: Vec<WireCase> = case::files().iter().flat_map(|file| case::load(file)).collect();
    let ours = join_all((0..LANES).map(async |_| {
        let service = ScriptedService::start();
        // An installation of its own, so that no case waits for a key of another lane.
        let policy =
            wire::policy(&site, service.address, service.other).with("/zookeeper/root", fresh_root());
        (Gateway::start(&policy).await, service)
    }))
    .await;
    let nginx = start_proxies(ProxyProcess::nginx);
    let haproxy = start_proxies(ProxyProcess::haproxy);
    let (nginx, haproxy, ours) = tokio::join!(
        play_all(&cases, nginx, |peer| peer.address),
        play_all(&cases, haproxy, |peer| peer.address),
        play_all(&cases, ours, |gateway| gateway.public),
    );
    let names = cases.into_iter().map(|case| case.name);
    let results = nginx.into_iter().zip(haproxy).zip(ours);
    names.zip(results.map(|((nginx, haproxy), ours)| [nginx, haproxy, ours])).collect()
}

fn table(rows: &[ComparisonRow], reasons: &BTreeMap<&str, usize>) -> String {
    let mut table = String::new();
    let mut line = |name: &str, [nginx, haproxy, ours]: [&str; 3], mark: &str| {
        writeln!(table, "{name:<84} | {nginx:<14} | {haproxy:<14} | {ours:<14} | {mark}").expect("a string");
    };
    line("case", ["nginx", "HAProxy", "Fencegate"], "differs for reason");
    for (name, [nginx, haproxy, ours]) in rows {
        let mark = reasons.get(name.as_str()).map(|number| number.to_string()).unwrap_or_default();
        line(name, [nginx, haproxy, ours], &mark);
    }
    table
}

/// Every wire case whose result differs from that of nginx is in `expected.toml`, and every case in it differs.
#[tokio::test]
async fn differences_from_nginx_match_list() {
    let text = fs::read_to_string(case::folder().join("expected.toml")).expect("the list");
    let expected: ExpectedDifferences = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}"));
    let mut reasons = BTreeMap::new();
    for (number, differs) in expected.differs.iter().enumerate() {
        assert!(!differs.reason.is_empty());
        for case in &differs.cases {
            assert_eq!(reasons.insert(case.as_str(), number + 1), None, "`{case}` is on the list twice");
        }
    }
    let rows = comparison_rows().await;
    println!("Statuses of the answers, and how many requests were forwarded:\n{}", table(&rows, &reasons));
    for (number, differs) in expected.differs.iter().enumerate() {
        println!("{}: {}", number + 1, differs.reason);
    }
    let differ = |(_, [nginx, _, ours]): &&ComparisonRow| nginx != ours;
    let differing: Vec<&ComparisonRow> = rows.iter().filter(differ).collect();
    let unlisted: Vec<_> =
        differing.iter().filter(|(name, _)| !reasons.contains_key(name.as_str())).collect();
    let same: Vec<&str> =
        reasons.into_keys().filter(|listed| !differing.iter().any(|(name, _)| name == listed)).collect();
    assert!(unlisted.is_empty(), "differ, and are not on the list: {unlisted:#?}");
    assert!(same.is_empty(), "are on the list, and do not differ or do not exist: {same:#?}");
}
