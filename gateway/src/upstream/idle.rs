//! Connections of one worker that wait for a request, and requests of it that wait for a connection.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

use super::{
    endpoint::{Counted, Endpoint},
    link::Link,
};

/// Both kinds of waiting.
#[derive(Default)]
pub struct Idle {
    /// By [`Endpoint::id`].
    links: RefCell<BTreeMap<u64, Vec<Lying>>>,
    waiters: RefCell<VecDeque<Waiter>>,
}

/// A connection that lies idle.
struct Lying {
    link: Box<Link>,
    until: Instant,
    _counted: Counted,
}

/// A request that takes a connection to any of these.
struct Waiter {
    endpoints: Vec<Arc<Endpoint>>,
    taker: oneshot::Sender<Box<Link>>,
}

/// A connection goes from hand to hand at one worker at most so often, while requests at others wait as well.
const MOST_HANDS: u32 = 32;

impl Lying {
    fn is_usable(&self, now: Instant) -> bool {
        self.link.is_usable() && now < self.until
    }
}

impl Idle {
    /// For a request that waits here, else to lie idle for so long.
    pub fn keep(&self, link: Box<Link>, keep: Duration) {
        if !link.is_usable() {
            return;
        }
        let Some(link) = self.hand_on(link) else { return };
        // Somebody waits at another worker, who cannot use this connection, but can make one in its place.
        if link.endpoint.waiting() > 0 {
            return;
        }
        let Some(counted) = link.endpoint.idle() else { return };
        let (id, until) = (link.endpoint.id, Instant::now() + keep);
        self.links.borrow_mut().entry(id).or_default().push(Lying { link, until, _counted: counted });
    }

    /// Gives it to the first request here that waits for such a one.
    fn hand_on(&self, mut link: Box<Link>) -> Option<Box<Link>> {
        let mut waiters = self.waiters.borrow_mut();
        waiters.retain(|waiter| !waiter.taker.is_closed());
        if link.handed_on >= MOST_HANDS && link.endpoint.waiting() > waiters.len() {
            return Some(link);
        }
        link.handed_on += 1;
        while let Some(at) = waiters.iter().position(|waiter| waiter.takes(&link)) {
            let waiter = waiters.remove(at).expect("a position of the queue");
            match waiter.taker.send(link) {
                Ok(()) => return None,
                Err(back) => link = back,
            }
        }
        Some(link)
    }

    /// Comes when a connection to one of these is given back at this worker.
    pub fn wait(&self, endpoints: &[Arc<Endpoint>]) -> oneshot::Receiver<Box<Link>> {
        let (taker, taken) = oneshot::channel();
        self.waiters.borrow_mut().push_back(Waiter { endpoints: endpoints.into(), taker });
        taken
    }

    /// The youngest idle connection that has finished its last exchange in both directions. One that has not is left
    /// where it is: queueing on a busy connection would send at a time that nobody chose.
    pub fn take(&self, endpoint: &Endpoint) -> Option<Box<Link>> {
        let mut all = self.links.borrow_mut();
        let links = all.get_mut(&endpoint.id)?;
        let now = Instant::now();
        // Not all of them are looked at for each request: the sweep finds what is of no use before these.
        for at in (0..links.len()).rev() {
            if !links[at].is_usable(now) {
                links.swap_remove(at);
            } else if links[at].link.sender.is_ready() {
                return Some(links.swap_remove(at).link);
            }
        }
        None
    }

    /// Closes what the other side has closed, what has been idle for too long, and what keeps a request at another
    /// worker from a connection of its own.
    pub fn sweep(&self) {
        let now = Instant::now();
        self.links.borrow_mut().retain(|_, links| {
            links.retain(|lying| lying.is_usable(now));
            let waiting = links.first().map_or(0, |lying| lying.link.endpoint.waiting());
            links.drain(..waiting.min(links.len()));
            !links.is_empty()
        });
    }
}

impl Waiter {
    fn takes(&self, link: &Link) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.id == link.endpoint.id)
    }
}
