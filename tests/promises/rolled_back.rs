//! Tokens never go back, also when ZooKeeper does: no lock is granted until an operator has begun the next era.
//!
//! ZooKeeper is wiped or restored, with the same era or an older one, with and without `state_dir`. The tokens of the
//! next era are larger. An era begins with `era init --at-least`, with `era bump` whose answer is lost, without a
//! readable `state_dir`, and never beside a registered gateway.

use std::{path::Path, time::Duration};

use fencegate_policies::token::FencingToken;
use fencegate_testkit::{scratch, wait::wait_until};
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch, command, write_policy},
    guarded::run_operator,
    history::History,
    policy::TestPolicy,
    site::TestSite,
    zookeeper::OwnZooKeeper,
    zookeeper_proxy::{LockNodeOperation, OperationFault, ZooKeeperProxy},
};
use serde_json::{Value, json};

/// Pays until the tokens are far above the transactions that a session and its heartbeats make. Returns the last token.
async fn pay_repeatedly(gateway: &Gateway) -> FencingToken {
    let mut paid = Vec::new();
    while paid.len() < 60 {
        let answer = gateway.send(&TestRequest::post("/pay/7")).await;
        // Shortly after a server was stopped and started again, a session may have no valid proof yet.
        if answer.outcome() == Some(FencingOutcome::NotDispatched) {
            gateway.wait_ready().await;
            continue;
        }
        assert_eq!(answer.status, 200, "{answer:?}");
        paid.extend(answer.token());
    }
    *paid.last().expect("sixty")
}

async fn assert_rollback_refused(site: &TestSite, gateway: &Gateway) {
    let before = site.origin.log().records.len();
    gateway.wait_series("fencegate_zk_rolled_back", &["session=\"0\""], 1.0).await;
    let refused = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "rolled-back"), "{}", gateway.log());
    assert_eq!(refused.outcome(), Some(FencingOutcome::NotDispatched));
    assert!(refused.field("retry-after").is_some());
    let ready = gateway.admin("/ready").await;
    let said = String::from_utf8_lossy(&ready.body).into_owned();
    assert_eq!(ready.status, 503);
    assert!(said.starts_with("FG0503") && said.contains("fencegate era "), "{said}");
    let page = String::from_utf8_lossy(&gateway.admin("/").await.body).into_owned();
    assert!(page.contains("FG0503"), "{page}");
    assert_eq!(site.origin.log().records.len(), before, "something was sent");
    assert_eq!(gateway.send(&TestRequest::get("/x")).await.status, 200, "unfenced requests go on");
}

async fn era(policy: &TestPolicy, arguments: &[&str]) -> (Option<i32>, Value, String) {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string()).display().to_string();
    let all = [&["era", arguments[0], "-c", &file, "--format", "json"], &arguments[1..]].concat();
    let output = command(&all).await.expect("started");
    let said = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), said, String::from_utf8_lossy(&output.stderr).into_owned())
}

async fn init(policy: &TestPolicy) {
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string()).display().to_string();
    run_operator(&["era", "init", "-c", &file]).await;
}

