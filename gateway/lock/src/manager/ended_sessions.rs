//! Sessions of peers that were seen to end, so that no request waits for the answer of a gateway that is frozen or
//! gone.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use tokio::sync::watch;

/// Member nodes that existed and are gone. A name contains the id of its session, so none comes back.
#[derive(Debug, Default)]
pub struct EndedPeerSessions(watch::Sender<VecDeque<Arc<str>>>);

/// The most ended sessions that are remembered: several times as many as an installation has at once. A waiter is
/// woken as soon as its session is recorded, so it does not depend on an old entry.
const MAX_SESSIONS: usize = 1024;

impl EndedPeerSessions {
    fn record_ended_members(&self, names: impl Iterator<Item = Arc<str>>) {
        self.0.send_if_modified(|known| {
            let before = known.len();
            for name in names {
                // Each session of this process sees the same end, so only the first one is recorded.
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
    pub async fn wait_for_session_end(&self, member: &str) {
        let mut known = self.0.subscribe();
        // The sender lives as long as `self`, so the wait ends only when the session has ended.
        if known.wait_for(|known| known.iter().any(|name| **name == *member)).await.is_err() {
            std::future::pending().await
        }
    }
}

/// The member nodes that one session of this process has seen. Another session may read from a server that is behind,
/// so only a name that the same session saw before counts as gone.
#[derive(Debug)]
pub(crate) struct MemberWatcher<'d> {
    ended_sessions: &'d EndedPeerSessions,
    there: HashSet<Arc<str>>,
}

impl<'d> MemberWatcher<'d> {
    pub(crate) fn new(ended_sessions: &'d EndedPeerSessions) -> Self {
        Self { ended_sessions, there: HashSet::new() }
    }

    /// Records the members that exist now.
    pub(crate) fn update_members(&mut self, members: &[String]) {
        let there: HashSet<Arc<str>> = members.iter().map(|member| Arc::from(member.as_str())).collect();
        self.ended_sessions.record_ended_members(self.there.difference(&there).cloned());
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

    /// A member has ended only if one session saw it present and then absent; a server that lags does not count.
    #[test]
    fn member_ended_after_present_then_absent() {
        let ended_sessions = EndedPeerSessions::default();
        let mut ahead = MemberWatcher::new(&ended_sessions);
        let mut behind = MemberWatcher::new(&ended_sessions);
        ahead.update_members(&names(&["gw-1-01", "gw-2-02"]));
        behind.update_members(&names(&["gw-2-02"]));
        assert!(
            ended_sessions.wait_for_session_end("gw-1-01").now_or_never().is_none(),
            "a server that is behind"
        );
        let mut waits = Box::pin(ended_sessions.wait_for_session_end("gw-1-01"));
        assert!(waits.as_mut().now_or_never().is_none());
        ahead.update_members(&names(&["gw-2-02"]));
        assert!(waits.now_or_never().is_some(), "not woken");
        assert!(ended_sessions.wait_for_session_end("gw-1-01").now_or_never().is_some(), "not remembered");
        assert!(ended_sessions.wait_for_session_end("gw-2-02").now_or_never().is_none());
    }

    /// At most `MAX_SESSIONS` ended sessions are remembered, and those are the newest.
    #[test]
    fn newest_ended_sessions_are_remembered() {
        let ended_sessions = EndedPeerSessions::default();
        let mut member_watcher = MemberWatcher::new(&ended_sessions);
        let all: Vec<String> = (0..=MAX_SESSIONS).map(|session| format!("gw-1-{session:04}")).collect();
        for gone in &all {
            member_watcher.update_members(std::slice::from_ref(gone));
        }
        member_watcher.update_members(&[]);
        assert_eq!(ended_sessions.0.borrow().len(), MAX_SESSIONS);
        assert!(ended_sessions.wait_for_session_end(&all[MAX_SESSIONS]).now_or_never().is_some());
        assert!(ended_sessions.wait_for_session_end(&all[0]).now_or_never().is_none());
    }
}
