//! Finds what has come of a process, and signals it: its children, and theirs, wherever they have put themselves.

use std::{collections::HashMap, fs};

use rustix::{
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, getpgid, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
    },
};

/// Whose descendants are meant, and which of them stand in one process group that can be signalled at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descendants {
    pub(super) of: Pid,
    /// One that is not meant itself: what has come of it is. `None` from the moment on at which it was waited for.
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
        self.found().into_keys().any(is_alive)
    }

    /// This one has ended, and its number may be another's from now on: of whoever gets it, nobody is spared.
    pub(super) fn was_waited_for(&mut self, process: Pid) {
        self.but = self.but.filter(|but| *but != process);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Gone, or of another user who has to end it.
            kill_process_group(group, signal).ok();
        }
        for (process, parent) in self.found() {
            if self.group.is_none_or(|group| getpgid(Some(process)) != Ok(group)) {
                self.signal_one(process, parent, signal);
            }
        }
    }

    /// Whoever was found below `parent` may be gone, and its number another's, who is none of ours. So it is held by a descriptor,
    /// which no other can get, and looked at once more.
    fn signal_one(&self, process: Pid, parent: Pid, signal: Signal) {
        let held = pidfd_open(process, PidfdFlags::empty());
        // An orphan has come to one of these.
        let ours = [Some(parent), Some(self.of), self.but];
        if !parent_of(process).is_some_and(|parent| ours.contains(&Some(parent))) {
            return;
        }
        match held {
            Ok(held) => pidfd_send_signal(held, signal).ok(),
            // A kernel before 5.3, or one that is told to refuse it.
            Err(Errno::NOSYS | Errno::PERM) => kill_process(process, signal).ok(),
            Err(_gone) => None,
        };
    }

    /// Each with the process that it was found below.
    fn found(&self) -> HashMap<Pid, Pid> {
        let (mut found, mut look) = (HashMap::new(), vec![self.of]);
        while let Some(process) = look.pop() {
            for child in children(process) {
                if Some(child) != self.but && found.insert(child, process).is_some() {
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
    field(&stat(process), STATE).is_some_and(|state| !matches!(state, "Z" | "X"))
}

fn parent_of(process: Pid) -> Option<Pid> {
    number(field(&stat(process), PARENT)?)
}

/// See proc_pid_stat(5). Empty where it is gone.
fn stat(process: Pid) -> String {
    fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default()
}

/// Fields, counted from the first one behind the name.
const STATE: usize = 0;
const PARENT: usize = 1;

/// The name may have any characters.
fn field(said: &str, at: usize) -> Option<&str> {
    said.rsplit_once(") ")?.1.split(' ').nth(at)
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

    #[test]
    fn state_and_parent_are_read_behind_any_name() {
        for (said, state, parent) in [("7 (a) Z) S 1 7", "S", "1"), ("7 (sh) Z 2 7", "Z", "2")] {
            assert_eq!([field(said, STATE), field(said, PARENT)], [Some(state), Some(parent)]);
        }
        assert_eq!(field("", STATE), None);
        assert_eq!(parent_of(getpid()), rustix::process::getppid());
    }

    #[test]
    fn a_stranger_with_the_number_of_one_that_is_gone_is_not_signalled() {
        let sleep = || Command::new("sleep").arg("60").spawn().expect("coreutils");
        let (mut stranger, mut parent) = (sleep(), sleep());
        let (process, of) = (Pid::from_child(&stranger), Pid::from_child(&parent));
        // As if it had been found below that one, which never had it.
        let below = Descendants { of, but: None, group: None };
        below.signal_one(process, of, Signal::TERM);
        let ours = Descendants { of: getpid(), but: None, group: None };
        ours.signal_one(process, getpid(), Signal::KILL);
        let ended = stranger.wait().expect("our own child").signal();
        assert_eq!(ended, Some(Signal::KILL.as_raw()), "it was asked to end");
        parent.kill().expect("our own child");
        parent.wait().expect("our own child");
    }

    #[test]
    fn who_has_the_number_of_one_that_was_spared_is_not_spared() {
        let mut spared = Command::new("sleep").arg("60").spawn().expect("coreutils");
        let process = Pid::from_child(&spared);
        let mut all = Descendants { of: getpid(), but: Some(process), group: None };
        all.was_waited_for(getpid());
        assert!(!all.found().contains_key(&process));
        all.was_waited_for(process);
        assert!(all.found().contains_key(&process));
        spared.kill().expect("our own child");
        spared.wait().expect("our own child");
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
        assert!(!Descendants { of: getpid(), but: Some(of), group: None }.found().contains_key(&of));
    }
}
