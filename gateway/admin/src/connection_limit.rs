//! Limits the connections to the admin listener. Each new connection gets a slot, and an idle connection is closed to
//! free one.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// The most connections: operators, probes, a few scrapers.
const ALL: usize = 64;
/// The most connections of one address. Probes may come from the same address as other programs on this machine. So
/// no new connection is refused; the address loses the connection that has been idle for longest.
const OF_ONE: usize = 16;
/// The longest time from the connection to the head of its first request. Only later requests may take longer.
const FIRST_HEAD: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Default)]
pub(super) struct AdminConnectionLimiter(Arc<Mutex<AdminConnectionTable>>);

/// The connections, numbered in the order of their arrival.
#[derive(Debug, Default)]
struct AdminConnectionTable {
    all: BTreeMap<u64, AdminConnectionEntry>,
    next: u64,
}

#[derive(Debug)]
struct AdminConnectionEntry {
    address: IpAddr,
    activity: ConnectionActivity,
    since: Instant,
    /// Whether the connection has had a first request.
    had_request: bool,
    evicted: CancellationToken,
}

/// The activity of a connection. A smaller value is closed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ConnectionActivity {
    /// Idle: it has sent no request, or is reading its response.
    Idle,
    Asking,
}

/// The slot of one connection. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct AdminConnectionSlot {
    limiter: AdminConnectionLimiter,
    number: u64,
    leave: CancellationToken,
}

impl AdminConnectionLimiter {
    /// Gives a new connection a slot without waiting: if all slots are taken, another connection is closed.
    pub(super) fn acquire(&self, address: IpAddr) -> AdminConnectionSlot {
        let mut taken = self.table();
        let of_one = taken.all.values().filter(|holder| holder.address == address).count();
        if of_one >= OF_ONE {
            taken.evict_one(Some(address));
        } else if taken.all.len() >= ALL {
            taken.evict_one(None);
        }
        let number = taken.next;
        let leave = CancellationToken::new();
        taken.next += 1;
        let holder = AdminConnectionEntry {
            address,
            activity: ConnectionActivity::Idle,
            since: Instant::now(),
            had_request: false,
            evicted: leave.clone(),
        };
        taken.all.insert(number, holder);
        AdminConnectionSlot { limiter: self.clone(), number, leave }
    }

    fn table(&self) -> MutexGuard<'_, AdminConnectionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdminConnectionTable {
    /// Closes the connection that has been idle for longest. A connection with a request in progress is closed
    /// last: otherwise its request would be executed without a response.
    fn evict_one(&mut self, address: Option<IpAddr>) {
        let may_go = self.all.iter().filter(|(_, holder)| address.is_none_or(|one| one == holder.address));
        let least =
            may_go.min_by_key(|(_, holder)| (holder.activity, holder.since)).map(|(number, _)| *number);
        if let Some(holder) = least.and_then(|number| self.all.remove(&number)) {
            holder.evicted.cancel();
        }
    }
}

impl AdminConnectionSlot {
    pub(super) fn mark_active(&self) {
        self.set_activity(ConnectionActivity::Asking);
    }

    pub(super) fn mark_idle(&self) {
        self.set_activity(ConnectionActivity::Idle);
    }

    fn set_activity(&self, doing: ConnectionActivity) {
        if let Some(holder) = self.limiter.table().all.get_mut(&self.number) {
            (holder.activity, holder.since, holder.had_request) = (doing, Instant::now(), true);
        }
    }

    /// Returns when this connection must end to free its slot.
    pub(super) async fn wait_evicted(&self) {
        let silent = async {
            sleep(FIRST_HEAD).await;
            if self.limiter.table().all.get(&self.number).is_some_and(|holder| holder.had_request) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = silent => {}
            () = self.leave.cancelled() => {}
        }
    }
}

impl Drop for AdminConnectionSlot {
    fn drop(&mut self) {
        self.limiter.table().all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// At the limit of one address a new connection closes the longest idle one; connections with a request stay
    /// open.
    #[test]
    fn idle_connections_close_for_new_ones() {
        let places = AdminConnectionLimiter::default();
        let first = places.acquire(peer(1));
        let busy = places.acquire(peer(1));
        busy.mark_active();
        let idle: Vec<_> = (2..OF_ONE).map(|_| places.acquire(peer(1))).collect();
        assert!(!first.leave.is_cancelled());
        let probe = places.acquire(peer(1));
        assert!(first.leave.is_cancelled(), "it was idle for longest");
        assert!(idle.iter().all(|place| !place.leave.is_cancelled()));
        let more: Vec<_> = (2..OF_ONE).map(|_| places.acquire(peer(1))).collect();
        assert!(idle.iter().all(|place| place.leave.is_cancelled()));
        assert!(!busy.leave.is_cancelled() && !probe.leave.is_cancelled());
        drop(more);
        assert_eq!(places.table().all.len(), 2);
    }

    /// All addresses together have at most `ALL` connections: the next one closes the connection that is idle for
    /// longest.
    #[test]
    fn total_limit_spans_addresses() {
        let places = AdminConnectionLimiter::default();
        let all: Vec<_> = (0..=ALL).map(|n| places.acquire(peer(u8::try_from(n).expect("few")))).collect();
        assert_eq!(places.table().all.len(), ALL);
        assert!(all[0].leave.is_cancelled() && !all[1].leave.is_cancelled());
    }
}
