//! The crate of locks serves programs that are no gateway: its examples run as they are written, against a real server.

use std::{process::Command, time::Duration};

use fencegate_lock::client::{Client, ConnectOptions, Error};
use fencegate_policies::token::Token;
use fencegate_tests::{
    scratch,
    wait::wait_until,
    zookeeper::{self, OwnZooKeeper, ZnodeTree},
};
use tokio::task::spawn_blocking;

/// The lines that an example prints. `cargo test --workspace` builds them.
async fn printed(example: &str) -> Vec<String> {
    let file = scratch::binaries().join("examples").join(example);
    assert!(
        file.exists(),
        "{} is missing: run `cargo build -p fencegate-lock --examples` first",
        file.display()
    );
    let (servers, root) = (zookeeper::shared().to_string(), zookeeper::fresh_root());
    let ran = spawn_blocking(move || {
        // It ends by itself, and should it not, soon.
        Command::new("timeout").arg("60").arg(file).args([servers, root]).output().expect("coreutils")
    });
    let ran = ran.await.expect("no panic");
    let (said, complained) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{example}: {}\n{said}\n{complained}", ran.status);
    said.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_example_of_a_mutex_does_what_it_says() {
    let printed = printed("mutex").await;
    let (first, rest) = printed.split_first().expect("it prints something");
    let token = first.strip_prefix("held under ").and_then(|token| Token::parse(token).ok());
    assert!(token.is_some(), "{first}");
    assert_eq!(rest, ["second: refused", "next: larger token true", "done: still held true", "closed"]);
}

#[tokio::test]
async fn the_example_of_readers_and_writers_does_what_it_says() {
    let printed = printed("read_write").await;
    let expected = [
        "read together: true",
        "write beside them: refused",
        "write after them: true",
        "read beside it: refused",
    ];
    assert_eq!(printed, expected);
}

#[tokio::test]
async fn the_example_of_several_keys_does_what_it_says() {
    assert_eq!(printed("set").await, ["one of them: refused", "transfers: 20"]);
}

#[tokio::test]
async fn the_example_of_strict_and_cached_locks_does_what_it_says() {
    let printed = printed("strict_and_cached").await;
    let expected = [
        "strict: larger true, same node false",
        "cached: larger true, same node true",
        "after a drop: larger true, same node false",
        "elsewhere: larger true",
    ];
    assert_eq!(printed, expected);
}

fn options(servers: &str, root: &str) -> ConnectOptions {
    let (session_timeout, tick) = (Duration::from_secs(2), Duration::from_millis(200));
    ConnectOptions { session_timeout, tick, ..ConnectOptions::new(servers, root, "program") }
}

#[tokio::test]
async fn a_program_is_told_that_nobody_has_made_the_installation_and_makes_it_when_told_to() {
    let (servers, root) = (zookeeper::shared().to_string(), zookeeper::fresh_root());
    let refused = Client::connect(options(&servers, &root)).await.err();
    assert!(matches!(refused, Some(Error::NotInitialised(_))), "{refused:?}");
    let client = Client::connect(options(&servers, &root).with_init()).await.expect("made");
    assert!(client.lock("one").await.expect("free").is_held());
    assert!(matches!(client.lock("o n e").await.err(), Some(Error::Key(_))));
    client.close().await;
    assert!(matches!(client.lock("one").await.err(), Some(Error::Unavailable(_))), "closed");
}

#[tokio::test]
async fn a_program_is_told_that_its_lock_is_lost_when_no_server_answers_any_more() {
    let zookeeper = OwnZooKeeper::start();
    let servers = zookeeper.server.address().to_string();
    let client = Client::connect(options(&servers, "/program").with_init()).await.expect("made");
    let held = client.lock("one").await.expect("free");
    assert!(held.is_held() && held.remaining_validity() <= Duration::from_secs(2));
    zookeeper.server.pause().expect("ours");
    wait_until("the loss", held.lost(), || held.remaining_validity()).await;
    assert!(!held.is_held());
    assert_eq!(held.remaining_validity(), Duration::ZERO);
}

#[tokio::test]
async fn a_program_takes_a_node_that_others_make_as_well_alone_and_for_one_turn() {
    let (servers, root) = (zookeeper::shared().to_string(), zookeeper::fresh_root());
    let client = Client::connect(options(&servers, &root).with_init()).await.expect("connected");
    let (tree, path) =
        (ZnodeTree::connect(zookeeper::shared(), &format!("{root}-app")).await, format!("{root}-app/7"));
    let held = client.lock("7").exclusive_node(&path).await.expect("free");
    assert_eq!((held.token().number(), held.token().sequence()), (tree.created_zxid("/7").await, 0));
    let refused = client.lock("7").exclusive_node(&path).await.err();
    assert_eq!(refused, Some(Error::Locked));
    held.release();
    let next = client.lock("7").exclusive_node(&path).wait(Duration::from_secs(5)).await.expect("given back");
    next.release();

    let (cached, shared) = (client.lock("7").cached(), client.read("7"));
    let several = client.lock_all(["7", "8"]);
    for asked in [cached, shared, several].map(|asked| asked.exclusive_node(&path)) {
        assert!(matches!(asked.await.err(), Some(Error::Key(_))));
    }
    let below = format!("{root}/7");
    assert!(matches!(client.lock("7").exclusive_node(&below).await.err(), Some(Error::Key(_))));
    client.close().await;
}
