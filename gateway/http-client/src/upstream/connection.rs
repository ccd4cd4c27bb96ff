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

/// A connection carries one exchange at a time. Dropping it ends it at once: queued bytes are never sent, and an
/// incomplete exchange ends with a reset.
pub struct UpstreamConnection {
    sender: RequestSender,
    pub gate: Rc<WriteGate>,
    running: ConnectionTasks,
    /// The generation of the TLS files that it was made with.
    generation: Option<TlsFileGeneration>,
    /// Whether it has carried an exchange before, so that the other side may have closed it meanwhile.
    pub reused: bool,
}

impl UpstreamConnection {
    /// A new connection. `gate`: the gate directly above its socket.
    pub fn new(
        sender: RequestSender,
        running: ConnectionTasks,
        gate: Rc<WriteGate>,
        generation: Option<TlsFileGeneration>,
    ) -> Self {
        Self { sender, gate, running, generation, reused: false }
    }

    /// Whether its last exchange is over, as far as the HTTP library reports.
    pub fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    /// Whether it is open, and was made with the present TLS files.
    pub fn is_usable(&self) -> bool {
        self.generation.as_ref().is_none_or(TlsFileGeneration::is_current) && !self.sender.is_closed()
    }

    /// Whether its exchange is over in both directions, and all of it is written. For HTTP/2 that takes a wait, see
    /// [`UpstreamConnection::wait_settled`].
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

    /// Whether it died under a request without a byte of a response, after earlier exchanges. Then the other side has
    /// most likely closed it while it was idle.
    pub fn is_reused_unanswered(&self) -> bool {
        self.reused && self.sender.is_unanswered()
    }

    /// Whether the other side may say that it has not processed a request.
    pub fn can_refuse_unprocessed(&self) -> bool {
        matches!(&self.sender, RequestSender::Http2(..))
    }

    /// Whether the other side has said that it has processed nothing of the last request.
    pub fn is_request_unprocessed(&self) -> bool {
        self.sender.is_request_unprocessed()
    }

    /// Waits for the end of the exchange. True if it is over in both directions, and all of it is written.
    pub async fn wait_settled(&mut self) -> bool {
        if self.sender.wait_sent().await.is_err() {
            return false;
        }
        if let RequestSender::Http2(_, seen, _) = &self.sender {
            // The library writes in a task of its own, so wait for it.
            seen.wait_until(|_| self.gate.is_flushed()).await;
        }
        self.running.reap_finished();
        self.gate.is_flushed()
    }

    /// The stream itself, once the upstream has switched protocols; `None` on HTTP/2.
    pub fn upgraded_stream(&self) -> Option<oneshot::Receiver<UpgradedIo>> {
        let RequestSender::Http1(_, parting, _) = &self.sender else { return None };
        let (taker, taken) = oneshot::channel();
        parting.set(Some(taker));
        Some(taken)
    }

    /// Returns when the last chunk of a request was sent.
    pub fn last_write_tracker(&self) -> LastWriteTracker {
        match &self.sender {
            RequestSender::Http1(..) => LastWriteTracker::Bytes(self.gate.clone()),
            RequestSender::Http2(_, seen, _) => LastWriteTracker::Frames(seen.clone()),
        }
    }
}

/// The progress of a request on its way out.
pub enum LastWriteTracker {
    Bytes(Rc<WriteGate>),
    /// By frames for HTTP/2, where some bytes belong to no request.
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
