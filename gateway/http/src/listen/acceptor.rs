//! Accepts the connections of a listener, and assigns each a connection slot.

use std::{cell::RefCell, future::pending, rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::plan::ListenerSettings;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use super::{
    accept_connection::ListenerConfig,
    certificates::ListenerCertificates,
    connection_limit::{ConnectionRejection, ConnectionSlot, ConnectionSlots},
    handler::HttpHandler,
    metrics::ClientConnectionMetrics,
};
use crate::{
    buffered::MemoryBudget,
    client_quota::{ClientId, ClientQuotaPermit, ClientQuotas},
    connection_info::ConnectionInfo,
    network::{Accept, Network, ResetOnClose, socket_path_lock::BACKLOG},
};

/// Accepts the connections of a listener at one worker.
pub struct ConnectionAcceptor {
    /// The settings for new connections. A reload replaces them.
    config: RefCell<Rc<ListenerConfig>>,
    drain: CancellationToken,
    /// The slots for open connections. When all are in use, further connections wait in the kernel's backlog.
    slots: Rc<ConnectionSlots>,
    /// The counts of each client, shared by all workers.
    quotas: ClientQuotas,
    /// If true, connections without a free slot are closed at once and do not wait in the backlog.
    rejects_when_full: bool,
    metrics: Rc<ClientConnectionMetrics>,
    /// The memory for the heads of requests.
    budget: MemoryBudget,
}

impl ConnectionAcceptor {
    /// `share` is this worker's part of the listener's connections.
    pub fn new(
        listener: &ListenerSettings,
        certificates: Option<Arc<ListenerCertificates>>,
        share: usize,
        quotas: ClientQuotas,
        budget: MemoryBudget,
        drain: CancellationToken,
        metrics: &ClientConnectionMetrics,
    ) -> Self {
        let metrics = Rc::new(metrics.clone());
        let entry = ListenerConfig::new(
            listener,
            certificates,
            drain.clone(),
            metrics.clone(),
            budget.clone(),
            quotas.clone(),
        );
        let slots = ConnectionSlots::new(share.max(1));
        let entry = RefCell::new(Rc::new(entry));
        Self { config: entry, drain, slots, quotas, rejects_when_full: false, metrics, budget }
    }

    /// Closes connections without a free slot at once, instead of letting them wait.
    #[must_use]
    pub fn reject_when_full(self) -> Self {
        Self { rejects_when_full: true, ..self }
    }

    /// Applies another plan's settings, from the next connection on.
    pub fn update_config(&self, listener: &ListenerSettings) {
        let certificates = self.config.borrow().certificates();
        let drain = self.drain.clone();
        let metrics = self.metrics.clone();
        let budget = self.budget.clone();
        let quotas = self.quotas.clone();
        let entry = ListenerConfig::new(listener, certificates, drain, metrics, budget, quotas);
        self.config.replace(Rc::new(entry));
    }

    /// Accepts connections until the drain begins. Their tasks are in `open`; each ends when its requests are
    /// answered.
    pub async fn serve<N: Network>(
        &self,
        listener: N::Listener,
        handler: Rc<dyn HttpHandler>,
        open: &TaskTracker,
    ) {
        let drain = &self.drain;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = drain.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    if let Some(slot) = self.acquire_slot(&peer).await {
                        self.spawn_connection(stream, peer, slot, &handler, open);
                    }
                }
                Err(error) => {
                    // Most likely the process has no file descriptors left. Connections that end release some,
                    // so this waits a moment.
                    warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        listener.stop_accepting();
        self.serve_backlog::<N>(listener, &handler, open).await;
    }

    /// Acquires a slot for a new connection. `None` if the connection has to be closed.
    async fn acquire_slot(&self, peer: &ConnectionInfo) -> Option<AcceptedSlot> {
        let client = ClientId::from_ip(peer.address.ip());
        let turned_away = |why: ConnectionRejection| {
            self.metrics.record_rejection(why);
            debug!(peer = %peer.address, why = why.as_str(), "turned away");
        };
        let is_proxy = self.config.borrow().is_trusted_proxy(peer);
        let take =
            || if is_proxy { self.slots.acquire_for_proxy(client) } else { self.slots.acquire(client) };
        let most = self.config.borrow().connections_per_client().filter(|_| !is_proxy);
        let share = match most {
            None => None,
            Some(most) => {
                let share = self.quotas.acquire_connection(client, most);
                if share.is_none() {
                    turned_away(ConnectionRejection::ClientLimit);
                    return None;
                }
                share
            }
        };
        if self.rejects_when_full {
            let slot = self.slots.try_acquire(client);
            if slot.is_none() {
                turned_away(ConnectionRejection::ConnectionLimit);
            }
            return slot.map(|slot| (slot, share));
        }
        loop {
            if let Some(slot) = take() {
                return Some((slot, share));
            }
            if !is_proxy && !self.slots.may_wait_for_slot(client) {
                turned_away(ConnectionRejection::ConnectionLimit);
                return None;
            }
            // No connection is quiet. When one becomes quiet, this task is not woken, so it checks again soon.
            tokio::select! {
                () = self.slots.wait_freed() => {}
                () = sleep(LOOK) => {}
                () = self.drain.cancelled() => return take().map(|slot| (slot, share)),
            }
        }
    }

    /// Serves the connections in the kernel's queue: closing the socket would reset them.
    async fn serve_backlog<N: Network>(
        &self,
        listener: N::Listener,
        handler: &Rc<dyn HttpHandler>,
        open: &TaskTracker,
    ) {
        for _ in 0..BACKLOG {
            // Accepting succeeds only after the runtime has polled the socket, which it does during this yield.
            tokio::task::yield_now().await;
            let accepted = tokio::select! {
                biased;
                accepted = listener.accept() => accepted,
                () = std::future::ready(()) => return,
            };
            if let Ok((stream, peer)) = accepted {
                let Some(slot) = self.slots.acquire(ClientId::from_ip(peer.address.ip())) else { return };
                self.spawn_connection(stream, peer, (slot, None), handler, open);
            }
        }
    }

    fn spawn_connection<S>(
        &self,
        stream: S,
        peer: ConnectionInfo,
        (slot, share): AcceptedSlot,
        handler: &Rc<dyn HttpHandler>,
        open: &TaskTracker,
    ) where
        S: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static,
    {
        let entry = self.config.borrow().clone();
        let handler = handler.clone();
        let metrics = self.metrics.clone();
        open.spawn_local(async move {
            let address = peer.address;
            let lost = async {
                slot.wait_slot_reassigned().await;
                metrics.record_eviction();
                debug!(peer = %address, "ended to make room: it asked nothing");
                if slot.is_serving_http() {
                    pending().await
                }
            };
            tokio::select! {
                // The loss of the slot is polled first: after it no further request of this connection is
                // accepted.
                biased;
                () = lost => {}
                () = entry.serve_connection(stream, peer, &slot, &handler) => {}
            }
            drop((slot, share));
        });
    }
}

/// The slot of a connection and its place in its client's quota, kept for as long as the connection is open.
type AcceptedSlot = (ConnectionSlot, Option<ClientQuotaPermit>);

/// The interval in which a waiting connection checks whether another one has become quiet.
const LOOK: Duration = Duration::from_millis(50);

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
