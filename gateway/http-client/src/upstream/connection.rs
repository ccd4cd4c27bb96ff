//! A connection that carries exchanges, to a service or to another gateway.

use std::{future::Future, rc::Rc};

use fencegate_http::{body::Body, upgrade::UpgradedIo};
use hyper::{Request, Response, body::Incoming};
use tokio::{sync::oneshot, time::Instant};

use super::{
    client_connection::{ConnectionTasks, RequestSender, SendRequestError},
    gate::WriteGate,
    h2_observer::H2WriteState,
    tls::TlsFileGeneration,
};

/// A connection, which carries one exchange at a time. Its drop closes it at once: queued bytes are never sent, and
/// an incomplete exchange ends with a reset.
pub struct UpstreamConnection {
    sender: RequestSender,
    pub gate: Rc<WriteGate>,
    running: ConnectionTasks,
    /// The generation of the TLS files with which the connection was made.
    generation: Option<TlsFileGeneration>,
    /// True if the connection has carried an exchange before, so that the other side may have closed it while it was
    /// idle.
    pub reused: bool,
}

impl UpstreamConnection {
    /// Makes a connection whose `gate` is directly above its socket.
    pub fn new(
        sender: RequestSender,
        running: ConnectionTasks,
        gate: Rc<WriteGate>,
        generation: Option<TlsFileGeneration>,
    ) -> Self {
        Self { sender, gate, running, generation, reused: false }
    }

    /// True if the last exchange is over, as far as the HTTP library reports.
    pub fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    /// True if the connection is open, and was made with the present TLS files.
    pub fn is_usable(&self) -> bool {
        self.generation.as_ref().is_none_or(TlsFileGeneration::is_current) && !self.sender.is_closed()
    }

    /// True if the exchange is over in both directions, and all of the request is written. Always false for HTTP/2,
    /// which needs [`UpstreamConnection::wait_settled`].
    pub(super) fn is_exchange_settled(&self) -> bool {
        matches!(&self.sender, RequestSender::Http1(sender, ..) if sender.is_ready())
            && self.gate.is_flushed()
    }

    /// Sends a request, in the form of HTTP/1.1.
    pub fn send(
        &mut self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Incoming>, SendRequestError>> + use<> {
        self.sender.send(request)
    }

    /// True if the connection has carried exchanges before and has received no byte for this one. If it breaks now,
    /// the other side has most likely closed it while it was idle.
    pub fn is_reused_unanswered(&self) -> bool {
        self.reused && self.sender.is_unanswered()
    }

    /// True if the protocol lets the other side say that it has not processed a request.
    pub fn can_refuse_unprocessed(&self) -> bool {
        matches!(&self.sender, RequestSender::Http2(..))
    }

    /// True if the other side has said that it has processed nothing of the last request.
    pub fn is_request_unprocessed(&self) -> bool {
        self.sender.is_request_unprocessed()
    }

    /// Waits for the end of the exchange. Returns true if it is over in both directions, and all of the request is
    /// written.
    pub async fn wait_settled(&mut self) -> bool {
        if self.sender.wait_sent().await.is_err() {
            return false;
        }
        if let RequestSender::Http2(_, seen, _) = &self.sender {
            // The library writes in a task of its own, so its last flush has to be awaited.
            seen.wait_until(|_| self.gate.is_flushed()).await;
        }
        self.running.reap_finished();
        self.gate.is_flushed()
    }

    /// The receiver of the bare stream after a switch of protocols; `None` on HTTP/2.
    pub fn upgraded_stream(&self) -> Option<oneshot::Receiver<UpgradedIo>> {
        let RequestSender::Http1(_, parting, _) = &self.sender else { return None };
        let (taker, taken) = oneshot::channel();
        parting.set(Some(taker));
        Some(taken)
    }

    /// Returns a tracker of the moment when the last chunk of a request was sent.
    pub fn last_write_tracker(&self) -> LastWriteTracker {
        match &self.sender {
            RequestSender::Http1(..) => LastWriteTracker::Bytes(self.gate.clone()),
            RequestSender::Http2(_, seen, _) => LastWriteTracker::Frames(seen.clone()),
        }
    }
}

/// Tracks when bytes of a request were last sent.
pub enum LastWriteTracker {
    Bytes(Rc<WriteGate>),
    /// For HTTP/2 by frames, because some written bytes belong to no request.
    Frames(Rc<H2WriteState>),
}

impl LastWriteTracker {
    pub fn last_write(&self) -> Instant {
        match self {
            Self::Bytes(gate) => gate.last_write(),
            Self::Frames(seen) => seen.last_data(),
        }
    }
}

impl Drop for UpstreamConnection {
    fn drop(&mut self) {
        // The gate is shut before the tasks end, so that none of their queued bytes is written.
        self.gate.shut_unless_open();
    }
}
