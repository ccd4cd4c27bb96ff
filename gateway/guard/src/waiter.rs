//! The client that waits for a decision of the guard, and its time limit.

use std::time::Duration;

use tokio::time::Instant;

/// A client that waits for admission, and may go away before.
pub trait WaitingClient {
    /// Returns when the client has gone. It may be called again.
    fn wait_client_disconnected(&mut self) -> impl Future<Output = ()>;
}

/// A client that never goes away.
#[derive(Debug, Clone, Copy)]
pub struct AlwaysWaitingClient;

impl WaitingClient for AlwaysWaitingClient {
    async fn wait_client_disconnected(&mut self) {
        std::future::pending().await
    }
}

/// The client of a request, and the deadline until which the request may wait for other dispatches.
pub struct ClientWaitLimit<'c, W> {
    pub client: &'c mut W,
    pub(crate) deadline: Instant,
}

impl<'c, W: WaitingClient> ClientWaitLimit<'c, W> {
    pub fn new(client: &'c mut W, settle: Duration) -> Self {
        Self { client, deadline: Instant::now() + settle }
    }

    /// The same client, waiting no longer than `longest` from now on.
    pub fn limited_to(&mut self, longest: Duration) -> ClientWaitLimit<'_, W> {
        let deadline = self.deadline.min(Instant::now() + longest);
        ClientWaitLimit { client: &mut *self.client, deadline }
    }
}
