//! The floor that `era show` prints for a new guard lies above every token that was granted before.
//!
//! The floor lies below every token that is granted afterwards. To show it leaves no node behind.

use fencegate_testkit::scratch;
use fencegate_tests::{
    client::TestRequest,
    gateway::{command, write_policy},
    policy::TestPolicy,
    site::TestSite,
};
use serde_json::Value;

async fn show(policy: &TestPolicy, more: &[&str]) -> (Option<i32>, String, String) {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string());
    let mut arguments = vec!["era", "show", "-c"];
    let file = file.display().to_string();
    arguments.push(&file);
    arguments.extend(more);
    let output = command(&arguments).await.expect("started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

async fn era_json(policy: &TestPolicy) -> Value {
    let (code, stdout, log) = show(policy, &["--format", "json"]).await;
    assert_eq!(code, Some(0), "{log}");
    serde_json::from_str(&stdout).expect("JSON")
}

fn floor(shown: &Value) -> u64 {
    shown["floor"].as_u64().expect("a number")
}

/// The floor is at least as large as every token granted before, and smaller than every token granted afterwards.
#[tokio::test]
async fn floor_separates_past_and_future_tokens() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1");
    let gateway = site.gateway("gw-1").await;
    let before = floor(&era_json(&policy).await);
    gateway.send(&TestRequest::post("/pay/7")).await;
    let granted = site.origin.wait_for_request("/pay/7", 1).await.expect_token().number();
    assert!(before < granted, "{before} {granted}");
    let now = era_json(&policy).await;
    assert!(floor(&now) >= granted, "{now} {granted}");
    gateway.send(&TestRequest::post("/pay/7")).await;
    let later = site.origin.wait_for_request("/pay/7", 2).await.expect_token().number();
    assert!(later > floor(&now), "{now} {later}");
}

/// `era show` reports ensemble, era and base of the installation and the guard's command, and changes no node.
#[tokio::test]
async fn show_reports_installation_without_changes() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1");
    let _gateway = site.gateway("gw-1").await;
    let tree = site.tree().await;
    let meta = tree.data("/meta").await;
    let paths = tree.paths().await;
    let shown = era_json(&policy).await;
    let meta: Value = serde_json::from_slice(&meta).expect("JSON");
    assert_eq!(
        (&shown["ensemble"], &shown["era"], &shown["base"]),
        (&meta["uuid"], &meta["era"], &meta["base"])
    );
    assert_eq!(tree.paths().await, paths, "it left something behind");

    let (code, text, _) = show(&policy, &[]).await;
    assert_eq!(code, Some(0));
    let line = text.lines().find(|line| line.contains("fencegate guard")).expect("what to run");
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |flag| words.iter().position(|word| *word == flag).map(|at| words[at + 1]).expect("a flag");
    assert_eq!(Some(after("--ensemble")), meta["uuid"].as_str());
    assert!(after("--floor").parse::<u64>().expect("a number") > floor(&shown));
}

/// `era show` fails on a root that was not initialised, names `era init`, and creates no node.
#[tokio::test]
async fn show_fails_on_uninitialised_root() {
    let site = TestSite::fresh().await;
    let (code, stdout, log) = show(&site.policy("gw-1"), &[]).await;
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(log.contains("era init"), "{log}");
    assert_eq!(site.tree().await.paths().await, [""; 0], "it made nodes of its own accord");
}
