//! Finds what has come of a process, and signals it: its children, and theirs, wherever they have put themselves.

use std::{collections::HashSet, fs};

use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};

/// Whose descendants are meant, and which of them stand in one process group that can be signalled at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descendants {
    pub(super) of: Pid,
    /// One that is not meant itself: what has come of it is.
    pub(super) but: Option<Pid>,
    pub(super) group: Option<Pid>,
}

impl Descendants {
    /// Asks all of them to end, and wakes those that are stopped, so that they hear it.
    pub(super) fn ask(&self) {
        for signal in [Signal::TERM, Signal::CONT] {
            self.signal(signal);
        }
    }

    /// Ends all of them that are found. What begins meanwhile is found the next time: ask again until none is left.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// At least one of them is at work, or could be: not one that is dead and was not waited for.
    pub(super) fn are_alive(&self) -> bool {
        self.found().into_iter().any(is_alive)
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Gone, or of another user who has to end it.
            kill_process_group(group, signal).ok();
        }
        for process in self.found() {
            if self.group.is_none_or(|group| getpgid(Some(process)) != Ok(group)) {
                kill_process(process, signal).ok();
            }
        }
    }

    fn found(&self) -> HashSet<Pid> {
        let (mut found, mut look) = (HashSet::new(), vec![self.of]);
        while let Some(process) = look.pop() {
            for child in children(process) {
                if Some(child) != self.but && !found.insert(child) {
                    continue;
                }
                look.push(child);
            }
        }
        found
    }
}

/// Nothing where it is gone, or the kernel does not tell (`CONFIG_PROC_CHILDREN`).
fn children(process: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let lists = tasks.into_iter().flatten().flatten();
    let lists = lists.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_ascii_whitespace().filter_map(number).collect::<Vec<_>>()).collect()
}

fn number(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

fn is_alive(process: Pid) -> bool {
    let said = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    state(&said).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The third field of proc_pid_stat(5); the second one may have any characters.
fn state(said: &str) -> Option<char> {
    said.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
        time::{Duration, Instant},
    };

    use rustix::process::getpid;

    use super::*;

    #[test]
    fn the_state_is_read_behind_any_name() {
        assert_eq!(state("7 (a) Z) S 1 7"), Some('S'));
        assert_eq!(state("7 (sh) Z 1 7"), Some('Z'));
        assert_eq!(state(""), None);
    }

    #[test]
    fn what_has_left_its_session_is_found_and_ended() {
        let script = "setsid sh -c 'echo up; exec sleep 60' & wait";
        let mut shell =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        BufReader::new(shell.stdout.take().expect("piped")).read_line(&mut line).expect("the line");
        let of = Pid::from_child(&shell);
        let below = Descendants { of, but: None, group: None };
        assert!(below.are_alive());
        below.kill();
        let late = Instant::now() + Duration::from_secs(10);
        while below.are_alive() && Instant::now() < late {
            std::thread::yield_now();
        }
        assert!(!below.are_alive());
        shell.wait().expect("our own child");
        assert!(!Descendants { of: getpid(), but: Some(of), group: None }.found().contains(&of));
    }
}
