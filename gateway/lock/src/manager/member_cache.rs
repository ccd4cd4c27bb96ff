//! The names of all member nodes as they were last read. Clients name members in the ids of leases, and an invented
//! name costs no request to ZooKeeper of its own.

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

/// The names of the members, shared by all workers.
#[derive(Debug, Default)]
pub(super) struct MemberCache {
    names: Mutex<HashSet<String>>,
    /// Lookups that do not find a name take turns, so one read serves all lookups that came before it.
    looks: Turn<MemberReadTimes>,
}

#[derive(Debug, Default)]
struct MemberReadTimes {
    /// The time at which the last read began.
    last: Option<Instant>,
    /// The time at which the last successful read began.
    good: Option<Instant>,
}

/// The least time between the starts of two reads.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(250);

impl MemberCache {
    /// Whether this is the name of a member. It is false only if no member had the name at some time after the call;
    /// it is true also for a member that has gone since the last read. `look` reads all names.
    ///
    /// # Errors
    /// Returns the errors of `look`.
    pub(super) async fn contains_or_reload(
        &self,
        member: &str,
        look: impl AsyncFnOnce() -> Result<Vec<String>, AdminQueryError>,
    ) -> Result<bool, AdminQueryError> {
        if !is_valid_member_name(member) {
            return Ok(false);
        }
        if self.lock_member_names().contains(member) {
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
            *self.lock_member_names() = all.into_iter().collect();
            looks.good = Some(now);
        }
        Ok(self.lock_member_names().contains(member))
    }

    /// Removes a member whose session has ended.
    pub(super) fn remove_cached_member(&self, member: &str) {
        self.lock_member_names().remove(member);
    }

    fn lock_member_names(&self) -> MutexGuard<'_, HashSet<String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a name has the form that [`fencegate_zookeeper::session::paths::ZkPaths::member_name`] writes, and names a
/// single node.
fn is_valid_member_name(member: &str) -> bool {
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
    use fencegate_zookeeper::session::paths::ZkPaths;

    fn name(session: i64) -> String {
        ZkPaths::member_name("gw-2", session)
    }

    /// Lookups of unknown members share reads that are at least `MIN_READ_INTERVAL` apart; a known member costs none.
    #[tokio::test]
    async fn unknown_names_share_bounded_reads() {
        let names = MemberCache::default();
        let looks = Cell::new(0);
        let begun = Instant::now();
        let ask = |member: String| {
            let names = &names;
            let looks = &looks;
            async move {
                let look = async || {
                    looks.set(looks.get() + 1);
                    Ok(vec![name(1)])
                };
                names.contains_or_reload(&member, look).await.expect("a look that ends well")
            }
        };
        for round in 1..4 {
            let made_up = (0..100).map(|one| ask(name(1000 * round + one)));
            assert!(!join_all(made_up).await.contains(&true));
        }
        // The first lookup is served by a read at once, and the others by the next reads.
        assert!((1..=4).contains(&looks.get()), "{}", looks.get());
        assert!(begun.elapsed() >= MIN_READ_INTERVAL * (looks.get() - 1), "{:?}", begun.elapsed());
        let before = looks.get();
        for _ in 0..100 {
            assert!(ask(name(1)).await);
        }
        assert_eq!(looks.get(), before, "a known one");
        names.remove_cached_member(&name(1));
        assert!(ask(name(1)).await, "looked for again");
    }

    #[tokio::test]
    async fn member_added_after_read_is_found() {
        let names = MemberCache::default();
        assert!(!names.contains_or_reload(&name(2), async || Ok(vec![name(1)])).await.expect("none"));
        assert!(
            names.contains_or_reload(&name(2), async || Ok(vec![name(1), name(2)])).await.expect("there")
        );
    }

    /// A read that failed gives an error and does not make a member absent for a concurrent lookup.
    #[tokio::test]
    async fn failed_read_reports_no_absence() {
        let names = MemberCache::default();
        assert!(!names.contains_or_reload(&name(2), async || Ok(Vec::new())).await.expect("none"));
        let member = name(2);
        let failed = names.contains_or_reload(&member, async || Err(AdminQueryError::NoSession));
        let (failed, found) =
            tokio::join!(failed, names.contains_or_reload(&member, async || Ok(vec![name(2)])));
        assert!(failed.is_err() && found.expect("there"));
    }

    /// A text that is no member name is absent without a read.
    #[tokio::test]
    async fn invalid_member_name_is_not_read() {
        let names = MemberCache::default();
        for text in ["", "gw-2", "gw-2-01", "../locks", "-0000000000000001", "gw-2-000000000000000G"] {
            assert!(
                !names
                    .contains_or_reload(text, async || panic!("{text} is looked for"))
                    .await
                    .expect("no look")
            );
        }
        for gateway in ["../locks", "a/b", "a\0"] {
            let text = ZkPaths::member_name(gateway, 1);
            assert!(
                !names
                    .contains_or_reload(&text, async || panic!("{text} is looked for"))
                    .await
                    .expect("no look")
            );
        }
    }
}
