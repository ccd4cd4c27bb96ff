//! Takes connections and serves HTTP on them, until told to drain.

mod detect;
mod speak;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use fencegate_policies::plan::{Listener, Protocols};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use self::speak::Speech;
use crate::{
    front::{Facing, Front},
    network::{Accept, Network},
    stage::Arrived,
    step::Serve,
};

/// One worker's share of a listener.
pub struct Door {
    entry: Entry,
    /// Open connections; when none is left the kernel's backlog holds further ones.
    places: Arc<Semaphore>,
}

impl Door {
    /// `share`: the part of the listener's connections that is this worker's.
    pub fn new(listener: &Listener, share: usize, drain: CancellationToken) -> Self {
        let entry = Entry {
            speech: Speech::new(listener),
            protocols: listener.protocols,
            detect: listener.timeouts.detect,
            drain,
        };
        Self { entry, places: Arc::new(Semaphore::new(share.max(1))) }
    }

    /// Accepts until the drain begins; the connections live on in `open`, each until its requests in progress have
    /// been answered.
    pub async fn serve<N: Network, S: Serve<Arrived>>(
        &self,
        listener: N::Listener,
        front: Front<S>,
        open: &TaskTracker,
    ) {
        let drain = &self.entry.drain;
        loop {
            let place = self.places.clone().acquire_owned();
            let place = tokio::select! {
                place = place => place.expect("the semaphore is never closed"),
                () = drain.cancelled() => return,
            };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = drain.cancelled() => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let entry = self.entry.clone();
                    let (address, facing) = (peer.address, front.facing(peer));
                    open.spawn_local(async move {
                        entry.connection(stream, address, facing).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    // Out of file descriptors, most likely: the connections that end give some back.
                    warn!(%error, "connection not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What becomes of a connection once it is accepted.
#[derive(Clone)]
struct Entry {
    speech: Speech,
    protocols: Protocols,
    /// For the bytes that tell the protocol.
    detect: Duration,
    drain: CancellationToken,
}

impl Entry {
    async fn connection<I, S>(&self, stream: I, peer: SocketAddr, facing: Facing<S>)
    where
        I: AsyncRead + AsyncWrite + Unpin + 'static,
        S: Serve<Arrived>,
    {
        let detected = tokio::select! {
            biased;
            detected = timeout(self.detect, detect::detect(stream, self.protocols)) => detected,
            // Nothing was asked yet.
            () = self.drain.cancelled() => return,
        };
        let (spoken, stream) = match detected {
            Ok(Ok(Some(detected))) => detected,
            Ok(Ok(None)) => return debug!(%peer, "no HTTP was spoken"),
            Ok(Err(error)) => return debug!(%peer, %error, "client connection ended"),
            Err(_elapsed) => return debug!(%peer, limit = ?self.detect, "the client said too little"),
        };
        if let Err(error) = self.speech.serve(spoken, stream, facing, &self.drain).await {
            debug!(%peer, %error, "client connection ended");
        }
    }
}
