//! One connection to an endpoint.

use std::{future::Future, rc::Rc, sync::Arc};

use hyper::{Request, Response, body::Incoming};
use tokio::{sync::oneshot, time::Instant};

use super::{
    address::Address,
    endpoint::{Endpoint, Place},
    frames::Seen,
    gate::Gate,
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
    /// The process that has said who it is, where that is asked.
    pub(super) process: Option<Arc<str>>,
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
    pub(super) fn is_settled(&self) -> bool {
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
    pub async fn settled(&mut self) -> bool {
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

    /// `host:port`.
    pub fn endpoint(&self) -> &Arc<str> {
        &self.endpoint.name
    }

    /// Where it leads.
    pub fn address(&self) -> &Arc<Address> {
        &self.address
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
