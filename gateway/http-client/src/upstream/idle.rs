//! The idle connections of one worker, and its requests that wait for a connection.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

use super::{
    address::ResolvedEndpoint,
    endpoint::{Endpoint, EndpointCountGuard},
};
use crate::upstream::pooled_connection::PooledConnection;

/// The idle connections of one worker, and its waiting requests.
#[derive(Default)]
pub(crate) struct IdlePool {
    /// Idle connections, by [`Endpoint::id`].
    idle: RefCell<BTreeMap<u64, Vec<IdleConnection>>>,
    /// Waiting requests, in the order of their arrival. A request that gives up removes itself.
    waiters: RefCell<BTreeMap<u64, ConnectionWaiter>>,
    next: Cell<u64>,
}

/// An idle connection.
struct IdleConnection {
    pooled: Box<PooledConnection>,
    until: Instant,
    _counted: EndpointCountGuard,
}

/// A request that waits for a connection to any of these endpoints.
struct ConnectionWaiter {
    endpoints: Vec<Arc<Endpoint>>,
    taker: oneshot::Sender<Box<PooledConnection>>,
}

/// The position of a waiting request in the queue, until it is dropped.
pub struct PoolWaitGuard<'a> {
    idle: &'a IdlePool,
    number: u64,
    taken: oneshot::Receiver<Box<PooledConnection>>,
}

/// The most times that a connection goes from one request directly to the next at one worker, while requests at
/// other workers wait as well.
const MOST_HANDS: u32 = 32;

impl IdleConnection {
    fn is_reusable(&self, now: Instant) -> bool {
        self.pooled.is_usable() && now < self.until
    }
}

impl IdlePool {
    /// Passes the connection to a waiting request of this worker, or keeps it idle for `keep`.
    pub(crate) fn put(&self, pooled: Box<PooledConnection>, keep: Duration) {
        if !pooled.is_usable() {
            return;
        }
        let Some(pooled) = self.hand_to_waiter(pooled) else { return };
        // A request waits at another worker, which cannot use this connection. So the connection is closed, and the
        // other worker can make a new one.
        if pooled.endpoint.waiting() > 0 {
            return;
        }
        let Some(counted) = pooled.endpoint.count_idle() else { return };
        let id = pooled.endpoint.id;
        let until = Instant::now() + keep;
        self.idle.borrow_mut().entry(id).or_default().push(IdleConnection {
            pooled,
            until,
            _counted: counted,
        });
    }

    /// Passes the connection to the first request of this worker that waits for its endpoint. Returns it if there is
    /// none.
    fn hand_to_waiter(&self, mut pooled: Box<PooledConnection>) -> Option<Box<PooledConnection>> {
        let mut waiters = self.waiters.borrow_mut();
        if pooled.handed_on >= MOST_HANDS && pooled.endpoint.waiting() > waiters.len() {
            return Some(pooled);
        }
        pooled.handed_on += 1;
        loop {
            let first =
                waiters.iter().find(|(_, waiter)| waiter.has_endpoint_of(&pooled)).map(|(number, _)| *number);
            let Some(waiter) = first.and_then(|number| waiters.remove(&number)) else { break };
            match waiter.taker.send(pooled) {
                Ok(()) => return None,
                Err(back) => pooled = back,
            }
        }
        Some(pooled)
    }

    /// Returns when a connection to one of these endpoints is returned at this worker.
    ///
    /// # Cancellation
    /// Dropping the future gives up the position in the queue.
    pub(crate) fn wait(&self, endpoints: &[Arc<Endpoint>]) -> PoolWaitGuard<'_> {
        let (sender, taken) = oneshot::channel();
        let number = self.next.get();
        self.next.set(number + 1);
        self.waiters
            .borrow_mut()
            .insert(number, ConnectionWaiter { endpoints: endpoints.into(), taker: sender });
        PoolWaitGuard { idle: self, number, taken }
    }

    /// Takes the youngest idle connection whose last exchange is over in both directions. Other connections stay: a
    /// request that is queued on a busy connection would be sent at an unknown time.
    pub(crate) fn take(&self, endpoint: &Endpoint) -> Option<Box<PooledConnection>> {
        let mut all = self.idle.borrow_mut();
        let connections = all.get_mut(&endpoint.id)?;
        let now = Instant::now();
        // The search stops at the first usable connection; the sweep closes the unusable ones.
        for at in (0..connections.len()).rev() {
            if !connections[at].is_reusable(now) {
                connections.swap_remove(at);
            } else if connections[at].pooled.is_ready()
                && !is_silent_address_skipped(endpoint, &connections[at].pooled.address)
            {
                return Some(connections.swap_remove(at).pooled);
            }
        }
        None
    }

    /// Closes connections that the other side has closed, that were idle for too long, or whose permits a request at
    /// another worker waits for.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        self.idle.borrow_mut().retain(|_, connections| {
            connections.retain(|connection| connection.is_reusable(now));
            let waiting = connections.first().map_or(0, |connection| connection.pooled.endpoint.waiting());
            connections.drain(..waiting.min(connections.len()));
            !connections.is_empty()
        });
    }
}

/// True if the address is silent and another address of the endpoint is not: connections to it are then skipped.
fn is_silent_address_skipped(endpoint: &Endpoint, address: &ResolvedEndpoint) -> bool {
    address.liveness.is_silent() && !endpoint.addresses.all_addresses_silent()
}

impl Future for PoolWaitGuard<'_> {
    type Output = Box<PooledConnection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Box<PooledConnection>> {
        Pin::new(&mut self.taken).poll(cx).map(|taken| taken.expect("its sender waits with it"))
    }
}

impl Drop for PoolWaitGuard<'_> {
    fn drop(&mut self) {
        self.idle.waiters.borrow_mut().remove(&self.number);
    }
}

impl ConnectionWaiter {
    fn has_endpoint_of(&self, pooled: &PooledConnection) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.id == pooled.endpoint.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that stop waiting for a connection leave nothing behind after a sweep.
    #[test]
    fn cancelled_waiters_are_removed() {
        let idle = IdlePool::default();
        let first = idle.wait(&[]);
        let last = idle.wait(&[]);
        for _ in 0..10_000 {
            drop(idle.wait(&[]));
        }
        idle.sweep();
        assert_eq!(idle.waiters.borrow().len(), 2, "those that still wait, and no more");
        drop((first, last));
        assert_eq!(idle.waiters.borrow().len(), 0);
    }
}
