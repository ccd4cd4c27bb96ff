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
    accepted::Entry,
    certificates::Certificates,
    metrics::ClientMetrics,
    places::{Crowded, Place, Places},
    responder::Answers,
};
use crate::{
    network::{Accept, Network, Reset, taken_path::BACKLOG},
    peer::Peer,
    share::{Client, Share, Shares},
};

/// One worker's share of a listener.
pub struct Door {
    /// Made anew by a reload: connections that come later are served by it.
    entry: RefCell<Rc<Entry>>,
    drain: CancellationToken,
    /// For open connections; when nobody makes room the kernel's backlog holds further ones.
    places: Rc<Places>,
    /// What each client has, over all workers.
    shares: Shares,
    /// Or they are closed.
    turns_away: bool,
    metrics: Rc<ClientMetrics>,
}

impl Door {
    /// `share`: the part of the listener's connections that is this worker's.
    pub fn new(
        listener: &Listener,
        certificates: Option<Arc<Certificates>>,
        (share, shares): (usize, Shares),
        drain: CancellationToken,
        metrics: &ClientMetrics,
    ) -> Self {
        let metrics = Rc::new(metrics.clone());
        let entry = Rc::new(Entry::new(listener, certificates, drain.clone(), metrics.clone()));
        let places = Places::new(share.max(1));
        Self { entry: RefCell::new(entry), drain, places, shares, turns_away: false, metrics }
    }

    /// Who comes when there is no place is told so by the end of the connection, and need not wait to find out.
    #[must_use]
    pub fn turning_away(self) -> Self {
        Self { turns_away: true, ..self }
    }

    /// From the next connection on.
    pub fn turn_to(&self, listener: &Listener) {
        let certificates = self.entry.borrow().certificates();
        let (drain, metrics) = (self.drain.clone(), self.metrics.clone());
        self.entry.replace(Rc::new(Entry::new(listener, certificates, drain, metrics)));
    }

    /// Accepts until the drain begins; the connections live on in `open`, each until its requests in progress have
    /// been answered.
    pub async fn serve<N: Network>(&self, listener: N::Listener, front: Rc<dyn Answers>, open: &TaskTracker) {
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

    /// For who has come. `None`: it is closed.
    async fn place(&self, peer: &Peer) -> Option<Kept> {
        let client = Client::at(peer.address.ip());
        let turned_away = |why: Crowded| {
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
                    turned_away(Crowded::ClientLimit);
                    return None;
                }
                share
            }
        };
        if self.turns_away {
            let place = self.places.free(client);
            if place.is_none() {
                turned_away(Crowded::NoPlace);
            }
            return place.map(|place| (place, share));
        }
        loop {
            if let Some(place) = take() {
                return Some((place, share));
            }
            if !is_proxy && !self.places.may_wait(client) {
                turned_away(Crowded::NoPlace);
                return None;
            }
            // Everybody is at work. One that ends its work is not told here, and is looked for.
            tokio::select! {
                () = self.places.freed() => {}
                () = sleep(LOOK) => {}
                () = self.drain.cancelled() => return take().map(|place| (place, share)),
            }
        }
    }

    /// Takes what the kernel has queued: with the socket it would be reset.
    async fn serve_the_queue<N: Network>(
        &self,
        listener: N::Listener,
        front: &Rc<dyn Answers>,
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
                let Some(place) = self.places.take(Client::at(peer.address.ip())) else { return };
                self.take(stream, peer, (place, None), front, open);
            }
        }
    }

    fn take<S>(
        &self,
        stream: S,
        peer: Peer,
        (place, share): Kept,
        front: &Rc<dyn Answers>,
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
                // First: once the place is somebody else's, no request is taken from it any more.
                biased;
                () = lost => {}
                () = entry.connection(stream, peer, &place, &front) => {}
            }
            drop((place, share));
        });
    }
}

/// What a connection has for as long as it lives: its place, and what its client's share is counted by.
type Kept = (Place, Option<Share>);

/// How often it is looked whether one of those at work asks nothing any more.
const LOOK: Duration = Duration::from_millis(50);

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