/// A running gateway detects a restored ZooKeeper and marks it for all others.
///
/// Only the running process remembers tokens that the restored ZooKeeper does not have.
#[tokio::test]
async fn running_gateway_marks_restored_zookeeper() {
    let (zookeeper, site) = TestSite::with_own_zookeeper().await;
    let site = site.with_comparison();
    let gateway = site.gateway("gw-1").await;
    let (zookeeper, backup) = zookeeper.back_up().await;
    gateway.wait_ready().await;
    let last = pay_repeatedly(&gateway).await;

    let _zookeeper = zookeeper.restore(&backup).await;
    assert_rollback_refused(&site, &gateway).await;
    // This gateway has seen no tokens itself, and reads the mark.
    let other = GatewayLaunch::new(&site.policy("gw-2")).start().await;
    assert_rollback_refused(&site, &other).await;
    let meta: Value = serde_json::from_slice(&site.tree().await.data("/meta").await).expect("JSON");
    assert!(meta["suspect"]["highest"].as_u64() >= Some(last.number()), "{meta}");
    assert_eq!((&meta["suspect"]["by"], &meta["format"]), (&json!("gw-1"), &json!(2)), "{meta}");
    let (_, shown, _) = era(&site.policy("gw-1"), &["show"]).await;
    assert_eq!((&shown["suspect"], &shown["suspected_by"]), (&meta["suspect"]["highest"], &json!("gw-1")));
    assert!(shown["floor"].as_u64() >= shown["suspect"].as_u64(), "{shown}");

    // The restored server has the sessions of the backup, and ends each one by its timeout.
    let tree = site.tree().await;
    let ended = async {
        while !tree.members().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    wait_until("the sessions of before to end", ended, || gateway.log()).await;

    // The mark in `meta` contains the largest token, so the command needs no argument.
    let (code, bumped, log) = era(&site.policy("gw-1"), &["bump"]).await;
    assert_eq!((code, &bumped["era"]), (Some(0), &Value::from(1)), "{log}");
    assert!(bumped["base"].as_u64() >= Some(last.number() + (1 << 32)), "{bumped}");
    for gateway in [&gateway, &other] {
        gateway.wait_ready().await;
        let answer = gateway.send(&TestRequest::post("/pay/7")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.token().map(FencingToken::number) > bumped["base"].as_u64(), "{answer:?}");
        assert!(gateway.metrics().await.sum("fencegate_zk_rolled_back", &[]) < 0.5);
    }
    History::from_log(&site.origin.log()).assert_holds();
}

fn policy_with_state_dir(site: &TestSite, state: &Path) -> TestPolicy {
    site.policy("gw-1").with("/state_dir", state.display().to_string())
}

/// A gateway that restarts with its `state_dir` detects that ZooKeeper was wiped, and grants nothing until `era
/// bump`.
#[tokio::test]
async fn state_dir_reveals_wiped_zookeeper() {
    let zookeeper = OwnZooKeeper::start();
    let state = scratch::temp_dir();
    let site = TestSite::at(zookeeper.server.address()).await.with_comparison();
    let policy = policy_with_state_dir(&site, state.path());
    let gateway = Gateway::start(&policy).await;
    let last = pay_repeatedly(&gateway).await;
    gateway.stop().await;

    let _zookeeper = zookeeper.wipe().await;
    // With `--init` the gateway still makes no new installation in place of the wiped one.
    let gateway = GatewayLaunch::new(&policy).start().await;
    assert_rollback_refused(&site, &gateway).await;
    assert_eq!(site.tree().await.paths().await, [""; 0]);
    init(&site.policy("gw-1")).await;
    gateway.wait_line("that it is another one", |line| line.text().contains("this gateway has served")).await;
    assert_rollback_refused(&site, &gateway).await;
    gateway.stop().await;
    let gateway = GatewayLaunch::new(&policy).start().await;
    assert_rollback_refused(&site, &gateway).await;

    // This command has no `state_dir`, as on another machine.
    let number = last.number().to_string();
    let (code, bumped, log) = era(&site.policy("gw-1"), &["bump", "--at-least", &number]).await;
    assert_eq!(code, Some(0), "{log}");
    gateway.wait_ready().await;
    let answer = gateway.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.token().map(FencingToken::number) > bumped["base"].as_u64(), "{answer:?}");
    History::from_log(&site.origin.log()).assert_holds();
    // The gateway has also written the tokens of the new era into its record.
    gateway.stop().await;
    let (_, shown, _) = era(&policy, &["show"]).await;
    assert_eq!(shown["state"]["installation"], shown["ensemble"], "{shown}");
    assert!(shown["state"]["highest"].as_u64() >= answer.token().map(FencingToken::number), "{shown}");
}

