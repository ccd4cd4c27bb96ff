//! Shares one watch of each election among all its followers.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use super::lease_json::ElectionDocument;

/// The elections with followers at this gateway.
#[derive(Clone, Default)]
pub struct Followed(Arc<Mutex<HashMap<String, Arc<watch::Sender<Seen>>>>>);

/// The last state; `None` before the first look.
#[derive(Default)]
pub struct Seen(Option<ElectionDocument>);

/// One follower of an election.
pub struct Follower {
    seen: watch::Receiver<Seen>,
    first: bool,
}

impl Followed {
    /// Follows an election. If nobody watches it yet, `watch` gets the channel to report to.
    pub fn follow(&self, name: &str, watch: impl FnOnce(Arc<watch::Sender<Seen>>)) -> Follower {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The mutex keeps others from beginning at the same time. A watch whose last follower has left is closed.
        all.retain(|_, told| !told.is_closed());
        let seen = match all.get(name) {
            Some(told) => told.subscribe(),
            None => {
                let (told, seen) = watch::channel(Seen::default());
                let told = Arc::new(told);
                all.insert(name.to_owned(), told.clone());
                watch(told);
                seen
            }
        };
        Follower { seen, first: true }
    }
}

impl Seen {
    /// Takes over a document with another leader, unless that leader is older: an answer of ZooKeeper may be a moment
    /// old.
    pub fn replaced_by(&mut self, document: ElectionDocument) -> bool {
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

impl Follower {
    /// Returns the present state first, then each change; `None` when nobody watches any more.
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
    use crate::leases::lease_json::Leader;

    fn led_by(number: Option<u64>) -> ElectionDocument {
        let leader = number.map(|number| Leader {
            gateway: None,
            number: Some(number),
            token: None,
            reference: None,
            note: None,
        });
        ElectionDocument { name: "primary".into(), key: "election/primary".into(), leader, waiting: 0 }
    }

    #[test]
    fn a_leader_is_never_followed_by_an_older_one() {
        let mut seen = Seen::default();
        for (number, news) in
            [(None, true), (Some(3), true), (Some(3), false), (Some(2), false), (Some(4), true)]
        {
            assert_eq!(seen.replaced_by(led_by(number)), news, "{number:?}");
        }
        assert!(seen.replaced_by(led_by(None)), "nobody leads");
    }

    #[tokio::test]
    async fn one_looks_for_all_who_follow() {
        let (followed, mut looks) = (Followed::default(), Vec::new());
        let mut one = followed.follow("primary", |told| looks.push(told));
        let mut other = followed.follow("primary", |_| panic!("a second one looks"));
        looks[0].send_modify(|seen| assert!(seen.replaced_by(led_by(Some(1)))));
        for follower in [&mut one, &mut other] {
            assert_eq!(follower.next().await.and_then(|told| told.leader?.number), Some(1));
        }
        drop((one, other));
        assert!(looks[0].is_closed(), "somebody looks for nobody");
        followed.follow("primary", |told| looks.push(told));
        assert_eq!(looks.len(), 2);
    }
}
