//! A connection that carries exchanges, whoever is at its other end: a service, or another gateway.

use std::{future::Future, rc::Rc};

use hyper::{Request, Response, body::Incoming};
use tokio::{sync::oneshot, time::Instant};

use super::{
    frames::SeenFrames,
    gate::Gate,
    speak::{NotAnswered, Running, Sender},
    tls::Generation,
};
use crate::{body::Body, parting::Switched};

/// It may carry one exchange at a time. Dropping it ends it at once: what is queued on it is never sent, and an exchange
/// that was not complete ends with a reset.
pub struct Connection {
    sender: Sender,
    pub gate: Rc<Gate>,
    running: Running,
    /// Of the files for TLS that it was made with.
    generation: Option<Generation>,
    /// It has carried an exchange before, so the other side may have closed it meanwhile.
    pub reused: bool,
}

impl Connection {
    /// One that has carried nothing yet, and whose `gate` stands before its socket.
    pub fn new((sender, running): (Sender, Running), gate: Rc<Gate>, generation: Option<Generation>) -> Self {
        Self { sender, gate, running, generation, reused: false }
    }

    /// Nothing of its last exchange is left, as far as the HTTP library knows.
    pub fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    /// Neither closed, nor made with files for TLS of before.
    pub fn is_usable(&self) -> bool {
        self.generation.as_ref().is_none_or(Generation::is_current) && !self.sender.is_closed()
    }

    /// Its exchange is over in both directions, and nothing of it is left to be written. What HTTP/2 has written has to
    /// be asked for, see [`Connection::settled`].
    pub(super) fn is_settled(&self) -> bool {
        matches!(&self.sender, Sender::Http1(sender, ..) if sender.is_ready()) && self.gate.is_flushed()
    }

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
    Frames(Rc<SeenFrames>),
}

impl Progress {
    pub fn last(&self) -> Instant {
        match self {
            Self::Bytes(gate) => gate.last_write(),
            Self::Frames(seen) => seen.last_piece(),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Before its tasks end: what they have queued is not written.
        self.gate.end();
    }
}
