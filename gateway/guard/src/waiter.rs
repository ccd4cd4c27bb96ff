//! Who waits for a decision of the guard, and for how long.

use std::time::Duration;

use tokio::time::Instant;

/// Who waits to be let in, and may go away before.
pub trait Waiting {
    /// Returns when it has gone, also when it is asked once more.
    fn gone(&mut self) -> impl Future<Output = ()>;
}

/// Somebody who does not go away.
#[derive(Debug, Clone, Copy)]
pub struct Staying;

impl Waiting for Staying {
    async fn gone(&mut self) {
        std::future::pending().await
    }
}

/// How long a request may wait for others, and who waits for it.
pub struct Patience<'c, W> {
    pub client: &'c mut W,
    pub(crate) deadline: Instant,
}

impl<'c, W: Waiting> Patience<'c, W> {
    pub fn new(client: &'c mut W, settle: Duration) -> Self {
        Self { client, deadline: Instant::now() + settle }
    }

    /// The same client, who waits no longer than this from now on.
    pub fn at_most(&mut self, longest: Duration) -> Patience<'_, W> {
        let deadline = self.deadline.min(Instant::now() + longest);
        Patience { client: &mut *self.client, deadline }
    }
}
