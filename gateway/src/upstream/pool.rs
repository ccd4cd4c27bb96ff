//! Connections to upstreams: one pool per worker, so that nothing is shared and nothing waits for a lock.

use std::{cell::RefCell, collections::HashMap, io, rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::{pick::RoundRobin, plan};
use http_body_util::{BodyExt, Limited};
use hyper::{
    Request, StatusCode,
    client::conn::http1::{Builder, SendRequest},
    header::{HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::{
    task::AbortHandle,
    time::{Instant, timeout},
};
use tracing::{debug, error};

use super::{
    gate::{Gate, Gated},
    guards::{Distrust, Guards},
};
use crate::{
    body::Body,
    guard::announce::{ANNOUNCEMENT, Announcement},
    network::Network,
    session::clock::SharedClock,
};

/// The connections of one worker.
pub struct Pool<N> {
    network: N,
    clock: SharedClock,
    /// What is known of the guards among the upstreams.
    guards: Arc<Guards>,
    idle: Rc<IdleLinks>,
    picks: RefCell<HashMap<Arc<str>, RoundRobin>>,
}

/// By endpoint.
type IdleLinks = RefCell<HashMap<Arc<str>, Vec<Idle>>>;

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
    /// Of a guard: the name of its store.
    store: Option<Arc<str>>,
    /// It has carried an exchange before, so the other side may have closed it meanwhile.
    pub reused: bool,
}

/// No endpoint could be reached. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum NotConnected {
    #[error("connect to {endpoint}: {source}")]
    Io { endpoint: Arc<str>, source: io::Error },
    /// There is a guard, or something in its place, that must not be believed.
    #[error("{endpoint}: {why}")]
    Distrusted { endpoint: Arc<str>, why: Distrust },
}

enum Failed {
    Io(io::Error),
    Distrusted(Distrust),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl<N: Network> Pool<N> {
    pub fn new(network: N, clock: SharedClock, guards: Arc<Guards>) -> Self {
        Self { network, clock, guards, idle: Rc::default(), picks: RefCell::default() }
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
        for endpoint in self.guards.unasked(upstream) {
            match self.connect(upstream, &endpoint).await {
                Ok(link) => keep(&self.idle, link, upstream.idle),
                Err(Failed::Io(_) | Failed::Distrusted(Distrust::NoGuard(_))) => {
                    self.guards.lost(upstream, &endpoint);
                }
                // It has been met, and that counts.
                Err(Failed::Distrusted(_)) => {}
            }
        }
        let mut failed = None;
        // Guards that do not agree are all asked again before anything is sent to one of them.
        let guarded = upstream.fencing == plan::Level::Guard;
        let fresh = fresh || (guarded && self.guards.agree(upstream).is_err());
        for endpoint in order.into_iter().map(|at| &upstream.endpoints[at]) {
            if !fresh && let Some(link) = self.take_idle(endpoint) {
                return Ok(self.lend(link, upstream.idle));
            }
            let endpoint = endpoint.clone();
            match self.connect(upstream, &endpoint).await {
                Ok(link) => return Ok(self.lend(link, upstream.idle)),
                Err(Failed::Io(source)) => {
                    debug!(%endpoint, error = %source, "endpoint not reached");
                    self.guards.lost(upstream, &endpoint);
                    failed = Some(NotConnected::Io { endpoint, source });
                }
                Err(Failed::Distrusted(why)) => failed = Some(NotConnected::Distrusted { endpoint, why }),
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

    async fn connect(&self, upstream: &plan::Upstream, endpoint: &Arc<str>) -> Result<Link, Failed> {
        let late = || Failed::Io(io::ErrorKind::TimedOut.into());
        let limit = upstream.connect_timeout;
        let mut link = timeout(limit, self.dial(endpoint)).await.map_err(|_| late())??;
        if upstream.fencing == plan::Level::Guard {
            link.store = Some(timeout(limit, self.meet(&mut link, upstream)).await.map_err(|_| late())??);
        }
        Ok(link)
    }

    /// A guard says who it is before anything else is said on the connection.
    async fn meet(&self, link: &mut Link, upstream: &plan::Upstream) -> Result<Arc<str>, Failed> {
        let announced = announcement(link).await.map_err(|why| {
            let (endpoint, why) = (&link.endpoint, Distrust::NoGuard(why));
            error!(upstream = %upstream.name, %endpoint, %why, "guard.distrusted");
            Failed::Distrusted(why)
        })?;
        self.guards.meet(upstream, &link.endpoint, &announced).map_err(Failed::Distrusted)
    }

    async fn dial(&self, endpoint: &Arc<str>) -> io::Result<Link> {
        let stream = self.network.dial(endpoint).await?;
        let gate = Rc::new(Gate::new(self.clock.clone()));
        let io = TokioIo::new(Gated::new(stream, gate.clone()));
        let (sender, connection) = Builder::new().handshake(io).await.map_err(io::Error::other)?;
        let task = tokio::task::spawn_local(async move {
            if let Err(error) = connection.await {
                debug!(%error, "upstream connection ended");
            }
        });
        let (task, endpoint) = (task.abort_handle(), endpoint.clone());
        Ok(Link { sender, gate, task, endpoint, store: None, reused: false })
    }
}

fn keep(idle: &IdleLinks, link: Link, keep: Duration) {
    let until = Instant::now() + keep;
    idle.borrow_mut().entry(link.endpoint.clone()).or_default().push(Idle { link, until });
}

/// Asks for the announcement, and leaves the connection ready for another exchange.
async fn announcement(link: &mut Link) -> Result<Announcement, String> {
    let host = HeaderValue::from_str(&link.endpoint).map_err(|error| error.to_string())?;
    let request = Request::get(ANNOUNCEMENT).header(HOST, host).body(Body::empty());
    let request = request.map_err(|error| error.to_string())?;
    let answer = link.sender.try_send_request(request).await.map_err(|failed| failed.error().to_string())?;
    if answer.status() != StatusCode::OK {
        return Err(format!("it answers {} with {}", ANNOUNCEMENT, answer.status().as_u16()));
    }
    let body = Limited::new(answer.into_body(), LONGEST_ANNOUNCEMENT).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    let announced = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    link.sender.ready().await.map_err(|error| error.to_string())?;
    Ok(announced)
}

const LONGEST_ANNOUNCEMENT: usize = 16 << 10;

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
    idle: Rc<IdleLinks>,
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

    /// Of a guard: the name of its store.
    pub fn store(&self) -> Option<&Arc<str>> {
        self.link.as_ref().expect("taken only when the lend ends").store.as_ref()
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
        keep(&self.idle, link, self.keep);
    }

    /// The upstream says how long it keeps an idle connection: never longer than that, or the next request would meet
    /// its end on the way.
    pub fn keep_at_most(&mut self, longest: Duration) {
        self.keep = self.keep.min(longest.saturating_sub(KEEP_MARGIN));
    }
}

/// Before the other side would close an idle connection, we do.
const KEEP_MARGIN: Duration = Duration::from_secs(1);
