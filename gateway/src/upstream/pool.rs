//! Connections to upstreams: one pool per worker, so that nothing is shared and nothing waits for a lock.

use std::{cell::RefCell, collections::HashMap, io, rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::{pick::RoundRobin, plan};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{
    task::AbortHandle,
    time::{Instant, timeout},
};
use tracing::debug;

use super::gate::{Gate, Gated};
use crate::{body::Body, network::Network, session::clock::SharedClock};

/// The connections of one worker.
pub struct Pool<N> {
    network: N,
    clock: SharedClock,
    idle: Rc<RefCell<HashMap<Arc<str>, Vec<Idle>>>>,
    picks: RefCell<HashMap<Arc<str>, RoundRobin>>,
}

struct Idle {
    link: Link,
    until: Instant,
}

impl Idle {
    fn is_usable(&self, now: Instant) -> bool {
        !self.link.sender.is_closed() && now < self.until
    }
}

/// A connection that may carry one exchange at a time. Dropping it ends it at once: what is queued on it is never sent,
/// and an exchange that was not complete ends with a reset.
pub struct Link {
    pub sender: SendRequest<Body>,
    pub gate: Rc<Gate>,
    task: AbortHandle,
    endpoint: Arc<str>,
    /// It has carried an exchange before, so the other side may have closed it meanwhile.
    pub reused: bool,
}

/// No endpoint could be reached. Nothing was sent.
#[derive(Debug, thiserror::Error)]
#[error("connect to {endpoint}")]
pub struct NotConnected {
    pub endpoint: Arc<str>,
    pub source: io::Error,
}

impl<N: Network> Pool<N> {
    pub fn new(network: N, clock: SharedClock) -> Self {
        Self { network, clock, idle: Rc::default(), picks: RefCell::default() }
    }

    /// A connection that is ready for an exchange: an idle one, or a new one to the first endpoint that answers,
    /// beginning one further each time.
    ///
    /// `fresh`: not an idle one.
    pub async fn checkout(&self, upstream: &plan::Upstream, fresh: bool) -> Result<Lend, NotConnected> {
        let order: Vec<usize> = {
            let mut picks = self.picks.borrow_mut();
            picks.entry(upstream.name.clone()).or_default().order(upstream.endpoints.len()).collect()
        };
        let mut failed = None;
        for endpoint in order.into_iter().map(|at| &upstream.endpoints[at]) {
            if !fresh && let Some(link) = self.take_idle(endpoint) {
                return Ok(self.lend(link, upstream.idle));
            }
            match self.connect(endpoint, upstream.connect_timeout).await {
                Ok(link) => return Ok(self.lend(link, upstream.idle)),
                Err(source) => {
                    debug!(%endpoint, error = %source, "endpoint not reached");
                    failed = Some(NotConnected { endpoint: endpoint.clone(), source });
                }
            }
        }
        Err(failed.expect("an upstream has at least one endpoint"))
    }

    /// Closes what the other side has closed, and what has been idle for too long.
    pub fn sweep(&self) {
        let now = Instant::now();
        self.idle.borrow_mut().retain(|_, links| {
            links.retain(|idle| idle.is_usable(now));
            !links.is_empty()
        });
    }

    fn lend(&self, link: Link, keep: Duration) -> Lend {
        Lend { link: Some(link), idle: self.idle.clone(), keep }
    }

    /// The youngest idle connection that has finished its last exchange in both directions. One that has not is left
    /// where it is: queueing on a busy connection would send at a time that nobody chose.
    fn take_idle(&self, endpoint: &Arc<str>) -> Option<Link> {
        let mut idle = self.idle.borrow_mut();
        let links = idle.get_mut(endpoint)?;
        let now = Instant::now();
        links.retain(|idle| idle.is_usable(now));
        let ready = links.iter().rposition(|idle| idle.link.sender.is_ready())?;
        let Idle { link, .. } = links.swap_remove(ready);
        Some(link)
    }

    async fn connect(&self, endpoint: &Arc<str>, limit: Duration) -> io::Result<Link> {
        let stream =
            timeout(limit, self.network.dial(endpoint)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        let gate = Rc::new(Gate::new(self.clock.clone()));
        let io = TokioIo::new(Gated::new(stream, gate.clone()));
        let (sender, connection) = Builder::new().handshake(io).await.map_err(io::Error::other)?;
        let task = tokio::task::spawn_local(async move {
            if let Err(error) = connection.await {
                debug!(%error, "upstream connection ended");
            }
        });
        let (task, endpoint) = (task.abort_handle(), endpoint.clone());
        Ok(Link { sender, gate, task, endpoint, reused: false })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Not left to the task's own end: it would go on writing, with nobody to answer for it.
        self.gate.end();
        self.task.abort();
    }
}

/// A connection while it carries an exchange. Unless it is given back, it ends with the lend.
pub struct Lend {
    link: Option<Link>,
    idle: Rc<RefCell<HashMap<Arc<str>, Vec<Idle>>>>,
    /// How long the connection may lie idle afterwards.
    keep: Duration,
}

impl Lend {
    pub fn link(&mut self) -> &mut Link {
        self.link.as_mut().expect("taken only when the lend ends")
    }

    pub fn gate(&self) -> &Rc<Gate> {
        &self.link.as_ref().expect("taken only when the lend ends").gate
    }

    pub fn endpoint(&self) -> &Arc<str> {
        &self.link.as_ref().expect("taken only when the lend ends").endpoint
    }

    /// Waits until the exchange is over in both directions, and keeps the connection for another one. An upstream may
    /// answer before it has read the whole request: then the rest of the request is not worth the connection, and after
    /// `patience` no byte of it leaves any more.
    pub async fn give_back(mut self, patience: Duration) {
        let Some(mut link) = self.link.take() else { return };
        let ready = timeout(patience, link.sender.ready()).await;
        if !matches!(ready, Ok(Ok(()))) || !link.gate.is_flushed() {
            return;
        }
        link.gate.disarm();
        link.reused = true;
        let until = Instant::now() + self.keep;
        self.idle.borrow_mut().entry(link.endpoint.clone()).or_default().push(Idle { link, until });
    }

    /// The upstream says how long it keeps an idle connection: never longer than that, or the next request would meet
    /// its end on the way.
    pub fn keep_at_most(&mut self, longest: Duration) {
        self.keep = self.keep.min(longest.saturating_sub(KEEP_MARGIN));
    }
}

/// Before the other side would close an idle connection, we do.
const KEEP_MARGIN: Duration = Duration::from_secs(1);
