//! The names of all member nodes as they were last read. Clients name members in the ids of leases, and a name that
//! somebody has made up costs ZooKeeper no request of its own.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Mutex as Turn,
    time::{Instant, sleep_until},
};

use crate::manager::admin_query::AdminQueryError;

/// Shared by all workers.
#[derive(Debug, Default)]
pub(super) struct MemberCache {
    names: Mutex<HashSet<String>>,
    /// Those who do not find a name take turns, so one look serves all that came before it.
    looks: Turn<ReadTimes>,
}

#[derive(Debug, Default)]
struct ReadTimes {
    /// When the last one began.
    last: Option<Instant>,
    /// When the last one began that ended well.
    good: Option<Instant>,
}

/// The least time between the begins of two looks.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(250);

impl MemberCache {
    /// Whether this is the name of a member. False only if no member had it at some time after the call; true also
    /// for one that has gone since the last look. `look` reads all names.
    ///
    /// # Errors
    /// Those of `look`.
    pub(super) async fn contains(
        &self,
        member: &str,
        look: impl AsyncFnOnce() -> Result<Vec<String>, AdminQueryError>,
    ) -> Result<bool, AdminQueryError> {
        if !is_well_formed(member) {
            return Ok(false);
        }
        if self.lock_names().contains(member) {
            return Ok(true);
        }
        let came = Instant::now();
        let mut looks = self.looks.lock().await;
        if looks.good.is_none_or(|good| good < came) {
            if let Some(last) = looks.last {
                sleep_until(last + MIN_READ_INTERVAL).await;
            }
            let now = Instant::now();
            looks.last = Some(now);
            let all = look().await?;
            *self.lock_names() = all.into_iter().collect();
            looks.good = Some(now);
        }
        Ok(self.lock_names().contains(member))
    }

    /// Its session has ended.
    pub(super) fn remove(&self, member: &str) {
        self.lock_names().remove(member);
    }

    fn lock_names(&self) -> MutexGuard<'_, HashSet<String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As [`crate::session::paths::Paths::member_name`] writes them, and a name of one node in any case.
fn is_well_formed(member: &str) -> bool {
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let in_form = |(gateway, session): (&str, &str)| {
        !gateway.is_empty() && session.len() == 16 && session.bytes().all(digit)
    };
    member.rsplit_once('-').is_some_and(in_form) && !member.contains(|c: char| c == '/' || c.is_control())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::future::join_all;

    use super::*;
    use crate::session::paths::Paths;

    fn name(session: i64) -> String {
        Paths::member_name("gw-2", session)
    }

    #[tokio::test]
    async fn names_that_nobody_has_cost_four_looks_a_second_however_many_there_are() {
        let (names, looks) = (MemberCache::default(), Cell::new(0));
        let begun = Instant::now();
        let ask = |member: String| {
            let (names, looks) = (&names, &looks);
            async move {
                let look = async || {
                    looks.set(looks.get() + 1);
                    Ok(vec![name(1)])
                };
                names.contains(&member, look).await.expect("a look that ends well")
            }
        };
        for round in 1..4 {
            let made_up = (0..100).map(|one| ask(name(1000 * round + one)));
            assert!(!join_all(made_up).await.contains(&true));
        }
        // Whoever comes first is served at once, and the others with him by the next look.
        assert!((1..=4).contains(&looks.get()), "{}", looks.get());
        assert!(begun.elapsed() >= MIN_READ_INTERVAL * (looks.get() - 1), "{:?}", begun.elapsed());
        let before = looks.get();
        for _ in 0..100 {
            assert!(ask(name(1)).await);
        }
        assert_eq!(looks.get(), before, "a known one");
        names.remove(&name(1));
        assert!(ask(name(1)).await, "looked for again");
    }

    #[tokio::test]
    async fn a_member_that_came_after_the_last_look_is_found() {
        let names = MemberCache::default();
        assert!(!names.contains(&name(2), async || Ok(vec![name(1)])).await.expect("none"));
        assert!(names.contains(&name(2), async || Ok(vec![name(1), name(2)])).await.expect("there"));
    }

    #[tokio::test]
    async fn nobody_is_said_to_be_gone_by_a_look_that_failed() {
        let names = MemberCache::default();
        assert!(!names.contains(&name(2), async || Ok(Vec::new())).await.expect("none"));
        let member = name(2);
        let failed = names.contains(&member, async || Err(AdminQueryError::NoSession));
        let (failed, found) = tokio::join!(failed, names.contains(&member, async || Ok(vec![name(2)])));
        assert!(failed.is_err() && found.expect("there"));
    }

    #[tokio::test]
    async fn what_is_no_name_of_a_member_is_not_looked_for() {
        let names = MemberCache::default();
        for text in ["", "gw-2", "gw-2-01", "../locks", "-0000000000000001", "gw-2-000000000000000G"] {
            assert!(!names.contains(text, async || panic!("{text} is looked for")).await.expect("no look"));
        }
        for gateway in ["../locks", "a/b", "a\0"] {
            let text = Paths::member_name(gateway, 1);
            assert!(!names.contains(&text, async || panic!("{text} is looked for")).await.expect("no look"));
        }
    }
}
