//! Takes connections and serves HTTP on them, until told to drain.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use fencegate_policies::plan::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use crate::{
    front::{Facing, Front},
    network::{Accept, Network},
    stage::Arrived,
    step::Serve,
};

/// One worker's share of a listener.
pub struct Door {
    http: http1::Builder,
    /// Open connections; when none is left the kernel's backlog holds further ones.
    places: Arc<Semaphore>,
    drain: CancellationToken,
}

impl Door {
    /// `share`: the part of the listener's connections that is this worker's.
    pub fn new(listener: &Listener, share: usize, drain: CancellationToken) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(listener.timeouts.request_headers)
            // A little more than is served, so that who sends a few too many gets an answer that says so.
            .max_headers(listener.limits.max_fields + SPARE_FIELDS)
            .max_buf_size(listener.limits.max_header.max(LEAST_BUFFER));
        Self { http, places: Arc::new(Semaphore::new(share.max(1))), drain }
    }

    /// Accepts until the drain begins; the connections live on in `open`, each until its request in progress has been
    /// answered.
    pub async fn serve<N: Network, S: Serve<Arrived>>(
        &self,
        listener: N::Listener,
        front: Front<S>,
        open: &TaskTracker,
    ) {
        loop {
            let place = self.places.clone().acquire_owned();
            let place = tokio::select! {
                place = place => place.expect("the semaphore is never closed"),
                () = self.drain.cancelled() => return,
            };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.drain.cancelled() => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let connection = connection(
                        self.http.clone(),
                        stream,
                        peer.address,
                        front.facing(peer),
                        self.drain.clone(),
                    );
                    open.spawn_local(async move {
                        connection.await;
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

const SPARE_FIELDS: usize = 156;
/// The HTTP library takes no smaller buffer.
const LEAST_BUFFER: usize = 8192;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

async fn connection<I, S>(
    http: http1::Builder,
    stream: I,
    peer: SocketAddr,
    facing: Facing<S>,
    drain: CancellationToken,
) where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
    S: Serve<Arrived>,
{
    let connection = http.serve_connection(TokioIo::new(stream), facing);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = drain.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%peer, %error, "client connection ended");
    }
}
