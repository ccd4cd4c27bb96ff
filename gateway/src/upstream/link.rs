//! One connection to an endpoint, and the exchange that it is lent to.

use std::{future::Future, rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::plan::Upstream;
use hyper::{Request, Response, body::Incoming};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::{
    address::Address,
    endpoint::{Counted, Endpoint, Place},
    fleet::Fleet,
    frames::Seen,
    gate::Gate,
    idle::Idle,
    speak::{NotAnswered, Running, Sender},
    tls::Generation,
};
use crate::body::{Body, parting::Switched};

/// A connection that may carry one exchange at a time. Dropping it ends it at once: what is queued on it is never sent,
/// and an exchange that was not complete ends with a reset.
pub struct Link {
    pub(super) sender: Sender,
    pub gate: Rc<Gate>,
    pub(super) running: Running,
    /// Of the files for TLS that it was made with.
    pub(super) generation: Option<Generation>,
    pub(super) endpoint: Arc<Endpoint>,
    /// Where it leads.
    pub(super) address: Arc<Address>,
    /// Of a guard: the process that has announced itself.
    pub(super) guard: Option<Arc<str>>,
    /// It has carried an exchange before, so the other side may have closed it meanwhile.
    pub reused: bool,
    /// How often it went from one request straight to the next that waited for it.
    pub(super) handed_on: u32,
    /// Free for another connection when this one has ended.
    pub(super) _place: Place,
}

impl Link {
    /// Its exchange is over in both directions, and nothing of it is left to be written. What HTTP/2 has written has to
    /// be asked for, see [`Link::settled`].
    fn is_settled(&self) -> bool {
        matches!(&self.sender, Sender::Http1(sender, ..) if sender.is_ready()) && self.gate.is_flushed()
    }

    /// May it carry another exchange?
    pub(super) fn is_usable(&self) -> bool {
        let current = !self.address.is_gone() && self.generation.as_ref().is_none_or(Generation::is_current);
        current && !self.sender.is_closed()
    }
}

impl Link {
    /// Sends a request, in the form of HTTP/1.1.
    pub fn send(
        &mut self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Incoming>, NotAnswered>> + use<> {
        self.sender.send(request)
    }

    /// It died under a request without a byte of an answer, after others had been answered on it: the other side has
    /// closed it while it lay idle, most likely.
    pub fn has_died_silently(&self) -> bool {
        self.reused && self.sender.is_unanswered()
    }

    /// Returns true when the exchange is over in both directions, and nothing of it is left to be written.
    pub(super) async fn settled(&mut self) -> bool {
        if self.sender.settled().await.is_err() {
            return false;
        }
        if let Sender::Http2(_, seen, _) = &self.sender {
            // The library writes when it is its turn.
            seen.until(|_| self.gate.is_flushed()).await;
        }
        self.running.tidy();
        self.gate.is_flushed()
    }

    /// The stream itself, once the upstream has switched protocols; `None` where it cannot.
    pub fn stream(&self) -> Option<oneshot::Receiver<Switched>> {
        let Sender::Http1(_, parting, _) = &self.sender else { return None };
        let (taker, taken) = oneshot::channel();
        parting.set(Some(taker));
        Some(taken)
    }

    /// What tells when the last piece of a request has gone.
    pub fn progress(&self) -> Progress {
        match &self.sender {
            Sender::Http1(..) => Progress::Bytes(self.gate.clone()),
            Sender::Http2(_, seen, _) => Progress::Frames(seen.clone()),
        }
    }
}

/// How far a request has come.
pub enum Progress {
    Bytes(Rc<Gate>),
    /// With HTTP/2 there are bytes that belong to no request.
    Frames(Rc<Seen>),
}

impl Progress {
    pub fn last(&self) -> Instant {
        match self {
            Self::Bytes(gate) => gate.last_write(),
            Self::Frames(seen) => seen.last_piece(),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Before its tasks end: what they have queued is not written.
        self.gate.end();
    }
}

/// A connection while it carries an exchange. Unless it is given back, it ends with the lend.
pub struct Lend {
    /// Not in here: a lend is handed from step to step with the answer.
    link: Option<Box<Link>>,
    fleet: Arc<Fleet>,
    idle: Rc<Idle>,
    /// How long the connection may lie idle afterwards.
    keep: Duration,
    _busy: Counted,
}

impl Lend {
    pub(super) fn new(link: Box<Link>, fleet: Arc<Fleet>, idle: Rc<Idle>) -> Self {
        let (keep, busy) = (fleet.upstream.idle, link.endpoint.busy());
        Self { link: Some(link), fleet, idle, keep, _busy: busy }
    }

    pub fn link(&mut self) -> &mut Link {
        self.link.as_mut().expect("taken only when the lend ends")
    }

    fn lent(&self) -> &Link {
        self.link.as_ref().expect("taken only when the lend ends")
    }

    pub fn gate(&self) -> &Rc<Gate> {
        &self.lent().gate
    }

    /// Of a guard: where it is, and the process that has announced itself.
    pub fn guard(&self) -> Option<(&Address, &Arc<str>)> {
        let link = self.lent();
        Some((&link.address, link.guard.as_ref()?))
    }

    pub fn endpoint(&self) -> &Arc<str> {
        &self.lent().endpoint.name
    }

    pub fn upstream(&self) -> &Upstream {
        &self.fleet.upstream
    }

    /// The endpoint has answered.
    pub fn worked(&self) {
        self.lent().endpoint.worked();
    }

    /// The exchange failed, and that was the endpoint's own fault.
    pub fn failed(&self) {
        self.fleet.failed(&self.lent().endpoint);
    }

    /// Keeps the connection for another exchange, where this one is over already, as most are when the last byte of their
    /// answer is here. Else the lend goes on.
    pub fn give_back_if_over(mut self) -> Result<(), Self> {
        match self.link.take_if(|link| link.is_settled()) {
            Some(link) => {
                self.keep(link);
                Ok(())
            }
            None => Err(self),
        }
    }

    /// Waits until the exchange is over in both directions, and keeps the connection for another one. An upstream may
    /// answer before it has read the whole request: then the rest of the request is not worth the connection, and after
    /// `patience` no byte of it leaves any more.
    pub async fn give_back(mut self, patience: Duration) {
        let Some(mut link) = self.link.take() else { return };
        if !matches!(timeout(patience, link.settled()).await, Ok(true)) {
            return;
        }
        self.keep(link);
    }

    fn keep(&self, mut link: Box<Link>) {
        link.gate.disarm();
        link.reused = true;
        self.idle.keep(link, self.keep);
    }

    /// The upstream says how long it keeps an idle connection: never longer than that, or the next request would meet
    /// its end on the way.
    pub fn keep_at_most(&mut self, longest: Duration) {
        self.keep = self.keep.min(longest.saturating_sub(KEEP_MARGIN));
    }
}

/// Before the other side would close an idle connection, we do.
const KEEP_MARGIN: Duration = Duration::from_secs(1);
