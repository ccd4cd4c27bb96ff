//! Accepts the connections of a listener, and finds each a place.

use std::{cell::RefCell, future::pending, rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::plan::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use super::{
    accepted::ListenerConfig,
    certificates::Certificates,
    metrics::ClientMetrics,
    places::{ConnectionRejection, ConnectionSlot, ConnectionSlots},
    responder::HttpHandler,
};
use crate::{
    buffered::Budget,
    network::{Accept, Network, Reset, taken_path::BACKLOG},
    peer::ConnectionInfo,
    share::{ClientId, ClientQuotas, QuotaPermit},
};

/// One worker's share of a listener.
pub struct Acceptor {
    /// Replaced by a reload, for later connections.
    entry: RefCell<Rc<ListenerConfig>>,
    drain: CancellationToken,
    /// The places for open connections. When all are in use, further connections wait in the kernel's backlog.
    places: Rc<ConnectionSlots>,
    /// The counts of each client, over all workers.
    shares: ClientQuotas,
    /// Whether further connections are closed at once instead.
    turns_away: bool,
    metrics: Rc<ClientMetrics>,
    /// The memory for heads.
    budget: Budget,
}

impl Acceptor {
    /// `share`: the part of the listener's connections that is this worker's.
    pub fn new(
        listener: &Listener,
        certificates: Option<Arc<Certificates>>,
        (share, shares, budget): (usize, ClientQuotas, Budget),
        drain: CancellationToken,
        metrics: &ClientMetrics,
    ) -> Self {
        let metrics = Rc::new(metrics.clone());
        let counted = (budget.clone(), shares.clone());
        let entry = ListenerConfig::new(listener, certificates, drain.clone(), metrics.clone(), counted);
        let places = ConnectionSlots::new(share.max(1));
        let entry = RefCell::new(Rc::new(entry));
        Self { entry, drain, places, shares, turns_away: false, metrics, budget }
    }

    /// Closes connections that find no place at once, instead of letting them wait.
    #[must_use]
    pub fn turning_away(self) -> Self {
        Self { turns_away: true, ..self }
    }

    /// Takes another plan's settings, from the next connection on.
    pub fn turn_to(&self, listener: &Listener) {
        let certificates = self.entry.borrow().certificates();
        let (drain, metrics) = (self.drain.clone(), self.metrics.clone());
        let counted = (self.budget.clone(), self.shares.clone());
        self.entry.replace(Rc::new(ListenerConfig::new(listener, certificates, drain, metrics, counted)));
    }

    /// Accepts connections until the drain begins. They live on in `open`, each until its requests are answered.
    pub async fn serve<N: Network>(
        &self,
        listener: N::Listener,
        front: Rc<dyn HttpHandler>,
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
                    if let Some(place) = self.place(&peer).await {
                        self.take(stream, peer, place, &front, open);
                    }
                }
                Err(error) => {
                    // Out of file descriptors, most likely: the connections that end give some back.
                    warn!(%error, "connection not accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        listener.closes();
        self.serve_the_queue::<N>(listener, &front, open).await;
    }

    /// A place for a new connection. `None`: it is closed.
    async fn place(&self, peer: &ConnectionInfo) -> Option<AcceptedSlot> {
        let client = ClientId::at(peer.address.ip());
        let turned_away = |why: ConnectionRejection| {
            self.metrics.turned_away(why);
            debug!(peer = %peer.address, why = why.word(), "turned away");
        };
        let is_proxy = self.entry.borrow().is_proxy(peer);
        let take = || if is_proxy { self.places.take_for_others(client) } else { self.places.take(client) };
        let most = self.entry.borrow().connections_per_client().filter(|_| !is_proxy);
        let share = match most {
            None => None,
            Some(most) => {
                let share = self.shares.connection(client, most);
                if share.is_none() {
                    turned_away(ConnectionRejection::ClientLimit);
                    return None;
                }
                share
            }
        };
        if self.turns_away {
            let place = self.places.free(client);
            if place.is_none() {
                turned_away(ConnectionRejection::ConnectionLimit);
            }
            return place.map(|place| (place, share));
        }
        loop {
            if let Some(place) = take() {
                return Some((place, share));
            }
            if !is_proxy && !self.places.may_wait(client) {
                turned_away(ConnectionRejection::ConnectionLimit);
                return None;
            }
            // All connections are at work. The end of a request does not wake us, so look again soon.
            tokio::select! {
                () = self.places.freed() => {}
                () = sleep(LOOK) => {}
                () = self.drain.cancelled() => return take().map(|place| (place, share)),
            }
        }
    }

    /// Serves the connections in the kernel's queue, because closing the socket would reset them.
    async fn serve_the_queue<N: Network>(
        &self,
        listener: N::Listener,
        front: &Rc<dyn HttpHandler>,
        open: &TaskTracker,
    ) {
        for _ in 0..BACKLOG {
            // Lets the runtime look at the socket.
            tokio::task::yield_now().await;
            let accepted = tokio::select! {
                biased;
                accepted = listener.accept() => accepted,
                () = std::future::ready(()) => return,
            };
            if let Ok((stream, peer)) = accepted {
                let Some(place) = self.places.take(ClientId::at(peer.address.ip())) else { return };
                self.take(stream, peer, (place, None), front, open);
            }
        }
    }

    fn take<S>(
        &self,
        stream: S,
        peer: ConnectionInfo,
        (place, share): AcceptedSlot,
        front: &Rc<dyn HttpHandler>,
        open: &TaskTracker,
    ) where
        S: AsyncRead + AsyncWrite + Reset + Unpin + 'static,
    {
        let (entry, front) = (self.entry.borrow().clone(), front.clone());
        let metrics = self.metrics.clone();
        open.spawn_local(async move {
            let address = peer.address;
            let lost = async {
                place.lost().await;
                metrics.made_room();
                debug!(peer = %address, "ended to make room: it asked nothing");
                if place.is_spoken_over() {
                    pending().await
                }
            };
            tokio::select! {
                // Checked first: once the place is lost, no further request of this connection is taken.
                biased;
                () = lost => {}
                () = entry.connection(stream, peer, &place, &front) => {}
            }
            drop((place, share));
        });
    }
}

/// Kept for as long as a connection lives: its place, and its part in its client's share.
type AcceptedSlot = (ConnectionSlot, Option<QuotaPermit>);

/// How often connections at work are checked for a quiet one.
const LOOK: Duration = Duration::from_millis(50);

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
