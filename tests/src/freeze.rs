//! Freezes processes with all of their threads.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use fencegate_testkit::wait::PATIENCE;
use rustix::process::{Pid, Signal, kill_process_group};

/// Stops the processes of a group with SIGSTOP. Returns when every thread of them has stopped, because threads of a
/// busy machine go on for a while after the signal was sent.
///
/// # Panics
/// If the group does not exist, or one of its threads does not stop in time.
pub fn stop(group: u32) {
    signal(group, Signal::STOP);
    let deadline = Instant::now() + PATIENCE;
    while !is_stopped(group) {
        assert!(Instant::now() < deadline, "{group} does not stop");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Lets the processes of a group go on.
///
/// # Panics
/// If the group does not exist.
pub fn resume(group: u32) {
    signal(group, Signal::CONT);
}

fn signal(group: u32, signal: Signal) {
    let pid = i32::try_from(group).ok().and_then(Pid::from_raw).expect("a process has a number");
    kill_process_group(pid, signal).expect("our own children");
}

fn is_stopped(group: u32) -> bool {
    let processes = fs::read_dir("/proc").expect("procfs").flatten();
    let ours = processes.filter(|process| state(&process.path()).is_some_and(|(_, of)| of == group));
    ours.flat_map(|process| fs::read_dir(process.path().join("task")).into_iter().flatten().flatten())
        .filter_map(|task| state(&task.path()))
        .all(|(state, _)| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

/// The state and the group of a process or thread; `None` if it has ended, or the folder is not one of a process.
fn state(folder: &Path) -> Option<(char, u32)> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    // The name in parentheses may contain blanks, so begin after it.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.chars().next()?;
    Some((state, words.nth(1)?.parse().ok()?))
}
