//! What a new guard is told to begin with lies above every token that was granted before.

use fencegate_tests::{
    client::TestRequest,
    gateway::{command, write_policy},
    policy::TestPolicy,
    scratch,
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

async fn shown(policy: &TestPolicy) -> Value {
    let (code, said, log) = show(policy, &["--format", "json"]).await;
    assert_eq!(code, Some(0), "{log}");
    serde_json::from_str(&said).expect("JSON")
}

fn floor(shown: &Value) -> u64 {
    shown["floor"].as_u64().expect("a number")
}

#[tokio::test]
async fn the_floor_is_above_every_token_granted_before_and_below_those_after() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1");
    let gateway = site.gateway("gw-1").await;
    let before = floor(&shown(&policy).await);
    gateway.send(&TestRequest::post("/pay/7")).await;
    let granted = site.origin.request("/pay/7", 1).await.expect_token().number();
    assert!(before < granted, "{before} {granted}");
    let now = shown(&policy).await;
    assert!(floor(&now) >= granted, "{now} {granted}");
    gateway.send(&TestRequest::post("/pay/7")).await;
    let later = site.origin.request("/pay/7", 2).await.expect_token().number();
    assert!(later > floor(&now), "{now} {later}");
}

#[tokio::test]
async fn what_is_shown_is_the_installation_and_it_stays_as_it_is() {
    let site = TestSite::fresh().await;
    let policy = site.policy("gw-1");
    let _gateway = site.gateway("gw-1").await;
    let tree = site.tree().await;
    let (meta, paths) = (tree.data("/meta").await, tree.paths().await);
    let shown = shown(&policy).await;
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

#[tokio::test]
async fn where_nothing_was_initialised_nothing_is_shown() {
    let site = TestSite::fresh().await;
    let (code, said, log) = show(&site.policy("gw-1"), &[]).await;
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert!(log.contains("era init"), "{log}");
    assert_eq!(site.tree().await.paths().await, [""; 0], "it made nodes of its own accord");
}
