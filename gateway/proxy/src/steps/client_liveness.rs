//! Tells steps that wait whether the client of a detached request still waits for its answer.

use fencegate_guard::waiter::WaitingClient;
use tokio::sync::oneshot;

/// Reports when the client of a request has disconnected.
pub struct ClientDisconnectWatch {
    /// `None` for a request that is not detached: it is dropped when its client disconnects.
    gone: Option<oneshot::Receiver<()>>,
}

/// Held as long as the client waits for its answer; its drop tells the [`ClientDisconnectWatch`].
pub(crate) struct ClientPresenceGuard {
    _here: oneshot::Sender<()>,
}

pub(crate) fn client_disconnect_channel() -> (ClientPresenceGuard, ClientDisconnectWatch) {
    let (here, gone) = oneshot::channel();
    (ClientPresenceGuard { _here: here }, ClientDisconnectWatch { gone: Some(gone) })
}

impl ClientDisconnectWatch {
    /// A watch for a request that is not detached: it is dropped when its client disconnects, so the watch
    /// reports nothing.
    pub(crate) fn never_disconnecting() -> Self {
        Self { gone: None }
    }

    /// True if the client has disconnected already.
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
            // Nothing is ever sent. The channel closes when the [`ClientPresenceGuard`] is dropped.
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