/// A restored older era is marked for gateways that have seen no tokens.
///
/// A gateway that has seen no tokens cannot notice the older era. Gateways that have seen tokens mark it.
#[tokio::test]
async fn restored_older_era_is_marked() {
    let zookeeper = OwnZooKeeper::start();
    let state = scratch::temp_dir();
    let site = TestSite::at(zookeeper.server.address()).await.with_comparison();
    let policy = policy_with_state_dir(&site, state.path());
    init(&policy).await;
    let (zookeeper, backup) = zookeeper.back_up().await;
    let (code, _, log) = era(&policy, &["bump"]).await;
    assert_eq!(code, Some(0), "{log}");
    let gateway = GatewayLaunch::new(&policy).without_init().start().await;
    gateway.wait_ready().await;
    let last = pay_repeatedly(&gateway).await;
    gateway.stop().await;

    let _zookeeper = zookeeper.restore(&backup).await;
    let gateway = GatewayLaunch::new(&policy).without_init().start().await;
    assert_rollback_refused(&site, &gateway).await;
    let other = GatewayLaunch::new(&site.policy("gw-2")).without_init().start().await;
    assert_rollback_refused(&site, &other).await;
    let (code, bumped, log) = era(&site.policy("gw-3"), &["bump"]).await;
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(bumped["era"], json!(2), "the number of an era that was is not used again");
    other.wait_ready().await;
    let answer = other.send(&TestRequest::post("/pay/7")).await;
    assert!(answer.token().is_some_and(|token| token.number() > last.number()), "{answer:?}");
    History::from_log(&site.origin.log()).assert_holds();
}

/// A wiped installation is made again, and tokens are larger from the first grant on.
///
/// A gateway without a record waits for `meta`, and uses it as soon as it exists.
#[tokio::test]
async fn wiped_installation_restarts_with_larger_tokens() {
    let zookeeper = OwnZooKeeper::start();
    let state = scratch::temp_dir();
    let site = TestSite::at(zookeeper.server.address()).await.with_comparison();
    let policy = policy_with_state_dir(&site, state.path());
    let gateway = Gateway::start(&policy).await;
    let last = pay_repeatedly(&gateway).await;
    let (_, shown, _) = era(&policy, &["show"]).await;
    let name = shown["ensemble"].as_str().expect("a name").to_owned();
    gateway.stop().await;

    let _zookeeper = zookeeper.wipe().await;
    let new = GatewayLaunch::new(&site.policy("gw-2")).without_init().start().await;
    let home = scratch::temp_dir();
    let file = write_policy(home.path(), &policy.to_string()).display().to_string();
    let number = last.number().to_string();
    run_operator(&["era", "init", "-c", &file, "--at-least", &number, "--installation", &name]).await;
    new.wait_ready().await;
    let answer = new.send(&TestRequest::post("/pay/7")).await;
    assert!(answer.token().is_some_and(|token| token.number() > last.number() + (1 << 32)), "{answer:?}");
    let gateway = GatewayLaunch::new(&policy).without_init().start().await;
    gateway.wait_ready().await;
    let (_, shown, _) = era(&policy, &["show"]).await;
    assert_eq!(shown["ensemble"].as_str(), Some(&*name));
    History::from_log(&site.origin.log()).assert_holds();
}

/// An era is shown and begins where `state_dir` is missing or, with `--at-least`, damaged.
#[tokio::test]
async fn era_begins_without_usable_state_dir() {
    let site = TestSite::fresh().await;
    let state = scratch::temp_dir();
    init(&site.policy("gw-1")).await;
    let missing = state.path().join("none");
    let damaged = state.path();
    std::fs::write(damaged.join("seen-00000000000000000000000000000000.json"), "?").expect("our own");
    let (code, _, log) = era(&policy_with_state_dir(&site, &missing), &["bump"]).await;
    assert_eq!(code, Some(0), "{log}");
    let policy = policy_with_state_dir(&site, damaged);
    let (code, shown, log) = era(&policy, &["show"]).await;
    assert_eq!(code, Some(0), "{log}");
    assert!(shown["state_unreadable"].as_str().is_some_and(|why| why.contains("FG0519")), "{shown}");
    let (code, _, log) = era(&policy, &["bump"]).await;
    assert_eq!(code, Some(1));
    assert!(log.contains("--at-least E"), "{log}");
    let floor = shown["floor"].to_string();
    let (code, bumped, log) = era(&policy, &["bump", "--at-least", &floor]).await;
    assert_eq!((code, &bumped["era"]), (Some(0), &json!(2)), "{log}");
}

