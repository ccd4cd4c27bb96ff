//! After each fault the command is dead before its lock is granted to another holder. `tests/faults` measures it a
//! hundred times.

use std::{fs, path::Path, time::Duration};

use fencegate_lock::client::{ConnectOptions, LockClient};
use fencegate_testkit::{child::Signal, wait::wait_until};
use fencegate_tests::{
    charged::{
        GRACE, LockedCommand, heart_script, install,
        mishap::{CommandFault, CommandFaultFixture},
        signal,
    },
    site::{TestSite, TestSlot},
};
use futures_util::future::join_all;

/// After each fault the command is dead before its lock is granted to another holder.
#[tokio::test]
async fn command_never_outlives_its_lock() {
    let _turn = TestSlot::beside_others().await;
    let scene = CommandFaultFixture::new().await;
    let (common, own): (Vec<_>, Vec<_>) =
        CommandFault::ALL.into_iter().partition(|mishap| mishap.hits_all_commands());
    // Faults that hit only their own command run at the same time as each other.
    let mut rounds = join_all(own.into_iter().map(|mishap| scene.run_rounds(mishap, 2))).await;
    for mishap in common {
        rounds.push(scene.run_rounds(mishap, 2).await);
    }
    for measured in rounds.into_iter().flatten() {
        assert!(measured.before_the_next > 0.0 && measured.grows, "{measured:?}");
        assert!(measured.before_the_end > 0.0, "{measured:?}");
        assert!(measured.code.is_none_or(|code| code == 123), "{measured:?}");
    }
}

/// A process whose first thread has ended is gone before the lock is granted to another holder.
///
/// The kernel reports such a process as dead, although its other threads still run.
#[tokio::test]
async fn headless_process_ends_before_next_grant() {
    let site = TestSite::fresh().await;
    let policy = site.policy("jobs");
    install(&policy).await;
    let line = format!("setsid python3 {} $HOME_OF_TEST/life headless & wait", heart_script().display());
    let verb = [&["lock", "job/1"], &GRACE[..]].concat();
    let charged = LockedCommand::spawn_shell(&policy, &verb, &line);
    charged.wait_record().await;
    let life = fs::read_to_string(charged.home().join("life")).expect("it lives");
    let process = format!("/proc/{}", life.split_whitespace().nth(3).expect("its number"));
    let looks_dead = async {
        while !fs::read_to_string(format!("{process}/stat")).is_ok_and(|stat| stat.contains(") Z ")) {
            tokio::task::yield_now().await;
        }
    };
    wait_until("its first thread to end", looks_dead, || charged.log()).await;
    signal(charged.supervisor(), Signal::KILL);

    let session_timeout = Duration::from_secs(2);
    let tick = Duration::from_millis(200);
    let options = ConnectOptions {
        session_timeout,
        tick,
        ..ConnectOptions::new(&site.zookeeper.to_string(), &site.root, "next")
    };
    let next = LockClient::connect(options).await.expect("ZooKeeper serves");
    let held = next.lock("job/1").wait(Duration::from_secs(20)).await.expect("its turn comes");
    assert!(!Path::new(&process).exists(), "it works on under another's lock: {}", charged.log());
    held.release();
    next.close().await;
    assert_eq!(charged.exit().await, 123, "{}", charged.log());
}
