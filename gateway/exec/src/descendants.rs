//! Finds the descendants of a process and signals them, whatever process group or session they have chosen.

use std::{collections::HashMap, fs};

use rustix::{
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, getpgid, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
    },
};

/// The descendants of a process, and the process group in which some of them can be signalled at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct DescendantProcesses {
    pub(super) root: Pid,
    /// A child that is spared, while its descendants are not. `None` once it was reaped.
    pub(super) excluded: Option<Pid>,
    pub(super) group: Option<Pid>,
}

impl DescendantProcesses {
    /// Requests that all of them end. Stopped processes are continued, so that they get the signal.
    pub(super) fn terminate_descendants(&self) {
        for signal in [Signal::TERM, Signal::CONT] {
            self.signal(signal);
        }
    }

    /// Kills all that are found. New processes are found the next time: call this until none is left.
    pub(super) fn kill_descendants(&self) {
        self.signal(Signal::KILL);
    }

    /// True if one of them runs or can run. A dead process that was not reaped does not count.
    pub(super) fn any_alive(&self) -> bool {
        self.find_descendants().into_keys().any(is_alive)
    }

    /// Records that the process has ended. Its id may belong to another process from now on, so no process with
    /// that id is spared any more.
    pub(super) fn clear_exclusion(&mut self, process: Pid) {
        self.excluded = self.excluded.filter(|but| *but != process);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // This fails if the processes have ended, or belong to another user, which must end them.
            kill_process_group(group, signal).ok();
        }
        for (process, parent) in self.find_descendants() {
            if self.group.is_none_or(|group| getpgid(Some(process)) != Ok(group)) {
                self.signal_one(process, parent, signal);
            }
        }
    }

    /// Signals a process that was found below `parent`. It may have ended in between, and its id may belong to
    /// an unrelated process. So a descriptor pins the process, and then its parent is checked once more.
    fn signal_one(&self, process: Pid, parent: Pid, signal: Signal) {
        let held = pidfd_open(process, PidfdFlags::empty());
        // If the parent has ended, the process has become a child of the root or of the excluded process.
        let ours = [Some(parent), Some(self.root), self.excluded];
        if !parent_of(process).is_some_and(|parent| ours.contains(&Some(parent))) {
            return;
        }
        match held {
            Ok(held) => pidfd_send_signal(held, signal).ok(),
            // The kernel is older than 5.3, or is configured to refuse the call.
            Err(Errno::NOSYS | Errno::PERM) => kill_process(process, signal).ok(),
            Err(_gone) => None,
        };
    }

    /// Each descendant, with the parent below which it was found.
    fn find_descendants(&self) -> HashMap<Pid, Pid> {
        let mut found = HashMap::new();
        let mut look = vec![self.root];
        while let Some(process) = look.pop() {
            for child in children(process) {
                if Some(child) != self.excluded && found.insert(child, process).is_some() {
                    continue;
                }
                look.push(child);
            }
        }
        found
    }
}

/// The children of a process. Empty if the process has ended, or if the kernel does not list children
/// (`CONFIG_PROC_CHILDREN`).
fn children(process: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let lists = tasks.into_iter().flatten().flatten();
    let lists = lists.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_ascii_whitespace().filter_map(parse_pid).collect::<Vec<_>>()).collect()
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

fn is_alive(process: Pid) -> bool {
    stat_field(&read_stat(process), STATE).is_some_and(|state| !matches!(state, "Z" | "X"))
}

fn parent_of(process: Pid) -> Option<Pid> {
    parse_pid(stat_field(&read_stat(process), PARENT)?)
}

/// The text of proc_pid_stat(5). Empty if the process has ended.
fn read_stat(process: Pid) -> String {
    fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default()
}

/// Numbers of fields, counted from the first one after the name.
const STATE: usize = 0;
const PARENT: usize = 1;

/// The field with this number. The fields are counted from the last parenthesis, because the name in parentheses
/// may contain any characters.
fn stat_field(stat: &str, at: usize) -> Option<&str> {
    stat.rsplit_once(") ")?.1.split(' ').nth(at)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        os::unix::process::ExitStatusExt,
        process::{Command, Stdio},
        time::{Duration, Instant},
    };

    use rustix::process::getpid;

    use super::*;

    /// State and parent are read from `/proc/PID/stat` whatever the name of the process contains.
    #[test]
    fn stat_parses_despite_process_name() {
        for (stat, state, parent) in [("7 (a) Z) S 1 7", "S", "1"), ("7 (sh) Z 2 7", "Z", "2")] {
            assert_eq!([stat_field(stat, STATE), stat_field(stat, PARENT)], [Some(state), Some(parent)]);
        }
        assert_eq!(stat_field("", STATE), None);
        assert_eq!(parent_of(getpid()), rustix::process::getppid());
    }

    /// A process that has the id of a descendant that is gone is not signalled.
    #[test]
    fn process_with_reused_id_is_spared() {
        let sleep = || Command::new("sleep").arg("60").spawn().expect("coreutils");
        let mut stranger = sleep();
        let mut parent = sleep();
        let process = Pid::from_child(&stranger);
        let of = Pid::from_child(&parent);
        // `of` is the id of a process that never was the parent of this child, as after a reuse of ids.
        let below = DescendantProcesses { root: of, excluded: None, group: None };
        below.signal_one(process, of, Signal::TERM);
        let ours = DescendantProcesses { root: getpid(), excluded: None, group: None };
        ours.signal_one(process, getpid(), Signal::KILL);
        let ended = stranger.wait().expect("our own child").signal();
        assert_eq!(ended, Some(Signal::KILL.as_raw()), "it was asked to end");
        parent.kill().expect("our own child");
        parent.wait().expect("our own child");
    }

    /// Once the excluded process is gone, a process that has its id counts as a descendant.
    #[test]
    fn reused_id_of_excluded_process_counts() {
        let mut spared = Command::new("sleep").arg("60").spawn().expect("coreutils");
        let process = Pid::from_child(&spared);
        let mut all = DescendantProcesses { root: getpid(), excluded: Some(process), group: None };
        all.clear_exclusion(getpid());
        assert!(!all.find_descendants().contains_key(&process));
        all.clear_exclusion(process);
        assert!(all.find_descendants().contains_key(&process));
        spared.kill().expect("our own child");
        spared.wait().expect("our own child");
    }

    /// A descendant that has left its session is found and killed.
    #[test]
    fn descendant_in_own_session_is_killed() {
        let script = "setsid sh -c 'echo up; exec sleep 60' & wait";
        let mut shell =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        BufReader::new(shell.stdout.take().expect("piped")).read_line(&mut line).expect("the line");
        let of = Pid::from_child(&shell);
        let below = DescendantProcesses { root: of, excluded: None, group: None };
        assert!(below.any_alive());
        below.kill_descendants();
        let late = Instant::now() + Duration::from_secs(10);
        while below.any_alive() && Instant::now() < late {
            std::thread::yield_now();
        }
        assert!(!below.any_alive());
        shell.wait().expect("our own child");
        assert!(
            !DescendantProcesses { root: getpid(), excluded: Some(of), group: None }
                .find_descendants()
                .contains_key(&of)
        );
    }
}
