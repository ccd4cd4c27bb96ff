//! Takes connections and serves HTTP on them, until told to drain.

mod answered;
pub mod certificates;
pub mod course;
mod detect;
pub(crate) mod farewell;
pub mod identity;
pub mod interim;
pub mod limit;
mod paced;
mod places;
mod proxied;
mod speak;

use std::{cell::RefCell, future::pending, rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use fencegate_policies::{
    plan::{Listener, Protocols, ProxyProtocol},
    trust::Trust,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use self::{
    certificates::{Certificates, Shaken, handshake},
    detect::{Rewound, Spoken, Told, detect},
    limit::Limit,
    places::{Place, Places},
    speak::{LAST_REQUEST, Speech},
};
use crate::{
    admin::metrics::WorkerMetrics,
    front::Front,
    network::{Accept, BACKLOG, Network, Reset},
    peer::Peer,
    refusal::{Reason, Refusal},
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
}

impl Door {
    /// `share`: the part of the listener's connections that is this worker's.
    pub fn new(
        listener: &Listener,
        certificates: Option<Arc<Certificates>>,
        (share, shares): (usize, Shares),
        drain: CancellationToken,
    ) -> Self {
        let entry = Rc::new(Entry::new(listener, certificates, drain.clone()));
        let places = Places::new(share.max(1));
        Self { entry: RefCell::new(entry), drain, places, shares, turns_away: false }
    }

    /// Who comes when there is no place is told so by the end of the connection, and need not wait to find out.
    #[must_use]
    pub fn turning_away(self) -> Self {
        Self { turns_away: true, ..self }
    }

    /// From the next connection on.
    pub fn turn_to(&self, listener: &Listener) {
        let certificates = self.entry.borrow().certificates.clone();
        self.entry.replace(Rc::new(Entry::new(listener, certificates, self.drain.clone())));
    }

    /// Accepts until the drain begins; the connections live on in `open`, each until its requests in progress have
    /// been answered.
    pub async fn serve<N: Network>(&self, listener: N::Listener, front: Front, open: &TaskTracker) {
        let drain = &self.drain;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = drain.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    if let Some(place) = self.place(&peer, &front).await {
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
        self.serve_the_queue::<N>(listener, &front, open).await;
    }

    /// For who has come. `None`: it is closed.
    async fn place(&self, peer: &Peer, front: &Front) -> Option<Kept> {
        let client = Client::at(peer.address.ip());
        let turned_away = |why: Crowded| {
            front.metrics().clients().turned_away(why);
            debug!(peer = %peer.address, why = why.word(), "turned away");
        };
        let share = match self.entry.borrow().connections_per_client {
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
            if let Some(place) = self.places.take(client) {
                return Some((place, share));
            }
            if !self.places.may_wait(client) {
                turned_away(Crowded::NoPlace);
                return None;
            }
            // Everybody is at work. One that ends its work is not told here, and is looked for.
            tokio::select! {
                () = self.places.freed() => {}
                () = sleep(LOOK) => {}
                () = self.drain.cancelled() => return self.places.take(client).map(|place| (place, share)),
            }
        }
    }

    /// Takes what the kernel has queued: with the socket it would be reset.
    async fn serve_the_queue<N: Network>(&self, listener: N::Listener, front: &Front, open: &TaskTracker) {
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

    fn take<S>(&self, stream: S, peer: Peer, (place, share): Kept, front: &Front, open: &TaskTracker)
    where
        S: AsyncRead + AsyncWrite + Reset + Unpin + 'static,
    {
        let (entry, front) = (self.entry.borrow().clone(), front.clone());
        open.spawn_local(async move {
            let address = peer.address;
            let lost = async {
                place.lost().await;
                front.metrics().clients().made_room();
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

/// Why somebody is turned away at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowded {
    NoPlace,
    ClientLimit,
}

impl Crowded {
    pub fn word(self) -> &'static str {
        match self {
            Self::NoPlace => "no-place",
            Self::ClientLimit => "client-limit",
        }
    }
}

/// How often it is looked whether one of those at work asks nothing any more.
const LOOK: Duration = Duration::from_millis(50);

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What becomes of a connection once it is accepted.
struct Entry {
    speech: Speech,
    connections_per_client: Option<usize>,
    protocols: Protocols,
    certificates: Option<Arc<Certificates>>,
    proxy_protocol: ProxyProtocol,
    /// Whose word on the client counts.
    trusted: Trust,
    drain: CancellationToken,
}

impl Entry {
    /// A client that connected just before the drain has a moment for its first bytes.
    async fn drained(&self) {
        self.drain.cancelled().await;
        sleep(LAST_REQUEST).await;
    }

    fn new(listener: &Listener, certificates: Option<Arc<Certificates>>, drain: CancellationToken) -> Self {
        Self {
            speech: Speech::new(listener),
            connections_per_client: listener.limits.connections_per_client,
            protocols: listener.protocols,
            certificates,
            proxy_protocol: listener.proxy_protocol,
            trusted: listener.trusted.clone(),
            drain,
        }
    }

    async fn connection<I>(&self, stream: I, peer: Peer, place: &Place, front: &Front)
    where
        I: AsyncRead + AsyncWrite + Reset + Unpin + 'static,
    {
        match self.proxy_protocol {
            ProxyProtocol::Off => self.known(stream, peer, place, front).await,
            ProxyProtocol::Require => {
                if let Some((stream, peer)) = self.named(stream, peer, &front.metrics()).await {
                    self.known(stream, peer, place, front).await;
                }
            }
        }
    }

    /// The client that a proxy before us names. `None`: nobody is answered.
    async fn named<I: AsyncRead + Unpin>(
        &self,
        stream: I,
        peer: Peer,
        metrics: &WorkerMetrics,
    ) -> Option<(Rewound<I>, Peer)> {
        let clients = metrics.clients();
        if !self.trusted.contains(peer.address.ip()) {
            clients.proxy_header("untrusted");
            warn!(peer = %peer.address, "not one of `trusted_peers`, so what it says of its client does not count");
            return None;
        }
        let named = tokio::select! {
            biased;
            named = timeout(self.speech.timeouts.detect, proxied::header(stream)) => named,
            () = self.drain.cancelled() => return None,
        };
        let (result, known) = match named {
            Ok(Ok((Some(client), stream))) => ("client", Some((stream, Peer { address: client, ..peer }))),
            Ok(Ok((None, stream))) => ("local", Some((stream, peer))),
            Ok(Err(bad)) => {
                warn!(peer = %peer.address, %bad, "no client is named");
                (bad.word(), None)
            }
            Err(_elapsed) => {
                clients.timed_out(Limit::Detect);
                ("late", None)
            }
        };
        clients.proxy_header(result);
        known
    }

    /// It is known who is at the other end.
    async fn known<I>(&self, stream: I, peer: Peer, place: &Place, front: &Front)
    where
        I: AsyncRead + AsyncWrite + Reset + Unpin + 'static,
    {
        let Some(certificates) = &self.certificates else {
            return self.spoken_with(stream, peer, place, front).await;
        };
        let metrics = front.metrics();
        let shaken = tokio::select! {
            biased;
            shaken = timeout(self.speech.timeouts.tls_handshake, handshake(certificates, stream)) => shaken,
            // Nothing was asked yet.
            () = self.drained() => return,
        };
        match shaken {
            Ok(Ok(Shaken::Secured(stream, secured, agreed))) => {
                metrics.clients().handshake(true);
                let peer = Peer { tls: Some(secured), ..peer };
                match agreed {
                    Some(spoken) => self.serve(spoken, Rewound::unread(stream), peer, place, front).await,
                    None => self.spoken_with(stream, peer, place, front).await,
                }
            }
            Ok(Ok(Shaken::Plain(stream))) => {
                let why = "plain HTTP, where TLS is expected";
                refuse(stream, why, &metrics).await;
            }
            Ok(Ok(Shaken::Failed(error, stream))) => {
                metrics.clients().handshake(false);
                debug!(peer = %peer.address, %error, "handshake failed");
                // In TLS 1.3 the client takes the handshake for complete before we have looked at its certificate, and
                // may have sent a request: closed on unread bytes, the connection would be reset, and the alert lost.
                farewell::farewell(stream, Bytes::new()).await;
            }
            Ok(Ok(Shaken::Gone)) => {}
            Ok(Err(error)) => {
                metrics.clients().handshake(false);
                debug!(peer = %peer.address, %error, "handshake failed");
            }
            Err(_elapsed) => metrics.clients().timed_out(Limit::TlsHandshake),
        }
    }

    /// In which protocol is told by what comes first.
    async fn spoken_with<I>(&self, stream: I, peer: Peer, place: &Place, front: &Front)
    where
        I: AsyncRead + AsyncWrite + Reset + Unpin + 'static,
    {
        let detected = tokio::select! {
            biased;
            detected = timeout(self.speech.timeouts.detect, detect(stream, self.protocols)) => detected,
            // Nothing was asked yet.
            () = self.drained() => return,
        };
        match detected {
            Ok(Ok(Told::Spoken(spoken, stream))) => self.serve(spoken, stream, peer, place, front).await,
            Ok(Ok(Told::Foreign(stream, why))) => refuse(stream, why, &front.metrics()).await,
            Ok(Ok(Told::Gone)) => {}
            Ok(Err(error)) => debug!(peer = %peer.address, %error, "client connection ended"),
            Err(_elapsed) => front.metrics().clients().timed_out(Limit::Detect),
        }
    }

    async fn serve<I>(&self, spoken: Spoken, stream: Rewound<I>, peer: Peer, place: &Place, front: &Front)
    where
        I: AsyncRead + AsyncWrite + Reset + Unpin + 'static,
    {
        let address = peer.address;
        if let Err(error) = self.speech.serve(spoken, stream, peer, place, front, &self.drain).await {
            debug!(peer = %address, %error, "client connection ended");
        }
    }
}

/// Says to who speaks something else what is wrong.
async fn refuse<I: AsyncRead + AsyncWrite + Unpin>(stream: I, why: &'static str, metrics: &WorkerMetrics) {
    let words = farewell::refused(metrics, Refusal::new(Reason::Malformed, why), Duration::ZERO);
    farewell::farewell(stream, words).await;
}
