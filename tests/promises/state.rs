//! The records in `state_dir` are understood, or refused with their place and a remedy, and never delay or refuse a
//! request.
//!
//! A folder that disappears is counted. Two processes keep a record each.

use std::{
    fs,
    path::{Path, PathBuf},
};

use fencegate_testkit::{child::Signal, scratch};
use fencegate_tests::{
    client::TestRequest,
    gateway::{Gateway, GatewayLaunch, command, write_policy},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::Value;

fn policy_with_state_dir(site: &TestSite, state: &Path) -> TestPolicy {
    site.policy("gw-1").with("/state_dir", state.display().to_string())
}

fn records(state: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(state).expect("our own").map(|entry| entry.expect("our own").path());
    files.filter(|file| file.extension().is_some_and(|kind| kind == "json")).collect()
}

async fn run_check_online(policy: &TestPolicy) -> Value {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string()).display().to_string();
    let output = command(&["check", &file, "--online", "--format", "json"]).await.expect("started");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A gateway does not start on a state record that is damaged or of an unknown format, and leaves it as it is.
#[tokio::test]
async fn unreadable_state_prevents_start() {
    let site = TestSite::fresh().await;
    let state = scratch::temp_dir();
    let policy = policy_with_state_dir(&site, state.path());
    let gateway = Gateway::start(&policy).await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    gateway.stop().await;
    let file = records(state.path()).pop().expect("a record");
    let sound = fs::read(&file).expect("our own");
    for (bytes, word) in [(&sound[..sound.len() / 2], "damaged"), (b"{\"format\": 2}", "of format 2")] {
        fs::write(&file, bytes).expect("our own");
        let said = GatewayLaunch::new(&policy).expect_start_failure().await;
        assert!(said.contains("FG0519") && said.contains(word), "{said}");
        assert!(said.contains(&file.display().to_string()) && said.contains("era bump"), "{said}");
        let told = run_check_online(&policy).await;
        let found =
            told["diagnostics"].as_array().expect("a list").iter().find(|one| one["code"] == "FG0519");
        let found = found.unwrap_or_else(|| panic!("{told:#}"));
        assert!(found["line"].as_u64() > Some(1), "no place: {found}");
        assert_eq!(fs::read(&file).expect("our own"), bytes, "it was touched");
    }
    fs::write(&file, &sound).expect("our own");
    assert!(run_check_online(&policy).await["online"].to_string().contains("up to epoch"));
    Gateway::start(&policy).await;
    assert_eq!(records(state.path()).len(), 1, "one per process, and only of those that live");
}

#[tokio::test]
async fn unwritable_state_dir_prevents_start() {
    let site = TestSite::fresh().await;
    let state = scratch::temp_dir();
    let nowhere = state.path().join("none");
    let said = GatewayLaunch::new(&policy_with_state_dir(&site, &nowhere)).expect_start_failure().await;
    assert!(said.contains("FG0514") && said.contains(&nowhere.display().to_string()), "{said}");
}

/// A `state_dir` that disappears while the gateway runs is counted, and no request is refused.
#[tokio::test]
async fn removed_state_dir_refuses_no_request() {
    let site = TestSite::fresh().await;
    let state = scratch::temp_dir();
    let path = state.path().join("state");
    fs::create_dir(&path).expect("our own");
    let gateway = Gateway::start(&policy_with_state_dir(&site, &path)).await;
    fs::remove_dir_all(&path).expect("our own");
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    gateway.wait_series_at_least("fencegate_state_write_failures_total", &[], 1.0).await;
    gateway.wait_line("what failed", |line| line.message() == "state.not_written").await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    fs::create_dir(&path).expect("our own");
    gateway.wait_line("that it writes again", |line| line.message() == "state.written_again").await;
    assert_eq!(records(&path).len(), 1);
}

/// Two processes of a rolling restart share a `state_dir`: neither waits for the other, and the older one removes
/// nothing.
#[tokio::test]
async fn shared_state_dir_keeps_separate_records() {
    let site = TestSite::fresh().await;
    let state = scratch::temp_dir();
    let policy = policy_with_state_dir(&site, state.path());
    let older = Gateway::start(&policy).await;
    assert_eq!(older.send(&TestRequest::post("/pay/7")).await.status, 200);
    older.signal(Signal::STOP);
    let newer = Gateway::start(&policy).await;
    let token = newer.send(&TestRequest::post("/pay/8")).await.token().expect("a token");
    newer.stop().await;
    older.signal(Signal::CONT);
    older.stop().await;
    let last = Gateway::start(&policy).await;
    let read = last.wait_line("what it found", |line| line.message() == "state.read").await;
    let text: Value = serde_json::from_str(&read.text()).expect("JSON");
    assert!(text["fields"]["highest"].as_u64() >= Some(token.number()), "{text}");
    assert_eq!(records(state.path()).len(), 1, "those of both have gone");
}