/// The tokens in the `state_dir` of this machine count without an argument, and an installation can keep its name.
#[tokio::test]
async fn local_state_counts_for_new_era() {
    let zookeeper = OwnZooKeeper::start();
    let state = scratch::temp_dir();
    let site = TestSite::at(zookeeper.server.address()).await;
    let policy = policy_with_state_dir(&site, state.path());
    let gateway = Gateway::start(&policy).await;
    let last = pay_repeatedly(&gateway).await;
    gateway.stop().await;
    let (_, shown, _) = era(&policy, &["show"]).await;
    let name = shown["ensemble"].as_str().expect("a name").to_owned();

    let _zookeeper = zookeeper.wipe().await;
    init(&policy).await;
    let (code, _, log) = era(&policy, &["bump", "--installation", "mine"]).await;
    assert_eq!(code, Some(1));
    assert!(log.contains("32 hex digits"), "{log}");
    let (code, bumped, log) = era(&policy, &["bump", "--installation", &name]).await;
    assert_eq!((code, bumped["ensemble"].as_str()), (Some(0), Some(name.as_str())), "{log}");
    assert!(bumped["base"].as_u64() >= Some(last.number() + (1 << 32)), "{bumped}");
    let gateway = GatewayLaunch::new(&policy).without_init().start().await;
    gateway.wait_ready().await;
    assert!(pay_repeatedly(&gateway).await.number() > last.number() + (1 << 32));
}

/// No era begins while a gateway is registered; after it begins, tokens are larger.
#[tokio::test]
async fn registered_gateway_blocks_new_era() {
    let site = TestSite::fresh().await.with_comparison();
    let policy = site.policy("gw-1");
    let gateway = Gateway::start(&policy).await;
    let last = pay_repeatedly(&gateway).await;
    let tree = site.tree().await;
    let meta = tree.data("/meta").await;
    let members = tree.members().await.len();
    let (code, _, log) = era(&policy, &["bump"]).await;
    assert_eq!(code, Some(1));
    assert!(log.contains("gw-1-") && log.contains("fencegate drain"), "{log}");
    assert_eq!((tree.data("/meta").await, tree.members().await.len()), (meta, members), "something changed");
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);

    gateway.stop().await;
    let paths = tree.paths().await;
    tree.restrict("/members").await;
    let (code, bumped, log) = era(&policy, &["bump"]).await;
    assert_eq!((code, &bumped["era"]), (Some(0), &Value::from(1)), "{log}");
    // Parents that have become empty may already be gone, so only new nodes are looked for.
    let mut left = tree.paths().await;
    left.retain(|path| !paths.contains(path));
    assert_eq!(left, [""; 0], "it left something behind");
    assert_eq!(tree.access("/members").await, ["ip:127.0.0.1"], "others were let in");
    let (code, _, log) = era(&policy, &["bump", "--at-least", "999999999999999"]).await;
    assert_eq!(code, Some(1));
    assert!(log.contains("--force"), "{log}");
    let again = era(&policy, &["bump", "--at-least", "999999999999999", "--force"]).await;
    assert_eq!(again.1["base"].as_u64(), Some(999_999_999_999_999 + (1 << 32)), "{again:?}");
    let (code, _, log) = era(&policy, &["bump", "--at-least", "9223372036854775807", "--force"]).await;
    assert_eq!(code, Some(1));
    assert!(log.contains("leaves no room"), "{log}");
    let gateway = GatewayLaunch::new(&policy).without_init().start().await;
    gateway.wait_ready().await;
    let next = pay_repeatedly(&gateway).await;
    assert!(next.number() > 999_999_999_999_999 + (1 << 32) && next > last, "{next}");
    History::from_log(&site.origin.log()).assert_holds();
}

/// An era begins once, whether its transaction or the response to it is lost.
#[tokio::test]
async fn era_begins_once_despite_lost_responses() {
    for fate in [OperationFault::AnswerLost, OperationFault::Vanishes] {
        let site = TestSite::fresh().await;
        let link = ZooKeeperProxy::start(site.zookeeper).await;
        init(&site.policy("gw-1")).await;
        let policy = site.policy("gw-1").with_zookeeper(link.address());
        let lost = link.intercept(LockNodeOperation::Era, fate.clone());
        let ((code, bumped, log), ()) = tokio::join!(era(&policy, &["bump"]), lost.wait());
        assert_eq!(code, Some(0), "{fate:?}: {log}");
        let (_, shown, _) = era(&site.policy("gw-1"), &["show"]).await;
        assert_eq!((&shown["era"], &shown["base"]), (&json!(1), &bumped["base"]), "{fate:?}: {shown}");
    }
}
