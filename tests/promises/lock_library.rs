//! The lock crate serves programs that are no gateway: its examples run as they are written, against a real ZooKeeper.
//!
//! A program is notified of a lost lock, and of an installation that was never initialised.

use std::{process::Command, time::Duration};

use fencegate_lock::client::{ConnectOptions, LockClient, LockClientError};
use fencegate_policies::token::FencingToken;
use fencegate_testkit::{scratch, wait::wait_until};
use fencegate_tests::zookeeper::{self, OwnZooKeeper, ZnodeTree};
use tokio::task::spawn_blocking;

/// Runs an example, which `cargo test --workspace` builds, and returns the lines that it prints.
async fn run_example(example: &str) -> Vec<String> {
    let file = scratch::binaries().join("examples").join(example);
    assert!(
        file.exists(),
        "{} is missing: run `cargo build -p fencegate-lock --examples` first",
        file.display()
    );
    let servers = zookeeper::shared().to_string();
    let root = zookeeper::fresh_root();
    let ran = spawn_blocking(move || {
        // The example ends by itself. `timeout` limits an example that hangs.
        Command::new("timeout").arg("60").arg(file).args([servers, root]).output().expect("coreutils")
    });
    let ran = ran.await.expect("no panic");
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{example}: {}\n{said}\n{complained}", ran.status);
    said.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn mutex_example_prints_expected_lines() {
    let printed = run_example("mutex").await;
    let (first, rest) = printed.split_first().expect("it prints something");
    let token = first.strip_prefix("held under ").and_then(|token| FencingToken::parse(token).ok());
    assert!(token.is_some(), "{first}");
    assert_eq!(rest, ["second: refused", "next: larger token true", "done: still held true", "closed"]);
}

#[tokio::test]
async fn read_write_example_prints_expected_lines() {
    let printed = run_example("read_write").await;
    let expected = [
        "read together: true",
        "write beside them: refused",
        "write after them: true",
        "read beside it: refused",
    ];
    assert_eq!(printed, expected);
}

#[tokio::test]
async fn set_example_prints_expected_lines() {
    assert_eq!(run_example("set").await, ["one of them: refused", "transfers: 20"]);
}

#[tokio::test]
async fn strict_and_cached_example_prints_lines() {
    let printed = run_example("strict_and_cached").await;
    let expected = [
        "strict: larger true, same node false",
        "cached: larger true, same node true",
        "after a drop: larger true, same node false",
        "elsewhere: larger true",
    ];
    assert_eq!(printed, expected);
}

fn options(servers: &str, root: &str) -> ConnectOptions {
    let session_timeout = Duration::from_secs(2);
    let tick = Duration::from_millis(200);
    ConnectOptions { session_timeout, tick, ..ConnectOptions::new(servers, root, "program") }
}

/// A program is refused an installation that was never initialised, and initialises it only with `with_init`.
#[tokio::test]
async fn connect_requires_initialised_installation() {
    let servers = zookeeper::shared().to_string();
    let root = zookeeper::fresh_root();
    let refused = LockClient::connect(options(&servers, &root)).await.err();
    assert!(matches!(refused, Some(LockClientError::NotInitialised(_))), "{refused:?}");
    let client = LockClient::connect(options(&servers, &root).with_installation_init()).await.expect("made");
    assert!(client.lock("one").await.expect("free").is_held());
    assert!(matches!(client.lock("o n e").await.err(), Some(LockClientError::Key(_))));
    client.close().await;
    assert!(matches!(client.lock("one").await.err(), Some(LockClientError::Unavailable(_))), "closed");
}

/// A program is notified that its lock is lost when no server answers any more.
#[tokio::test]
async fn lock_is_lost_when_zookeeper_stalls() {
    let zookeeper = OwnZooKeeper::start();
    let servers = zookeeper.server.address().to_string();
    let client =
        LockClient::connect(options(&servers, "/program").with_installation_init()).await.expect("made");
    let held = client.lock("one").await.expect("free");
    assert!(held.is_held() && held.remaining_validity() <= Duration::from_secs(2));
    zookeeper.server.pause().expect("ours");
    wait_until("the loss", held.wait_lost(), || held.remaining_validity()).await;
    assert!(!held.is_held());
    assert_eq!(held.remaining_validity(), Duration::ZERO);
}

/// A lock on a node that other programs create as well is exclusive and lasts for one grant; other modes are refused.
#[tokio::test]
async fn exclusive_node_lock_rejects_other_modes() {
    let servers = zookeeper::shared().to_string();
    let root = zookeeper::fresh_root();
    let client =
        LockClient::connect(options(&servers, &root).with_installation_init()).await.expect("connected");
    let tree = ZnodeTree::connect(zookeeper::shared(), &format!("{root}-app")).await;
    let path = format!("{root}-app/7");
    let held = client.lock("7").exclusive_node(&path).await.expect("free");
    assert_eq!((held.token().number(), held.token().sequence()), (tree.created_zxid("/7").await, 0));
    let refused = client.lock("7").exclusive_node(&path).await.err();
    assert_eq!(refused, Some(LockClientError::Locked));
    held.release();
    let next = client.lock("7").exclusive_node(&path).wait(Duration::from_secs(5)).await.expect("given back");
    next.release();

    let cached = client.lock("7").cached();
    let shared = client.read("7");
    let several = client.lock_all(["7", "8"]);
    for asked in [cached, shared, several].map(|asked| asked.exclusive_node(&path)) {
        assert!(matches!(asked.await.err(), Some(LockClientError::Key(_))));
    }
    let below = format!("{root}/7");
    assert!(matches!(client.lock("7").exclusive_node(&below).await.err(), Some(LockClientError::Key(_))));
    client.close().await;
}
