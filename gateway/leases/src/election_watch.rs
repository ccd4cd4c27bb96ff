//! Shares one watch of each election among all its followers.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fencegate_protocol::lease_documents::ElectionDocument;
use tokio::sync::watch;

/// The elections with followers at this gateway.
#[derive(Clone, Default)]
pub struct ElectionWatches(Arc<Mutex<WatchedElections>>);

#[derive(Default)]
struct WatchedElections {
    watched: HashMap<String, Arc<watch::Sender<ElectionState>>>,
    /// The number of followers of each principal.
    followers: HashMap<Arc<str>, usize>,
}

/// The last state; `None` before the first query.
#[derive(Default)]
pub struct ElectionState(Option<ElectionDocument>);

/// One follower of an election.
pub struct ElectionSubscriber {
    seen: watch::Receiver<ElectionState>,
    first: bool,
    _permit: SubscriberPermit,
}

/// A follower counts for its principal until this is dropped.
struct SubscriberPermit {
    among: ElectionWatches,
    principal: Arc<str>,
}

impl ElectionWatches {
    /// Follows an election for a principal; `None` if the principal has `most` followers already. If there is no
    /// watch of the election yet, `watch` receives the channel to report to.
    pub fn subscribe(
        &self,
        name: &str,
        principal: &Arc<str>,
        most: usize,
        watch: impl FnOnce(Arc<watch::Sender<ElectionState>>),
    ) -> Option<ElectionSubscriber> {
        let mut all = self.lock_watches();
        let followers = all.followers.get(principal).copied().unwrap_or_default();
        if followers >= most {
            return None;
        }
        all.followers.insert(principal.clone(), followers + 1);
        // The mutex keeps other callers from starting a watch at the same time. A watch whose last follower has left
        // is closed.
        all.watched.retain(|_, sender| !sender.is_closed());
        let seen = match all.watched.get(name) {
            Some(sender) => sender.subscribe(),
            None => {
                let (sender, seen) = watch::channel(ElectionState::default());
                let sender = Arc::new(sender);
                all.watched.insert(name.to_owned(), sender.clone());
                watch(sender);
                seen
            }
        };
        let permit = SubscriberPermit { among: self.clone(), principal: principal.clone() };
        Some(ElectionSubscriber { seen, first: true, _permit: permit })
    }

    /// The number of elections that have followers.
    pub(crate) fn watched_election_count(&self) -> usize {
        self.lock_watches().watched.values().filter(|sender| !sender.is_closed()).count()
    }

    fn lock_watches(&self) -> MutexGuard<'_, WatchedElections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SubscriberPermit {
    fn drop(&mut self) {
        let mut all = self.among.lock_watches();
        if let Some(followers) = all.followers.get_mut(&self.principal) {
            *followers -= 1;
        }
        all.followers.retain(|_, followers| *followers > 0);
    }
}

impl ElectionState {
    /// Takes over a document with another leader, unless that leader is older: a response of ZooKeeper may be a
    /// moment old.
    pub(crate) fn replace_if_newer(&mut self, document: ElectionDocument) -> bool {
        let number = |document: &ElectionDocument| document.leader.as_ref().and_then(|leader| leader.number);
        let news = match &self.0 {
            None => true,
            Some(known) => match (number(known), number(&document)) {
                (Some(known), Some(now)) if now < known => false,
                _ => known.leader != document.leader,
            },
        };
        if news {
            self.0 = Some(document);
        }
        news
    }
}

impl ElectionSubscriber {
    /// Returns the present state first, then each change; `None` when the watch has ended.
    pub async fn next(&mut self) -> Option<ElectionDocument> {
        loop {
            if std::mem::take(&mut self.first)
                && let Some(known) = &self.seen.borrow_and_update().0
            {
                return Some(known.clone());
            }
            self.seen.changed().await.ok()?;
            if let Some(known) = &self.seen.borrow_and_update().0 {
                return Some(known.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencegate_protocol::lease_documents::ElectionLeader;

    fn led_by(number: Option<u64>) -> ElectionDocument {
        let leader = number.map(|number| ElectionLeader {
            gateway: None,
            number: Some(number),
            token: None,
            reference: None,
            note: None,
        });
        ElectionDocument { name: "primary".into(), key: "election/primary".into(), leader, waiting: 0 }
    }

    #[test]
    fn older_leader_never_replaces_newer() {
        let mut seen = ElectionState::default();
        for (number, news) in
            [(None, true), (Some(3), true), (Some(3), false), (Some(2), false), (Some(4), true)]
        {
            assert_eq!(seen.replace_if_newer(led_by(number)), news, "{number:?}");
        }
        assert!(seen.replace_if_newer(led_by(None)), "nobody leads");
    }

    /// Followers of one election share a watch, which ends with the last of them; those that have left no longer
    /// count.
    #[tokio::test]
    async fn followers_share_one_watch() {
        let followed = ElectionWatches::default();
        let mut looks = Vec::new();
        let jobs: Arc<str> = "jobs".into();
        let mut one = followed.subscribe("primary", &jobs, 2, |told| looks.push(told)).expect("the first");
        let mut other =
            followed.subscribe("primary", &jobs, 2, |_| panic!("a second one looks")).expect("the second");
        assert!(followed.subscribe("other", &jobs, 2, |_| panic!("a third one looks")).is_none());
        assert_eq!(followed.watched_election_count(), 1);
        looks[0].send_modify(|seen| assert!(seen.replace_if_newer(led_by(Some(1)))));
        for follower in [&mut one, &mut other] {
            assert_eq!(follower.next().await.and_then(|told| told.leader?.number), Some(1));
        }
        drop((one, other));
        assert!(looks[0].is_closed(), "somebody looks for nobody");
        assert_eq!(followed.watched_election_count(), 0);
        let again = followed.subscribe("primary", &jobs, 2, |told| looks.push(told));
        assert!(again.is_some(), "those that have left count");
        assert_eq!(looks.len(), 2);
    }
}
