//! A step of the request path: one plain async function of its settings, the request, and what comes next.

use std::rc::Rc;

use tower::Layer;

use crate::{body::Reply, refusal::Refusal};

/// Something that turns a request of one stage into a reply.
///
/// No `Send` and no `poll_ready`: every worker is a current-thread runtime, and what limits us refuses instead of
/// making the caller wait.
#[expect(async_fn_in_trait, reason = "nothing here may ask for Send")]
pub trait Serve<In>: 'static {
    /// # Cancellation
    /// Above [`crate::steps::detach`] the future is dropped when the client hangs up; below it, never.
    async fn serve(&self, request: In) -> Result<Reply, Refusal>;
}

impl<In, S: Serve<In>> Serve<In> for Rc<S> {
    async fn serve(&self, request: In) -> Result<Reply, Refusal> {
        S::serve(self, request).await
    }
}

/// The layer of one step.
#[derive(Clone)]
pub struct Step<C, F> {
    settings: C,
    run: F,
}

/// Makes a layer of an `async fn(&settings, request, &next)`.
pub fn step<C, F>(settings: C, run: F) -> Step<C, F> {
    Step { settings, run }
}

impl<C: Clone, F: Clone, S> Layer<S> for Step<C, F> {
    type Service = Stepped<C, F, S>;

    fn layer(&self, next: S) -> Self::Service {
        Stepped { settings: self.settings.clone(), run: self.run.clone(), next }
    }
}

/// A step in front of the rest of the stack.
pub struct Stepped<C, F, S> {
    settings: C,
    run: F,
    next: S,
}

impl<C, F, S, In> Serve<In> for Stepped<C, F, S>
where
    C: 'static,
    S: 'static,
    In: 'static,
    F: AsyncFn(&C, In, &S) -> Result<Reply, Refusal> + 'static,
{
    async fn serve(&self, request: In) -> Result<Reply, Refusal> {
        (self.run)(&self.settings, request, &self.next).await
    }
}
