//! Two commands of one key never run at once, also where the processes that hold their locks are killed.

use std::{path::PathBuf, time::Duration};

use fencegate_testkit::child::Signal;
use fencegate_tests::{
    charged::{CommandBehavior, CommandLifetime, GRACE, LockedCommand, install},
    policy::TestPolicy,
    site::TestSite,
};
use futures_util::future::join_all;
use tokio::time::sleep;

/// Three commands want one key, and each holder is killed in turn. Returns the lives of all commands.
async fn kill_holders_in_turn(policy: &TestPolicy, key: &str, rounds: usize) -> Vec<CommandLifetime> {
    let verb = [&["lock", key, "--wait", "forever"], &GRACE[..]].concat();
    let begin = || LockedCommand::spawn(policy, &verb, CommandBehavior::Stubborn);
    let mut waiting = vec![begin(), begin(), begin()];
    let mut over: Vec<(LockedCommand, PathBuf)> = Vec::new();
    for _ in 0..rounds {
        let holder = loop {
            match waiting.iter().position(|charged| charged.record().is_some()) {
                Some(holder) => break waiting.swap_remove(holder),
                None => sleep(Duration::from_millis(5)).await,
            }
        };
        sleep(Duration::from_millis(50)).await;
        holder.signal(Signal::KILL);
        let life = holder.home().join("life");
        over.push((holder, life));
        waiting.push(begin());
    }
    over.iter().map(|(_, life)| CommandLifetime::read(life).expect("it lived")).collect()
}

/// Two commands of one key never run at once, whichever of their processes is killed.
#[tokio::test]
async fn commands_of_one_key_never_overlap() {
    let site = TestSite::fresh().await;
    let policy = site.policy("jobs");
    install(&policy).await;
    let keys = ["a", "b", "c", "d", "e"];
    let lives = join_all(keys.map(|key| kill_holders_in_turn(&policy, key, 4))).await;
    for lives in lives {
        assert_eq!(lives.len(), 4);
        for pair in lives.windows(2) {
            let [before, after] = pair else { unreachable!("windows of two") };
            assert!(before.last < after.began && before.token < after.token, "{before:?} and {after:?}");
        }
    }
}
