//! Whether the client of a detached request still waits for its answer.

use fencegate_guard::waiter::WaitingClient;
use tokio::sync::oneshot;

/// The client of a request, which waits for its answer.
pub struct ClientDisconnectWatch {
    /// `None` for a client that is not detached: its request ends with it.
    gone: Option<oneshot::Receiver<()>>,
}

/// Lives as long as the client waits for its answer.
pub(crate) struct ClientPresenceGuard {
    _here: oneshot::Sender<()>,
}

pub(crate) fn client_disconnect_channel() -> (ClientPresenceGuard, ClientDisconnectWatch) {
    let (here, gone) = oneshot::channel();
    (ClientPresenceGuard { _here: here }, ClientDisconnectWatch { gone: Some(gone) })
}

impl ClientDisconnectWatch {
    /// The client of a request that ends with its client.
    pub(crate) fn never_disconnecting() -> Self {
        Self { gone: None }
    }

    /// The client has disconnected already.
    pub(crate) fn is_disconnected(&mut self) -> bool {
        let signal = self.gone.as_mut().map(oneshot::Receiver::try_recv);
        signal.is_some_and(|signal| !matches!(signal, Err(oneshot::error::TryRecvError::Empty)))
    }

    /// Returns when the client has disconnected.
    pub(crate) async fn wait_disconnected(&mut self) {
        // A channel must not be polled again after it has reported the end.
        if self.is_disconnected() {
            return;
        }
        match &mut self.gone {
            // Nothing is ever sent. The channel ends when the other end is dropped.
            Some(gone) => drop(gone.await),
            None => std::future::pending().await,
        }
    }
}

impl WaitingClient for ClientDisconnectWatch {
    async fn wait_client_disconnected(&mut self) {
        Self::wait_disconnected(self).await;
    }
}
