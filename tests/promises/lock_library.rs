//! The crate of locks serves programs that are no gateway: its examples run as they are written, against a real server.

use std::process::Command;

use fencegate_policies::token::Token;
use fencegate_tests::{scratch, zookeeper};
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
