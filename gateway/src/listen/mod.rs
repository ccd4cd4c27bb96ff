//! Takes connections and serves HTTP on them, until told to drain.

pub mod course;
mod detect;
mod farewell;
pub mod limit;
mod paced;
mod speak;

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use fencegate_policies::plan::{Listener, Protocols};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use self::{
    detect::{Told, detect},
    limit::Limit,
    speak::Speech,
};
use crate::{
    front::Front,
    network::{Accept, Network, Reset},
    peer::Peer,
    refusal::{Reason, Refusal},
};

/// One worker's share of a listener.
pub struct Door {
    /// Made anew by a reload: connections that come later are served by it.
    entry: RefCell<Rc<Entry>>,
    drain: CancellationToken,
    /// Open connections; when none is left the kernel's backlog holds further ones.
    places: Arc<Semaphore>,
}

impl Door {
    /// `share`: the part of the listener's connections that is this worker's.
    pub fn new(listener: &Listener, share: usize, drain: CancellationToken) -> Self {
        let entry = Rc::new(Entry::new(listener, drain.clone()));
        Self { entry: RefCell::new(entry), drain, places: Arc::new(Semaphore::new(share.max(1))) }
    }

    /// From the next connection on.
    pub fn turn_to(&self, listener: &Listener) {
        self.entry.replace(Rc::new(Entry::new(listener, self.drain.clone())));
    }

    /// Accepts until the drain begins; the connections live on in `open`, each until its requests in progress have
    /// been answered.
    pub async fn serve<N: Network>(&self, listener: N::Listener, front: Front, open: &TaskTracker) {
        let drain = &self.drain;
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
                    let (entry, front) = (self.entry.borrow().clone(), front.clone());
                    open.spawn_local(async move {
                        entry.connection(stream, peer, &front).await;
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
struct Entry {
    speech: Speech,
    protocols: Protocols,
    /// For the bytes that tell the protocol.
    detect: Duration,
    drain: CancellationToken,
}

impl Entry {
    fn new(listener: &Listener, drain: CancellationToken) -> Self {
        Self {
            speech: Speech::new(listener),
            protocols: listener.protocols,
            detect: listener.timeouts.detect,
            drain,
        }
    }

    async fn connection<I>(&self, stream: I, peer: Peer, front: &Front)
    where
        I: AsyncRead + AsyncWrite + Reset + Unpin + 'static,
    {
        let address = peer.address;
        let detected = tokio::select! {
            biased;
            detected = timeout(self.detect, detect(stream, self.protocols)) => detected,
            // Nothing was asked yet.
            () = self.drain.cancelled() => return,
        };
        let served = match detected {
            Ok(Ok(Told::Spoken(spoken, stream))) => {
                self.speech.serve(spoken, stream, peer, front, &self.drain).await
            }
            Ok(Ok(Told::Foreign(stream, why))) => {
                let refusal = Refusal::new(Reason::Malformed, why);
                let words = farewell::refused(&front.metrics(), refusal, Duration::ZERO);
                return farewell::farewell(stream, words).await;
            }
            Ok(Ok(Told::Gone)) => return,
            Ok(Err(error)) => return debug!(peer = %address, %error, "client connection ended"),
            Err(_elapsed) => return front.metrics().clients().timed_out(Limit::Detect),
        };
        if let Err(error) = served {
            debug!(peer = %address, %error, "client connection ended");
        }
    }
}
