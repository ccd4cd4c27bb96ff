//! Fifty kills among five candidates: a service that compares tokens never gets a smaller token after a larger one,
//! and the next leader leads in time.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use fencegate_testkit::{child::Signal, scratch, wait::wait_until};
use fencegate_tests::{
    charged::{GRACE, LockedCommand, install, signal},
    policy::TestPolicy,
    site::TestSite,
};
use rustix::process::Pid;
use tokio::time::sleep;

const CANDIDATES: usize = 5;
const KILLS: usize = 50;
/// The limit until the next leader leads: the session timeout and two ticks. `SEEN` is added for a busy machine to
/// show it.
const WITHIN: Duration = Duration::from_millis(2000 + 2 * 200);
const SEEN: Duration = Duration::from_millis(300);

/// The process that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElectionFault {
    LeadersKeeper,
    LeadersWatchman,
    /// A candidate that does not lead is killed.
    Another,
}

fn spawn_candidate(policy: &TestPolicy, register: &Path) -> LockedCommand {
    let writer = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/charged/writer.py");
    let line = format!("exec python3 {} {}", writer.display(), register.display());
    LockedCommand::spawn_shell(policy, &[&["elect", "writers", "-v"], &GRACE[..]].concat(), &line)
}

/// The tokens of all leaders so far, in the order of tokens.
fn recorded_leaders(register: &Path) -> Vec<String> {
    let mut all: Vec<_> = fs::read_dir(register.join("leads"))
        .expect("our own")
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    all.sort();
    all
}

/// Waits until a candidate other than `leader` reports that it holds the lock, and returns the time that this took.
async fn wait_next_leader(candidates: &[LockedCommand], leader: Option<usize>) -> Duration {
    let began = Instant::now();
    let leads = |one: &LockedCommand| one.log().contains("holds the lock of");
    while !candidates.iter().enumerate().any(|(number, one)| Some(number) != leader && leads(one)) {
        assert!(began.elapsed() < Duration::from_secs(30), "nobody leads");
        sleep(Duration::from_millis(2)).await;
    }
    began.elapsed()
}

/// The index of the leader. Only a leader has a supervisor, and the supervisor has the command as its child.
async fn leader(candidates: &[LockedCommand]) -> usize {
    let leads = |one: &LockedCommand| child(one.keeper()).and_then(child).is_some();
    let found = async {
        loop {
            match candidates.iter().position(leads) {
                Some(leader) => return leader,
                None => sleep(Duration::from_millis(2)).await,
            }
        }
    };
    wait_until("a leader", found, || "none").await
}

fn child(of: Pid) -> Option<Pid> {
    let list = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).ok()?;
    Pid::from_raw(list.split_whitespace().next()?.parse().ok()?)
}

/// A service that compares tokens never gets a smaller token after a larger one, and each next leader leads in time.
#[tokio::test]
async fn comparing_service_never_sees_two_leaders() {
    let site = TestSite::fresh().await;
    let policy = site.policy("candidates");
    install(&policy).await;
    let register = scratch::temp_dir();
    fs::create_dir(register.path().join("leads")).expect("our own");
    let begin = || spawn_candidate(&policy, register.path());
    let mut candidates: Vec<_> = (0..CANDIDATES).map(|_| begin()).collect();
    wait_next_leader(&candidates, None).await;
    let mut times = Vec::new();
    let mut leaders = 1;
    for round in 0..KILLS {
        let leader = leader(&candidates).await;
        // Wait for the leader's record: a leader that is killed before it writes would not be counted.
        let written = async {
            while recorded_leaders(register.path()).len() < leaders {
                sleep(Duration::from_millis(2)).await;
            }
        };
        wait_until("the leader to write", written, || candidates[leader].log()).await;
        sleep(Duration::from_millis(scramble(round) % 150)).await;
        let hit = [ElectionFault::LeadersKeeper, ElectionFault::LeadersWatchman, ElectionFault::Another]
            [scramble(round + 1000) as usize % 3];
        let victim = if hit == ElectionFault::Another { (leader + 1) % CANDIDATES } else { leader };
        match hit {
            ElectionFault::LeadersWatchman => {
                signal(child(candidates[leader].keeper()).expect("it leads"), Signal::KILL)
            }
            ElectionFault::LeadersKeeper | ElectionFault::Another => candidates[victim].signal(Signal::KILL),
        }
        if hit != ElectionFault::Another {
            leaders += 1;
            times.push((hit, wait_next_leader(&candidates, Some(leader)).await));
        }
        if hit == ElectionFault::LeadersWatchman {
            assert_eq!(candidates[victim].exit().await, 123, "{}", candidates[victim].log());
        }
        candidates[victim] = begin();
    }
    for hit in [ElectionFault::LeadersKeeper, ElectionFault::LeadersWatchman] {
        let mut of_it: Vec<_> =
            times.iter().filter(|(which, _)| *which == hit).map(|(_, time)| *time).collect();
        of_it.sort();
        let least = of_it.first().expect("some");
        let most = of_it.last().expect("some");
        println!("{hit:?}: {} times; the next one led after {least:?} to {most:?}", of_it.len());
        assert!(*most <= WITHIN + SEEN, "{hit:?}: {of_it:?}");
    }
    let refused = fs::read_to_string(register.path().join("refused")).unwrap_or_default();
    assert_eq!(refused, "", "two led at once");
    println!("{} have led, one after the other", recorded_leaders(register.path()).len());
    assert!(times.len() >= KILLS / 3, "not exercised");
}

/// Numbers that look random and are the same in each run.
fn scramble(seed: usize) -> u64 {
    let mixed = (seed as u64).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33
}
