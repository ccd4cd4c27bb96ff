//! Sessions of other gateways that were seen to end, so that nobody waits for an answer of a gateway that is frozen or
//! gone.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use tokio::sync::watch;

/// Member nodes that were there, and are there no more. A name has the id of a session in it, so none comes back.
#[derive(Debug, Default)]
pub struct EndedSessions(watch::Sender<VecDeque<Arc<str>>>);

/// Several times as many as a fleet has sessions. Whoever waits for one is woken as soon as it is noted.
const MAX_SESSIONS: usize = 1024;

impl EndedSessions {
    fn record(&self, names: impl Iterator<Item = Arc<str>>) {
        self.0.send_if_modified(|known| {
            let before = known.len();
            for name in names {
                // Each session of this process sees the same.
                if !known.contains(&name) {
                    known.push_back(name);
                }
            }
            let grown = known.len() > before;
            known.drain(..known.len().saturating_sub(MAX_SESSIONS));
            grown
        });
    }

    /// Resolves when the session with this member node was seen to end.
    pub async fn wait_for(&self, member: &str) {
        let mut known = self.0.subscribe();
        // The sender lives as long as `self`, so the wait has no other end.
        if known.wait_for(|known| known.iter().any(|name| **name == *member)).await.is_err() {
            std::future::pending().await
        }
    }
}

/// What one session of this process has seen below the members. Another session may ask a server that is behind, so
/// only a name that the same session saw before counts as gone.
#[derive(Debug)]
pub struct MemberWatcher<'d> {
    ended_sessions: &'d EndedSessions,
    there: HashSet<Arc<str>>,
}

impl<'d> MemberWatcher<'d> {
    pub fn new(ended_sessions: &'d EndedSessions) -> Self {
        Self { ended_sessions, there: HashSet::new() }
    }

    /// These members are there now.
    pub fn update(&mut self, members: &[String]) {
        let there: HashSet<Arc<str>> = members.iter().map(|member| Arc::from(member.as_str())).collect();
        self.ended_sessions.record(self.there.difference(&there).cloned());
        self.there = there;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn only_what_one_session_saw_come_and_go_has_departed() {
        let ended_sessions = EndedSessions::default();
        let (mut ahead, mut behind) =
            (MemberWatcher::new(&ended_sessions), MemberWatcher::new(&ended_sessions));
        ahead.update(&names(&["gw-1-01", "gw-2-02"]));
        behind.update(&names(&["gw-2-02"]));
        assert!(ended_sessions.wait_for("gw-1-01").now_or_never().is_none(), "a server that is behind");
        let mut waits = Box::pin(ended_sessions.wait_for("gw-1-01"));
        assert!(waits.as_mut().now_or_never().is_none());
        ahead.update(&names(&["gw-2-02"]));
        assert!(waits.now_or_never().is_some(), "not woken");
        assert!(ended_sessions.wait_for("gw-1-01").now_or_never().is_some(), "not remembered");
        assert!(ended_sessions.wait_for("gw-2-02").now_or_never().is_none());
    }

    #[test]
    fn how_many_are_remembered_is_bounded_and_the_newest_are() {
        let ended_sessions = EndedSessions::default();
        let mut member_watcher = MemberWatcher::new(&ended_sessions);
        let all: Vec<String> = (0..=MAX_SESSIONS).map(|session| format!("gw-1-{session:04}")).collect();
        for gone in &all {
            member_watcher.update(std::slice::from_ref(gone));
        }
        member_watcher.update(&[]);
        assert_eq!(ended_sessions.0.borrow().len(), MAX_SESSIONS);
        assert!(ended_sessions.wait_for(&all[MAX_SESSIONS]).now_or_never().is_some());
        assert!(ended_sessions.wait_for(&all[0]).now_or_never().is_none());
    }
}
