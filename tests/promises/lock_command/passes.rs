//! Signals reach the command, once each, and the processes that a command leaves behind are ended before its lock is
//! released.

use std::process::Command;

use fencegate_testkit::{child::Signal, scratch};
use fencegate_tests::{
    charged::{LockedCommand, heart_script, install, is_alive, wait_dead},
    gateway::PolicyFile,
    policy::TestPolicy,
    site::TestSite,
};
use rustix::process::Pid;
use tokio::task::spawn_blocking;

async fn install_policy() -> (TestSite, TestPolicy) {
    let site = TestSite::fresh().await;
    let policy = site.policy("jobs");
    install(&policy).await;
    (site, policy)
}

/// Every signal reaches the command once, and the command decides what it means.
#[tokio::test]
async fn every_signal_reaches_command_once() {
    let (_site, policy) = install_policy().await;
    let signals = [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
        (Signal::TERM, "TERM"),
    ];
    let traps = signals.map(|(_, name)| format!("trap 'echo got {name}' {name}; ")).concat();
    let line = format!("{traps} trap 'exit 42' USR2; echo up; while :; do sleep 0.05; done");
    let charged = LockedCommand::spawn_shell(&policy, &["lock", "job"], &line);
    charged.wait_output("up").await;
    for (signal, name) in signals.into_iter().filter(|(_, name)| *name != "USR2") {
        charged.signal(signal);
        charged.wait_output(&format!("got {name}")).await;
    }
    charged.signal(Signal::USR2);
    assert_eq!(charged.exit().await, 42, "{}", charged.log());
    let got = charged.log().lines().filter(|line| line.starts_with("got ")).count();
    assert_eq!(got, signals.len() - 1, "each once: {}", charged.log());
}

/// A command that dies of a signal ends with exit code 128 plus its number.
#[tokio::test]
async fn death_by_signal_sets_exit_code() {
    let (_site, policy) = install_policy().await;
    let charged = LockedCommand::spawn_shell(&policy, &["lock", "job"], "echo up; exec sleep 60");
    charged.wait_output("up").await;
    charged.signal(Signal::TERM);
    assert_eq!(charged.exit().await, 128 + 15);
}

/// A `lock` that waits ends with 125 on SIGTERM and does not run its command.
#[tokio::test]
async fn waiter_ends_on_sigterm() {
    let (_site, policy) = install_policy().await;
    let holder = LockedCommand::spawn_shell(&policy, &["lock", "job"], "echo up; exec sleep 60");
    holder.wait_output("up").await;
    let waits = LockedCommand::spawn_shell(&policy, &["lock", "job", "-v"], "echo executed");
    waits.wait_output("waits for").await;
    waits.signal(Signal::TERM);
    assert_eq!(waits.exit().await, 125, "{}", waits.log());
    assert!(waits.log().contains("SIGTERM") && !waits.log().contains("executed"), "{}", waits.log());
}

/// Processes that a command leaves behind, also in a session of their own, are ended with it.
#[tokio::test]
async fn descendants_end_with_command() {
    let (_site, policy) = install_policy().await;
    let line = "setsid sh -c 'trap \"\" TERM; echo $$ >$HOME_OF_TEST/child; while :; do sleep 0.05; done' & \
                while ! test -s $HOME_OF_TEST/child; do sleep 0.01; done; exit 5";
    let charged = LockedCommand::spawn_shell(&policy, &["lock", "job", "--grace", "100ms"], line);
    assert_eq!(charged.exit().await, 5, "{}", charged.log());
    let child = std::fs::read_to_string(charged.home().join("child")).expect("it ran");
    let child = Pid::from_raw(child.trim().parse().expect("a number")).expect("a process");
    assert!(!is_alive(child), "it works on without the lock");
    wait_dead(child).await;
}

/// As the first process of a container, `lock` reaps orphans and ends on SIGTERM.
///
/// The first process of a container gets the orphans of all others, and only the signals that it handles.
#[tokio::test]
async fn runs_as_container_init() {
    const LINE: &str = "(sleep 0.05 & ) ; test $(ps -o ppid= -p $PPID) = 1 && sleep 0.2 && \
                        ! ps -eo stat= | grep -q Z && kill -TERM 1 && sleep 60";
    let (_site, policy) = install_policy().await;
    let file = PolicyFile::new(&policy);
    let binary = scratch::binaries().join("fencegate");
    let mut command = Command::new("timeout");
    command.args([
        "20",
        "unshare",
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    command.arg(binary).args(["lock", "job", "-c", &file, "--", "sh", "-c", LINE]);
    let output = spawn_blocking(move || command.output().expect("util-linux")).await.expect("no panic");
    assert_eq!(output.status.code(), Some(128 + 15), "{output:?}");
}

/// A key typed at a terminal sends its signal to the command once, and a stopped job releases its lock.
///
/// The command runs as a job of an interactive shell.
#[tokio::test]
async fn stopped_terminal_job_releases_lock() {
    let (_site, policy) = install_policy().await;
    let file = PolicyFile::new(&policy);
    let folder = scratch::temp_dir();
    let binary = scratch::binaries().join("fencegate");
    let mut command = Command::new("timeout");
    command.args(["60", "python3"]).arg(heart_script().with_file_name("typed.py"));
    command.arg(binary).arg(&*file).arg(folder.path()).arg(heart_script());
    let output = spawn_blocking(move || command.output().expect("coreutils")).await.expect("no panic");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "as told", "{output:?}");
}
