//! Whether the client of a detached request still waits for its answer.

use fencegate_guard::waiter::Waiter;
use tokio::sync::oneshot;

/// The client of a request, which waits for its answer.
pub struct ClientWatch {
    /// `None` for a client that is not detached: its request ends with it.
    gone: Option<oneshot::Receiver<()>>,
}

/// Lives as long as the client waits for its answer.
pub struct ClientGuard {
    _here: oneshot::Sender<()>,
}

pub fn client_channel() -> (ClientGuard, ClientWatch) {
    let (here, gone) = oneshot::channel();
    (ClientGuard { _here: here }, ClientWatch { gone: Some(gone) })
}

impl ClientWatch {
    /// The client of a request that ends with its client.
    pub fn attached() -> Self {
        Self { gone: None }
    }

    /// The client has disconnected already.
    pub fn is_disconnected(&mut self) -> bool {
        let signal = self.gone.as_mut().map(oneshot::Receiver::try_recv);
        signal.is_some_and(|signal| !matches!(signal, Err(oneshot::error::TryRecvError::Empty)))
    }

    /// Returns when the client has disconnected.
    pub async fn disconnected(&mut self) {
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

impl Waiter for ClientWatch {
    async fn wait_closed(&mut self) {
        Self::disconnected(self).await;
    }
}
